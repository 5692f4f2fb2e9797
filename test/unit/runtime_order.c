/* order: every epoch is a permutation, epochs and seeds differ, and positions are spread evenly. */
#include "runtime/common/order.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void is_a_permutation(void **state) {
  (void)state;
  static const int64_t counts[] = {1, 2, 3, 5, 63, 64, 65, 1000, 60000};
  for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
    char *seen = calloc((size_t)counts[c], 1);
    Order order = order_new(counts[c], true, 42, 7);
    for (int64_t i = 0; i < counts[c]; i++) {
      int64_t sample = order_sample(&order, i);
      assert_in_range(sample, 0, counts[c] - 1);
      assert_false(seen[sample]);
      seen[sample] = 1;
    }
    free(seen);
  }
}

static void unshuffled_is_identity(void **state) {
  (void)state;
  Order order = order_new(100, false, 42, 7);
  for (int64_t i = 0; i < 100; i++) assert_int_equal(order_sample(&order, i), i);
}

static int matches(uint64_t seed, uint64_t epoch) {
  Order first = order_new(1000, true, 1, 0), other = order_new(1000, true, seed, epoch);
  int same = 0;
  for (int64_t i = 0; i < 1000; i++) same += order_sample(&first, i) == order_sample(&other, i);
  return same;
}

/* Two random permutations agree at about one place. */
static void seeds_and_epochs_differ(void **state) {
  (void)state;
  assert_int_equal(matches(1, 0), 1000);
  assert_true(matches(2, 0) < 10);
  assert_true(matches(1, 1) < 10);
  assert_true(matches((uint64_t)1 << 32 | 1, 0) < 10);
}

/* Where samples land, over 8000 epochs of 8 samples: each of 64 cells expects 1000. Chi-squared
 * with 49 degrees of freedom exceeds 95 once in 10000 orders; the seed is fixed. */
static void positions_are_uniform(void **state) {
  (void)state;
  int count[8][8] = {{0}};
  for (uint64_t epoch = 0; epoch < 8000; epoch++) {
    Order order = order_new(8, true, 3, epoch);
    for (int i = 0; i < 8; i++) count[i][order_sample(&order, i)]++;
  }
  double chi = 0;
  for (int i = 0; i < 64; i++) {
    double difference = count[i / 8][i % 8] - 1000.0;
    chi += difference * difference / 1000.0;
  }
  assert_true(chi < 95);
  assert_true(chi > 10); /* nor too even to be random */
}

/* Neighbours in the order must not be neighbours in the file. */
static void neighbours_are_parted(void **state) {
  (void)state;
  Order order = order_new(60000, true, 0, 0);
  int near = 0;
  for (int64_t i = 0; i + 1 < 60000; i++)
    near += llabs(order_sample(&order, i) - order_sample(&order, i + 1)) < 30;
  assert_in_range(near, 30, 100); /* about 59 expected */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(is_a_permutation),        cmocka_unit_test(unshuffled_is_identity),
      cmocka_unit_test(seeds_and_epochs_differ), cmocka_unit_test(positions_are_uniform),
      cmocka_unit_test(neighbours_are_parted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
