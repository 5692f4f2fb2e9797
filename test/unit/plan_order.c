/* plan_order: the lists `after` of random plans against the definition, pair by pair; a plan from
 * which any wait is taken is refused. */
#include "plan/plan_order.h"
#include "passes_help.h"
#include <stdlib.h>

static uint32_t draw(uint64_t *state, uint32_t below) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33) % below;
}

/* Buffers of all sizes that cross each other, in two arenas; some are empty. */
static PlanGraph random_graph(Arena *arena, uint64_t seed, int steps, int buffers) {
  PlanGraph graph = {.name = "train"};
  for (int i = 0; i < buffers; i++) {
    int64_t bytes = draw(&seed, 4) ? draw(&seed, 9) : draw(&seed, 200);
    PlanBuffer buffer = {
        draw(&seed, 2) ? PLACE_WORK : PLACE_STATE, draw(&seed, 256), {DT_U8, shape_of(1, &bytes)}};
    VEC_PUSH(arena, graph.buffers, buffer);
  }
  for (int i = 0; i < steps; i++) {
    int count = (int)draw(&seed, 5), *args = ARENA_ARRAY(arena, int, count + 1);
    for (int k = 0; k < count; k++) args[k] = (int)draw(&seed, (uint32_t)buffers);
    PlanStep step = {.kind = STEP_LAUNCH, .name = "k", .label = "k", .args = args};
    step.arg_count = count;
    step.input_count = count ? (int)draw(&seed, (uint32_t)count + 1) : 0;
    VEC_PUSH(arena, graph.steps, step);
  }
  for (int first = 0; first + 1 < steps; first += 1 + (int)draw(&seed, 40)) {
    int *args = ARENA_ARRAY(arena, int, 2), end = first + 1 + (int)draw(&seed, 3);
    args[0] = (int)draw(&seed, (uint32_t)buffers), args[1] = (int)draw(&seed, (uint32_t)buffers);
    PlanInstead instead = {.first = first, .end = end < steps ? end : steps, .call_count = 1};
    instead.call[0] = (PlanStep){
        .kind = STEP_CALL, .name = "matmul", .args = args, .arg_count = 2, .input_count = 1};
    VEC_PUSH(arena, graph.insteads, instead);
  }
  return graph;
}

/* What the steps and the calls in their place touch; a call counts as the last of its steps. */
static bool must_order(const PlanGraph *graph, int first, int then) {
  VEC(const PlanStep *) touching[2] = {{0}};
  const int step[2] = {first, then};
  bool found = false;
  Arena *arena = arena_new();
  for (int side = 0; side < 2; side++) {
    const PlanStep *at = &graph->steps.at[step[side]];
    VEC_PUSH(arena, touching[side], at->kind == STEP_END ? &graph->steps.at[at->partner] : at);
    if (at->kind == STEP_END) found |= at->partner == step[!side];
    for (int i = 0; i < graph->insteads.count; i++)
      if (graph->insteads.at[i].end == step[side] + 1)
        VEC_PUSH(arena, touching[side], &graph->insteads.at[i].call[0]);
  }
  for (int i = 0; i < touching[0].count; i++)
    for (int j = 0; j < touching[1].count; j++)
      found |= plan_steps_conflict(graph, touching[0].at[i], touching[1].at[j]);
  arena_free(arena);
  return found;
}

static bool conflicts_between(const PlanGraph *graph, int begin, int end) {
  for (int i = begin + 1; i < end; i++)
    if (must_order(graph, begin, i)) return true;
  return false;
}

/* Some steps begin what a later one ends, where nobody between the two is in the way. */
static int add_pairs(PlanGraph *graph, uint64_t seed) {
  static const int none[1];
  int count = 0;
  for (int end = 1; end < graph->steps.count; end++) {
    int begin = end - 1 - (int)draw(&seed, 4);
    PlanStep *last = &graph->steps.at[end];
    if (begin < 0 || !draw(&seed, 3) || graph->steps.at[begin].kind != STEP_LAUNCH ||
        conflicts_between(graph, begin, end))
      continue;
    graph->steps.at[begin].kind = STEP_BEGIN;
    *last = (PlanStep){.kind = STEP_END, .name = "end", .args = none, .partner = begin};
    graph->steps.at[begin].queue = last->queue = QUEUE_COMMUNICATE;
    count++;
  }
  return count;
}

