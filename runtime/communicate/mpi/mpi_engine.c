/* mpi_engine: libft-mpi.so, the engine of ranks on CPUs. Every work becomes one or more calls of
 * MPI that do not block, cut where there are more elements than a call may have.
 * After a failure there is no MPI_Finalize, which would wait for ranks that are gone, and no
 * MPI_Abort, which would end rank 0 before it has said why: the process leaves by _exit when it
 * exits, before destructors of a library that was never finalised; its launcher ends the rest. */
#define _GNU_SOURCE /* on_exit */
#include "runtime/communicate/mpi/mpi_exchange.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  MPI_Comm comm; /* MPI_COMM_NULL: there is none */
  int rank, ranks;
  bool is_direct; /* each two of its ranks may send each other their parts: mpi_exchange.h */
  int exchanges;  /* begun */
} Group;

struct Engine {
  Group group[MESH_AXIS_COUNT];
  MPI_Op op[DT_COUNT][MPI_OPS];
  int64_t piece;
  bool is_ours; /* MPI was begun here, and is ended here */
  char text[64];
};

struct EngineWork {
  Exchange *exchange; /* NULL: of requests */
  MPI_Request *request;
  int count, capacity;
  MPI_Datatype strided[2]; /* of whole pieces, of the last one; or MPI_DATATYPE_NULL */
  void *copy;           /* of x, where the work may not be done in place */
  int64_t expected;     /* elements of what is received; -1: nothing is */
  MPI_Datatype type;
};

/* So many elements in a call: fewer than 2^31, and MPI's own copies of a piece stay small. */
static const int64_t most_of_a_piece = 1 << 24;

static const int sizes[DT_COUNT] = {
#define X(ID, text, bytes) [DT_##ID] = bytes,
    DTYPES(X)
#undef X
};
static MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
  case DT_I32: return MPI_INT32_T;
  case DT_U32: return MPI_UINT32_T;
  case DT_I64: return MPI_INT64_T;
  case DT_F16:
  case DT_BF16: return MPI_UINT16_T;
  case DT_F32: return MPI_FLOAT;
  case DT_F64: return MPI_DOUBLE;
  default: return MPI_UINT8_T;
  }
}

static bool mpi_fail(int error, const char *what, char *why) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length;
  MPI_Error_string(error, text, &length);
  snprintf(why, ENGINE_WHY, "%s: %s", what, text);
  return false;
}

/* ── opening ──────────────────────────────────────────────────────────────────────────────── */
static bool begin_mpi(Engine *engine, char *why) {
  int is_begun, is_over = 0, level, error = MPI_Initialized(&is_begun);
  if (error == MPI_SUCCESS) error = MPI_Finalized(&is_over);
  if (is_over) {
    snprintf(why, ENGINE_WHY, "MPI cannot begin twice in a process");
    return false;
  }
  if (error == MPI_SUCCESS && !is_begun) {
    engine->is_ours = true;
    error = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    return error == MPI_SUCCESS || mpi_fail(error, "MPI_Init_thread", why);
  }
  if (error == MPI_SUCCESS) error = MPI_Query_thread(&level);
  if (error != MPI_SUCCESS) return mpi_fail(error, "MPI_Query_thread", why);
  if (level == MPI_THREAD_MULTIPLE) return true;
  snprintf(why, ENGINE_WHY, "this program has begun MPI without MPI_THREAD_MULTIPLE");
  return false;
}

static void name_library(Engine *engine) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length;
  MPI_Get_library_version(version, &length);
  int end = (int)strcspn(version, ",");
  bool is_open_mpi = !strncmp(version, "Open MPI v", 10);
  snprintf(engine->text, sizeof engine->text, "%s%.*s", is_open_mpi ? "Open MPI " : "",
           is_open_mpi ? end - 10 : end, version + (is_open_mpi ? 10 : 0));
}

/* Where several ranks of each machine send to several of each other the network carries more than
 * it must. */
