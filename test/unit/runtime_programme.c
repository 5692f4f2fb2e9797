/* runtime_programme: random programmes are gone through run by run, in the plan's order, however
 * many runs of a row are taken at once, and begin anew; the made-up batch that they are measured with. */
#include "runtime/command/bench.h"
#include "runtime/data/source.h"
#include "runtime/execute/programme.h"
#include "passes_help.h"

static uint32_t draw(uint64_t *state, uint32_t below) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33) % below;
}

static void go_through(uint64_t seed) {
  enum { GRAPHS = 5, MOST = 9 * 6 };
  Arena *arena = arena_new();
  Plan *plan = ARENA_NEW(arena, Plan);
  ExecGraph want[MOST];
  int first[GRAPHS] = {0}; /* 1 + the first run of this graph that reads place 1 for place 0 */
  int count = 0, runs = 1 + (int)draw(&seed, 9);
  plan->arena = arena;
  for (int g = 0; g < GRAPHS; g++) VEC_PUSH(arena, plan->graphs, (PlanGraph){.name = "g"});
  for (int i = 0; i < runs; i++) {
    PlanRun run = {.graph = (int)draw(&seed, GRAPHS), .times = 1 + draw(&seed, 6)};
    if (draw(&seed, 4) == 0) run.reads = 1; /* in place of place 0 */
    plan_add_run(plan, PROGRAMME_STEP, run);
    if (run.reads && !first[run.graph]) first[run.graph] = i + 1;
    for (int64_t k = 0; k < run.times; k++)
      want[count++] = run.reads ? GRAPHS + first[run.graph] - 1 : run.graph;
  }
  Programme programme = {.plan = plan, .of = plan_find_programme(plan, PROGRAMME_STEP)};
  assert_int_equal(plan_batches(programme.of), count);
  assert_int_equal(programme_is_one_run(&programme), count == 1);
  for (int go = 0; go < 3; go++)
    for (int at = 0; at < count;) {
      int64_t left = programme_left(&programme), taken = 1 + draw(&seed, (uint32_t)left);
      assert_int_equal(programme_done(&programme), at);
      assert_true(left >= 1 && at + left <= count);
      for (int64_t k = 0; k < left; k++)
        assert_int_equal(programme_graph(&programme), want[at + k]);
      at += (int)taken;
      assert_int_equal(programme_advance(&programme, taken), at == count);
    }
  if (count > 1) assert_false(programme_advance(&programme, 1));
  programme_again(&programme);
  assert_int_equal(programme_done(&programme), 0);
  arena_free(arena);
}

static void test_random_programmes(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 300; seed++) go_through(seed);
}

/* Ids may be anything that is looked up: of columns 0 and 2 below 1000, of columns 2 and 3 below 7, of the others unknown. */
static void test_made_up(void **state) {
  (void)state;
  enum { ROWS = 64, COLUMNS = 5 };
  PlanPart parts[] = {{.step = {1, 2}, .count = {ROWS, 2}, .below = 1000}, {.start = {0, 2}, .step = {1, 1}, .count = {ROWS, 2}, .below = 7}};
  PlanTensor input = {.name = "ids", .type = {DT_I32, {2, {ROWS, COLUMNS}}}, .parts = parts, .part_count = 2};
  Plan plan = {.inputs = {&input, 1, 1}};
  int32_t ids[ROWS * COLUMNS], most[COLUMNS] = {0};
  char text[SOURCE_RANGE];
  bench_fill_batch(&plan, ids, 1);
  assert_int_equal(source_find_outside(&input, ids, ROWS * COLUMNS, text), -1);
  for (int i = 0; i < ROWS * COLUMNS; i++)
    if (ids[i] > most[i % COLUMNS]) most[i % COLUMNS] = ids[i];
  assert_in_range(most[0], 900, 999);
  assert_int_equal(most[2], 6);
  assert_int_equal(most[3], 6);
  assert_int_equal(most[1] + most[4], 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_programmes), cmocka_unit_test(test_made_up)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
