/* shared_work: see shared.h. Works of a group are numbered, and each meets its others in a slot of a
 * ring. The order of the sums is that of mpi_exchange: each rank has a part of the elements, and
 * begins with its own operand, then those of the ranks behind it. */
#include "runtime/communicate/combine.h"
#include "runtime/communicate/shared_private.h"
#include <stdlib.h>
#include <string.h>

/* Bytes of a unit, which one rank does; of a tile, which stays in the first cache meanwhile. */
enum { UNIT = 1 << 17, TILE = 1 << 13 };

struct SharedWork {
  CommWork work;
  const SharedGroup *group;
  uint64_t number;
  SharedMeeting *meeting;
  bool is_staged, is_prepared; /* is_prepared: what follows is known */
  Combine *combine;
  int64_t size, share; /* bytes of an element; elements of a part */
  int parts;
  uint64_t units;
  char *x[SHARED_RANKS], *out[SHARED_RANKS]; /* of each rank of the group */
};

static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

static uint64_t all_members(const SharedGroup *group) {
  return group->count == 64 ? ~(uint64_t)0 : ((uint64_t)1 << group->count) - 1;
}

static SharedHeader *header_of(const Shared *shared, const SharedGroup *group, int member) {
  return shared->peer[group->rank[member]].header;
}

static SharedMeeting *meeting_of(const Shared *shared, MeshAxis axis, uint64_t number) {
  SharedHeader *first = header_of(shared, &shared->group[axis], 0);
  return &first->meeting[axis][number % SHARED_SLOTS];
}

static SharedEntry *entry_of(const Shared *shared, const SharedWork *w, int member) {
  return &header_of(shared, w->group, member)->entry[w->work.over][w->number % SHARED_SLOTS];
}

static char *stage_of(const Shared *shared, const SharedWork *w, int member) {
  return header_of(shared, w->group, member)->stage[w->work.over][w->number % SHARED_SLOTS];
}

bool shared_is_small(const CommWork *work) {
  return work->count * dtype_bytes(work->dtype) <= SHARED_STAGE;
}

bool shared_can(const Shared *shared, const CommWork *work) {
  bool is_messages = work->kind == COMM_SEND || work->kind == COMM_RECEIVE;
  if (!shared || is_messages || work->kind > COMM_BROADCAST || work->look) return false;
  return shared_serves(shared, work->over) && (work->is_shared || shared_is_small(work));
}

bool shared_has_room(const Shared *shared, MeshAxis axis) {
  uint64_t next = shared->group[axis].next;
  return atomic_load(&meeting_of(shared, axis, next)->turn) == next;
}

/* ── what is done with the elements ───────────────────────────────────────────────────────── */
/* Elements [at, at + count) of the work, which are of the part of `owner`, into `to`. */
static void combine_at(const SharedWork *w, int owner, int64_t at, int64_t count, char *to) {
  int ranks = w->group->count;
  const char *own = w->x[owner] + at * w->size;
  if (own != to) memcpy(to, own, (size_t)(count * w->size));
  for (int i = 1; i < ranks; i++) w->combine(w->x[(owner + i) % ranks] + at * w->size, to, count);
}

static void copy_to_all(const SharedWork *w, const char *from, int64_t at, int64_t count) {
  for (int r = 0; r < w->group->count; r++) {
    char *to = w->out[r] + at * w->size;
    if (to != from && count) memcpy(to, from, (size_t)(count * w->size));
  }
}

static int64_t shared_part(const SharedWork *w, int part) {
  if (w->work.kind != COMM_ALL_REDUCE) return w->share;
  int64_t begin = lesser(w->work.count, part * w->share);
  return lesser(w->work.count, begin + w->share) - begin;
}

/* Of all_to_all: part `pair` is between the ranks a <= b. */
static void pair_of(int part, int ranks, int *a, int *b) {
  for (*a = 0; part >= ranks - *a; ++*a) part -= ranks - *a;
  *b = *a + part;
}

/* In place or not: both directions at a time. */
static void exchange_pair(const SharedWork *w, int a, int b, int64_t at, int64_t count) {
  char there[TILE], back[TILE];
  size_t bytes = (size_t)(count * w->size);
  int64_t to_b = (b * w->share + at) * w->size, to_a = (a * w->share + at) * w->size;
  memcpy(there, w->x[a] + to_b, bytes);
  memcpy(back, w->x[b] + to_a, bytes);
  memcpy(w->out[b] + to_a, there, bytes);
  memcpy(w->out[a] + to_b, back, bytes);
}

