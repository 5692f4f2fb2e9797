/* nccl: see nccl.h. The library is never closed: it leaves threads. */
#include "runtime/communicate/nccl.h"
#include "base/clock.h"
#include <dlfcn.h>
#include <glob.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ── the library ──────────────────────────────────────────────────────────────────────────── */
static const struct {
  const char *symbol;
  size_t place;
} nccl_entries[] = {
    {"ncclGetErrorString", offsetof(NcclLibrary, error_string)},
#define NCCL(name, symbol, parameters) {symbol, offsetof(NcclLibrary, name)},
#include "runtime/communicate/nccl.def"
#undef NCCL
};

/* Python's packages bring it along, where no loader looks. */
static void *nccl_open_in(const char *variable, const char *pattern) {
  const char *root = getenv(variable);
  char path[512];
  glob_t found;
  void *library = NULL;
  if (!root || !root[0] ||
      snprintf(path, sizeof path, "%s/%s", root, pattern) >= (int)sizeof path ||
      glob(path, 0, NULL, &found) != 0)
    return NULL;
  for (size_t i = found.gl_pathc; i > 0 && !library; i--)
    library = dlopen(found.gl_pathv[i - 1], RTLD_NOW | RTLD_LOCAL);
  globfree(&found);
  return library;
}

static void *nccl_open_library(void) {
  const char *path = getenv("FT_NCCL_LIBRARY");
  if (path && path[0]) return dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    library =
        nccl_open_in("VIRTUAL_ENV", "lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2");
  return library ? library : nccl_open_in("CONDA_PREFIX", "lib/libnccl.so.2");
}

static Status not_found(void) {
  const char *path = getenv("FT_NCCL_LIBRARY"), *why = dlerror();
  if (path && path[0])
    return status_fail(STATUS_USER, "FT_NCCL_LIBRARY=%s cannot be opened: %s", path,
                       why ? why : "no such library");
  return status_fail(STATUS_USER,
                     "GPUs of several ranks are joined by NCCL, and libnccl.so.2 is not found: "
                     "install it (libnccl2, or pip install nvidia-nccl-cu12 in an active virtual "
                     "environment), or name its file in FT_NCCL_LIBRARY");
}

static Status nccl_find_entries(NcclLibrary *library) {
  for (size_t i = 0; i < sizeof nccl_entries / sizeof *nccl_entries; i++) {
    void *symbol = dlsym(library->library, nccl_entries[i].symbol);
    if (!symbol)
      return status_fail(STATUS_USER,
                         "the NCCL here lacks %s: ftrun needs version %d.%d or newer",
                         nccl_entries[i].symbol, NCCL_OLDEST / 10000, NCCL_OLDEST / 100 % 100);
    *(void **)((char *)library + nccl_entries[i].place) = symbol;
  }
  if (library->version(&library->number) != NCCL_SUCCESS || library->number < NCCL_OLDEST)
    return status_fail(STATUS_USER,
                       "the NCCL here is version %d.%d, and ftrun needs %d.%d or newer",
                       library->number / 10000, library->number / 100 % 100, NCCL_OLDEST / 10000,
                       NCCL_OLDEST / 100 % 100);
  return STATUS_OK;
}

Status nccl_open(const NcclLibrary **out) {
  static NcclLibrary library;
  static bool is_open;
  *out = &library;
  if (is_open) return STATUS_OK;
  if (!library.library) library.library = nccl_open_library();
  if (!library.library) return not_found();
  STATUS_TRY(nccl_find_entries(&library));
  is_open = true;
  return STATUS_OK;
}

/* ── joining ──────────────────────────────────────────────────────────────────────────────── */
struct Nccl {
  Comm *comm; /* the ranks' */
  const NcclLibrary *library;
  /* By axis of the mesh; MESH_ALL: all ranks; NULL: the axis has no groups of its own. An abort
   * takes them away, */
  _Atomic(NcclComm) joined[MESH_AXIS_COUNT];
  atomic_int calls; /* when nobody is in a call with one */
  char text[48];
};

