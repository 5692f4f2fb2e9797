/* plan_kinds: the kinds of steps beside launches and calls, queues, programmes: what is none of
 * these is refused with the line that is wrong. */
#include "plan_sample.h"

/* Copies and fills, what goes on beside the compute queue, and queues. */
static void test_kinds(void **state) {
  (void)state;
  static const char *const cases[][3] = {
      {" queue=compute", "", "expected 'queue='"},
      {" queue=compute", " queue=disk", "no queue 'disk"},
      {"fill () -> (5)", "fill (4) -> (5)", "no input and one output"},
      {"fill () -> (5)", "fill () -> (5 1)", "no input and one output"},
      {"fill () -> (5)", "fill () -> (5) work=4", "expected 'queue='"},
      {"fill () -> (5)", "fill () -> (0)", "writes to place input"},
      {"copy (4) -> (7)", "copy () -> (7)", "one input and one output"},
      {"copy (4) -> (7)", "copy (1) -> (7)", "a copy of 128 bytes to 64"},
      {"copy (4) -> (7)", "copy (7) -> (7)", "buffers that overlap"},
      {"copy (4) -> (7) after=1", "copy (4) -> (7)", "step 4 does not wait for step 1"},
      {"\"all_reduce\"", "\"all_reduction\"", "no communication \"all_reduction\""},
      {"\"all_reduce\" (7) -> (7)", "\"all_reduce\" (4) -> (1)", "do not go together"},
      {"\"all_reduce\" (7) -> (7)", "\"all_reduce\" (7) -> ()", "needs 1 input(s) and 1 output(s)"},
      {"\"all_reduce\" (7) -> (7)", "\"reduce_scatter\" (7) -> (1)", "do not go together"},
      {"\"all_reduce\" (7) -> (7) group=0 op=0", "\"all_gather\" (1) -> (7) group=0",
       "do not go together"},
      {"\"all_reduce\" (7) -> (7) group=0 op=0", "\"all_to_all\" (1) -> (7) group=0",
       "do not go together"},
      {"\"all_reduce\" (7) -> (7) group=0 op=0", "\"broadcast\" (7) -> (7) group=0",
       "expected 'peer'"},
      {"group=0 op=0", "group=0", "expected 'op'"},
      {"op=0", "op=4", "op=4 is out of range"},
      {"\"all_reduce\" (7) -> (7) group=0 op=0", "\"transfer\" (7) -> (7) group=0 from=0 to=1",
       "do not go together"},
      {"\"all_reduce\" (7) -> (7)", "\"all_reduce\" (0) -> (0)", "writes to place input"},
      {"group=0", "group=-1", "out of range"},
      {"group=0", "group=4294967296", "out of range"},
      {"op=0 after=4 queue=communicate", "op=0 after=4 queue=compute", "beside compute"},
      {"op=0 after=4 queue=communicate", "op=0 queue=communicate",
       "step 5 does not wait for step 4"},
      {"end 5 after=5 queue=communicate", "end 5 after=5 queue=host", "not in the queue of step 5"},
      {"end 5 after=5", "end 5", "step 6 does not wait for step 5"},
      {"end 5 after=5", "end 4 after=5", "step 4 begins nothing"},
      {"end 5 after=5", "end 6 after=5", "must lie in 0..5"},
      {"end 5 after=5", "end (5) after=5", "expected the step that it ends"},
      {"  end 5 after=5 queue=communicate",
       "  end 5 after=5 queue=communicate \"\"\n"
       "  end 5 after=6 queue=communicate",
       "step 6 ends step 5 already"},
      {"  end 5 after=5 queue=communicate", "  fill () -> (1) after=5 queue=copy",
       "no step ends step 5"},
      {"  end 5 after=5 queue=communicate",
       "  fill () -> (7) after=5 queue=copy \"\"\n"
       "  end 5 after=6 queue=communicate",
       "step 6 touches bytes that step 5 has under way"},
      {"  end 5 after=5 queue=communicate",
       "  copy (7) -> (4) after=5 queue=copy \"\"\n"
       "  end 5 after=6 queue=communicate",
       "step 6 touches bytes that step 5 has under way"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    expect_refusal(sample, cases[i][0], cases[i][1], cases[i][2]);
}

/* Which graphs run in which order. */
static void test_programmes(void **state) {
  (void)state;
  static const char *const cases[][3] = {
      {"programme \"step\"", "programme \"stop\"", "lacks programme \"step\""},
      {"programme \"evaluate\"", "programme \"predict\"", "lacks programme \"evaluate\""},
      {"programme \"generate\"", "programme \"write\"", "nothing runs a programme \"write\""},
      {"programme \"generate\"", "programme \"step\"", "two of programme \"step\""},
      {"programme \"generate\"", "programme \"; rm\"", "no name of letters"},
      {"run \"micro\" times 3", "run \"macro\" times 3", "no graph \"macro\" before this"},
      {"run \"micro\" times 3", "run \"micro\" times 2",
       "takes 3 batches and train.accumulate is 4"},
      {"run \"micro\" times 3", "run \"micro\" times 0", "must lie in 1..2147483647"},
      {"run \"micro\" times 3", "run \"micro\" times -3", "must lie in 1..2147483647"},
      {"run \"micro\" times 3", "run \"micro\" times 2147483648", "must lie in 1..2147483647"},
      {"run \"micro\" times 3", "run \"micro\" times 2147483647", "takes 2147483648 batches"},
      {"run \"micro\" times 3", "run \"micro\" times 3 with @ema for params",
       "cannot run graph \"micro\""},
      {"run \"micro\" times 3", "run \"micro\" times 3 positions 1", "cannot run graph"},
      {"run \"micro\" times 3", "run \"micro\" times 3 sideways", "unexpected 'sideways"},
      {" run \"micro\" times 3 run \"train\"", "", "expected 'run'"},
      {"setting train.accumulate 4", "setting train.accumulate 5", "train.accumulate is 5"},
      {"programme \"evaluate\" run \"eval\"", "programme \"evaluate\" run \"eval\" times 2",
       "runs more than one graph"},
      {"programme \"evaluate\" run \"eval\"",
       "programme \"evaluate\" run \"eval\" with @ema for params", "cannot run graph \"eval\""},
      {"run \"eval\" with @ema for params", "run \"eval\"", "cannot run graph \"eval\""},
      {"run \"eval\" with @ema for params",
       "run \"eval\" with @ema for params run \"eval\" with @ema for params",
       "more than one graph"},
      {"role average", "role average_of", "there is no role"},
      {"role average", "role moment", "keeps no average"},
      {"\"@ema\" f32[64]", "\"@ema\" f32[35]", "smaller than these"},
      {"positions 64", "positions 0", "must lie in 1..1048576"},
      {"positions 64", "positions 1048577", "must lie in 1..1048576"},
      {"positions 64", "times 2 positions 64", "cannot run graph \"decode\""},
      {"run \"decode\" positions 1\n", "run \"decode\" positions 2\n",
       "end with a run of one position"},
      {"run \"decode\" positions 1\n", "run \"decode\"\n", "cannot run graph \"decode\""},
      {"programme \"step\"", "  loss \"late\" f32[] at output+0\nprogramme \"step\"",
       "graph \"micro\" has 2 losses"},
      {"programme \"evaluate\"", "  loss \"late\" f32[] at output+0\nprogramme \"evaluate\"",
       "an output outside of a graph"},
      {"graph \"micro\"", "graph \"eval\"", "two of graph \"eval\""},
      {"graph \"micro\"", "graph \"mi cro\"", "no name of letters"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    expect_refusal(sample, cases[i][0], cases[i][1], cases[i][2]);
}

/* An evaluation in which the call in place of a launch writes parameters. */
static Plan *with_writing_call(Arena *arena) {
  Plan *plan = sample(arena);
  PlanGraph *eval = &plan->graphs.at[1];
  VEC_PUSH(arena, eval->buffers, ((PlanBuffer){PLACE_PARAMS, 0, type_of(DT_F32, 2, 4, 4)}));
  int *args = ARENA_ARRAY(arena, int, 4);
  memcpy(args, (int[]){1, 2, 3, 8}, 4 * sizeof *args);
  eval->insteads.at[0].call[0].args = args;
  return plan;
}

/* A part of a batch that clears the sums. */
static Plan *with_early_clear(Arena *arena) {
  Plan *plan = sample(arena);
  PlanStep *add = &plan->graphs.at[3].steps.at[7];
  *add = step_of(arena, STEP_FILL, "fill", 0, 1, (int[]){8});
  return plan;
}

/* A graph that writes what its run must not, or does not write what it must. Places are told in the
 * graph by the first text that has them: train comes first, then eval, decode and micro. */
static void test_writes(void **state) {
  (void)state;
  static const char *const cases[][3] = {
      /* another graph's place */
      {"run \"micro\" times 3", "run \"eval\" times 3",
       "programme \"step\" runs graph \"eval\", which writes the state \"@eval.0\""},
      {"run \"micro\" times 3", "run \"train\" times 3",
       "programme \"step\" runs graph \"train\", which writes the state \"@step\""},
      {"run \"micro\" times 3", "run \"decode\" times 3",
       "programme \"step\" runs graph \"decode\", which writes the state \"@decode.position\""},
      {"times 3 run \"train\"", "times 3 run \"micro\"",
       "graph \"micro\", which does not write the parameter \"fc1.weight\""},
      {"times 3 run \"train\"", "times 3 run \"eval\"", "which writes the state \"@eval.0\""},
      {"\"evaluate\" run \"eval\"", "\"evaluate\" run \"micro\"",
       "programme \"evaluate\" runs graph \"micro\", which writes the state \"@accumulate.part\""},
      {"\"evaluate\" run \"eval\"", "\"evaluate\" run \"train\"", "which writes the state"},
      {"\"evaluate_average\" run \"eval\"", "\"evaluate_average\" run \"train\"",
       "programme \"evaluate_average\" runs graph \"train\", which writes the state"},
      {"run \"decode\" positions 64", "run \"eval\" positions 64",
       "programme \"generate\" runs graph \"eval\", which writes the state \"@eval.0\""},
      {"run \"decode\" positions 1\n", "run \"train\" positions 1\n",
       "programme \"generate\" runs graph \"train\", which writes the state"},
      {"graph \"eval\"\n  buffer 0 input+0 u8[4,8]\n  buffer 1 work+0",
       "graph \"eval\"\n  buffer 0 input+0 u8[4,8]\n  buffer 1 params+0",
       "which writes the parameters"},
      {"graph \"eval\"\n  buffer 0 input+0 u8[4,8]\n  buffer 1 work+0 f32[4,8]\n  buffer 2 "
       "params+0 f32[4,8]\n"
       "  buffer 3 params+128 f32[4]\n  buffer 4 work+128 f32[4,4]\n  buffer 5 output+0 f32[]\n"
       "  buffer 6 state+448 i64[]\n  buffer 7 work+256 f32[4,4]",
       "graph \"eval\"\n  buffer 0 input+0 u8[4,8]\n  buffer 1 work+0 f32[4,8]\n  buffer 2 "
       "params+0 f32[4,8]\n"
       "  buffer 3 params+128 f32[4]\n  buffer 4 work+128 f32[4,4]\n  buffer 5 output+0 f32[]\n"
       "  buffer 6 state+448 i64[]\n  buffer 7 narrow+0 bf16[4,8]",
       "which writes the rounded parameters"},
      {"graph \"decode\"\n  buffer 0 input+0 u8[4,8]\n  buffer 1 work+0",
       "graph \"decode\"\n  buffer 0 input+0 u8[4,8]\n  buffer 1 grads+0",
       "which writes gradients"},
      /* the update */
      {"8 11) -> (9 10 11 12)", "8 11) -> (9 10 12)", "does not write the state \"@ema\""},
      {"8 11) -> (9 10 11 12)", "8 11) -> (9 10 11)",
       "does not write the state \"@accumulate.part\""},
      {"8 11) -> (9 10 11 12)", "8 11) -> (9 11 12)",
       "write rounded, the parameter \"fc1.weight\""},
      {"8 11) -> (9 10 11 12)", "8 11) -> (2 10 11 12)",
       "does not write the parameter \"fc1.bias\""},
      {"8 11) -> (9 10 11 12)", "8 11) -> (9 3 10 11 12)",
       "writes the parameter \"fc1.bias\" twice"},
      {"(6) -> (6)", "(6) -> (6 6)", "writes the state \"@step\" twice"},
      {"buffer 11 state+128 f32[64]", "buffer 11 state+128 f32[63]",
       "not write the state \"@ema\""},
      {"buffer 11 state+128 f32[64]", "buffer 11 state+128 i32[64]", "\"@ema\" as i32[64]"},
      {"buffer 11 state+128 f32[64]", "buffer 11 state+192 f32[64]", "bytes between the states"},
      {"buffer 11 state+128 f32[64]", "buffer 11 state+320 f32[8]", "not write the state \"@ema\""},
      {"role total", "role keep", "must be f64[]"},
      {" role keep", "", "an evaluation has totals, and no state has the role keep"},
      {" role more", " role plateau", "no state has the role more"},
      {"role total", "role plateau", "which writes the state \"@eval.0\""},
      {"state \"@decode.position\"",
       "state \"other\" i64[] at state+512 init zeros() role total\n"
       "state \"@decode.position\"",
       "overlaps"},
      /* sums of gradients */
      {"(4 8) -> (8)", "(4) -> (8)",
       "adds nothing to the sums of gradients that its step 7 writes"},
      {"\"matmul\" (1 2 3) -> (4)", "\"matmul\" (1 2 3) -> (8)",
       "gradients that its step 0 writes"},
      {"fill () -> (8)", "fill () -> (4)", "does not clear the sums of gradients at its end"},
      {"buffer 8 grads+0 f32[64]", "buffer 8 grads+0 f32[32]", "the gradient of \"fc1.bias\""},
      {"grads+0 f32[64]", "grads+0 f32[48]", "does not clear the sums of gradients at its end"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    expect_refusal(sample, cases[i][0], cases[i][1], cases[i][2]);
  expect_refusal(with_writing_call, "Mlp", "Mlp", "graph \"eval\", which writes the parameters");
  expect_refusal(with_early_clear, "Mlp", "Mlp",
                 "graph \"micro\", which adds nothing to the sums of gradients that its step 7");
}

/* What is added behind a plan's last line. */
static void expect_too_many(const char *format, int count, const char *message) {
  Arena *arena = arena_new();
  Text more = {0};
  for (int i = 0; i < count; i++) text_printf(&more, format, i);
  char *text = edited(arena, sample(arena), "checksum", arena_printf(arena, "%schecksum", more.at));
  const char *why = NULL;
  assert_null(plan_parse(arena, text, strlen(text), &why));
  if (!strstr(why, message)) fail_msg("%s", why);
  text_free(&more);
  arena_free(arena);
}

static void test_bounds(void **state) {
  (void)state;
  expect_too_many("graph \"g%d\"\n", 61, "at most 64 graphs");
  expect_too_many("programme \"p%d\" run \"eval\"\n", 29, "at most 32 programmes");
  Arena *arena = arena_new();
  Text runs = {0};
  for (int i = 0; i < PROGRAMME_RUNS; i++) text_printf(&runs, " run \"micro\"");
  const char *longer = arena_printf(arena, "programme \"step\"%s", runs.at);
  expect_refusal(sample, "programme \"step\"", longer, "at most 64 runs");
  text_free(&runs);
  arena_free(arena);
}

/* Bytes that only this run's steps fill, read before they are. */
static void test_reads(void **state) {
  (void)state;
  static const char *const cases[][3] = {
      {"\"k0\" (0) -> (1)", "\"k0\" (0) -> (4)", "reads buffer 1, which no step before it"},
      {"\"gemm\" (1 2 3) -> (4)", "\"gemm\" (1 2 3) -> (7)", "reads buffer 4, which no step"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    expect_refusal(sample, cases[i][0], cases[i][1], cases[i][2]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds),
                                     cmocka_unit_test(test_programmes),
                                     cmocka_unit_test(test_writes), cmocka_unit_test(test_reads),
                                     cmocka_unit_test(test_bounds)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
