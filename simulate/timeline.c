/* timeline: see timeline.h. Time goes from one end of a task to the next; at each all that may begin
 * begins. */
#include "simulate/timeline.h"
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

typedef struct {
  RankState *state;
  int ranks;
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

/* ── time ───────────────────────────────────────────────────────────────────────────────────── */
static void begin_all(Run *run) {
  for (int r = 0; r < run->ranks; r++) {
    begin_compute(&run->state[r], run->now);
    begin_collective(run, r);
  }
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
  if (next == never) return false;
  run->now = next;
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
/* Tasks of one queue do not overlap, and in order of their begin they are in that of their number
 * only for the communicate queue; so the part of it that the compute queue is idle in is found by
 * what they have in common. */
static void timeline_sum(const RankState *s, double seconds, double *compute, double *exposed,
                         double *bubble) {
  double busy = 0, communicates = 0, both = 0;
  for (int i = 0; i < s->of->count; i++) {
    if (s->of->task[i].queue == TIMELINE_COMPUTE) busy += s->span[i].end - s->span[i].begin;
    if (s->of->task[i].queue != TIMELINE_COMMUNICATE) continue;
    communicates += s->span[i].end - s->span[i].begin;
    for (int k = 0; k < s->of->count; k++) {
      if (s->of->task[k].queue != TIMELINE_COMPUTE) continue;
      double from = s->span[k].begin > s->span[i].begin ? s->span[k].begin : s->span[i].begin;
      double to = s->span[k].end < s->span[i].end ? s->span[k].end : s->span[i].end;
      if (to > from) both += to - from;
    }
  }
  *compute = busy;
  *exposed = communicates - both;
  *bubble = seconds - busy - *exposed;
}

bool timeline_run(Arena *arena, const TimelineRank *rank, int ranks, Timeline *out) {
  Run run = {.state = ARENA_ARRAY(arena, RankState, ranks), .ranks = ranks};
  int left = 0;
  *out = (Timeline){.span = ARENA_ARRAY(arena, TimelineSpan *, ranks),
                    .compute = ARENA_ARRAY(arena, double, ranks),
                    .exposed = ARENA_ARRAY(arena, double, ranks),
                    .bubble = ARENA_ARRAY(arena, double, ranks)};
  for (int r = 0; r < ranks; r++) {
    timeline_prepare(arena, &rank[r], &run.state[r]);
    out->span[r] = run.state[r].span;
  }
  do begin_all(&run);
  while (end_next(&run));
  out->seconds = run.now;
  for (int r = 0; r < ranks; r++) {
    left += run.state[r].left;
    timeline_sum(&run.state[r], run.now, &out->compute[r], &out->exposed[r], &out->bubble[r]);
  }
  return left == 0;
}