const char *nccl_text(const Nccl *nccl) { return nccl->text; }

static Status nccl_fail(const Nccl *nccl, NcclResult result, const char *what) {
  STATUS_TRY(comm_status(nccl->comm)); /* the job has failed, and why is known there */
  return status_fail(STATUS_FAULT, "NCCL: %s: %s", what, nccl->library->error_string(result));
}

/* What a thread may call the library with, until nccl_exit; NULL: it is aborted. */
static NcclComm nccl_enter(Nccl *nccl, MeshAxis axis) {
  atomic_fetch_add(&nccl->calls, 1);
  return atomic_load(&nccl->joined[axis]);
}
static void nccl_exit(Nccl *nccl) { atomic_fetch_sub(&nccl->calls, 1); }

static NcclResult nccl_ask(Nccl *nccl, MeshAxis axis, NcclResult otherwise) {
  NcclResult result = otherwise, asked = NCCL_SUCCESS;
  NcclComm joined = nccl_enter(nccl, axis);
  if (joined) asked = nccl->library->async_error(joined, &result);
  nccl_exit(nccl);
  return asked == NCCL_SUCCESS ? result : asked;
}

/* Of a call that need not be over when it returns. */
static Status nccl_finish(Nccl *nccl, MeshAxis axis, NcclResult result, const char *what) {
  while (result == NCCL_IN_PROGRESS) {
    STATUS_TRY(comm_status(nccl->comm));
    result = nccl_ask(nccl, axis, NCCL_REMOTE_ERROR);
    if (result == NCCL_IN_PROGRESS) usleep(50);
  }
  return result == NCCL_SUCCESS ? STATUS_OK : nccl_fail(nccl, result, what);
}

/* One of the ranks may have none, and then nobody waits for it. */
static Status find_everywhere(Comm *comm, const NcclLibrary **library) {
  int ranks = comm_ranks(comm), first = 0;
  char why[512];
  Status status = nccl_open(library);
  int64_t number = status == STATUS_OK ? (*library)->number : 0;
  int64_t *all = calloc((size_t)ranks, sizeof *all);
  if (!all) return status_fail(STATUS_FAULT, "out of memory");
  snprintf(why, sizeof why, "%s", status == STATUS_OK ? "" : status_message());
  Status asked = comm_do(comm, &(CommWork){.kind = COMM_ALL_GATHER,
                                           .dtype = DT_I64,
                                           .count = 1,
                                           .x = &number,
                                           .out = all,
                                           .label = "the version of NCCL"});
  for (int r = 0; r < ranks && asked == STATUS_OK && !first; r++)
    if (all[r] != all[0]) first = r;
  int64_t other = all[first], zero = all[0];
  free(all);
  if (status != STATUS_OK) return status_fail(status, "%s", why);
  STATUS_TRY(asked);
  if (!first) return STATUS_OK;
  if (!other || !zero)
    return status_fail(STATUS_USER, "rank %d finds no NCCL, and rank %d does", other ? 0 : first,
                       other ? first : 0);
  return status_fail(STATUS_USER,
                     "rank 0 has NCCL %lld.%lld.%lld and rank %d has %lld.%lld.%lld: all must have "
                     "the same",
                     (long long)zero / 10000, (long long)zero / 100 % 100, (long long)zero % 100,
                     first, (long long)other / 10000, (long long)other / 100 % 100,
                     (long long)other % 100);
}

/* Rank 0's, for all; whether it could be made goes along. */
static Status share_id(Comm *comm, const NcclLibrary *library, NcclUniqueId *id) {
  struct {
    NcclUniqueId id;
    int64_t result;
  } message;
  memset(&message, 0, sizeof message);
  if (comm_rank(comm) == 0) message.result = library->unique_id(&message.id);
  STATUS_TRY(comm_do(comm, &(CommWork){.kind = COMM_BROADCAST,
                                       .dtype = DT_U8,
                                       .count = sizeof message,
                                       .x = &message,
                                       .out = &message,
                                       .label = "NCCL's unique id"}));
  *id = message.id;
  if (message.result == NCCL_SUCCESS) return STATUS_OK;
  return status_fail(STATUS_FAULT, "NCCL does not start on rank 0: %s",
                     library->error_string((NcclResult)message.result));
}

