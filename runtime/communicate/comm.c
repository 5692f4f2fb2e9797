/* comm: see comm.h. The queue of works, which callers fill and the engine's thread empties. */
#include "runtime/communicate/comm_private.h"
#include "base/clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int comm_rank(const Comm *comm) { return comm ? comm->place.rank : 0; }
int comm_ranks(const Comm *comm) { return comm ? comm->place.ranks : 1; }
int comm_size(const Comm *comm, MeshAxis axis) { return comm ? mesh_size(&comm->mesh, axis) : 1; }
int comm_index(const Comm *comm, MeshAxis axis) {
  return comm ? mesh_index(&comm->mesh, axis, comm->place.rank) : 0;
}
MeshAxis comm_axis(const Comm *comm, MeshAxis axis) {
  const Mesh *mesh = &comm->mesh;
  if (mesh_size(mesh, axis) == comm->place.ranks) return MESH_ALL;
  if (axis == MESH_STAGE && mesh->tensor == 1) return MESH_DATA;
  return axis == MESH_STAGE && mesh->data == 1 ? MESH_TENSOR : axis;
}
const Mesh *comm_mesh(const Comm *comm) { return &comm->mesh; }
int comm_local_rank(const Comm *comm) { return comm ? comm->place.local_rank : 0; }
bool comm_speaks(Comm *comm) {
  if (!comm || comm->place.rank > 1) return !comm;
  pthread_mutex_lock(&comm->lock);
  bool does = comm->place.rank == 0 || comm->is_rank_0_lost;
  pthread_mutex_unlock(&comm->lock);
  return does;
}
const char *comm_text(const Comm *comm) { return comm ? comm->text : "1 rank"; }

/* ── a work ───────────────────────────────────────────────────────────────────────────────── */
const char *comm_kind_text(CommKind kind) {
  static const char *const texts[] = {[COMM_ALL_REDUCE] = "all_reduce",
                                      [COMM_REDUCE_SCATTER] = "reduce_scatter",
                                      [COMM_ALL_GATHER] = "all_gather",
                                      [COMM_ALL_TO_ALL] = "all_to_all",
                                      [COMM_BROADCAST] = "broadcast",
                                      [COMM_SEND] = "send",
                                      [COMM_RECEIVE] = "receive",
                                      [COMM_ABSENT] = "transfer",
                                      [COMM_RUN] = "step"};
  return texts[kind];
}

static bool has_peer(CommKind kind) {
  return kind == COMM_BROADCAST || kind == COMM_SEND || kind == COMM_RECEIVE;
}

static bool is_between_two(CommKind kind) { return kind == COMM_SEND || kind == COMM_RECEIVE; }

Status comm_check(const CommWork *work, int ranks) {
  const char *kind = comm_kind_text(work->kind);
  bool has_op = work->kind == COMM_ALL_REDUCE || work->kind == COMM_REDUCE_SCATTER;
  bool is_parted = work->kind == COMM_REDUCE_SCATTER || work->kind == COMM_ALL_TO_ALL;
  if (is_between_two(work->kind) && ranks == 1)
    return status_fail(STATUS_USER, "%s (%s) needs several ranks, and this process is alone", kind,
                       work->label);
  if (has_peer(work->kind) && (work->peer < 0 || work->peer >= ranks))
    return status_fail(STATUS_USER, "%s (%s): there is no rank %d, only 0 to %d", kind, work->label,
                       work->peer, ranks - 1);
  if (has_op && work->dtype == DT_BOOL && (work->op == COMM_SUM || work->op == COMM_PROD))
    return status_fail(STATUS_USER, "%s (%s): truth values have no sum and no product", kind,
                       work->label);
  if (work->count < 0 || (is_parted && work->count % ranks))
    return status_fail(STATUS_USER, "%s (%s): %lld elements are no equal parts for %d ranks", kind,
                       work->label, (long long)work->count, ranks);
  return STATUS_OK;
}

static Status do_alone(const CommWork *work) {
  size_t bytes = (size_t)work->count * (size_t)dtype_bytes(work->dtype);
  if (work->out != work->x && bytes) memmove(work->out, work->x, bytes);
  return STATUS_OK;
}

