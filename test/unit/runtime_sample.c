/* sample_draw: the likeliest at temperature 0, frequencies as the softmax says, top-k and top-p
 * cut where they should, NaN never drawn, ties by index. */
#include "runtime/command/sample.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { COUNT = 4, DRAWS = 1000 };
static const float scores[COUNT] = {0.0f, 2.0f, 1.0f, -1.0f};

static void frequencies(double temperature, int64_t top_k, double top_p, double out[COUNT]) {
  int64_t order[COUNT];
  for (int i = 0; i < COUNT; i++) out[i] = 0;
  for (int i = 0; i < DRAWS; i++) {
    SampleOptions options = {temperature, top_k, top_p, 0};
    int64_t token = sample_draw(&options, scores, COUNT, (i + 0.5) / DRAWS, order);
    assert_in_range(token, 0, COUNT - 1);
    out[token] += 1.0 / DRAWS;
  }
}

static void check(double temperature, int64_t top_k, double top_p, const double want[COUNT]) {
  double have[COUNT];
  frequencies(temperature, top_k, top_p, have);
  for (int i = 0; i < COUNT; i++)
    if (fabs(have[i] - want[i]) > 2.0 / DRAWS)
      fail_msg("token %d: %g, not %g", i, have[i], want[i]);
}

/* softmax of scores / temperature over those with keep[i] */
static void softmax(double temperature, const int keep[COUNT], double out[COUNT]) {
  double sum = 0;
  for (int i = 0; i < COUNT; i++) sum += out[i] = keep[i] * exp((double)scores[i] / temperature);
  for (int i = 0; i < COUNT; i++) out[i] /= sum;
}

static void draws(void **state) {
  (void)state;
  double want[COUNT];
  static const int all[COUNT] = {1, 1, 1, 1}, two[COUNT] = {0, 1, 1, 0},
                   three[COUNT] = {1, 1, 1, 0};
  static const int one[COUNT] = {0, 1, 0, 0};
  softmax(1, all, want);
  check(1, 0, 1, want);
  softmax(0.5, all, want);
  check(0.5, 0, 1, want);
  softmax(1, two, want);
  check(1, 2, 1, want);
  check(1, 0, 0.7, want); /* 0.64 is not enough, 0.64 + 0.24 is */
  softmax(1, three, want);
  check(1, 3, 1, want);
  check(1, 9, 0.95, want);
  softmax(1, one, want);
  check(0, 0, 1, want);
  check(1, 1, 1, want);
  check(1, 0, 0, want);
}

static void oddities(void **state) {
  (void)state;
  int64_t order[COUNT];
  const float nan_scores[COUNT] = {NAN, 1, NAN, 1}, nothing[COUNT] = {NAN, NAN, NAN, NAN};
  const float infinite[COUNT] = {1, INFINITY, 2, -INFINITY};
  const SampleOptions likeliest = {0, 0, 1, 0}, all = {1, 0, 1, 0};
  assert_int_equal(sample_draw(&likeliest, nan_scores, COUNT, 0.5, order), 1);
  assert_int_equal(sample_draw(&all, nan_scores, COUNT, 0.9, order), 3);
  assert_int_equal(sample_draw(&all, nothing, COUNT, 0.5, order), -1);
  assert_int_equal(sample_draw(&all, infinite, COUNT, 0.5, order), 1);
  assert_int_equal(sample_draw(&all, scores, COUNT, 0.9999999999, order), 3);
  const float equal[COUNT] = {1, 3, 3, 1}; /* of those that are as likely the first ones are kept */
  const SampleOptions one = {1, 1, 1, 0}, three = {1, 3, 1, 0};
  assert_int_equal(sample_draw(&one, equal, COUNT, 0.9, order), 1);
  assert_int_equal(sample_draw(&three, equal, COUNT, 0.9999999999, order), 0);
}

/* Chi-squared of draws with numbers of our own: by position of one text, and by seed at one
 * position. With 3 degrees of freedom 16.3 is passed once in a thousand times; a generator that
 * favours a quarter by a tenth gives 37. */
static void generator(void **state) {
  (void)state;
  enum { MANY = 20000 };
  const SampleOptions all = {1, 0, 1, 0};
  double want[COUNT];
  static const int keep[COUNT] = {1, 1, 1, 1};
  softmax(1, keep, want);
  for (int by_seed = 0; by_seed < 2; by_seed++)
    for (uint64_t fixed = 0; fixed < 3; fixed++) {
      int64_t order[COUNT];
      double seen[COUNT] = {0}, chi = 0, follows = 0, before = 0;
      for (uint64_t i = 0; i < MANY; i++) {
        double random = by_seed ? sample_uniform(i, fixed) : sample_uniform(fixed, i);
        assert_true(random >= 0 && random < 1);
        seen[sample_draw(&all, scores, COUNT, random, order)]++;
        follows += (random - 0.5) * (before - 0.5);
        before = random;
      }
      for (int k = 0; k < COUNT; k++)
        chi += (seen[k] - MANY * want[k]) * (seen[k] - MANY * want[k]) / (MANY * want[k]);
      assert_true(chi < 16.3);
      assert_true(fabs(follows) < 4 * sqrt(MANY) / 12); /* neighbours know nothing of each other */
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(draws), cmocka_unit_test(oddities),
                                     cmocka_unit_test(generator)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