/* Groups that are all ranks, or one, need none of their own. */
static Status split_axis(Nccl *nccl, MeshAxis axis, NcclConfig *config) {
  const Mesh *mesh = comm_mesh(nccl->comm);
  int size = mesh_size(mesh, axis), rank = comm_rank(nccl->comm);
  if (axis == MESH_ALL || size == 1 || comm_axis(nccl->comm, axis) != axis) return STATUS_OK;
  NcclComm all = nccl_enter(nccl, MESH_ALL), part = NULL;
  NcclResult result = NCCL_REMOTE_ERROR;
  int color = mesh_member(mesh, axis, rank, 0);
  if (all) result = nccl->library->split(all, color, rank, &part, config);
  nccl_exit(nccl);
  Status status = nccl_finish(nccl, MESH_ALL, result, "making groups of ranks");
  atomic_store(&nccl->joined[axis], part);
  return status == STATUS_OK ? nccl_finish(nccl, axis, NCCL_IN_PROGRESS, "joining a group")
                             : status;
}

Status nccl_join(Comm *comm, Nccl **out) {
  const NcclLibrary *library;
  NcclUniqueId id;
  NcclConfig config = {sizeof config, nccl_magic, 21400, 0, NCCL_UNDEFINED};
  STATUS_TRY(find_everywhere(comm, &library));
  STATUS_TRY(share_id(comm, library, &id));
  Nccl *nccl = calloc(1, sizeof *nccl);
  if (!nccl) return status_fail(STATUS_FAULT, "out of memory");
  *out = nccl;
  nccl->comm = comm;
  nccl->library = library;
  snprintf(nccl->text, sizeof nccl->text, "NCCL %d.%d.%d", library->number / 10000,
           library->number / 100 % 100, library->number % 100);
  NcclComm joined = NULL;
  NcclResult result = library->init(&joined, comm_ranks(comm), id, comm_rank(comm), &config);
  atomic_store(&nccl->joined[MESH_ALL], joined);
  STATUS_TRY(nccl_finish(nccl, MESH_ALL, result, "joining the ranks"));
  for (MeshAxis axis = MESH_ALL; axis < MESH_AXIS_COUNT; axis++)
    STATUS_TRY(split_axis(nccl, axis, &config));
  return STATUS_OK;
}

bool nccl_is_well(Nccl *nccl, char *why, size_t size) {
  for (MeshAxis axis = MESH_ALL; axis < MESH_AXIS_COUNT; axis++) {
    NcclResult result = nccl_ask(nccl, axis, NCCL_SUCCESS);
    if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS) continue;
    snprintf(why, size, "NCCL: %s", nccl->library->error_string(result));
    return false;
  }
  return true;
}

void nccl_abort(Nccl *nccl) {
  enum { PATIENCE = 1000 }; /* ms, with a call that does not return */
  NcclComm joined[MESH_AXIS_COUNT];
  for (int axis = 0; axis < MESH_AXIS_COUNT; axis++)
    joined[axis] = atomic_exchange(&nccl->joined[axis], NULL);
  for (int i = 0; i < PATIENCE && atomic_load(&nccl->calls); i++) usleep(1000);
  for (int axis = MESH_AXIS_COUNT - 1; axis >= 0; axis--)
    if (joined[axis]) nccl->library->abort(joined[axis]);
}

/* Nothing is checked: all that was to be done is done. Groups leave before all ranks do. */
void nccl_leave(Nccl *nccl) {
  for (int axis = MESH_AXIS_COUNT - 1; axis >= 0; axis--) {
    NcclComm joined = nccl_enter(nccl, (MeshAxis)axis);
    NcclResult result = joined ? nccl->library->finalize(joined) : NCCL_SUCCESS;
    nccl_exit(nccl);
    if (nccl_finish(nccl, (MeshAxis)axis, result, "leaving") != STATUS_OK) return;
    joined = atomic_exchange(&nccl->joined[axis], NULL);
    if (joined) nccl->library->destroy(joined);
  }
}

