/* timeline: see timeline.h. Time goes from one end of a task to the next; at each all that may begin
 * begins. */
#include "simulate/timeline.h"
#include <stdlib.h>
#include <string.h>

/* Of one rank. */
typedef struct {
  const TimelineRank *of;
  TimelineSpan *span;
  int *waits;               /* by task: how many tasks it still waits for */
  int *next_user, *user_of; /* lists of those that wait for a task: heads by task, then by entry */
  int *first_user, users;
  bool *begun, *ended;
  int first;                         /* all before it have begun or are of another queue */
  int *posts, post_count, next_post; /* the communicate queue's tasks */
  int running[2];                    /* by queue: the task under way, or -1 */
  int left;
} RankState;

/* The messages from one rank to another, in their order. */
typedef struct {
  int from, to;
  VEC(int) sent, received; /* tasks of the two */
  int next;
  bool is_busy;
} Direction;

typedef struct {
  Arena *arena;
  RankState *state;
  int ranks;
  VEC(Direction) directions;
  double now;
} Run;

static const double never = 1e300;

/* ── tasks ──────────────────────────────────────────────────────────────────────────────────── */
static bool timeline_is_ready(const RankState *s, int task) {
  return !s->begun[task] && !s->waits[task];
}

/* What waits for the task may go on; tasks of no queue end at once. */
static void end_task(RankState *s, int task, double now) {
  s->ended[task] = true;
  s->span[task].end = now;
  s->left--;
  for (int at = s->first_user[task]; at >= 0; at = s->next_user[at]) {
    int user = s->user_of[at];
    if (--s->waits[user] || s->of->task[user].queue != TIMELINE_NONE) continue;
    s->begun[user] = true;
    s->span[user].begin = now;
    end_task(s, user, now);
  }
}

static void begin_task(RankState *s, int task, double seconds, double now) {
  s->begun[task] = true;
  s->span[task] = (TimelineSpan){now, now + seconds};
  s->running[s->of->task[task].queue] = task;
}

static void begin_compute(RankState *s, double now) {
  const TimelineTask *task = s->of->task;
  if (s->running[TIMELINE_COMPUTE] >= 0) return;
  while (s->first < s->of->count &&
         (s->begun[s->first] || task[s->first].queue != TIMELINE_COMPUTE))
    s->first++;
  for (int i = s->first; i < s->of->count; i++) {
    if (task[i].queue != TIMELINE_COMPUTE || !timeline_is_ready(s, i)) continue;
    begin_task(s, i, task[i].seconds, now);
    return;
  }
}

/* The task that the rank would communicate with next, if it may; -1. */
static int next_post(const RankState *s) {
  if (s->running[TIMELINE_COMMUNICATE] >= 0 || s->next_post == s->post_count) return -1;
  int task = s->posts[s->next_post];
  return timeline_is_ready(s, task) ? task : -1;
}

static bool takes_part(const RankState *s, int collective) {
  for (int i = 0; i < s->of->count; i++)
    if (s->of->task[i].collective == collective) return true;
  return false;
}

/* Begins the collective of rank r's next task if all that take part have come. */
static bool begin_collective(Run *run, int r) {
  int task = next_post(&run->state[r]);
  if (task < 0) return false;
  int collective = run->state[r].of->task[task].collective;
  double seconds = run->state[r].of->task[task].seconds;
  bool is_first = true;
  for (int other = 0; collective >= 0 && other < run->ranks; other++) {
    const RankState *s = &run->state[other];
    int its = next_post(s);
    bool has_come = its >= 0 && s->of->task[its].collective == collective;
    if (!has_come && takes_part(s, collective)) return false;
    if (has_come && is_first) seconds = s->of->task[its].seconds;
    if (has_come) is_first = false;
  }
  for (int other = 0; other < run->ranks; other++) {
    RankState *s = &run->state[other];
    int its = other == r ? task : collective >= 0 ? next_post(s) : -1;
    if (its < 0 || s->of->task[its].collective != collective) continue;
    begin_task(s, its, seconds, run->now);
    s->next_post++;
  }
  return true;
}

