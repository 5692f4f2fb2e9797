/* simulate_timeline: the timeline against one that looks at every tick of the clock, on random tasks
 * of one to four ranks; and cases by hand. */
#include "plan/pipeline_order.h"
#include "simulate/timeline.h"
#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST_RANKS = 4, MOST_TASKS = 24, MOST_AFTER = 3 };
typedef struct {
  TimelineTask task[MOST_TASKS];
  int after[MOST_TASKS][MOST_AFTER];
  int count;
} List;

/* ── by ticks: a table of begins and ends, asked anew at each tick ──────────────────────────── */
typedef struct {
  const List *list;
  int ranks, tick;
  int begin[MOST_RANKS][MOST_TASKS], end[MOST_RANKS][MOST_TASKS]; /* -1: not yet */
  int compute[MOST_RANKS], exposed[MOST_RANKS];
} Ticks;

static bool has_ended(const Ticks *t, int r, int i) {
  return t->end[r][i] >= 0 && t->end[r][i] <= t->tick;
}

static bool may_begin(const Ticks *t, int r, int i) {
  if (t->begin[r][i] >= 0) return false;
  for (int k = 0; k < t->list[r].task[i].after_count; k++)
    if (!has_ended(t, r, t->list[r].task[i].after[k])) return false;
  return true;
}

/* Is a task of the queue under way? One that takes no time is never. */
static bool is_busy(const Ticks *t, int r, TimelineQueue queue) {
  for (int i = 0; i < t->list[r].count; i++)
    if (t->list[r].task[i].queue == queue && t->begin[r][i] >= 0 && t->end[r][i] > t->tick)
      return true;
  return false;
}

static void put(Ticks *t, int r, int i, int seconds) {
  t->begin[r][i] = t->tick;
  t->end[r][i] = t->tick + seconds;
}

/* The first task of the communicate queue that has not begun; -1. */
static int head(const Ticks *t, int r) {
  for (int i = 0; i < t->list[r].count; i++)
    if (t->list[r].task[i].queue == TIMELINE_COMMUNICATE && t->begin[r][i] < 0) return i;
  return -1;
}

static bool member(const Ticks *t, int r, int collective) {
  for (int i = 0; i < t->list[r].count; i++)
    if (t->list[r].task[i].collective == collective) return true;
  return false;
}

static bool post(Ticks *t, int r) {
  int i = head(t, r), seconds = -1;
  if (i < 0 || !may_begin(t, r, i) || is_busy(t, r, TIMELINE_COMMUNICATE)) return false;
  int collective = t->list[r].task[i].collective;
  if (collective < 0) {
    put(t, r, i, (int)t->list[r].task[i].seconds);
    return true;
  }
  for (int other = 0; other < t->ranks; other++) {
    if (!member(t, other, collective)) continue;
    int its = head(t, other);
    if (its < 0 || t->list[other].task[its].collective != collective || !may_begin(t, other, its) ||
        is_busy(t, other, TIMELINE_COMMUNICATE))
      return false;
    if (seconds < 0) seconds = (int)t->list[other].task[its].seconds;
  }
  for (int other = 0; other < t->ranks; other++)
    if (member(t, other, collective)) put(t, other, head(t, other), seconds);
  return true;
}

static bool one_round(Ticks *t) {
  bool changed = false;
  for (int r = 0; r < t->ranks; r++) {
    for (int i = 0; i < t->list[r].count; i++)
      if (t->list[r].task[i].queue == TIMELINE_NONE && may_begin(t, r, i)) {
        put(t, r, i, 0);
        changed = true;
      }
    for (int i = 0; i < t->list[r].count && !is_busy(t, r, TIMELINE_COMPUTE); i++)
      if (t->list[r].task[i].queue == TIMELINE_COMPUTE && may_begin(t, r, i)) {
        put(t, r, i, (int)t->list[r].task[i].seconds);
        changed = true;
        break;
      }
  }
  for (int r = 0; r < t->ranks; r++) changed |= post(t, r);
  return changed;
}

static int count_ticks(Ticks *t) {
  int last = 0;
  memset(t->begin, -1, sizeof t->begin);
  memset(t->end, -1, sizeof t->end);
  for (t->tick = 0; t->tick < 2000; t->tick++) {
    while (one_round(t)) continue;
    for (int r = 0; r < t->ranks; r++) {
      bool computes = is_busy(t, r, TIMELINE_COMPUTE);
      t->compute[r] += computes;
      t->exposed[r] += !computes && is_busy(t, r, TIMELINE_COMMUNICATE);
    }
  }
  for (int r = 0; r < t->ranks; r++)
    for (int i = 0; i < t->list[r].count; i++)
      if (t->end[r][i] > last) last = t->end[r][i];
  return last;
}

/* ── random tasks ───────────────────────────────────────────────────────────────────────────── */
static void add_task(List *list, TimelineQueue queue, int seconds, int collective) {
  int i = list->count++;
  TimelineTask *task = &list->task[i];
  *task = (TimelineTask){queue, seconds, list->after[i], 0, collective};
  for (int k = 0; k < MOST_AFTER && i; k++)
    if (rand() % 3 == 0) list->after[i][task->after_count++] = rand() % i;
}