/* Elements [at, at + count) of a part, a tile at most. */
static void do_tile(const SharedWork *w, int part, int64_t at, int64_t count) {
  int64_t whole = part * w->share + at; /* of the elements of all parts */
  int a, b;
  switch (w->work.kind) {
  case COMM_ALL_REDUCE:
    combine_at(w, part, whole, count, w->out[part] + whole * w->size);
    copy_to_all(w, w->out[part] + whole * w->size, whole, count);
    break;
  case COMM_REDUCE_SCATTER:
    combine_at(w, part, whole, count, w->out[part] + at * w->size);
    break;
  case COMM_ALL_GATHER:
    copy_to_all(w, w->x[part] + at * w->size, whole, count);
    break;
  case COMM_ALL_TO_ALL:
    pair_of(part, w->group->count, &a, &b);
    exchange_pair(w, a, b, at, count);
    break;
  default:
    copy_to_all(w, w->x[w->work.peer] + at * w->size, at, count);
  }
}

static uint64_t units_of_part(const SharedWork *w, int part) {
  int64_t most = UNIT / w->size;
  return (uint64_t)((shared_part(w, part) + most - 1) / most);
}

static void do_unit(const SharedWork *w, uint64_t unit) {
  int part = 0;
  for (uint64_t units; unit >= (units = units_of_part(w, part)); part++) unit -= units;
  int64_t at = (int64_t)unit * (UNIT / w->size), tile = TILE / w->size;
  int64_t end = lesser(shared_part(w, part), at + UNIT / w->size);
  for (; at < end; at += tile) do_tile(w, part, at, lesser(tile, end - at));
}

/* ── small works ──────────────────────────────────────────────────────────────────────────── */
/* The ranks whose operands this one's result is made of. */
static uint64_t needed_of(const SharedWork *w) {
  return w->work.kind == COMM_BROADCAST ? (uint64_t)1 << w->work.peer : all_members(w->group);
}

/* From the copies of all into this rank's own result. */
static void finish_staged(SharedWork *w) {
  const CommWork *work = &w->work;
  int index = w->group->index;
  char *out = work->out;
  size_t part = (size_t)(w->share * w->size);
  switch (work->kind) {
  case COMM_ALL_REDUCE:
    for (int r = 0; r < w->group->count; r++) {
      int64_t at = r * w->share;
      if (shared_part(w, r) > 0) combine_at(w, r, at, shared_part(w, r), out + at * w->size);
    }
    break;
  case COMM_REDUCE_SCATTER:
    if (part) combine_at(w, index, index * w->share, w->share, out);
    break;
  case COMM_ALL_GATHER:
    for (int r = 0; r < w->group->count && part; r++) memcpy(out + (size_t)r * part, w->x[r], part);
    break;
  case COMM_ALL_TO_ALL:
    for (int r = 0; r < w->group->count && part; r++)
      memcpy(out + (size_t)r * part, w->x[r] + (size_t)index * part, part);
    break;
  default:
    if (part && (index != work->peer || work->out != work->x)) memcpy(out, w->x[work->peer], part);
  }
}

/* ── entering and leaving ─────────────────────────────────────────────────────────────────── */
static void ring_others(Shared *shared, const SharedWork *w, int most) {
  for (int i = 1; i < w->group->count && i <= most; i++)
    shared_ring_rank(shared, w->group->rank[(w->group->index + i) % w->group->count]);
}

static void find_shares(SharedWork *w) {
  int ranks = w->group->count;
  CommKind kind = w->work.kind;
  bool is_parted = kind == COMM_REDUCE_SCATTER || kind == COMM_ALL_TO_ALL;
  int64_t line = SHARED_LINE / w->size;
  w->share = w->work.count;
  if (is_parted) w->share = w->work.count / ranks;
  if (kind == COMM_ALL_REDUCE)
    w->share = ((w->work.count + ranks - 1) / ranks + line - 1) / line * line;
  w->parts = kind == COMM_BROADCAST ? 1 : kind == COMM_ALL_TO_ALL ? ranks * (ranks + 1) / 2 : ranks;
  for (int part = 0; part < w->parts; part++) w->units += units_of_part(w, part);
}

