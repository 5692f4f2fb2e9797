/* plan_kinds: the kinds of steps beside launches and calls, and queues: what is no such step is refused
 * with the line that is wrong. */
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
      {"  end 5 after=5 queue=communicate", "  end 5 after=5 queue=communicate \"\"\n"
       "  end 5 after=6 queue=communicate", "step 6 ends step 5 already"},
      {"  end 5 after=5 queue=communicate", "  fill () -> (1) after=5 queue=copy",
       "no step ends step 5"},
      {"  end 5 after=5 queue=communicate", "  fill () -> (7) after=5 queue=copy \"\"\n"
       "  end 5 after=6 queue=communicate", "step 6 touches bytes that step 5 has under way"},
      {"  end 5 after=5 queue=communicate", "  copy (7) -> (4) after=5 queue=copy \"\"\n"
       "  end 5 after=6 queue=communicate", "step 6 touches bytes that step 5 has under way"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    expect_refusal(sample, cases[i][0], cases[i][1], cases[i][2]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
