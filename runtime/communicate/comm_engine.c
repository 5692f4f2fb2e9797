/* comm_engine: the thread that makes all calls of the engine. Works begin in their order, and up to
 * COMM_UNDER_WAY collectives, and all messages, go on at a time. MPI moves bytes only when it is called, so while something is
 * under way the thread calls again and again, at growing distances: ranks may be more than cores,
 * and the core is worth more to who computes. */
#define _GNU_SOURCE /* prctl, on_exit */
#include "runtime/communicate/comm_private.h"
#include "base/clock.h"
#include "runtime/common/guard.h"
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* ── the plug-in ──────────────────────────────────────────────────────────────────────────── */
#define LIBRARY "libft-mpi.so"

/* bin/ftrun has it in bin, lib or lib/ft beside bin; then it is the loader's affair. */
static void *open_beside(void) {
  static const char *const folders[] = {"", "../lib/", "../lib/ft/"};
  char path[4096 + 32];
  ssize_t length = readlink("/proc/self/exe", path, 4096);
  while (length > 0 && path[length - 1] != '/') length--;
  for (size_t i = 0; length > 0 && i < sizeof folders / sizeof *folders; i++) {
    snprintf(path + length, sizeof path - (size_t)length, "%s" LIBRARY, folders[i]);
    if (access(path, R_OK) == 0) return dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }
  return dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

Status comm_find_engine(const char *library, int ranks, const EngineType **out) {
  void *opened = library ? dlopen(library, RTLD_NOW | RTLD_LOCAL) : open_beside();
  if (!opened)
    return status_fail(STATUS_USER,
                       "%d ranks are joined by %s, which cannot be opened: %s; it is built with ft "
                       "where Open MPI is installed (libopenmpi-dev, openmpi-bin)",
                       ranks, library ? library : LIBRARY, dlerror());
  const EngineType *type = dlsym(opened, ENGINE_SYMBOL);
  if (!type || type->version != ENGINE_VERSION)
    return status_fail(STATUS_USER, "%s is no engine of this version of ft (%d, expected %d)",
                       library ? library : LIBRARY, type ? type->version : 0, ENGINE_VERSION);
  *out = type; /* it stays open: what MPI has once begun is not to be unloaded */
  return STATUS_OK;
}

static void leave_now(int status, void *unused) {
  (void)unused;
  fflush(NULL);
  _exit(status);
}

void comm_leave_at_exit(void) { on_exit(leave_now, NULL); }

/* ── opening ──────────────────────────────────────────────────────────────────────────────── */
bool comm_do_now(Comm *comm, const CommWork *work, char *why) {
  EngineWork *under_way;
  EngineState state = ENGINE_WAITS;
  if (!comm->type->begin(comm->engine, work, &under_way, why)) return false;
  while (comm->type->go_on(comm->engine, under_way, &state, why) && state != ENGINE_DONE)
    usleep(50);
  return state == ENGINE_DONE;
}

/* Where rank 0's board is, and the names of all machines. */
static bool exchange(Comm *comm, char *why) {
  int ranks = comm->place.ranks, machines = 0;
  CommWork where = {.kind = COMM_BROADCAST,
                    .dtype = DT_U8,
                    .count = sizeof comm->board.address,
                    .x = &comm->board.address,
                    .out = &comm->board.address,
                    .label = "the board"};
  Seat own = {0};
  memcpy(own.host, comm->host, sizeof own.host);
  if (comm->options.device)
    snprintf(own.device, sizeof own.device, "%s", comm->options.device);
  CommWork names = {.kind = COMM_ALL_GATHER,
                    .dtype = DT_U8,
                    .count = sizeof own,
                    .x = &own,
                    .out = comm->seats,
                    .label = "the machines"};
  bool is_good = comm_do_now(comm, &where, why) && comm_do_now(comm, &names, why);
  for (int r = 0; r < ranks && is_good; r++) {
    bool is_new = true;
    for (int i = 0; i < r; i++)
      if (!strcmp(comm->seats[i].host, comm->seats[r].host)) is_new = false;
    machines += is_new;
  }
  snprintf(comm->text, sizeof comm->text, "%d ranks on %d machine%s, %s", ranks, machines,
           machines == 1 ? "" : "s", comm->type->text(comm->engine));
  return is_good;
}

/* The groups of one rank, and those of all, need no engine. */
static bool split_axes(Comm *comm, char *why) {
  for (MeshAxis axis = MESH_DATA; axis < MESH_AXIS_COUNT; axis++) {
    int size = mesh_size(&comm->mesh, axis);
    int color = mesh_member(&comm->mesh, axis, comm->place.rank, 0);
    bool is_own = size > 1 && comm_axis(comm, axis) == axis;
    if (is_own && !comm->type->split(comm->engine, axis, color, why)) return false;
  }
  return true;
}

static bool open_engine(Comm *comm, char *why) {
  const EngineType *type = comm->type;
  if (!type->open(&comm->place, comm->options.piece, &comm->engine, why)) return false;
  int rank = type->rank(comm->engine), ranks = type->ranks(comm->engine);
  if (rank == comm->place.rank && ranks == comm->place.ranks)
    return exchange(comm, why) && split_axes(comm, why) && comm_share(comm, why);
  snprintf(why, ENGINE_WHY,
           "this is rank %d of %d for %s, and rank %d of %d for %s: start the ranks by mpirun, or "
           "by srun --mpi=pmix",
           comm->place.rank, comm->place.ranks, comm->place.launcher, rank, ranks,
           type->text(comm->engine));
  return false;
}

/* ── going on ─────────────────────────────────────────────────────────────────────────────── */
/* The numbers of the slots under way, the oldest first. */
typedef struct {
  int slot[COMM_SLOTS];
  int count, collectives; /* messages, which may wait long for their other end, besides */
  int64_t idle_since; /* nothing has ended since; 0: just now */
} UnderWay;

/* With the lock held, as all of these; they leave it while they call the engine. */
void comm_engine_failed(Comm *comm, const Slot *slot, const char *why) {
  char sentence[COMM_SENTENCE];
  snprintf(sentence, sizeof sentence, "rank %d (host %s): %s (%s): %s", comm->place.rank,
           comm->host, comm_kind_text(slot->work.kind), slot->work.label, why);
  /* where a rank has died the engine may notice it first, and the watch knows it better */
  for (int i = 0; i < 10 && !comm->has_failed; i++) comm_wait(comm, &comm->changed, 100000000);
  pthread_mutex_unlock(&comm->lock);
  if (comm_fail(comm, STATUS_FAULT, sentence))
    watch_tell_failure(comm->watch, STATUS_FAULT, sentence);
  pthread_mutex_lock(&comm->lock);
}

static void enter_engine(Comm *comm) {
  comm->is_in_engine = true;
  pthread_mutex_unlock(&comm->lock);
}

static void leave_engine(Comm *comm) {
  pthread_mutex_lock(&comm->lock);
  comm->is_in_engine = false;
  if (comm->has_failed) pthread_cond_broadcast(&comm->changed);
}

/* A receive that is begun long before its send must not keep that one from being begun. */
static bool is_message(const Slot *slot) {
  return slot->work.kind == COMM_SEND || slot->work.kind == COMM_RECEIVE;
}

static void add_to_list(UnderWay *under_way, const Comm *comm, const Slot *slot) {
  under_way->slot[under_way->count++] = (int)(slot - comm->slot);
  under_way->collectives += !is_message(slot);
  under_way->idle_since = 0;
}

/* What callers have entered since (comm_enter), but what they wait for. */
static void list_entered(Comm *comm, UnderWay *under_way) {
  while (comm->listed < comm->started) {
    int64_t number = ++comm->listed;
    const Slot *slot = &comm->slot[number % COMM_SLOTS];
    if (slot->number == number && slot->state == SLOT_UNDER_WAY && !slot->is_waited)
      add_to_list(under_way, comm, slot);
  }
}

static bool can_begin_next(const Comm *comm, const UnderWay *under_way) {
  const Slot *slot = &comm->slot[(comm->started + 1) % COMM_SLOTS];
  if (comm->started == comm->begun || under_way->collectives >= COMM_UNDER_WAY) return false;
  return !slot->is_shared || shared_has_room(comm->shared, slot->work.over);
}

/* Its caller goes on with what he waits for. */
static void begin_next_shared(Comm *comm, UnderWay *under_way, Slot *slot) {
  slot->shared_work = shared_begin(comm->shared, &slot->work);
  if (!slot->shared_work) comm_engine_failed(comm, slot, "out of memory");
  if (slot->is_waited)
    shared_ring(comm->shared);
  else
    add_to_list(under_way, comm, slot);
}

static void begin_next(Comm *comm, UnderWay *under_way) {
  char why[ENGINE_WHY] = "";
  Slot *slot = &comm->slot[++comm->started % COMM_SLOTS];
  comm->listed = comm->started;
  slot->state = SLOT_UNDER_WAY;
  if (slot->is_shared) {
    begin_next_shared(comm, under_way, slot);
    return;
  }
  if (!slot->work.look) {
    enter_engine(comm);
    bool is_good = comm->type->begin(comm->engine, &slot->work, &slot->engine_work, why);
    leave_engine(comm);
    if (!is_good) comm_engine_failed(comm, slot, why);
  }
  add_to_list(under_way, comm, slot);
}

static void has_ended(Comm *comm, Slot *slot) {
  CommWork work = slot->work;
  if (slot->shared_work) shared_leave(comm->shared, slot->shared_work);
  slot->shared_work = NULL;
  comm_note_end(comm, slot);
  slot->state = work.done ? SLOT_FREE : SLOT_ENDED;
  if (!work.done) {
    pthread_cond_broadcast(&comm->changed);
    return;
  }
  pthread_mutex_unlock(&comm->lock);
  work.done(work.context, STATUS_OK);
  pthread_mutex_lock(&comm->lock);
}

/* A RUN writes to nothing that its caller could free. */
static bool look_at(Comm *comm, const Slot *slot, EngineState *state, char *why) {
  CommWork work = slot->work;
  bool is_over = false;
  pthread_mutex_unlock(&comm->lock);
  bool is_good = work.look(&work, &is_over, why, ENGINE_WHY);
  pthread_mutex_lock(&comm->lock);
  *state = is_over ? ENGINE_DONE : ENGINE_WAITS;
  return is_good;
}

static bool go_on_with(Comm *comm, const Slot *slot, EngineState *state, char *why) {
  if (slot->work.look) return look_at(comm, slot, state, why);
  enter_engine(comm);
  bool is_good = slot->is_shared ? shared_go_on(comm->shared, slot->shared_work, state, why)
                                 : comm->type->go_on(comm->engine, slot->engine_work, state, why);
  leave_engine(comm);
  return is_good;
}

/* True if something has ended, or come nearer to it. */
static bool go_on(Comm *comm, UnderWay *under_way) {
  int kept = 0, count = under_way->count;
  bool has_moved = false;
  for (int i = 0; i < count && !comm->has_failed; i++) {
    char why[ENGINE_WHY] = "";
    EngineState state = ENGINE_WAITS;
    Slot *slot = &comm->slot[under_way->slot[i]];
    bool is_good = go_on_with(comm, slot, &state, why);
    if (!is_good) comm_engine_failed(comm, slot, why);
    has_moved = has_moved || state != ENGINE_WAITS;
    if (is_good && state == ENGINE_DONE && !comm->has_failed) {
      under_way->collectives -= !is_message(slot);
      has_ended(comm, slot);
    } else {
      under_way->slot[kept++] = under_way->slot[i];
    }
  }
  if (!comm->has_failed) under_way->count = kept;
  return has_moved;
}

/* Until there is more to do, at most so long. `bell` was read before the thread looked. */
static void rest(Comm *comm, uint32_t bell, int64_t nanoseconds) {
  if (!comm->shared) {
    comm_wait(comm, &comm->queued, nanoseconds);
    return;
  }
  pthread_mutex_unlock(&comm->lock);
  shared_wait(comm->shared, bell, nanoseconds, false);
  pthread_mutex_lock(&comm->lock);
}

/* What goes on in memory that ranks share is told of by the bell. Where the engine has something under
 * way the thread yields the core for some 50 us, then it sleeps: an eighth of the time that it waits.
 */
static void back_off(Comm *comm, UnderWay *under_way, uint32_t bell) {
  enum { YIELDING = 50000, LEAST = 10000, MOST = 1000000, LONG = 100000000 };
  bool is_engines = false, is_devices = false, is_held_up = comm->started < comm->begun;
  for (int i = 0; i < under_way->count; i++) {
    const Slot *slot = &comm->slot[under_way->slot[i]];
    is_devices = is_devices || slot->work.look;
    is_engines = is_engines || (!slot->work.look && !slot->is_shared);
  }
  if (!is_engines) { /* a device goes on by itself, and nobody waits here to hear of it */
    rest(comm, bell, is_devices || is_held_up ? MOST : LONG);
    return;
  }
  int64_t now = clock_nanoseconds();
  if (!under_way->idle_since) under_way->idle_since = now;
  int64_t waited = now - under_way->idle_since;
  if (waited < YIELDING) {
    pthread_mutex_unlock(&comm->lock);
    sched_yield();
    pthread_mutex_lock(&comm->lock);
    return;
  }
  int64_t pause = waited / 8;
  rest(comm, bell, pause < LEAST ? LEAST : pause > MOST ? MOST : pause);
}

static void work(Comm *comm) {
  UnderWay under_way = {0};
  while (!comm->has_failed) {
    uint32_t bell = comm->shared ? shared_bell(comm->shared) : 0;
    list_entered(comm, &under_way);
    if (can_begin_next(comm, &under_way)) {
      begin_next(comm, &under_way);
    } else if (!under_way.count) {
      if (comm->is_closing && comm->may_leave) return;
      back_off(comm, &under_way, bell);
    } else if (go_on(comm, &under_way)) {
      under_way.idle_since = 0;
    } else if (!comm->has_failed) {
      back_off(comm, &under_way, bell);
    }
  }
}

void *comm_engine_main(void *argument) {
  Comm *comm = argument;
  char why[ENGINE_WHY] = "";
  sigset_t before;
  guard_block_signals(&before);
  prctl(PR_SET_TIMERSLACK, 1000ul); /* or short sleeps take 50 us more */
  bool is_open = open_engine(comm, why);
  if (!is_open) {
    char sentence[COMM_SENTENCE];
    /* where a rank of this machine has died the engine may notice it first; arrivals.h knows it better, and ends this process */
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    snprintf(sentence, sizeof sentence, "rank %d (host %s) cannot join the others: %s",
             comm->place.rank, comm->host, why);
    comm_fail(comm, STATUS_FAULT, sentence);
  }
  pthread_mutex_lock(&comm->lock);
  comm->is_open = is_open;
  pthread_cond_broadcast(&comm->changed);
  if (is_open) work(comm);
  bool has_failed = comm->has_failed;
  pthread_mutex_unlock(&comm->lock);
  comm->type->close(comm->engine, has_failed);
  pthread_mutex_lock(&comm->lock);
  comm->has_left = true;
  pthread_cond_broadcast(&comm->changed);
  pthread_mutex_unlock(&comm->lock);
  return NULL;
}