/* Collectives come in one order on all ranks that take part. Tasks of the compute queue take time:
 * which of two that take none begins first is no matter. */
static void make_lists(List *list, int ranks) {
  memset(list, 0, sizeof *list * MOST_RANKS);
  for (int k = 0; k < 5; k++) {
    int seconds = rand() % 9 + 1;
    for (int r = 0; r < ranks; r++) {
      for (int n = rand() % 3; n > 0; n--) add_task(&list[r], TIMELINE_COMPUTE, rand() % 7 + 1, -1);
      if (rand() % 4 == 0) add_task(&list[r], TIMELINE_COMMUNICATE, rand() % 5 + 1, -1);
      if (rand() % 4) add_task(&list[r], TIMELINE_COMMUNICATE, seconds, k);
      if (rand() % 4 == 0) add_task(&list[r], TIMELINE_NONE, 0, -1);
    }
  }
}

static void test_random(void **state) {
  (void)state;
  static List list[MOST_RANKS];
  srand(1);
  for (int round = 0; round < 600; round++) {
    Arena *arena = arena_new();
    Timeline timeline;
    TimelineRank rank[MOST_RANKS];
    int ranks = 1 + rand() % MOST_RANKS;
    make_lists(list, ranks);
    for (int r = 0; r < ranks; r++) rank[r] = (TimelineRank){list[r].task, list[r].count};
    Ticks *ticks = ARENA_NEW(arena, Ticks);
    ticks->list = list;
    ticks->ranks = ranks;
    int seconds = count_ticks(ticks);
    assert_true(timeline_run(arena, rank, ranks, &timeline));
    assert_true(timeline.seconds == seconds);
    for (int r = 0; r < ranks; r++) {
      for (int i = 0; i < list[r].count; i++) {
        assert_true(timeline.span[r][i].begin == ticks->begin[r][i]);
        assert_true(timeline.span[r][i].end == ticks->end[r][i]);
      }
      assert_true(timeline.compute[r] == ticks->compute[r]);
      assert_true(fabs(timeline.exposed[r] - ticks->exposed[r]) < 1e-9);
      assert_true(fabs(timeline.compute[r] + timeline.exposed[r] + timeline.bubble[r] - seconds) <
                  1e-9);
    }
    arena_free(arena);
  }
}

/* ── by hand ────────────────────────────────────────────────────────────────────────────────── */
/* Backward of three layers; a collective behind each, an update behind the last. */
static void test_overlap(void **state) {
  (void)state;
  Arena *arena = arena_new();
  static const int of[] = {0, 1, 2, 3, 4, 5};
  const TimelineTask task[] = {
      {TIMELINE_COMPUTE, 4, NULL, 0, -1},   {TIMELINE_COMMUNICATE, 3, &of[0], 1, -1},
      {TIMELINE_COMPUTE, 4, &of[0], 1, -1}, {TIMELINE_COMMUNICATE, 3, &of[2], 1, -1},
      {TIMELINE_NONE, 0, &of[1], 1, -1},    {TIMELINE_NONE, 0, &of[3], 1, -1},
      {TIMELINE_COMPUTE, 2, &of[4], 2, -1},
  };
  const TimelineRank rank = {task, 7};
  Timeline timeline;
  assert_true(timeline_run(arena, &rank, 1, &timeline));
  assert_true(timeline.seconds == 13); /* 4 + 4, 3 exposed, 2 */
  assert_true(timeline.compute[0] == 10 && timeline.exposed[0] == 3 && timeline.bubble[0] == 0);
  arena_free(arena);
}

/* Messages of one direction go one behind the other, those of the other beside them. */
static void test_messages(void **state) {
  (void)state;
  Arena *arena = arena_new();
  static const int of[] = {0, 1, 2};
  const TimelineTask one[] = {
      {TIMELINE_COMPUTE, 2, NULL, 0, -1},
      {TIMELINE_MESSAGE, 3, NULL, 0, -1, 0, 1},
      {TIMELINE_MESSAGE, 3, &of[0], 1, -1, 0, 1},
      {TIMELINE_MESSAGE, 4, NULL, 0, -1, 1, 0},
  };
  const TimelineTask two[] = {
      {TIMELINE_MESSAGE, 4, NULL, 0, -1, 1, 0},
      {TIMELINE_MESSAGE, 3, NULL, 0, -1, 0, 1},
      {TIMELINE_MESSAGE, 3, NULL, 0, -1, 0, 1},
      {TIMELINE_COMPUTE, 5, &of[2], 1, -1},
  };
  const TimelineRank rank[] = {{one, 4}, {two, 4}};
  Timeline timeline;
  assert_true(timeline_run(arena, rank, 2, &timeline));
  assert_true(timeline.span[1][2].begin == 3 && timeline.span[1][2].end == 6);
  assert_true(timeline.span[0][3].begin == 0 && timeline.span[0][3].end == 4);
  assert_true(timeline.seconds == 11 && timeline.compute[0] == 2 && timeline.compute[1] == 5);
  assert_true(timeline.exposed[0] == 4 && timeline.exposed[1] == 6 && timeline.bubble[0] == 5);
  arena_free(arena);
}