/* reached[j * count + i]: j comes after i. */
static bool *reachable(Arena *arena, const PlanGraph *graph) {
  int count = graph->steps.count;
  bool *reached = ARENA_ARRAY(arena, bool, count *count + 1);
  for (int j = 0; j < count; j++)
    for (int k = 0; k < graph->steps.at[j].after_count; k++) {
      int i = graph->steps.at[j].after[k];
      assert_true(i >= 0 && i < j);
      reached[j * count + i] = true;
      for (int m = 0; m < i; m++) reached[j * count + m] |= reached[i * count + m];
    }
  return reached;
}

static void expect_right(Arena *arena, const PlanGraph *graph, int every) {
  int count = graph->steps.count;
  bool *reached = reachable(arena, graph);
  for (int j = 0; j < count; j += every)
    for (int i = 0; i < j; i++)
      if (must_order(graph, i, j) && !reached[j * count + i])
        fail_msg("step %d does not come after step %d", j, i);
}

/* Every wait is there for something: without it the plan is refused. */
static void expect_least(Arena *arena, PlanGraph *graph) {
  for (int j = 0; j < graph->steps.count; j++) {
    PlanStep *step = &graph->steps.at[j];
    const int *all = step->after;
    int count = step->after_count, *fewer = ARENA_ARRAY(arena, int, count + 1);
    for (int gone = 0; gone < count; gone++) {
      for (int k = 0, n = 0; k < count; k++)
        if (k != gone) fewer[n++] = all[k];
      step->after = fewer;
      step->after_count = count - 1;
      const char *why = plan_order_check(arena, graph);
      if (!why) fail_msg("step %d need not wait for step %d", j, all[gone]);
      assert_non_null(strstr(why, "does not wait for step"));
    }
    step->after = all;
    step->after_count = count;
  }
}

static void test_random_plans(void **state) {
  (void)state;
  int waits = 0, pairs = 0;
  for (uint64_t seed = 1; seed <= 120; seed++) {
    Arena *arena = arena_new();
    PlanGraph graph = random_graph(arena, seed, 1 + (int)(seed % 40), 2 + (int)(seed % 50));
    if (seed % 2) pairs += add_pairs(&graph, seed);
    assert_null(plan_order_find(arena, &graph));
    assert_null(plan_order_check(arena, &graph));
    expect_right(arena, &graph, 1);
    expect_least(arena, &graph);
    for (int i = 0; i < graph.steps.count; i++) waits += graph.steps.at[i].after_count;
    arena_free(arena);
  }
  assert_true(waits > 1000 && pairs > 100);
}

/* More steps than a band of the matrix has columns. */
static void test_many_steps(void **state) {
  (void)state;
  enum { STEPS = 9000 };
  Arena *arena = arena_new();
  PlanGraph graph = random_graph(arena, 7, STEPS, 400);
  graph.insteads.count = 0;
  plan_order_find(arena, &graph);
  assert_null(plan_order_check(arena, &graph));
  expect_right(arena, &graph, 499);
  for (int j = 1; j < STEPS; j += 997) {
    PlanStep *step = &graph.steps.at[j];
    if (!step->after_count) continue;
    step->after++, step->after_count--;
    assert_non_null(plan_order_check(arena, &graph));
    step->after--, step->after_count++;
  }
  arena_free(arena);
}