/* ── messages ───────────────────────────────────────────────────────────────────────────────── */
static Direction *direction_of(Run *run, const TimelineTask *task) {
  for (int i = 0; i < run->directions.count; i++) {
    Direction *d = &run->directions.at[i];
    if (d->from == task->from && d->to == task->to) return d;
  }
  VEC_PUSH(run->arena, run->directions, ((Direction){.from = task->from, .to = task->to}));
  return &run->directions.at[run->directions.count - 1];
}

static void find_messages(Run *run) {
  for (int r = 0; r < run->ranks; r++)
    for (int i = 0; i < run->state[r].of->count; i++) {
      const TimelineTask *task = &run->state[r].of->task[i];
      if (task->queue != TIMELINE_MESSAGE) continue;
      Direction *d = direction_of(run, task);
      if (r == task->from) VEC_PUSH(run->arena, d->sent, i);
      if (r == task->to) VEC_PUSH(run->arena, d->received, i);
    }
}

static void begin_message(Run *run, Direction *d) {
  if (d->is_busy || d->next >= d->sent.count || d->next >= d->received.count) return;
  RankState *from = &run->state[d->from], *to = &run->state[d->to];
  int sent = d->sent.at[d->next], received = d->received.at[d->next];
  if (!timeline_is_ready(from, sent) || !timeline_is_ready(to, received)) return;
  TimelineSpan span = {run->now, run->now + from->of->task[sent].seconds};
  from->begun[sent] = to->begun[received] = true;
  from->span[sent] = to->span[received] = span;
  d->is_busy = true;
}

/* When the message under way ends; never: there is none. */
static double message_end(const Run *run, const Direction *d) {
  return d->is_busy ? run->state[d->from].span[d->sent.at[d->next]].end : never;
}

static void end_messages(Run *run) {
  for (int i = 0; i < run->directions.count; i++) {
    Direction *d = &run->directions.at[i];
    if (message_end(run, d) > run->now) continue;
    int at = d->next++;
    d->is_busy = false;
    end_task(&run->state[d->from], d->sent.at[at], run->now);
    end_task(&run->state[d->to], d->received.at[at], run->now);
  }
}

/* ── time ───────────────────────────────────────────────────────────────────────────────────── */
static void begin_all(Run *run) {
  for (int r = 0; r < run->ranks; r++) {
    begin_compute(&run->state[r], run->now);
    begin_collective(run, r);
  }
  for (int i = 0; i < run->directions.count; i++) begin_message(run, &run->directions.at[i]);
}

/* False: nothing is under way. */
static bool end_next(Run *run) {
  double next = never;
  for (int r = 0; r < run->ranks; r++)
    for (int q = 0; q < 2; q++) {
      const RankState *s = &run->state[r];
      if (s->running[q] >= 0 && s->span[s->running[q]].end < next)
        next = s->span[s->running[q]].end;
    }
  for (int i = 0; i < run->directions.count; i++) {
    double end = message_end(run, &run->directions.at[i]);
    if (end < next) next = end;
  }
  if (next == never) return false;
  run->now = next;
  end_messages(run);
  for (int r = 0; r < run->ranks; r++)
    for (int q = 0; q < 2; q++) {
      RankState *s = &run->state[r];
      int task = s->running[q];
      if (task < 0 || s->span[task].end > next) continue;
      s->running[q] = -1;
      end_task(s, task, next);
    }
  return true;
}

static void timeline_prepare(Arena *arena, const TimelineRank *rank, RankState *s) {
  int count = rank->count, entries = 0;
  for (int i = 0; i < count; i++) entries += rank->task[i].after_count;
  *s = (RankState){.of = rank,
                   .span = ARENA_ARRAY(arena, TimelineSpan, count + 1),
                   .waits = ARENA_ARRAY(arena, int, count + 1),
                   .first_user = ARENA_ARRAY(arena, int, count + 1),
                   .next_user = ARENA_ARRAY(arena, int, entries + 1),
                   .user_of = ARENA_ARRAY(arena, int, entries + 1),
                   .begun = ARENA_ARRAY(arena, bool, count + 1),
                   .ended = ARENA_ARRAY(arena, bool, count + 1),
                   .posts = ARENA_ARRAY(arena, int, count + 1),
                   .running = {-1, -1},
                   .left = count};
  for (int i = 0; i < count; i++) s->first_user[i] = -1;
  for (int i = 0; i < count; i++) {
    const TimelineTask *task = &rank->task[i];
    if (task->queue == TIMELINE_COMMUNICATE) s->posts[s->post_count++] = i;
    s->waits[i] = task->after_count;
    for (int k = 0; k < task->after_count; k++) {
      s->user_of[s->users] = i;
      s->next_user[s->users] = s->first_user[task->after[k]];
      s->first_user[task->after[k]] = s->users++;
    }
  }
  for (int i = 0; i < count; i++) {
    bool is_free = rank->task[i].queue == TIMELINE_NONE && !rank->task[i].after_count;
    if (!is_free || s->begun[i]) continue;
    s->begun[i] = true;
    end_task(s, i, 0);
  }
}

