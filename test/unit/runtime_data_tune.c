/* data_tune: the rule of data.workers = auto, on measurements that are made up. */
#include "runtime/command/data_tune.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* A step that computes for 10 ms and waits for what the workers have not made of 40 ms. */
static double wait_with(const DataTune *tune) {
  double each = 0.04 / (tune->workers ? tune->workers : 1);
  double wait = tune->workers ? each - 0.01 : each;
  return wait > 0 ? wait : 0;
}

static int run_until_over(DataTune *tune) {
  int changes = 0;
  for (int step = 0; step < 10000 && !tune->is_over; step++) {
    double wait = wait_with(tune);
    changes += data_tune_note(tune, 1, 0.01 + wait, wait);
  }
  assert_true(tune->is_over);
  return changes;
}

static void grows_until_nothing_waits(void **state) {
  (void)state;
  DataTune tune = data_tune_start(true, true, 0, 4, 16);
  assert_int_equal(run_until_over(&tune), 3);
  assert_int_equal(tune.workers, 4);
  assert_int_equal(tune.prefetch, 8);
  assert_true(tune.share == 0);
}

static void stays_within_the_cores(void **state) {
  (void)state;
  DataTune tune = data_tune_start(true, true, 1, 4, 3);
  run_until_over(&tune);
  assert_int_equal(tune.workers, 3);
  assert_int_equal(tune.prefetch, 6);
  tune = data_tune_start(true, false, 8, 2, 3); /* more than that from the beginning */
  for (int i = 0; i < 100; i++) assert_false(data_tune_note(&tune, 1, 0.02, 0.01));
  assert_int_equal(tune.workers, 8);
  assert_true(tune.is_over);
}

static void takes_back_what_does_not_help(void **state) {
  (void)state;
  DataTune tune = data_tune_start(true, true, 2, 4, 16);
  int changes = 0;
  for (int i = 0; i < 100; i++) changes += data_tune_note(&tune, 1, 0.02, 0.01);
  assert_int_equal(changes, 2);
  assert_true(tune.is_over && tune.workers == 2 && tune.prefetch == 4);
  assert_false(data_tune_note(&tune, 1000, 100, 100));
}

static void waits_for_enough(void **state) {
  (void)state;
  DataTune tune = data_tune_start(true, true, 1, 4, 16);
  for (int i = 0; i < 19; i++) assert_false(data_tune_note(&tune, 1, 1, 1)); /* few steps */
  assert_true(data_tune_note(&tune, 1, 1, 1));
  tune = data_tune_start(true, true, 1, 4, 16);
  for (int i = 0; i < 1000; i++)
    assert_false(data_tune_note(&tune, 1, 1e-4, 1e-4)); /* little time */
}

static void changes_only_what_it_may(void **state) {
  (void)state;
  DataTune tune = data_tune_start(false, false, 1, 4, 16);
  assert_true(tune.is_over && !data_tune_note(&tune, 100, 10, 10));
  tune = data_tune_start(false, true, 2, 4, 16);
  double took = 0.02;
  for (int i = 0; i < 400 && !tune.is_over; i++)
    if (data_tune_note(&tune, 1, took, 0.01)) took *= 0.9;
  assert_int_equal(tune.workers, 2);
  assert_int_equal(tune.prefetch, DATA_TUNE_MOST_PREFETCH);
  tune = data_tune_start(true, false, 1, 3, 16);
  run_until_over(&tune);
  assert_int_equal(tune.workers, 4);
  assert_int_equal(tune.prefetch, 3);
  tune = data_tune_start(false, true, 0, 4, 16); /* nobody would prepare them */
  for (int i = 0; i < 100; i++) assert_false(data_tune_note(&tune, 1, 0.02, 0.01));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(grows_until_nothing_waits), cmocka_unit_test(stays_within_the_cores),
      cmocka_unit_test(takes_back_what_does_not_help), cmocka_unit_test(waits_for_enough),
      cmocka_unit_test(changes_only_what_it_may)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