void nccl_free(Nccl *nccl) { free(nccl); }

/* ── works ────────────────────────────────────────────────────────────────────────────────── */
static NcclType nccl_type(DType dtype) {
  switch (dtype) {
  case DT_I32: return NCCL_TYPE_I32;
  case DT_U32: return NCCL_TYPE_U32;
  case DT_I64: return NCCL_TYPE_I64;
  case DT_F16: return NCCL_TYPE_F16;
  case DT_BF16: return NCCL_TYPE_BF16;
  case DT_F32: return NCCL_TYPE_F32;
  case DT_F64: return NCCL_TYPE_F64;
  default: return NCCL_TYPE_U8;
  }
}

/* To each rank its part, and from each its: one group, whose works go on side by side. */
static NcclResult nccl_all_to_all(const Nccl *nccl, NcclComm joined, const CommWork *work,
                             NcclStream stream) {
  const NcclLibrary *library = nccl->library;
  int ranks = comm_size(nccl->comm, work->over);
  int64_t part = work->count / ranks, bytes = part * dtype_bytes(work->dtype);
  NcclType type = nccl_type(work->dtype);
  NcclResult result = library->group_start();
  for (int r = 0; r < ranks && result == NCCL_SUCCESS; r++) {
    result = library->send((const char *)work->x + r * bytes, (size_t)part, type, r, joined,
                           stream);
    if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS)
      result = library->receive((char *)work->out + r * bytes, (size_t)part, type, r, joined,
                                stream);
    if (result == NCCL_IN_PROGRESS) result = NCCL_SUCCESS; /* told by the group's end */
  }
  NcclResult ended = library->group_end(); /* after a failure too */
  return result == NCCL_SUCCESS ? ended : result;
}

static NcclResult nccl_call(const Nccl *nccl, NcclComm joined, const CommWork *work,
                       NcclStream stream) {
  static const NcclOp ops[] = {[COMM_SUM] = NCCL_OP_SUM,
                               [COMM_MIN] = NCCL_OP_MIN,
                               [COMM_MAX] = NCCL_OP_MAX,
                               [COMM_PROD] = NCCL_OP_PROD};
  const NcclLibrary *library = nccl->library;
  size_t count = (size_t)work->count;
  NcclType type = nccl_type(work->dtype);
  switch (work->kind) {
  case COMM_ALL_REDUCE:
    return library->all_reduce(work->x, work->out, count, type, ops[work->op], joined,
                               stream);
  case COMM_REDUCE_SCATTER:
    count /= (size_t)comm_size(nccl->comm, work->over);
    return library->reduce_scatter(work->x, work->out, count, type, ops[work->op], joined, stream);
  case COMM_ALL_GATHER:
    return library->all_gather(work->x, work->out, count, type, joined, stream);
  case COMM_ALL_TO_ALL: return nccl_all_to_all(nccl, joined, work, stream);
  case COMM_BROADCAST:
    return library->broadcast(work->x, work->out, count, type, work->peer, joined, stream);
  case COMM_SEND: return library->send(work->x, count, type, work->peer, joined, stream);
  default: return library->receive(work->out, count, type, work->peer, joined, stream);
  }
}

Status nccl_enqueue(Nccl *nccl, const CommWork *work, NcclStream stream) {
  char what[256];
  snprintf(what, sizeof what, "%s (%s)", comm_kind_text(work->kind), work->label);
  STATUS_TRY(comm_status(nccl->comm));
  MeshAxis axis = comm_axis(nccl->comm, work->over);
  NcclComm joined = nccl_enter(nccl, axis);
  NcclResult result = joined ? nccl_call(nccl, joined, work, stream) : NCCL_REMOTE_ERROR;
  nccl_exit(nccl);
  return nccl_finish(nccl, axis, result, what);
}