static void describe(const CommWork *work, char *out) {
  static const char *const ops[] = {"", " minimum", " maximum", " product"};
  char peer[24] = "", over[16] = "";
  if (work->over != MESH_ALL) snprintf(over, sizeof over, " over %s", mesh_axis_text(work->over));
  if (has_peer(work->kind))
    snprintf(peer, sizeof peer, " %s rank %d", work->kind == COMM_SEND ? "to" : "from", work->peer);
  if (work->kind == COMM_RUN) {
    snprintf(out, COMM_TEXT, "%s of %lld collective%s (%s)", comm_kind_text(work->kind),
             (long long)work->count, work->count == 1 ? "" : "s", work->label);
    return;
  }
  snprintf(out, COMM_TEXT, "%s%s of %lld %s%s%s (%s)", comm_kind_text(work->kind), ops[work->op],
           (long long)work->count, dtype_text(work->dtype), peer, over,
           work->label ? work->label : "");
}

/* FNV-1a */
static uint64_t hash_note(const char *text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
  return hash;
}

void comm_alert(Comm *comm) {
  pthread_cond_broadcast(&comm->queued);
  if (comm->shared) shared_ring(comm->shared);
}

/* ── the queue ────────────────────────────────────────────────────────────────────────────── */
void comm_wait(Comm *comm, pthread_cond_t *condition, int64_t nanoseconds) {
  int64_t end = clock_nanoseconds() + nanoseconds;
  struct timespec until = {.tv_sec = end / 1000000000, .tv_nsec = end % 1000000000};
  pthread_cond_timedwait(condition, &comm->lock, &until);
}

static Status failure(Comm *comm) {
  comm->is_told = true;
  return status_fail(comm->failed_as, "%s", comm->sentence);
}

static CommOrder order_of(const Comm *comm, MeshAxis over) {
  bool is_of_all = comm->mesh.pipeline == 1 || over == MESH_ALL || over == MESH_PIPELINE;
  return is_of_all ? ORDER_ALL : ORDER_STAGE;
}

int comm_reference(const Comm *comm, CommOrder order, int rank) {
  return order == ORDER_ALL ? 0 : mesh_member(&comm->mesh, MESH_STAGE, rank, 0);
}

/* What stages do with each other has labels of each, and a run of a device as many collectives as its
 * stage's program. */
static uint64_t hash_of(const Comm *comm, const CommWork *work, MeshAxis over, const char *text) {
  char plain[COMM_TEXT];
  bool is_run = work->kind == COMM_RUN;
  if (comm->mesh.pipeline == 1 || (!is_run && over != MESH_PIPELINE)) return hash_note(text);
  snprintf(plain, sizeof plain, "%.*s", (int)strcspn(text, is_run ? " " : "("), text);
  return hash_note(plain);
}

/* over: the axis of the work as it was given. */
static Status queue(Comm *comm, const CommWork *work, MeshAxis over, bool is_waited,
                    int64_t *number) {
  Slot *slot = &comm->slot[(comm->begun + 1) % COMM_SLOTS];
  if (comm->has_failed) return failure(comm);
  if (slot->state != SLOT_FREE)
    return status_fail(STATUS_USER, "%d works have been begun and none of them ended", COMM_SLOTS);
  *slot = (Slot){.state = SLOT_QUEUED,
                 .number = ++comm->begun,
                 .work = *work,
                 .is_shared = shared_can(comm->shared, work),
                 .is_waited = is_waited,
                 .step = atomic_load(&comm->step)};
  *number = slot->number;
  if (comm->ended + 1 == slot->number) comm->since = clock_nanoseconds();
  slot->order = order_of(comm, over);
  if (is_between_two(work->kind)) {
    slot->peer = mesh_member(&comm->mesh, over, comm->place.rank, work->peer);
    return STATUS_OK;
  }
  slot->collective = ++comm->entered[slot->order];
  Note *note = &comm->note[slot->order][slot->collective % BOARD_RING];
  describe(work, note->text);
  note->hash = hash_of(comm, work, over, note->text);
  return STATUS_OK;
}

static Status begin_work(Comm *comm, const CommWork *work, bool is_waited, int64_t *number) {
  int size = comm_size(comm, work->over);
  *number = 0;
  STATUS_TRY(comm_check(work, size));
  if (work->clears) memset(work->out, 0, (size_t)work->count * (size_t)dtype_bytes(work->dtype));
  if (size == 1 || work->kind == COMM_ABSENT) {
    Status status = work->kind == COMM_ABSENT ? STATUS_OK : do_alone(work);
    if (work->done) work->done(work->context, status);
    return STATUS_OK;
  }
  CommWork own = *work;
  own.over = comm_axis(comm, work->over);
  pthread_mutex_lock(&comm->lock);
  Status status = queue(comm, &own, work->over, is_waited, number);
  bool is_over = status == STATUS_OK && comm_enter(comm, &comm->slot[*number % COMM_SLOTS]);
  pthread_mutex_unlock(&comm->lock);
  if (is_over && work->done) work->done(work->context, STATUS_OK);
  return status;
}