SharedWork *shared_begin(Shared *shared, const CommWork *work) {
  SharedGroup *group = &shared->group[work->over];
  SharedWork *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  w->work = *work;
  w->group = group;
  w->number = group->next++;
  w->meeting = meeting_of(shared, work->over, w->number);
  w->is_staged = shared_is_small(work);
  w->size = dtype_bytes(work->dtype);
  w->combine = combine_find(work->dtype, work->op);
  find_shares(w);
  SharedEntry *entry = entry_of(shared, w, group->index);
  *entry = (SharedEntry){(int32_t)work->kind,
                         (int32_t)work->op,
                         (int32_t)work->dtype,
                         work->peer,
                         work->count,
                         {0},
                         {0}};
  bool is_root = work->kind == COMM_BROADCAST && work->peer == group->index;
  bool has_operand = work->kind != COMM_BROADCAST || is_root;
  if (!w->is_staged) {
    entry->x = shared_place(shared, has_operand ? work->x : work->out);
    entry->out = shared_place(shared, work->out);
  } else if (has_operand && work->count) {
    memcpy(stage_of(shared, w, group->index), work->x, (size_t)(work->count * w->size));
  }
  uint64_t bit = (uint64_t)1 << group->index;
  bool is_last = (atomic_fetch_or(&w->meeting->entered, bit) | bit) == all_members(group);
  if (is_last && !w->is_staged) shared_ring(shared); /* who goes on with it is another thread */
  if (is_last || (is_root && w->is_staged))
    ring_others(shared, w,
                w->is_staged ? group->count : (int)lesser((int64_t)w->units, group->count) - 1);
  return w;
}

/* True where all that is needed have entered, with the same work: where they differ, nothing goes on,
 * and the watch says so. */
static bool have_come(const Shared *shared, const SharedWork *w) {
  uint64_t needed = w->is_staged ? needed_of(w) : all_members(w->group);
  if ((atomic_load(&w->meeting->entered) & needed) != needed) return false;
  const SharedEntry *own = entry_of(shared, w, w->group->index);
  for (int r = 0; r < w->group->count; r++) {
    const SharedEntry *other = entry_of(shared, w, r);
    if (!(needed >> r & 1)) continue;
    if (other->kind != own->kind || other->op != own->op || other->dtype != own->dtype ||
        other->peer != own->peer || other->count != own->count)
      return false;
  }
  return true;
}

static bool find_operands(Shared *shared, SharedWork *w, char *why) {
  for (int r = 0; r < w->group->count; r++) {
    const SharedEntry *entry = entry_of(shared, w, r);
    if (w->is_staged)
      w->x[r] = stage_of(shared, w, r);
    else if (!shared_find(shared, w->group->rank[r], &entry->x, &w->x[r], why) ||
             !shared_find(shared, w->group->rank[r], &entry->out, &w->out[r], why))
      return false;
  }
  return w->is_prepared = true;
}

/* The next unit that nobody has taken. */
static bool claim_unit(const SharedWork *w, uint64_t *unit) {
  uint64_t half = 0xffffffffu, seen = atomic_load(&w->meeting->claim);
  do {
    *unit = seen & half;
    if (seen >> 32 != (w->number & half) || *unit >= w->units) return false;
  } while (!atomic_compare_exchange_weak(&w->meeting->claim, &seen, seen + 1));
  return true;
}

bool shared_go_on(Shared *shared, SharedWork *w, EngineState *state, char *why) {
  *state = ENGINE_WAITS;
  if (!w->is_prepared) {
    if (!have_come(shared, w)) return true;
    if (!find_operands(shared, w, why)) return false;
  }
  if (w->is_staged) {
    finish_staged(w);
    *state = ENGINE_DONE;
    return true;
  }
  for (uint64_t unit; claim_unit(w, &unit);) {
    do_unit(w, unit);
    if (atomic_fetch_add(&w->meeting->done, 1) + 1 == w->units)
      ring_others(shared, w, w->group->count);
  }
  if (atomic_load(&w->meeting->done) == w->units) *state = ENGINE_DONE;
  return true;
}

/* The last one makes the slot ready for the work that comes round to it. */
void shared_leave(Shared *shared, SharedWork *w) {
  (void)shared;
  SharedMeeting *meeting = w->meeting;
  if (atomic_fetch_add(&meeting->left, 1) + 1 == (uint32_t)w->group->count) {
    uint64_t next = w->number + SHARED_SLOTS;
    atomic_store(&meeting->left, 0);
    atomic_store(&meeting->done, 0);
    atomic_store(&meeting->claim, next << 32);
    atomic_store(&meeting->entered, 0);
    atomic_store(&meeting->turn, next);
  }
  free(w);
}

void shared_drop(SharedWork *w) { free(w); }