static int look_at_machines(Group *group) {
  enum { MOST = 64 };
  MPI_Comm near = MPI_COMM_NULL;
  int here = 1, most = 1;
  int error = MPI_Comm_split_type(group->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near);
  if (error == MPI_SUCCESS) error = MPI_Comm_size(near, &here);
  if (near != MPI_COMM_NULL) MPI_Comm_free(&near);
  if (error == MPI_SUCCESS)
    error = MPI_Allreduce(&here, &most, 1, MPI_INT, MPI_MAX, group->comm);
  bool is_even = most == 1 || most == group->ranks;
  group->is_direct = group->ranks < 4 || (group->ranks <= MOST && is_even);
  return error;
}

static int look_at_group(Group *group) {
  int error = MPI_Comm_set_errhandler(group->comm, MPI_ERRORS_RETURN);
  if (error == MPI_SUCCESS) error = MPI_Comm_rank(group->comm, &group->rank);
  if (error == MPI_SUCCESS) error = MPI_Comm_size(group->comm, &group->ranks);
  return error == MPI_SUCCESS ? look_at_machines(group) : error;
}

static bool mpi_split(Engine *engine, MeshAxis axis, int color, char *why) {
  const Group *all = &engine->group[MESH_ALL];
  Group *group = &engine->group[axis];
  int error = MPI_Comm_split(all->comm, color, all->rank, &group->comm);
  if (error == MPI_SUCCESS) error = look_at_group(group);
  return error == MPI_SUCCESS || mpi_fail(error, "MPI_Comm_split", why);
}

static bool mpi_open(const CommPlace *place, int64_t piece, Engine **out, char *why) {
  (void)place;
  Engine *engine = calloc(1, sizeof *engine);
  if (!engine) {
    snprintf(why, ENGINE_WHY, "out of memory");
    return false;
  }
  *out = engine;
  engine->piece = piece > 0 && piece < most_of_a_piece ? piece : most_of_a_piece;
  Group *all = &engine->group[MESH_ALL];
  for (int i = 0; i < MESH_AXIS_COUNT; i++) engine->group[i].comm = MPI_COMM_NULL;
  if (!begin_mpi(engine, why)) return false;
  /* errors of these collectives come up at the world's handler, whatever the communicator */
  int error = engine->is_ours ? MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN) : 0;
  if (error == MPI_SUCCESS) error = MPI_Comm_dup(MPI_COMM_WORLD, &all->comm);
  if (error == MPI_SUCCESS) error = look_at_group(all);
  if (error == MPI_SUCCESS) error = mpi_op_make(engine->op);
  if (error != MPI_SUCCESS) return mpi_fail(error, "MPI cannot start", why);
  name_library(engine);
  return true;
}

static void mpi_leave(int status, void *unused) {
  (void)unused;
  fflush(NULL);
  _exit(status);
}

static void mpi_close(Engine *engine, bool has_failed) {
  if (has_failed) {
    if (!engine || engine->is_ours) on_exit(mpi_leave, NULL);
    return; /* MPI may still look at what it has under way */
  }
  mpi_op_free(engine->op);
  for (int i = MESH_AXIS_COUNT - 1; i >= 0; i--)
    if (engine->group[i].comm != MPI_COMM_NULL) MPI_Comm_free(&engine->group[i].comm);
  if (engine->is_ours) MPI_Finalize();
  free(engine);
}

static int mpi_rank(const Engine *engine) { return engine->group[MESH_ALL].rank; }
static int mpi_ranks(const Engine *engine) { return engine->group[MESH_ALL].ranks; }
static const char *mpi_text(const Engine *engine) { return engine->text; }

/* ── the works ────────────────────────────────────────────────────────────────────────────── */
/* One call of MPI for elements [at, at + count) of a part. */
typedef struct {
  Engine *engine;
  const Group *group;
  const CommWork *work;
  EngineWork *under_way;
  int64_t part; /* elements of x, or of a rank's part of it */
  int64_t at;
  int count, root; /* root: of reduce_scatter in pieces */
  MPI_Datatype strided;
} Call;

