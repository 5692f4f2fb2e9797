/* pipeline_order: see there. The tasks are placed one by one, the one that may start first first; as
 * each takes time, none that is placed later could have started before. */
#include "plan/pipeline_order.h"

enum { FORWARD, BACKWARD, KINDS };

typedef struct {
  int next[KINDS]; /* how many are placed: the next one's number in the rank's order */
  int kept;        /* most tasks whose activations are kept at a time */
  int64_t free;    /* when the last one ends */
} Lane;

typedef struct {
  const Pipeline *p;
  Lane *lane;
  int64_t *end[KINDS]; /* by chunk * micros + micro; -1: not placed */
} Order;

static int64_t task_time(const Pipeline *p, int kind, int chunk) {
  const int64_t *times = kind == FORWARD ? p->forward : p->backward;
  return times ? times[chunk] : kind == FORWARD ? 1 : 2;
}

static int tasks_of_rank(const Pipeline *p) { return p->chunks * p->micros; }

/* Number n of a rank's forwards: groups of as many micro-batches as there are ranks go through one
 * chunk after the other; backwards alike, from the last chunk on. */
static PipelineTask task_at(const Pipeline *p, int rank, int kind, int n) {
  int group = p->ranks * p->chunks, first = n / group * p->ranks;
  int wide = p->micros - first < p->ranks ? p->micros - first : p->ranks;
  int within = n - first * p->chunks, own = within / wide;
  if (kind == BACKWARD) own = p->chunks - 1 - own;
  return (PipelineTask){.rank = rank,
                        .chunk = own * p->ranks + rank,
                        .micro = first + within % wide,
                        .is_backward = kind == BACKWARD};
}

/* When all that the task waits for is there; -1: not yet known. */
static int64_t ready_at(const Order *o, const PipelineTask *task, int kind) {
  const Pipeline *p = o->p;
  int last = p->ranks * p->chunks - 1, at = task->chunk * p->micros + task->micro;
  if (kind == FORWARD && task->chunk == 0) return 0;
  if (kind == BACKWARD && task->chunk == last) return o->end[FORWARD][at];
  int64_t before = o->end[kind][kind == FORWARD ? at - p->micros : at + p->micros];
  int64_t own = kind == BACKWARD ? o->end[FORWARD][at] : 0;
  if (before < 0 || own < 0) return -1;
  before += p->ranks > 1 ? p->transfer : 0;
  return before > own ? before : own;
}

/* What the rank does next, with its start: a forward until it keeps what it should, then one of each
 * in turns; in any order: what may start first. False: it waits for others. */
static bool choose_task(const Order *o, int rank, bool in_any_order, int64_t *start,
                        PipelineTask *out) {
  const Lane *lane = &o->lane[rank];
  int all = tasks_of_rank(o->p), kept = lane->next[FORWARD] - lane->next[BACKWARD];
  bool is_found = false, goes_on = lane->next[FORWARD] < all && kept < lane->kept;
  for (int kind = BACKWARD; kind >= FORWARD; kind--) {
    if (lane->next[kind] == all || (kind == BACKWARD && o->p->is_forward)) continue;
    if ((kind == FORWARD) != goes_on && !in_any_order) continue;
    PipelineTask task = task_at(o->p, rank, kind, lane->next[kind]);
    int64_t ready = ready_at(o, &task, kind);
    if (ready < 0) continue;
    if (ready < lane->free) ready = lane->free;
    if (is_found && ready >= *start) continue;
    is_found = true;
    *start = ready;
    *out = task;
  }
  return is_found;
}

static int first_to_start(const Order *o, bool in_any_order, PipelineTask *out) {
  int first = -1;
  int64_t least = 0, start = 0;
  PipelineTask task;
  for (int rank = 0; rank < o->p->ranks; rank++)
    if (choose_task(o, rank, in_any_order, &start, &task) && (first < 0 || start < least)) {
      first = rank;
      least = start;
      *out = task;
    }
  out->start = least;
  return first;
}

PipelineTask *pipeline_order(Arena *arena, const Pipeline *p, int *count) {
  int all = tasks_of_rank(p), kinds = p->is_forward ? 1 : KINDS;
  Order o = {.p = p, .lane = ARENA_ARRAY(arena, Lane, p->ranks)};
  *count = all * p->ranks * kinds;
  PipelineTask *tasks = ARENA_ARRAY(arena, PipelineTask, *count);
  for (int kind = 0; kind < KINDS; kind++) {
    o.end[kind] = ARENA_ARRAY(arena, int64_t, all * p->ranks);
    for (int i = 0; i < all * p->ranks; i++) o.end[kind][i] = -1;
  }
  for (int r = 0; r < p->ranks; r++) {
    int behind = p->ranks - r - 1;
    int kept = p->chunks == 1 ? behind + 1 : 2 * behind + (p->chunks - 1) * p->ranks + 1;
    o.lane[r].kept = p->is_forward ? all : kept;
  }
  for (int i = 0; i < *count; i++) {
    PipelineTask task;
    int rank = first_to_start(&o, false, &task);
    /* where the last group of micro-batches is smaller than the others, all may wait for a forward
     * of a rank that keeps as much as it should */
    if (rank < 0) rank = first_to_start(&o, true, &task);
    if (i && task.start < tasks[i - 1].start) task.start = tasks[i - 1].start;
    int kind = task.is_backward ? BACKWARD : FORWARD;
    task.end = task.start + task_time(p, kind, task.chunk);
    o.lane[rank].next[kind]++;
    o.lane[rank].free = task.end;
    o.end[kind][task.chunk * p->micros + task.micro] = task.end;
    tasks[i] = task;
  }
  return tasks;
}
