/* passes_ranks: ranks that share a batch train as one rank with the whole of it. The graphs that all
 * passes make are interpreted, on 1 to 4 ranks at a time with the rows of each, and on one rank by
 * itself compiled for the whole batch: losses, metrics, outputs' rows, parameters and states of
 * several steps and of an evaluation are the same but for the order of sums. So they are where the
 * ranks share parameters out (distributed.zero) or each layer's work (distributed.tensor), each rank's
 * part of them. */
#include "test/unit/ranks_help.h"
#include "test/unit/ranks_models.h"

static void check(const char *source, int ranks, int parts, int zero, int tensor) {
  const char *apart = bucket;
  check_form(source, (Form){ranks, parts, zero, tensor, 1, 1});
  if (!zero) return;
  bucket = "distributed.bucket=0"; /* small params are gathered and shared out together */
  check_form(source, (Form){ranks, parts, zero, tensor, 1, 1});
  bucket = apart;
}

static void check_in_turn(const char *source, int ranks, int parts, int zero, int tensor) {
  static int cases;
  if (help_has_its_turn(cases++)) check(source, ranks, parts, zero, tensor);
}

static void test_as_one_rank(void **unused) {
  (void)unused;
  for (size_t i = 0; i < sizeof models / sizeof *models; i++)
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
      for (int parts = 1; parts <= 3; parts += 2)
        for (int zero = 0; zero <= (ranks > 1 ? 3 : 0); zero++)
          if (zero != 1 || parts > 1) check_in_turn(models[i], ranks, parts, zero, 1);
}

/* Where what flows back to a whole layer is a share on each rank, bf16 rounds each share. */
static bool rounds_shares(const char *source, int tensor) {
  return tensor == 3 && strstr(source, "precision = bf16") && !strstr(source, "precision=f32");
}

static void test_tensor(void **unused) {
  (void)unused;
  for (size_t i = 0; i < sizeof models / sizeof *models; i++)
    for (int tensor = 2; tensor <= MOST_RANKS; tensor++)
      if (!rounds_shares(models[i], tensor))
        for (int ranks = 1; ranks * tensor <= MOST_RANKS; ranks++)
          for (int parts = 1; parts <= 3; parts += 2)
            for (int zero = 0; zero <= (ranks > 1 ? 3 : 0); zero++)
              if (zero != 1 || parts > 1) check_in_turn(models[i], ranks, parts, zero, tensor);
}

static char given[1 << 16];
static void test_given(void **unused) {
  (void)unused;
  for (int ranks = 2; ranks <= 3; ranks++)
    for (int parts = 1; parts <= 2; parts++) check(given, ranks, parts, 0, 1);
  check(given, 2, 1, 3, 1);
  check(given, 2, 2, 1, 1);
  check(given, 3, 2, 2, 1);
  if (strstr(given, "precision = fp8(")) return; /* refused where layers are divided */
  check(given, 1, 1, 0, 2);
  check(given, 2, 2, 0, 2);
  check(given, 1, 1, 0, 3);
  check(given, 2, 1, 3, 2);
  pieces = rows;
  check(given, 1, 1, 0, 2);
  check(given, 2, 2, 3, 2);
  check(given, 1, 1, 0, 3);
  pieces = 1;
  static const Form pipelines[] = {{1, 1, 0, 1, 2, 1}, {1, 3, 0, 1, 2, 1}, {2, 2, 0, 1, 3, 1},
                                   {1, 4, 0, 1, 2, 2}, {1, 2, 0, 2, 2, 1}, {2, 2, 3, 1, 2, 1},
                                   {1, 3, 0, 1, 3, 2}, {2, 1, 1, 2, 2, 1}};
  for (size_t i = 0; i < sizeof pipelines / sizeof *pipelines; i++)
    check_form(given, pipelines[i]); /* where there are layers enough */
}

int main(int argc, char **argv) {
  is_given = argc > 1 && strcmp(argv[1], "-") == 0;
  if (is_given) {
    given[fread(given, 1, sizeof given - 1, stdin)] = 0;
    const struct CMUnitTest one[] = {cmocka_unit_test(test_given)};
    return cmocka_run_group_tests(one, NULL, NULL);
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_one_rank),
                                     cmocka_unit_test(test_tensor)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