static char *bytes_at(const Call *c, const void *base, int64_t element) {
  return (char *)(uintptr_t)base + element * sizes[c->work->dtype];
}

static int all_reduce(const Call *c, MPI_Request *out) {
  const CommWork *w = c->work;
  const void *operand = c->under_way->copy ? c->under_way->copy : w->x;
  const void *x = operand == w->out ? MPI_IN_PLACE : bytes_at(c, operand, c->at);
  return MPI_Iallreduce(x, bytes_at(c, w->out, c->at), c->count, mpi_type(w->dtype),
                        c->engine->op[w->dtype][w->op], c->group->comm, out);
}

static int reduce_scatter(const Call *c, MPI_Request *out) {
  const CommWork *w = c->work;
  MPI_Op op = c->engine->op[w->dtype][w->op];
  if (c->count == c->part)
    return MPI_Ireduce_scatter_block(w->x, w->out, c->count, mpi_type(w->dtype), op, c->group->comm,
                                     out);
  return MPI_Ireduce(bytes_at(c, w->x, c->root * c->part + c->at), bytes_at(c, w->out, c->at),
                     c->count, mpi_type(w->dtype), op, c->root, c->group->comm, out);
}

static int all_gather(const Call *c, MPI_Request *out) {
  const CommWork *w = c->work;
  bool is_there = w->x == bytes_at(c, w->out, c->group->rank * c->part);
  const void *x = is_there ? MPI_IN_PLACE : bytes_at(c, w->x, c->at);
  MPI_Datatype type = mpi_type(w->dtype);
  bool is_whole = c->count == c->part;
  return MPI_Iallgather(x, c->count, type, bytes_at(c, w->out, c->at), is_whole ? c->count : 1,
                        is_whole ? type : c->strided, c->group->comm, out);
}

static int all_to_all(const Call *c, MPI_Request *out) {
  const CommWork *w = c->work;
  const void *x = c->under_way->copy ? c->under_way->copy : w->x;
  bool is_whole = c->count == c->part;
  int count = is_whole ? c->count : 1;
  MPI_Datatype type = is_whole ? mpi_type(w->dtype) : c->strided;
  return MPI_Ialltoall(bytes_at(c, x, c->at), count, type, bytes_at(c, w->out, c->at), count, type,
                       c->group->comm, out);
}

static int between_two(const Call *c, MPI_Request *out) {
  const CommWork *w = c->work;
  MPI_Datatype type = mpi_type(w->dtype);
  MPI_Comm comm = c->group->comm;
  switch (w->kind) {
  case COMM_BROADCAST:
    return MPI_Ibcast(bytes_at(c, w->out, c->at), c->count, type, w->peer, comm, out);
  case COMM_SEND: return MPI_Isend(bytes_at(c, w->x, c->at), c->count, type, w->peer, 0, comm, out);
  default: return MPI_Irecv(bytes_at(c, w->out, c->at), c->count, type, w->peer, 0, comm, out);
  }
}

static int call(const Call *c, MPI_Request *out) {
  switch (c->work->kind) {
  case COMM_ALL_REDUCE: return all_reduce(c, out);
  case COMM_REDUCE_SCATTER: return reduce_scatter(c, out);
  case COMM_ALL_GATHER: return all_gather(c, out);
  case COMM_ALL_TO_ALL: return all_to_all(c, out);
  default: return between_two(c, out);
  }
}

/* Elements of `count`, those of the next part `part` elements further on. */
static int make_strided(const Call *c, int count, MPI_Datatype *out) {
  MPI_Datatype plain;
  int error = MPI_Type_contiguous(count, mpi_type(c->work->dtype), &plain);
  if (error != MPI_SUCCESS) return error;
  error = MPI_Type_create_resized(plain, 0, c->part * sizes[c->work->dtype], out);
  MPI_Type_free(&plain);
  return error == MPI_SUCCESS ? MPI_Type_commit(out) : error;
}

