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
      {"fill () -> (5)", "fill () -> (0)", "writes to arena input"},
      {"copy (4) -> (7)", "copy () -> (7)", "one input and one output"},
      {"copy (4) -> (7)", "copy (1) -> (7)", "a copy of 128 bytes to 64"},
      {"copy (4) -> (7)", "copy (7) -> (7)", "buffers that overlap"},
      {"copy (4) -> (7) after=1", "copy (4) -> (7)", "step 4 does not wait for step 1"},
      {"\"all_reduce\"", "\"all_reduction\"", "no communication \"all_reduction\""},
      {"\"all_reduce\" (7) -> (7)", "\"all_reduce\" (4) -> (1)", "do not go together"},
      {"\"all_reduce\" (7) -> (7)", "\"all_reduce\" (7) -> ()", "needs 1 input(s) and 1 output(s)"},
      {"\"all_reduce\" (7) -> (7)", "\"reduce_scatter\" (7) -> (1)", "do not go together"},
      {"\"all_reduce\" (7) -> (7)", "\"all_gather\" (1) -> (7)", "do not go together"},
      {"\"all_reduce\" (7) -> (7)", "\"broadcast\" (7) -> (7)", "expected 'peer'"},
      {"\"all_reduce\" (7) -> (7)", "\"all_reduce\" (0) -> (0)", "writes to arena input"},
      {"group=0", "group=-1", "out of range"},
      {"group=0", "group=4294967296", "out of range"},
      {"group=0 after=4 queue=communicate", "group=0 after=4 queue=compute", "beside compute"},
      {"group=0 after=4 queue=communicate", "group=0 queue=communicate",
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
      {"run \"micro\" times 3", "run \"micro\" times 3 averages", "cannot run graph \"micro\""},
      {"run \"micro\" times 3", "run \"micro\" times 3 positions 1", "cannot run graph"},
      {"run \"micro\" times 3", "run \"micro\" times 3 sideways", "unexpected 'sideways"},
      {" run \"micro\" times 3 run \"train\"", "", "expected 'run'"},
      {"setting train.accumulate 4", "setting train.accumulate 5", "train.accumulate is 5"},
      {"programme \"evaluate\" run \"eval\"", "programme \"evaluate\" run \"eval\" times 2",
       "runs more than one graph"},
      {"programme \"evaluate\" run \"eval\"", "programme \"evaluate\" run \"eval\" averages",
       "cannot run graph \"eval\""},
      {"run \"eval\" averages", "run \"eval\"", "cannot run graph \"eval\""},
      {"run \"eval\" averages", "run \"eval\" averages run \"eval\" averages",
       "more than one graph"},
      {"role average", "role average_of", "there is no role"},
      {"role average", "role moment", "keeps no average"},
      {"\"@ema\" f32[64]", "\"@ema\" f32[63]", "smaller than these"},
      {"positions 64", "positions 0", "must lie in 1..1048576"},
      {"positions 64", "positions 1048577", "must lie in 1..1048576"},
      {"positions 64", "times 2 positions 64", "cannot run graph \"eval\""},
      {"run \"eval\" positions 1\n", "run \"eval\" positions 2\n",
       "end with a run of one position"},
      {"run \"eval\" positions 1\n", "run \"eval\"\n", "cannot run graph \"eval\""},
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
  expect_too_many("graph \"g%d\"\n", 62, "at most 64 graphs");
  expect_too_many("programme \"p%d\" run \"eval\"\n", 13, "at most 16 programmes");
  Arena *arena = arena_new();
  Text runs = {0};
  for (int i = 0; i < PROGRAMME_RUNS; i++) text_printf(&runs, " run \"micro\"");
  const char *longer = arena_printf(arena, "programme \"step\"%s", runs.at);
  expect_refusal(sample, "programme \"step\"", longer, "at most 64 runs");
  text_free(&runs);
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds),
                                     cmocka_unit_test(test_programmes),
                                     cmocka_unit_test(test_bounds)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
