/* Graphs that prepare weights (plan/plan_prepare.h): what a plan may say of them, what is refused, and
 * what counts as a change of what they are made of. */
#include "plan_sample.h"

#include "plan/plan_prepare.h"

/* The sample, with an "eval" that reads what two kernels of "eval.prepare" make of the weight, the bias and
 * the running mean: one at prepared+0, by way of a temporary, and one at prepared+64. */
static Plan *prepared(Arena *arena) {
  Plan *plan = sample(arena);
  PlanGraph *eval = &plan->graphs.at[1];
  PlanGraph graph = {.name = "eval.prepare"};
  plan->places.at[PLACE_PREPARED].bytes = 128;
  PlanBuffer of[] = {{PLACE_PARAMS, 0, type_of(DT_F32, 2, 4, 8)},
                     {PLACE_WORK, 512, type_of(DT_F32, 1, 16, 0)},
                     {PLACE_PREPARED, 0, type_of(DT_F32, 1, 16, 0)},
                     {PLACE_PARAMS, 128, type_of(DT_F32, 1, 4, 0)},
                     {PLACE_STATE, 64, type_of(DT_F32, 1, 4, 0)},
                     {PLACE_PREPARED, 64, type_of(DT_F32, 1, 8, 0)}};
  for (int i = 0; i < 6; i++) VEC_PUSH(arena, graph.buffers, of[i]);
  PlanStep steps[] = {step_of(arena, STEP_LAUNCH, "k_round", 1, 2, (int[]){0, 1}),
                      step_of(arena, STEP_LAUNCH, "k_pack", 1, 2, (int[]){1, 2}),
                      step_of(arena, STEP_LAUNCH, "k_scale", 3, 4, (int[]){3, 4, 2, 5})};
  for (int i = 0; i < 3; i++) {
    steps[i].work = steps[i].grain = 1;
    VEC_PUSH(arena, graph.steps, steps[i]);
  }
  assert_null(plan_order_find(arena, &graph));
  int next = eval->buffers.count;
  VEC_PUSH(arena, eval->buffers, of[2]);
  VEC_PUSH(arena, eval->buffers, of[5]);
  VEC_PUSH(arena, eval->buffers, ((PlanBuffer){PLACE_WORK, 640, type_of(DT_F32, 1, 16, 0)}));
  PlanStep use = step_of(arena, STEP_LAUNCH, "k_use", 2, 3, (int[]){next, next + 1, next + 2});
  use.work = use.grain = 1;
  VEC_PUSH(arena, eval->steps, use);
  eval->prepare = graph.name;
  assert_null(plan_order_find(arena, eval));
  VEC_PUSH(arena, plan->graphs, graph);
  return plan;
}

static void test_round_trip(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Text text = {0}, again = {0};
  const char *why;
  plan_print(prepared(arena), &text);
  Plan *plan = plan_parse(arena, text.at, text.count, &why);
  if (!plan) fail_msg("%s", why);
  plan_print(plan, &again);
  assert_string_equal(text_cstr(&text), text_cstr(&again));
  assert_int_equal(plan_prepare_of(plan, &plan->graphs.at[1]), 4);
  assert_int_equal(plan_prepare_of(plan, &plan->graphs.at[0]), -1);
  text_free(&text);
  text_free(&again);
  arena_free(arena);
}