static bool has_room(EngineWork *under_way) {
  if (under_way->count < under_way->capacity) return true;
  int capacity = 2 * under_way->capacity + 4;
  MPI_Request *grown = realloc(under_way->request, (size_t)capacity * sizeof *grown);
  if (!grown) return false;
  under_way->request = grown;
  under_way->capacity = capacity;
  return true;
}

static bool begin_pieces(Call *c, char *why) {
  CommKind kind = c->work->kind;
  bool is_cut = c->part > c->engine->piece;
  bool is_strided = is_cut && (kind == COMM_ALL_GATHER || kind == COMM_ALL_TO_ALL);
  int roots = is_cut && kind == COMM_REDUCE_SCATTER ? c->group->ranks : 1;
  EngineWork *under_way = c->under_way;
  for (c->root = 0; c->root < roots; c->root++)
    for (c->at = 0; c->at < c->part; c->at += c->count) {
      int64_t left = c->part - c->at;
      int count = (int)(left < c->engine->piece ? left : c->engine->piece), error = MPI_SUCCESS;
      if (is_strided && (c->at == 0 || count != c->count)) {
        error = make_strided(c, count, &under_way->strided[c->at > 0]);
        c->strided = under_way->strided[c->at > 0];
      }
      c->count = count;
      if (!has_room(under_way)) {
        snprintf(why, ENGINE_WHY, "out of memory");
        return false;
      }
      if (error == MPI_SUCCESS) error = call(c, &under_way->request[under_way->count]);
      if (error != MPI_SUCCESS) return mpi_fail(error, "MPI cannot begin", why);
      under_way->count++;
    }
  return true;
}

/* all_to_all cannot be done in place; and an all_reduce in place goes up and down a tree, whole at
 * each step, where it goes around a ring in parts otherwise. */
static bool needs_other_operand(const Group *group, const CommWork *work, size_t bytes) {
  enum { LARGE = 1 << 16 };
  if (work->x != work->out) return false;
  return (work->kind == COMM_ALL_TO_ALL && bytes) ||
         (work->kind == COMM_ALL_REDUCE && !group->is_direct && bytes >= LARGE);
}

/* Few elements are sooner there by MPI's own collectives. */
static bool is_exchange(const Group *group, const CommWork *work) {
  enum { LEAST = 1 << 13 };
  bool can = work->kind == COMM_ALL_REDUCE || work->kind == COMM_REDUCE_SCATTER ||
             work->kind == COMM_ALL_GATHER;
  return can && group->is_direct && work->count * sizes[work->dtype] >= LEAST;
}

static bool begin_exchange(Engine *engine, Group *group, const CommWork *work,
                           EngineWork *under_way, char *why) {
  enum { TAGS = 1 << 14 }; /* MPI has at least 2^15, and 0 is between_two()'s */
  int tag = 1 + 2 * (group->exchanges++ % (TAGS - 1));
  ExchangeOf of = {group->comm, group->rank, group->ranks, tag, mpi_type(work->dtype)};
  under_way->exchange = exchange_new(&of, work, sizes[work->dtype], engine->piece);
  if (!under_way->exchange) snprintf(why, ENGINE_WHY, "out of memory");
  return under_way->exchange != NULL;
}