/* ── sums ───────────────────────────────────────────────────────────────────────────────────── */
static int compare_begins(const void *a, const void *b) {
  const TimelineSpan *x = a, *y = b;
  return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* The spans of a rank's queue, or of all that communicates, in order and joined where they overlap. */
static int spans_of(const RankState *s, bool computes, TimelineSpan *out) {
  int count = 0, joined = 0;
  for (int i = 0; i < s->of->count; i++) {
    TimelineQueue queue = s->of->task[i].queue;
    bool is_it = computes ? queue == TIMELINE_COMPUTE
                          : queue == TIMELINE_COMMUNICATE || queue == TIMELINE_MESSAGE;
    if (is_it) out[count++] = s->span[i];
  }
  qsort(out, (size_t)count, sizeof *out, compare_begins);
  for (int i = 0; i < count; i++) {
    if (joined && out[i].begin <= out[joined - 1].end) {
      if (out[i].end > out[joined - 1].end) out[joined - 1].end = out[i].end;
    } else {
      out[joined++] = out[i];
    }
  }
  return joined;
}

static double length_of(const TimelineSpan *span, int count) {
  double sum = 0;
  for (int i = 0; i < count; i++) sum += span[i].end - span[i].begin;
  return sum;
}

/* Exposed is what communicates while nothing computes. */
static void timeline_sum(Arena *arena, const RankState *s, double seconds, double *compute,
                         double *exposed, double *bubble) {
  TimelineSpan *busy = ARENA_ARRAY(arena, TimelineSpan, s->of->count + 1);
  TimelineSpan *joins = ARENA_ARRAY(arena, TimelineSpan, s->of->count + 1);
  int computes = spans_of(s, true, busy), communicates = spans_of(s, false, joins), first = 0;
  double both = 0;
  for (int i = 0; i < communicates; i++) {
    while (first < computes && busy[first].end <= joins[i].begin) first++;
    for (int k = first; k < computes && busy[k].begin < joins[i].end; k++) {
      double from = busy[k].begin > joins[i].begin ? busy[k].begin : joins[i].begin;
      double to = busy[k].end < joins[i].end ? busy[k].end : joins[i].end;
      both += to - from;
    }
  }
  *compute = length_of(busy, computes);
  *exposed = length_of(joins, communicates) - both;
  *bubble = seconds - *compute - *exposed;
}

bool timeline_run(Arena *arena, const TimelineRank *rank, int ranks, Timeline *out) {
  Run run = {.arena = arena, .state = ARENA_ARRAY(arena, RankState, ranks), .ranks = ranks};
  int left = 0;
  *out = (Timeline){.span = ARENA_ARRAY(arena, TimelineSpan *, ranks),
                    .compute = ARENA_ARRAY(arena, double, ranks),
                    .exposed = ARENA_ARRAY(arena, double, ranks),
                    .bubble = ARENA_ARRAY(arena, double, ranks)};
  for (int r = 0; r < ranks; r++) {
    timeline_prepare(arena, &rank[r], &run.state[r]);
    out->span[r] = run.state[r].span;
  }
  find_messages(&run);
  do begin_all(&run);
  while (end_next(&run));
  out->seconds = run.now;
  for (int r = 0; r < ranks; r++) {
    left += run.state[r].left;
    timeline_sum(arena, &run.state[r], run.now, &out->compute[r], &out->exposed[r], &out->bubble[r]);
  }
  return left == 0;
}
