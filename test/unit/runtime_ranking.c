/* ranking: areas against all pairs, counted one by one: ties, both zeros, infinities, denormals,
 * classes that are not there, scores that are none. */
#include "runtime/command/ranking.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static double of_pairs(const float *rows, int64_t columns, int64_t count) {
  double sum = 0;
  for (int64_t c = 1; c < columns; c++) {
    double positive = columns == 2 ? 1 : (double)(c - 1), won = 0, pairs = 0;
    for (int64_t i = 0; i < count; i++)
      for (int64_t k = 0; k < count; k++) {
        const float *a = rows + i * columns, *b = rows + k * columns;
        if (b[0] < 0 || (double)a[0] != positive || (double)b[0] == positive) continue;
        won += a[c] > b[c] ? 1 : a[c] == b[c] ? 0.5 : 0;
        pairs++;
      }
    sum += pairs > 0 ? won / pairs : NAN;
  }
  return sum / (double)(columns - 1);
}

static double area(const float *rows, int64_t columns, int64_t count, int64_t batch) {
  Ranking *ranking;
  Ranks alone = {0};
  double value;
  assert_int_equal(ranking_new("a", columns, count, &ranking), STATUS_OK);
  for (int again = 0; again < 2; again++) {
    ranking_clear(ranking);
    for (int64_t i = 0; i < count; i += batch)
      assert_int_equal(
          ranking_add(ranking, rows + i * columns, i + batch < count ? batch : count - i),
          STATUS_OK);
  }
  assert_int_equal(ranking_auc(ranking, &alone, &value), STATUS_OK);
  ranking_free(ranking);
  return value;
}

static void is_the_share_of_pairs(void **state) {
  (void)state;
  static const float odd[] = {0.0f,      -0.0f,  1e-45f, -1e-45f,  INFINITY,
                              -INFINITY, 1e-38f, 3e38f,  -3.4e38f, 1.0f};
  for (int round = 0; round < 300; round++) {
    srand((unsigned)round);
    int64_t columns = 2 + rand() % 4, count = 1 + rand() % 40;
    int kinds = 1 + rand() % 20;
    float rows[40 * 5];
    for (int64_t i = 0; i < count * columns; i++)
      rows[i] = i % columns == 0 ? (float)(rand() % (columns == 2 ? 3 : (int)columns) - 1)
                : round % 3      ? (float)(rand() % kinds) - 5.5f
                                 : odd[rand() % 10];
    double got = area(rows, columns, count, 1 + rand() % 7), want = of_pairs(rows, columns, count);
    if (isnan(want))
      assert_true(isnan(got));
    else
      assert_float_equal(got, want, 1e-14);
  }
}

static void a_score_that_is_none(void **state) {
  (void)state;
  const float rows[] = {0, 1, 1, NAN, 1, 3}, left_out[] = {0, 1, -1, NAN, 1, 3};
  assert_true(isnan(area(rows, 2, 3, 3)));
  assert_float_equal(area(left_out, 2, 3, 3), 1, 0);
  assert_true(isnan(area(rows, 2, 0, 1)));
}

static void too_many_are_refused(void **state) {
  (void)state;
  Ranking *ranking;
  assert_int_equal(ranking_new("a", 1001, (int64_t)1 << 31, &ranking), STATUS_USER);
  assert_non_null(strstr(status_message(), "more than half of the memory"));
  assert_int_equal(ranking_new("a", 2, ((int64_t)1 << 31) + 1, &ranking), STATUS_USER);
  assert_non_null(strstr(status_message(), "at most 2147483648 are ranked"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(is_the_share_of_pairs),
                                     cmocka_unit_test(a_score_that_is_none),
                                     cmocka_unit_test(too_many_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