static bool mpi_begin(Engine *engine, const CommWork *work, EngineWork **out, char *why) {
  EngineWork *under_way = calloc(1, sizeof *under_way);
  Group *group = &engine->group[work->over];
  size_t bytes = (size_t)work->count * (size_t)sizes[work->dtype];
  bool needs_copy = needs_other_operand(group, work, bytes);
  if (under_way && needs_copy) under_way->copy = malloc(bytes);
  if (!under_way || (needs_copy && !under_way->copy)) {
    free(under_way);
    snprintf(why, ENGINE_WHY, "out of memory");
    return false;
  }
  if (needs_copy) memcpy(under_way->copy, work->x, bytes);
  if (work->kind == COMM_BROADCAST && group->rank == work->peer && work->x != work->out && bytes)
    memcpy(work->out, work->x, bytes);
  bool is_parted = work->kind == COMM_REDUCE_SCATTER || work->kind == COMM_ALL_TO_ALL;
  Call c = {.engine = engine,
            .group = group,
            .work = work,
            .under_way = under_way,
            .part = is_parted ? work->count / group->ranks : work->count};
  under_way->strided[0] = under_way->strided[1] = MPI_DATATYPE_NULL;
  under_way->type = mpi_type(work->dtype);
  under_way->expected = work->kind == COMM_RECEIVE ? work->count : -1;
  *out = under_way;
  if (is_exchange(group, work)) return begin_exchange(engine, group, work, under_way, why);
  return begin_pieces(&c, why);
}

/* A message with fewer elements than were expected is no error for MPI. */
static bool look_at_received(const EngineWork *under_way, const MPI_Status *status, char *why) {
  int64_t got = 0;
  for (int i = 0; i < under_way->count && under_way->expected >= 0; i++) {
    int count = 0;
    MPI_Get_count(&status[i], under_way->type, &count);
    got += count;
  }
  if (under_way->expected < 0 || got == under_way->expected) return true;
  snprintf(why, ENGINE_WHY, "%lld elements came, and %lld were expected", (long long)got,
           (long long)under_way->expected);
  return false;
}

static void mpi_free_work(EngineWork *under_way) {
  for (int i = 0; i < 2; i++)
    if (under_way->strided[i] != MPI_DATATYPE_NULL) MPI_Type_free(&under_way->strided[i]);
  exchange_free(under_way->exchange);
  free(under_way->copy);
  free(under_way->request);
  free(under_way);
}

static bool mpi_go_on(Engine *engine, EngineWork *under_way, EngineState *state, char *why) {
  (void)engine;
  if (under_way->exchange) {
    int failure = exchange_go_on(under_way->exchange, state);
    if (failure != MPI_SUCCESS) return mpi_fail(failure, "MPI", why);
    if (*state == ENGINE_DONE) mpi_free_work(under_way);
    return true;
  }
  int is_ended = 1, error = MPI_SUCCESS;
  MPI_Status one[16], *status = one;
  if (under_way->count > 16) status = malloc((size_t)under_way->count * sizeof *status);
  if (!status) {
    snprintf(why, ENGINE_WHY, "out of memory");
    return false;
  }
  if (under_way->count)
    error = MPI_Testall(under_way->count, under_way->request, &is_ended, status);
  bool is_good = error == MPI_SUCCESS;
  for (int i = 0; i < under_way->count && error == MPI_ERR_IN_STATUS; i++)
    if (status[i].MPI_ERROR != MPI_SUCCESS && status[i].MPI_ERROR != MPI_ERR_PENDING)
      error = status[i].MPI_ERROR;
  if (!is_good) mpi_fail(error, "MPI", why);
  if (is_good && is_ended) is_good = look_at_received(under_way, status, why);
  if (status != one) free(status);
  *state = is_good && is_ended ? ENGINE_DONE : ENGINE_WAITS;
  if (*state == ENGINE_DONE) mpi_free_work(under_way);
  return is_good;
}

__attribute__((visibility("default"))) extern const EngineType ft_engine;
const EngineType ft_engine = {
    .version = ENGINE_VERSION,
    .open = mpi_open,
    .close = mpi_close,
    .rank = mpi_rank,
    .ranks = mpi_ranks,
    .text = mpi_text,
    .split = mpi_split,
    .begin = mpi_begin,
    .go_on = mpi_go_on,
};