/* ── pipelines ──────────────────────────────────────────────────────────────────────────────── */
enum { MOST_PIPELINE = 512 };
typedef struct {
  TimelineTask task[MOST_PIPELINE];
  int after[MOST_PIPELINE][2], count, last; /* the last one that computes, + 1 */
} Lane;

/* Behind the task `after` (less than 0: none); what computes, behind the last that did. */
static int lane_task(Lane *lane, TimelineTask task, int after) {
  int at = lane->count++, waits = 0;
  assert_true(at < MOST_PIPELINE);
  if (after >= 0) lane->after[at][waits++] = after;
  if (task.queue == TIMELINE_COMPUTE) {
    if (lane->last) lane->after[at][waits++] = lane->last - 1;
    lane->last = at + 1;
  }
  task.collective = -1;
  task.after = lane->after[at];
  task.after_count = waits;
  lane->task[at] = task;
  return at;
}

/* As a stage's plan has it: each task behind the message it takes, and a message behind it. */
static double pipeline_seconds(const Pipeline *p, double transfer, Timeline *out, Arena *arena) {
  Lane *lane = ARENA_ARRAY(arena, Lane, p->ranks);
  TimelineRank *rank = ARENA_ARRAY(arena, TimelineRank, p->ranks);
  int count, last = p->ranks * p->chunks - 1;
  const PipelineTask *task = pipeline_order(arena, p, &count);
  for (int i = 0; i < count; i++) {
    int own = task[i].rank, step = task[i].is_backward ? -1 : 1, received = -1;
    int before = task[i].chunk - step, next = task[i].chunk + step;
    if (before >= 0 && before <= last && p->ranks > 1)
      received = lane_task(&lane[own],
                          (TimelineTask){TIMELINE_MESSAGE, transfer,
                                         .from = pipeline_rank(p->ranks, before),
                                         .to = own},
                          -1);
    int made = lane_task(
        &lane[own], (TimelineTask){TIMELINE_COMPUTE, task[i].is_backward ? 2 : 1}, received);
    if (next >= 0 && next <= last && p->ranks > 1)
      lane_task(&lane[own],
               (TimelineTask){TIMELINE_MESSAGE, transfer, .from = own,
                              .to = pipeline_rank(p->ranks, next)},
               made);
  }
  for (int r = 0; r < p->ranks; r++) rank[r] = (TimelineRank){lane[r].task, lane[r].count};
  assert_true(timeline_run(arena, rank, p->ranks, out));
  return out->seconds;
}

/* The share of a rank's step in which it idles is (P - 1) / (V · M + P - 1), where messages take no
 * time (Narayanan et al. 2021, section 2.2); and with several parts of the model, where M is a
 * multiple of P. */
static void test_pipeline(void **state) {
  (void)state;
  for (int ranks = 1; ranks <= 4; ranks++)
    for (int micros = 1; micros <= 16; micros++)
      for (int chunks = 1; chunks <= 3; chunks++) {
        if (chunks > 1 && micros % ranks) continue;
        Arena *arena = arena_new();
        Pipeline p = {.ranks = ranks, .chunks = chunks, .micros = micros};
        Timeline timeline;
        double seconds = pipeline_seconds(&p, 0, &timeline, arena);
        double share = (ranks - 1.0) / (chunks * micros + ranks - 1);
        for (int r = 0; r < ranks; r++) {
          assert_true(timeline.compute[r] == 3 * chunks * micros && timeline.exposed[r] == 0);
          assert_true(fabs(timeline.bubble[r] / seconds - share) < 1e-12);
        }
        assert_true(pipeline_seconds(&p, 0.25, &timeline, arena) >= seconds);
        arena_free(arena);
      }
}

/* Two ranks that begin two collectives in another order wait for ever. */
static void test_deadlock(void **state) {
  (void)state;
  Arena *arena = arena_new();
  const TimelineTask one[] = {{TIMELINE_COMMUNICATE, 1, NULL, 0, 0},
                              {TIMELINE_COMMUNICATE, 1, NULL, 0, 1}};
  const TimelineTask two[] = {{TIMELINE_COMMUNICATE, 1, NULL, 0, 1},
                              {TIMELINE_COMMUNICATE, 1, NULL, 0, 0}};
  const TimelineRank rank[] = {{one, 2}, {two, 2}};
  Timeline timeline;
  assert_false(timeline_run(arena, rank, 2, &timeline));
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random),
      cmocka_unit_test(test_overlap),
      cmocka_unit_test(test_messages),
      cmocka_unit_test(test_pipeline),
      cmocka_unit_test(test_deadlock),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