Status comm_begin(Comm *comm, const CommWork *work, int64_t *number) {
  return begin_work(comm, work, false, number);
}

Status comm_end(Comm *comm, int64_t number) {
  if (!comm || !number) return STATUS_OK; /* done alone */
  Status status = STATUS_OK;
  Slot *slot = &comm->slot[number % COMM_SLOTS];
  pthread_mutex_lock(&comm->lock);
  if (slot->state == SLOT_FREE || slot->number != number || slot->work.done)
    status = status_fail(STATUS_USER, "work %lld has not been begun", (long long)number);
  if (status == STATUS_OK && slot->is_shared && slot->is_waited) comm_drive(comm, slot);
  while (status == STATUS_OK && slot->state != SLOT_ENDED && slot->state != SLOT_FAILED)
    pthread_cond_wait(&comm->changed, &comm->lock);
  if (status == STATUS_OK) {
    if (slot->state == SLOT_FAILED) status = failure(comm);
    slot->state = SLOT_FREE;
  }
  pthread_mutex_unlock(&comm->lock);
  return status;
}

/* A slot is used again only when its work and all before it have ended. */
void comm_note_end(Comm *comm, Slot *slot) {
  slot->is_noted = true;
  for (; comm->ended < comm->begun; comm->ended++) {
    const Slot *next = &comm->slot[(comm->ended + 1) % COMM_SLOTS];
    if (next->number == comm->ended + 1 && !next->is_noted) break;
    comm->since = clock_nanoseconds();
  }
}

/* ── failing ──────────────────────────────────────────────────────────────────────────────── */
/* The next one whose caller is told by a call. */
static bool next_failed(Comm *comm, CommWork *out) {
  for (int i = 0; i < COMM_SLOTS; i++)
    if (comm->slot[i].state == SLOT_FAILED && comm->slot[i].work.done) {
      *out = comm->slot[i].work;
      comm->slot[i].state = SLOT_FREE;
      comm->is_told = true;
      return true;
    }
  return false;
}

static void *abort_outside(void *argument) {
  Comm *comm = argument;
  comm->outside.abort(comm->outside.context);
  pthread_mutex_lock(&comm->lock);
  comm->is_aborting = false;
  pthread_cond_broadcast(&comm->changed);
  pthread_mutex_unlock(&comm->lock);
  return NULL;
}

/* With the lock held. A library's abort may take its time, or never end. */
static void start_abort(Comm *comm) {
  pthread_t thread;
  if (!comm->is_attached || comm->is_aborting) return;
  comm->is_attached = false;
  comm->is_aborting = pthread_create(&thread, NULL, abort_outside, comm) == 0;
  if (comm->is_aborting) pthread_detach(thread);
}

Status comm_attach(Comm *comm, const CommOutside *outside) {
  pthread_mutex_lock(&comm->lock);
  Status status = comm->has_failed ? failure(comm) : STATUS_OK;
  if (status == STATUS_OK) {
    comm->outside = *outside;
    comm->is_attached = true;
  }
  pthread_mutex_unlock(&comm->lock);
  return status;
}

bool comm_detach(Comm *comm) {
  static const int64_t patience = 2000000000;
  int64_t end = clock_nanoseconds() + patience;
  pthread_mutex_lock(&comm->lock);
  comm->is_attached = false;
  while (comm->is_aborting && clock_nanoseconds() < end)
    comm_wait(comm, &comm->changed, end - clock_nanoseconds());
  bool is_quiet = !comm->is_aborting;
  pthread_mutex_unlock(&comm->lock);
  return is_quiet;
}

void comm_leave_outside(Comm *comm, bool in_peace) {
  pthread_mutex_lock(&comm->lock);
  bool is_attached = comm->is_attached;
  pthread_mutex_unlock(&comm->lock);
  if (is_attached && in_peace) comm->outside.leave(comm->outside.context);
}

Status comm_status(Comm *comm) {
  if (!comm) return STATUS_OK;
  pthread_mutex_lock(&comm->lock);
  Status status = comm->has_failed ? failure(comm) : STATUS_OK;
  pthread_mutex_unlock(&comm->lock);
  return status;
}

