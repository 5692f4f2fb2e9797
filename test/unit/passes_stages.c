/* passes_stages: the stages of a pipeline train as one rank, in any mix with ranks that share batches, parameters and layers.
 * Each stage's graph is interpreted, with the messages between them, which must also meet in the order of the graphs. */
#include "test/unit/ranks_help.h"
#include "test/unit/ranks_models.h"

/* Rounding by random numbers is refused. */
static bool can_be_cut(const char *source) { return !strstr(source, "parameters=bf16"); }

static int check_in_turn(const char *source, Form form) {
  static int cases;
  return help_has_its_turn(cases++) ? check_form(source, form) : 0;
}

static void test_pipeline(void **unused) {
  (void)unused;
  int forms = 0;
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    if (!can_be_cut(models[i])) continue;
    for (int pipeline = 2; pipeline <= 3; pipeline++)
      for (int interleave = 1; interleave <= 2; interleave++)
        for (int parts = 1; parts <= 4; parts += 1 + (parts == 1))
          for (int ranks = 1; ranks <= (parts == 3 ? 2 : 1); ranks++)
            forms += check_in_turn(models[i], (Form){ranks, parts, 0, 1, pipeline, interleave});
    for (int parts = 1; parts <= 3; parts += 2) {
      forms += check_in_turn(models[i], (Form){2, parts, 1, 1, 2, 1});
      forms += check_in_turn(models[i], (Form){2, parts, 2, 1, 3, 1});
      forms += check_in_turn(models[i], (Form){2, parts, 3, 1, 2, 2});
      forms += check_in_turn(models[i], (Form){1, parts, 0, 2, 2, 1});
      forms += check_in_turn(models[i], (Form){2, parts, 3, 2, 2, 1});
    }
  }
  assert_in_range(forms, help_has_turns() ? 20 : 150, 1000);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_pipeline)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