static void test_refusals(void **state) {
  (void)state;
  static const char *const cases[][3] = {
      {"prepare \"eval.prepare\"\n", "prepare\n", "the name of the graph that prepares"},
      {"prepare \"eval.prepare\"\n", "prepare \"eval.prepared\"\n", "no graph \"eval.prepared\""},
      {"graph \"decode\"\n", "graph \"decode\" prepare \"eval.prepare\"\n", "of its own that"},
      {"prepare \"eval.prepare\"\n", "prepare \"eval\"\n", "has outputs, other calls or another"},
      {"graph \"eval.prepare\"\n", "graph \"eval.prepare\" prepare \"micro\"\n", "has outputs"},
      {"graph \"eval\" prepare \"eval.prepare\"\n", "graph \"eval\"\n",
       "reads weights that no graph prepares for it"},
      {"place prepared 128 for weights", "place prepared 128 for batch", "no step before it has"},
      {"place prepared 128 for weights", "place prepared 128 for weights from host",
       "neither once nor for each batch"},
      {"place prepared 128 for weights", "place prepared 128 for weights elements f32",
       "is made of weights"},
      {"place prepared 128 for weights", "place prepared 128 for weights saved checkpoint",
       "not kept for ever"},
      {"place prepared 128 for weights", "place prepared 64 for weights", "outside"},
      /* what it writes */
      {"buffer 5 prepared+64 f32[8]\n  launch \"k_round\"",
       "buffer 5 prepared+0 f32[8]\n  launch \"k_round\"", "both prepare byte 0 of place prepared"},
      {"buffer 5 prepared+64 f32[8]\n  launch \"k_round\"",
       "buffer 5 state+512 f32[2]\n  launch \"k_round\"", "its step 2 writes what others read"},
      {"buffer 5 prepared+64 f32[8]\n  launch \"k_round\"",
       "buffer 5 grads+64 f32[8]\n  launch \"k_round\"", "its step 2 writes what others read"},
      {"buffer 5 prepared+64 f32[8]\n  launch \"k_round\"",
       "buffer 5 work+1024 f32[8]\n  launch \"k_round\"", "weights that no graph prepares"},
      {"buffer 5 prepared+64 f32[8]\n  launch \"k_round\"",
       "buffer 5 work+640 f32[8]\n  launch \"k_round\"", "weights that no graph prepares"},
      {"buffer 5 prepared+64 f32[8]\n  launch \"k_round\"",
       "buffer 5 prepared+64 f32[7]\n  launch \"k_round\"", "weights that no graph prepares"},
      /* what it reads */
      {"buffer 3 params+128 f32[4]\n  buffer 4 state+64",
       "buffer 3 input+0 u8[4]\n  buffer 4 state+64", "reads what is not kept for ever"},
      {"buffer 3 params+128 f32[4]\n  buffer 4 state+64",
       "buffer 3 grads+128 f32[4]\n  buffer 4 state+64", "reads what is not kept for ever"},
      {"buffer 3 params+128 f32[4]\n  buffer 4 state+64",
       "buffer 3 state+448 i64[]\n  buffer 4 state+64", "writes what its weights are prepared from"},
      /* who runs it, and who else writes there */
      {"programme \"evaluate\" run \"eval\"", "programme \"evaluate\" run \"eval.prepare\"",
       "runs graph \"eval.prepare\""},
      {"(8 9) -> (10)", "(8) -> (9 10)", "writes place prepared, which holds prepared weights"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    expect_refusal(prepared, cases[i][0], cases[i][1], cases[i][2]);
}

/* What prepares weights for a text may not write over what is kept of it; an evaluation ends the text. */
static void test_texts(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan = prepared(arena);
  plan->graphs.at[4].buffers.at[1].offset = 1024; /* the caches */
  assert_null(plan_check_prepare(arena, plan));
  for (int p = 0; p < plan->programmes.count; p++)
    for (int r = 0; r < plan->programmes.at[p].runs.count; r++) {
      PlanRun *run = &plan->programmes.at[p].runs.at[r];
      run->graph = run->graph == 2 ? 1 : run->graph == 1 ? 2 : run->graph;
    }
  assert_non_null(strstr(plan_check_prepare(arena, plan), "its step 0 writes what others read"));
  plan->graphs.at[4].buffers.at[1].offset = 512;
  assert_null(plan_check_prepare(arena, plan));
  arena_free(arena);
}

static void test_sources(void **state) {
  (void)state;
  Arena *arena = arena_new();
  const Plan *plan = prepared(arena);
  PlanSources of = plan_sources_of(arena, plan, &plan->graphs.at[4]);
  int average = plan_find_place(plan, "@ema"); /* of state+128 */
  assert_int_equal(of.count, 2);               /* params+0 and +128 touch */
  assert_true(plan_sources_have(&of, plan, PLACE_PARAMS, 0, 4));
  assert_true(plan_sources_have(&of, plan, PLACE_PARAMS, 140, 400));
  assert_false(plan_sources_have(&of, plan, PLACE_PARAMS, 144, 64));
  assert_false(plan_sources_have(&of, plan, PLACE_PARAMS, 0, 0));
  assert_true(plan_sources_have(&of, plan, PLACE_STATE, 60, 8));
  assert_false(plan_sources_have(&of, plan, PLACE_STATE, 0, 64));
  assert_false(plan_sources_have(&of, plan, PLACE_STATE, 80, 1000));
  assert_false(plan_sources_have(&of, plan, PLACE_NARROW, 0, 128));
  assert_false(plan_sources_have(&of, plan, average, 0, 256));
  assert_false(plan_sources_have(&of, plan, PLACE_GIVEN, 0, 256));
  assert_true(plan_sources_are_written(&of, plan, &plan->graphs.at[0])); /* a step updates params */
  assert_false(plan_sources_are_written(&of, plan, &plan->graphs.at[1]));
  assert_false(plan_sources_are_written(&of, plan, &plan->graphs.at[3]));
  PlanGraph calls = {0}; /* a library call in place of launches writes, too */
  PlanInstead instead = {.call_count = 2};
  instead.call[0] = step_of(arena, STEP_CALL, "matmul", 1, 2, (int[]){0, 0});
  instead.call[1] = step_of(arena, STEP_CALL, "matmul", 1, 2, (int[]){0, 1});
  VEC_PUSH(arena, calls.buffers, ((PlanBuffer){PLACE_PARAMS, 192, type_of(DT_F32, 1, 4, 0)}));
  VEC_PUSH(arena, calls.buffers, ((PlanBuffer){PLACE_PARAMS, 64, type_of(DT_F32, 1, 4, 0)}));
  VEC_PUSH(arena, calls.insteads, instead);
  assert_true(plan_sources_are_written(&of, plan, &calls));
  calls.insteads.at[0].call_count = 1;
  assert_false(plan_sources_are_written(&of, plan, &calls));
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip),
                                     cmocka_unit_test(test_refusals), cmocka_unit_test(test_texts),
                                     cmocka_unit_test(test_sources)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