int64_t comm_failed_at(Comm *comm) {
  if (!comm) return 0;
  pthread_mutex_lock(&comm->lock);
  int64_t at = comm->has_failed ? comm->failed_at : 0;
  pthread_mutex_unlock(&comm->lock);
  return at;
}

bool comm_fail(Comm *comm, Status status, const char *sentence) {
  static const int64_t patience = 1000000000; /* with a call of the engine that does not return */
  pthread_mutex_lock(&comm->lock);
  bool is_first = !comm->has_failed;
  if (is_first) {
    comm->has_failed = true;
    comm->failed_as = status;
    comm->failed_at = clock_nanoseconds();
    snprintf(comm->sentence, sizeof comm->sentence, "%s", sentence);
    start_abort(comm);
  }
  comm_alert(comm);
  /* when a work has ended its memory may be freed */
  int64_t end = clock_nanoseconds() + patience;
  while (is_first && comm->is_in_engine && clock_nanoseconds() < end)
    comm_wait(comm, &comm->changed, end - clock_nanoseconds());
  for (int i = 0; i < COMM_SLOTS && is_first; i++)
    if (comm->slot[i].state == SLOT_QUEUED || comm->slot[i].state == SLOT_UNDER_WAY)
      comm->slot[i].state = SLOT_FAILED;
  pthread_cond_broadcast(&comm->changed);
  for (CommWork work; is_first && next_failed(comm, &work);) {
    pthread_mutex_unlock(&comm->lock);
    work.done(work.context, status_fail(status, "%s", sentence));
    pthread_mutex_lock(&comm->lock);
  }
  pthread_mutex_unlock(&comm->lock);
  return is_first;
}

bool comm_fail_without_rank_0(Comm *comm, const char *sentence) {
  pthread_mutex_lock(&comm->lock);
  if (!comm->has_failed) comm->is_rank_0_lost = true;
  pthread_mutex_unlock(&comm->lock);
  return comm_fail(comm, STATUS_FAULT, sentence);
}

void comm_let_leave(Comm *comm) {
  pthread_mutex_lock(&comm->lock);
  comm->may_leave = true;
  comm_alert(comm);
  pthread_mutex_unlock(&comm->lock);
}

/* ── for the watch ────────────────────────────────────────────────────────────────────────── */
void comm_seat(const Comm *comm, int rank, char *out, size_t size) {
  const Seat *seat = &comm->seats[rank];
  snprintf(out, size, "host %s%s%s", seat->host, seat->device[0] ? ", " : "", seat->device);
}

void comm_at_step(Comm *comm, int64_t step) {
  if (comm) atomic_store_explicit(&comm->step, step, memory_order_relaxed);
}

void comm_doing(Comm *comm, const CommDoing *doing) {
  if (comm) atomic_store_explicit(&comm->doing, doing, memory_order_relaxed);
}

void comm_doing_nothing(Comm *comm) {
  if (!comm) return;
  pthread_mutex_lock(&comm->lock);
  atomic_store(&comm->doing, NULL);
  pthread_mutex_unlock(&comm->lock);
}

void comm_goes_on(Comm *comm) {
  if (comm) atomic_fetch_add_explicit(&comm->signs, 1, memory_order_relaxed);
}

static void look_at_doing(Comm *comm, Progress *out) {
  const CommDoing *doing = atomic_load(&comm->doing);
  out->step = atomic_load(&comm->step);
  if (!doing) return;
  out->may_last = doing->may_last;
  out->signs = doing->may_last ? atomic_load(&comm->signs) : 0;
  char line[24] = "";
  if (doing->line) snprintf(line, sizeof line, " (line %u)", doing->line);
  snprintf(out->doing, sizeof out->doing, "%s%s%.80s%s", doing->what, doing->name ? " " : "",
           doing->name ? doing->name : "", line);
}

void comm_progress(Comm *comm, Progress *out) {
  pthread_mutex_lock(&comm->lock);
  *out = (Progress){.entered = comm->entered[ORDER_ALL],
                    .entered_in_stage = comm->entered[ORDER_STAGE]};
  look_at_doing(comm, out);
  if (comm->ended < comm->begun) {
    const Slot *slot = &comm->slot[(comm->ended + 1) % COMM_SLOTS];
    out->oldest = slot->number;
    out->oldest_collective = slot->collective;
    out->oldest_step = slot->step;
    out->oldest_is_in_stage = slot->order == ORDER_STAGE;
    out->oldest_is_message = is_between_two(slot->work.kind);
    out->oldest_peer = slot->peer;
    out->since = comm->since;
    describe(&slot->work, out->text);
  }
  pthread_mutex_unlock(&comm->lock);
}