/* Buffers within buffers within buffers keep nobody busy. */
static void test_hostile(void **state) {
  (void)state;
  enum { STEPS = 20000 };
  Arena *arena = arena_new();
  PlanGraph graph = {.name = "train"};
  for (int i = 0; i < STEPS; i++) {
    int64_t bytes = 2 * (STEPS - i);
    PlanBuffer buffer = {PLACE_WORK, i, {DT_U8, shape_of(1, &bytes)}};
    int *arg = ARENA_ARRAY(arena, int, 1);
    *arg = i;
    VEC_PUSH(arena, graph.buffers, buffer);
    PlanStep step = {.kind = STEP_LAUNCH, .name = "k", .args = arg, .arg_count = 1};
    VEC_PUSH(arena, graph.steps, step);
  }
  const char *why = plan_order_check(arena, &graph);
  assert_non_null(why);
  assert_non_null(strstr(why, "too often"));
  why = plan_order_find(arena, &graph); /* the compiler says so as well */
  assert_non_null(why);
  assert_non_null(strstr(why, "too often"));
  arena_free(arena);
}

/* Until its end, what a step began may have read and written its bytes or not: whoever comes
 * between the two and needs them is refused, whatever it waits for. */
static void test_under_way(void **state) {
  (void)state;
  enum { READ, WRITTEN, OTHER };
  static const struct {
    int buffer;
    bool writes, is_refused;
  } between[] = {{READ, false, false},  {READ, true, true},   {WRITTEN, false, true},
                 {WRITTEN, true, true}, {OTHER, true, false}, {OTHER, false, false}};
  for (size_t i = 0; i < sizeof between / sizeof *between; i++) {
    Arena *arena = arena_new();
    PlanGraph graph = {.name = "train"};
    int64_t bytes = 64;
    int args[] = {READ, WRITTEN}, arg = between[i].buffer;
    for (int b = READ; b <= OTHER; b++) {
      PlanBuffer buffer = {PLACE_WORK, 64 * b, {DT_U8, shape_of(1, &bytes)}};
      VEC_PUSH(arena, graph.buffers, buffer);
    }
    PlanStep steps[] = {
        {.kind = STEP_LAUNCH, .args = args, .arg_count = 1},
        {.kind = STEP_BEGIN, .args = args, .arg_count = 2, .input_count = 1},
        {.kind = STEP_LAUNCH, .args = &arg, .arg_count = 1, .input_count = !between[i].writes},
        {.kind = STEP_END, .partner = 1},
        {.kind = STEP_LAUNCH, .args = args + 1, .arg_count = 1, .input_count = 1}};
    for (int s = 0; s < 5; s++) VEC_PUSH(arena, graph.steps, steps[s]);
    const char *why = plan_order_find(arena, &graph);
    if (between[i].is_refused) {
      assert_string_equal(why, "step 2 touches bytes that step 1 has under way");
    } else {
      assert_null(why);
      assert_int_equal(graph.steps.at[4].after_count, 1); /* not for step 1, which only begins it */
      assert_int_equal(graph.steps.at[4].after[0], 3);
      graph.steps.at[4].after = (const int[]){1};
      why = plan_order_check(arena, &graph);
      assert_string_equal(why, "step 4 does not wait for step 3, whose bytes it touches");
    }
    arena_free(arena);
  }
}

/* Only behind one launch that waits itself. */
static void test_early(void **state) {
  (void)state;
  const PlanStep early = {.kind = STEP_LAUNCH, .is_early = true}, launch = {.kind = STEP_LAUNCH},
                 copy = {.kind = STEP_COPY}, end = {.kind = STEP_END};
  assert_true(plan_begins_early(&early, &early));
  assert_false(plan_begins_early(&early, NULL));
  assert_false(plan_begins_early(&early, &launch));
  assert_false(plan_begins_early(&early, &copy));
  assert_false(plan_begins_early(&early, &end));
  assert_false(plan_begins_early(&launch, &early));
  assert_false(plan_begins_early(&copy, &early));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_plans), cmocka_unit_test(test_many_steps),
      cmocka_unit_test(test_hostile), cmocka_unit_test(test_under_way), cmocka_unit_test(test_early)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
