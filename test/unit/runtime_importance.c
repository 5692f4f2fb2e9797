/* importance: the variance of a tree against a grid of points, and forests of functions whose shares are known. */
#define _GNU_SOURCE
#include "runtime/tune/importance.h"
#include "runtime/tune/random.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Cut at quarters, so that a grid of four by four by four has a point in each piece. */
static void variance_is_that_of_a_grid(void **state) {
  (void)state;
  static const Leaf leaf[] = {{5, {0, 0, 0}, {0.5, 1, 1}},
                              {-1, {0.5, 0, 0}, {1, 0.25, 1}},
                              {2, {0.5, 0.25, 0}, {0.75, 1, 1}},
                              {7, {0.75, 0.25, 0}, {1, 1, 0.75}},
                              {3, {0.75, 0.25, 0.75}, {1, 1, 1}}};
  double value[4][4][4], mean = 0, variance = 0, total, single[3];
  for (int i = 0; i < 64; i++) {
    double at[3] = {(i / 16 + 0.5) / 4, (i / 4 % 4 + 0.5) / 4, (i % 4 + 0.5) / 4};
    for (int l = 0; l < 5; l++) {
      bool is_in = true;
      for (int d = 0; d < 3; d++) is_in &= at[d] > leaf[l].low[d] && at[d] < leaf[l].high[d];
      if (is_in) value[i / 16][i / 4 % 4][i % 4] = leaf[l].value;
    }
    mean += value[i / 16][i / 4 % 4][i % 4] / 64;
  }
  for (int i = 0; i < 64; i++) variance += pow(value[i / 16][i / 4 % 4][i % 4] - mean, 2) / 64;
  assert_true(importance_variance(leaf, 5, 3, &total, single));
  assert_float_equal(total, variance, 1e-12);
  for (int d = 0; d < 3; d++) {
    double along = 0;
    for (int k = 0; k < 4; k++) {
      double here = 0;
      for (int i = 0; i < 16; i++)
        here += (d == 0   ? value[k][i / 4][i % 4]
                 : d == 1 ? value[i / 4][k][i % 4]
                          : value[i / 4][i % 4][k]) /
                16;
      along += pow(here - mean, 2) / 4;
    }
    assert_float_equal(single[d], along, 1e-12);
  }
}

static double sum_of_two(const double *x) { return x[0] + x[1] / 2; }
static double only_together(const double *x) { return (x[0] - 0.5) * (x[1] - 0.5); }
static double mostly_diverged(const double *x) { return x[1] > 0.95 ? 1e300 : x[0]; }
static double flat(const double *x) { return 3 + 0 * x[0]; }

static bool measure(double (*function)(const double *), int count, bool is_max, Importance *out) {
  Trial *trial = calloc((size_t)count + 1, sizeof *trial);
  Journal journal = {.trial = trial, .count = count, .is_max = is_max};
  Random random = random_new(3, 0, 0);
  for (int d = 0; d < 3; d++) {
    static const char *const dims[] = {"a=range(0, 1)", "b=range(0, 1)", "c=range(0, 1)"};
    assert_int_equal(space_add(&journal.space, dims[d]), STATUS_OK);
  }
  for (int i = 0; i < count; i++) {
    for (int d = 0; d < 3; d++) trial[i].point[d] = random_unit(&random);
    trial[i].value = function(trial[i].point) * (is_max ? -1 : 1);
    trial[i].state = i % 10 == 9 ? TRIAL_FAILED : TRIAL_COMPLETE;
    if (i % 10 == 9) trial[i].value = NAN;
  }
  bool is_fine = importance_of(&journal, out);
  space_free(&journal.space);
  free(trial);
  return is_fine;
}

static void shares_are_known(void **state) {
  (void)state;
  Importance out, turned;
  assert_true(measure(sum_of_two, 400, false, &out)); /* variances 1/12 and 1/48 */
  assert_int_equal(out.trials, 360);
  assert_float_equal(out.share[0], 0.8, 0.05);
  assert_float_equal(out.share[1], 0.2, 0.05);
  assert_true(out.share[2] < 0.01 && out.together < 0.05);
  assert_true(measure(sum_of_two, 400, true, &turned));
  assert_memory_equal(&out, &turned, sizeof out);
  assert_true(measure(only_together, 1000, false, &out));
  assert_true(out.together > 0.8);
  assert_true(measure(mostly_diverged, 400, false, &out)); /* not only what diverges */
  assert_true(out.share[0] > 0.2 && out.share[1] > 0.2 && isfinite(out.together));
}

static void says_nothing_of_nothing(void **state) {
  (void)state;
  Importance out;
  assert_false(measure(flat, 100, false, &out));
  assert_false(measure(sum_of_two, 10, false, &out)); /* nine that have a value */
  assert_true(measure(sum_of_two, 11, false, &out));
  assert_false(measure(sum_of_two, 0, false, &out));
  assert_true(measure(sum_of_two, 3000, false, &out));
  assert_int_equal(out.trials, IMPORTANCE_MOST_TRIALS);
}

/* What is not there where `kind` is a cannot be why these are worse. */
static void absence_explains_nothing(void **state) {
  (void)state;
  enum { COUNT = 300 };
  Trial *trial = calloc(COUNT, sizeof *trial);
  Journal journal = {.trial = trial, .count = COUNT};
  Importance out;
  Random random = random_new(4, 0, 0);
  assert_int_equal(space_add(&journal.space, "kind=[a, b]"), STATUS_OK);
  assert_int_equal(space_add(&journal.space, "only=range(0, 1) if kind=b"), STATUS_OK);
  for (int i = 0; i < COUNT; i++) {
    trial[i].point[0] = i % 2;
    trial[i].point[1] = i % 2 ? random_unit(&random) : NAN;
    trial[i].value = i % 2 ? 0 : 1;
    trial[i].state = TRIAL_COMPLETE;
  }
  assert_true(importance_of(&journal, &out));
  assert_true(out.share[0] > 0.95);
  assert_true(out.share[1] < 0.02);
  space_free(&journal.space);
  free(trial);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(variance_is_that_of_a_grid),
      cmocka_unit_test(shares_are_known),
      cmocka_unit_test(says_nothing_of_nothing),
      cmocka_unit_test(absence_explains_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
