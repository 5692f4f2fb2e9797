/* Gradients of what ranks do together, against central differences (gradients_help.h). */
#include "gradients_help.h"

/* The loss is the sum of all ranks' losses, and x that of one rank. */
static void over_ranks(void **state) {
#define BY(reduction) "{reduction=\"" reduction "\"}", "{reduction=\"" reduction "\", ranks=%d}"
  static const char *const attrs[] = {BY("sum"), BY("rmax"), BY("rmin"), "", "{ranks=%d}"};
  char attr[64], text[512];
  (void)state;
  for (ranks = 1; ranks <= MOST_RANKS; ranks++)
    for (int i = 0; i < 8; i++) {
      int rows = i == 7 ? 6 * ranks : i % 2 ? 6 / ranks : 6;
      snprintf(attr, sizeof attr, attrs[i], ranks);
      snprintf(text, sizeof text,
               "%%x = param {name=\"x\"} : f32[6,3]\n%%a = %s %%x %s : f32[%d,3]\n"
               "%%b = %s : f32[%d,3]\n%%y = exp %%b : f32[%d,3]",
               i == 7  ? "all_gather"
               : i % 2 ? "reduce_scatter"
                       : "all_reduce",
               attr, rows, i % 2 ? "reshape %a" : "result %a {index=0}", rows, rows);
      if (*attrs[i]) check(text);
    }
  ranks = 1;
}

/* Must be the last. */
static void every_collective_has_a_case(void **state) {
  (void)state;
  for (int op = 0; op < OP_COUNT; op++)
    if (op_has((Op)op, TRAIT_RANKS) && gradient_rule[op] && !seen[op])
      fail_msg("'%s' has a gradient and no case here", op_info[op].text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(over_ranks),
      cmocka_unit_test(every_collective_has_a_case),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
