/* libnccl: a fake NCCL for tests, between processes of one machine, over shared memory: the entry
 * points, see fake_nccl.h. Works are put in the fake driver's streams and run when these do; a
 * work waits for the other ranks as a GPU's kernel would, until they come or this rank aborts. */
#include "fake_nccl.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define NCCL(name, symbol, parameters) EXPORT NcclResult entry_##name parameters __asm__(symbol);
#include "runtime/communicate/nccl.def"
#undef NCCL
EXPORT const char *ncclGetErrorString(NcclResult result);
EXPORT NcclResult ncclCommInitRank(NcclComm *comm, int ranks, NcclUniqueId id, int rank);

void fake_nccl_die(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fputs("fake NCCL: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  abort();
}

long fake_nccl_setting(const char *name, long otherwise) {
  char full[64];
  snprintf(full, sizeof full, "FT_FAKE_NCCL_%s", name);
  const char *value = getenv(full);
  return value && value[0] ? atol(value) : otherwise;
}

static void *driver_entry(const char *symbol) {
  static void *driver;
  if (!driver) driver = dlopen(getenv("FT_CUDA_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
  void *found = driver ? dlsym(driver, symbol) : NULL;
  if (!found) fake_nccl_die("the fake driver is not loaded, or lacks %s", symbol);
  return found;
}

FakeDriver fake_nccl_driver;
static void find_driver(void) {
  if (fake_nccl_driver.enqueue) return;
  *(void **)&fake_nccl_driver.pause = driver_entry("fake_library_pause");
  *(void **)&fake_nccl_driver.move = driver_entry("fake_library_move");
  *(void **)&fake_nccl_driver.check = driver_entry("fake_library_check");
  *(void **)&fake_nccl_driver.mark = driver_entry("fake_library_mark");
  *(void **)&fake_nccl_driver.enqueue = driver_entry("fake_library_collective");
}

/* ── the library ──────────────────────────────────────────────────────────────────────────── */
NcclResult entry_version(int *version) {
  *version = (int)fake_nccl_setting("VERSION", 22703);
  return NCCL_SUCCESS;
}

const char *ncclGetErrorString(NcclResult result) {
  static const char *const texts[] = {
      "no error",      "unhandled cuda error", "unhandled system error",
      "internal error", "invalid argument",    "invalid usage",
      "remote process exited or there was a network error", "NCCL operation in progress"};
  return result >= 0 && result < 8 ? texts[result] : "unknown result code";
}

/* ── communicators ────────────────────────────────────────────────────────────────────────── */
static void map_memory(NcclComm comm, const char *name) {
  snprintf(comm->name, sizeof comm->name, "%s", name);
  int file = shm_open(name, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(Shared)) != 0)
    fake_nccl_die("no shared memory %s", name);
  comm->shared = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (comm->shared == MAP_FAILED) fake_nccl_die("no memory for %s", name);
}

NcclResult entry_unique_id(NcclUniqueId *id) {
  static int made;
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "/ft-fake-nccl-%d-%d", (int)getpid(), made++);
  return fake_nccl_setting("NO_ID", 0) ? 2 : NCCL_SUCCESS;
}

NcclComm fake_nccl_check(NcclComm comm) {
  if (!comm || comm->magic != FAKE_NCCL_MAGIC) fake_nccl_die("a communicator that is none");
  if (comm->is_destroyed) fake_nccl_die("a communicator is used that was destroyed");
  if (atomic_load(&comm->is_aborted)) fake_nccl_die("a communicator is used that was aborted");
  return comm;
}

/* Another rank is in a collective that this one has not begun. */
static bool is_late(NcclComm comm) {
  long own = atomic_load(&comm->shared->at[comm->rank]);
  for (int r = 0; r < comm->ranks; r++)
    if (atomic_load(&comm->shared->at[r]) > own) return !atomic_load(&comm->waiting);
  return false;
}

/* A GPU goes on by itself. The fake one does where somebody asks it something, and two ranks whose
 * hosts wait for each other ask nothing. */
static void *carry_on(void *argument) {
  NcclComm comm = argument;
  int times = 0;
  while (!atomic_load(&comm->ends) && !atomic_load(&comm->is_aborted)) {
    usleep(5000);
    times = is_late(comm) ? times + 1 : 0;
    if (times > 10) fake_nccl_driver.move();
  }
  return NULL;
}

static void start_to_carry_on(NcclComm comm) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  comm->has_thread = pthread_create(&comm->thread, NULL, carry_on, comm) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static NcclComm make_comm(const char *name, int ranks, int rank) {
  if (ranks < 1 || ranks > FAKE_NCCL_RANKS || rank < 0 || rank >= ranks)
    fake_nccl_die("rank %d of %d", rank, ranks);
  NcclComm comm = calloc(1, sizeof *comm);
  comm->magic = FAKE_NCCL_MAGIC;
  comm->rank = rank;
  comm->ranks = ranks;
  comm->random = (uint64_t)fake_nccl_setting("SEED", 0) * 16 + (uint64_t)rank + 1;
  map_memory(comm, name);
  if (atomic_fetch_or(&comm->shared->has_come, 1u << rank) >> rank & 1)
    fake_nccl_die("two processes are rank %d", rank);
  start_to_carry_on(comm);
  return comm;
}

static bool have_all_come(const struct NcclCommBody *comm) {
  return atomic_load(&comm->shared->has_come) == (1u << comm->ranks) - 1;
}

NcclResult entry_init(NcclComm *out, int ranks, NcclUniqueId id, int rank, NcclConfig *config) {
  find_driver();
  if (strncmp(id.internal, "/ft-fake-nccl-", 14) != 0) fake_nccl_die("an id that is none");
  if (config->size < 20 || config->magic != nccl_magic || config->version < 21400)
    fake_nccl_die("a config without its head");
  NcclComm comm = *out = make_comm(id.internal, ranks, rank);
  comm->is_joining = true;
  if (!config->blocking) return NCCL_IN_PROGRESS;
  while (!have_all_come(comm)) usleep(100);
  comm->is_joining = false;
  return NCCL_SUCCESS;
}

NcclResult ncclCommInitRank(NcclComm *comm, int ranks, NcclUniqueId id, int rank) {
  NcclConfig config = {sizeof config, nccl_magic, 21400, 1, NCCL_UNDEFINED};
  return entry_init(comm, ranks, id, rank, &config);
}

NcclResult entry_async_error(NcclComm comm, NcclResult *result) {
  fake_nccl_check(comm);
  *result = atomic_load(&comm->error);
  if (*result) return NCCL_SUCCESS;
  if (atomic_load(&comm->shared->aborted)) *result = NCCL_REMOTE_ERROR;
  if (*result) return NCCL_SUCCESS;
  if (comm->is_joining && have_all_come(comm)) {
    comm->is_joining = false;
    shm_unlink(comm->name); /* all have opened it; the second finds it gone */
  }
  bool is_busy = comm->is_joining || (comm->busy > 0 && comm->busy--);
  *result = is_busy ? NCCL_IN_PROGRESS : NCCL_SUCCESS;
  return NCCL_SUCCESS;
}

/* What is under way looks at the flag for as long as it likes. */
NcclResult entry_abort(NcclComm comm) {
  fake_nccl_check(comm);
  atomic_store(&comm->is_aborted, 1);
  atomic_fetch_add(&comm->shared->aborted, 1);
  shm_unlink(comm->name);
  return NCCL_SUCCESS;
}

NcclResult entry_finalize(NcclComm comm) {
  fake_nccl_check(comm);
  if (comm->is_finalized++) fake_nccl_die("a communicator is finalized twice");
  if (fake_nccl_depth()) fake_nccl_die("a communicator is finalized within a group");
  return NCCL_SUCCESS;
}

NcclResult entry_destroy(NcclComm comm) {
  fake_nccl_check(comm);
  if (fake_nccl_depth()) fake_nccl_die("ncclGroupStart without its ncclGroupEnd");
  if (atomic_load(&comm->waiting)) fake_nccl_die("a communicator is destroyed while it works");
  comm->is_destroyed = true;
  atomic_store(&comm->ends, 1);
  if (comm->has_thread) pthread_join(comm->thread, NULL);
  munmap(comm->shared, sizeof(Shared));
  return NCCL_SUCCESS;
}

/* Everybody's colour and key, by their own exchange; the call waits for all. */
NcclResult entry_split(NcclComm comm, int color, int key, NcclComm *out, NcclConfig *config) {
  (void)config;
  fake_nccl_check(comm);
  char name[96];
  int rank = 0, ranks = 0;
  Shared *shared = comm->shared;
  shared->color[comm->rank] = color;
  shared->key[comm->rank] = key;
  if (!fake_nccl_meet(comm)) return NCCL_REMOTE_ERROR;
  for (int r = 0; r < comm->ranks; r++) {
    if (shared->color[r] != color) continue;
    bool is_before = shared->key[r] < key || (shared->key[r] == key && r < comm->rank);
    rank += is_before;
    ranks++;
  }
  snprintf(name, sizeof name, "%.60s-%d-%d", comm->name, ++comm->splits, color);
  *out = color < 0 ? NULL : make_comm(name, ranks, rank);
  while (*out && !have_all_come(*out) && !atomic_load(&comm->is_aborted)) usleep(100);
  if (!fake_nccl_meet(comm)) return NCCL_REMOTE_ERROR;
  if (*out) shm_unlink(name);
  return NCCL_SUCCESS;
}

/* ── calls ────────────────────────────────────────────────────────────────────────────────── */
NcclResult entry_all_reduce(const void *x, void *out, size_t count, NcclType type, NcclOp op,
                            NcclComm comm, NcclStream stream) {
  return fake_nccl_call(comm, stream, (Item){ITEM_ALL_REDUCE, x, out, count, type, op, 0});
}
NcclResult entry_reduce_scatter(const void *x, void *out, size_t part, NcclType type, NcclOp op,
                                NcclComm comm, NcclStream stream) {
  return fake_nccl_call(comm, stream, (Item){ITEM_REDUCE_SCATTER, x, out, part, type, op, 0});
}
NcclResult entry_all_gather(const void *x, void *out, size_t part, NcclType type, NcclComm comm,
                            NcclStream stream) {
  return fake_nccl_call(comm, stream, (Item){ITEM_ALL_GATHER, x, out, part, type, 0, 0});
}
NcclResult entry_broadcast(const void *x, void *out, size_t count, NcclType type, int root,
                           NcclComm comm, NcclStream stream) {
  return fake_nccl_call(comm, stream, (Item){ITEM_BROADCAST, x, out, count, type, 0, root});
}
NcclResult entry_send(const void *x, size_t count, NcclType type, int peer, NcclComm comm,
                      NcclStream stream) {
  return fake_nccl_call(comm, stream, (Item){ITEM_SEND, x, NULL, count, type, 0, peer});
}
NcclResult entry_receive(void *out, size_t count, NcclType type, int peer, NcclComm comm,
                         NcclStream stream) {
  return fake_nccl_call(comm, stream, (Item){ITEM_RECEIVE, NULL, out, count, type, 0, peer});
}
NcclResult entry_group_start(void) {
  fake_nccl_group(1);
  return NCCL_SUCCESS;
}
NcclResult entry_group_end(void) { return fake_nccl_group(-1); }