bool comm_read_note(Comm *comm, CommOrder order, int64_t number, Note *out) {
  pthread_mutex_lock(&comm->lock);
  int64_t entered = comm->entered[order];
  bool is_there = number > 0 && number <= entered && entered - number < BOARD_RING;
  *out = is_there ? comm->note[order][number % BOARD_RING] : (Note){.text = "collective"};
  pthread_mutex_unlock(&comm->lock);
  return is_there;
}

/* Those that the watch has not read and that are still there; *first: the number of out[0]. */
int comm_next_notes(Comm *comm, CommOrder order, Note *out, int most, int64_t *first) {
  pthread_mutex_lock(&comm->lock);
  int64_t entered = comm->entered[order], *noted = &comm->noted[order];
  if (entered - *noted > BOARD_RING) *noted = entered - BOARD_RING;
  int count = 0;
  *first = *noted + 1;
  for (; *noted < entered && count < most; count++)
    out[count] = comm->note[order][++*noted % BOARD_RING];
  pthread_mutex_unlock(&comm->lock);
  return count;
}

/* ── for the host's own affairs ───────────────────────────────────────────────────────────── */
Status comm_do(Comm *comm, const CommWork *work) {
  CommWork own = *work;
  int64_t number;
  own.done = NULL;
  STATUS_TRY(begin_work(comm, &own, true, &number));
  return comm_end(comm, number);
}

Status comm_barrier(Comm *comm, const char *label) {
  uint8_t byte = 1;
  if (!comm) return STATUS_OK;
  return comm_do(comm, &(CommWork){.kind = COMM_ALL_REDUCE,
                                   .op = COMM_MAX,
                                   .dtype = DT_U8,
                                   .count = 1,
                                   .x = &byte,
                                   .out = &byte,
                                   .label = label});
}

/* Two sums of the bytes, of which equal texts have equal ones, and different ones hardly ever. */
static void sum_bytes(const void *bytes, int64_t count, uint64_t sum[3]) {
  const unsigned char *at = bytes;
  sum[0] = 0xcbf29ce484222325u;
  sum[1] = 0x9e3779b97f4a7c15u;
  sum[2] = (uint64_t)count;
  for (int64_t i = 0; i < count; i++) {
    sum[0] = (sum[0] ^ at[i]) * 0x100000001b3u;
    sum[1] = (sum[1] + at[i]) * 0xd6e8feb86659fd93u;
    sum[1] ^= sum[1] >> 32;
  }
}

static Status compare_ranks(Comm *comm, bool in_stages, const char *what, const void *bytes,
                            int64_t count) {
  enum { SUMS = 3, MOST_NAMED = 8 };
  if (!comm) return STATUS_OK;
  uint64_t sum[SUMS], *all = calloc((size_t)comm->place.ranks, sizeof sum);
  if (!all) return status_fail(STATUS_FAULT, "out of memory");
  sum_bytes(bytes, count, sum);
  Status status = comm_do(comm, &(CommWork){.kind = COMM_ALL_GATHER,
                                            .dtype = DT_I64,
                                            .count = SUMS,
                                            .x = sum,
                                            .out = all,
                                            .label = what});
  char list[128] = "";
  int others = 0, length = 0, as = 0;
  for (int r = 1; r < comm->place.ranks && status == STATUS_OK; r++) {
    int first = in_stages ? mesh_member(&comm->mesh, MESH_STAGE, r, 0) : 0;
    if (!memcmp(all + (size_t)first * SUMS, all + (size_t)r * SUMS, sizeof sum)) continue;
    if (!others) as = first;
    if (others++ < MOST_NAMED)
      length +=
          snprintf(list + length, sizeof list - (size_t)length, "%s%d", length ? ", " : "", r);
  }
  free(all);
  if (!others) return status;
  return status_fail(STATUS_USER, "%s of rank%s %s%s %s not the same as rank %d's", what,
                     others == 1 ? "" : "s", list, others > MOST_NAMED ? ", …" : "",
                     others == 1 ? "is" : "are", as);
}

Status comm_same(Comm *comm, const char *what, const void *bytes, int64_t count) {
  return compare_ranks(comm, false, what, bytes, count);
}

Status comm_same_in_stages(Comm *comm, const char *what, const void *bytes, int64_t count) {
  return compare_ranks(comm, true, what, bytes, count);
}
