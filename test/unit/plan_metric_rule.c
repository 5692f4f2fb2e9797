/* metric_rule: what is a rule, what is none, and when a limit is reached. */
#include "plan/metric_rule.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

static void rules_are_read(void **state) {
  (void)state;
  MetricRule rule;
  assert_true(metric_rule_read("max(valid.accuracy)", &rule));
  assert_true(rule.is_max && !strcmp(rule.split, "valid") && !strcmp(rule.name, "accuracy"));
  assert_true(metric_rule_read("min(test.ema_loss)", &rule));
  assert_true(!rule.is_max && !strcmp(rule.split, "test") && !strcmp(rule.name, "ema_loss"));
  static const char *const wrong[] = {
      "",           "valid.loss",  "max(valid)",       "max(valid.loss",  "mean(valid.loss)",
      "max(.loss)", "max(valid.)", "max(valid.loss) ", "max(valid.loss))"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_false(metric_rule_read(wrong[i], &rule));
  char text[600] = "max(valid.";
  memset(text + 10, 'x', 500); /* more than there is room for */
  strcpy(text + 510, ")");
  assert_false(metric_rule_read(text, &rule));
}

static void limits_are_read(void **state) {
  (void)state;
  MetricLimit limit;
  assert_true(metric_limit_read("valid.accuracy > 0.95", &limit));
  assert_true(!strcmp(limit.split, "valid") && !strcmp(limit.name, "accuracy"));
  assert_true(!strcmp(limit.compare, ">") && limit.limit == 0.95);
  assert_true(metric_limit_read("valid.loss<=-1e-3", &limit));
  assert_true(!strcmp(limit.name, "loss") && !strcmp(limit.compare, "<=") && limit.limit == -1e-3);
  static const char *const wrong[] = {"",
                                      "valid.loss",
                                      "valid.loss <",
                                      "valid.loss < x",
                                      "loss < 1",
                                      "valid.loss == 1",
                                      "valid.loss << 1",
                                      "valid.loss =< 1",
                                      "valid.loss < nan",
                                      "valid.loss < inf",
                                      "valid.loss < 1 2",
                                      "valid.loss > 1e999",
                                      ".loss < 1",
                                      "valid. < 1"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_false(metric_limit_read(wrong[i], &limit));
  char text[600] = "valid.";
  memset(text + 6, 'x', 500);
  strcpy(text + 506, " < 1");
  assert_false(metric_limit_read(text, &limit));
}

static void limits_are_reached(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double value;
    bool is_reached;
  } cases[] = {
      {"v.a > 1", 1, false},        {"v.a > 1", 1.5, true},       {"v.a >= 1", 1, true},
      {"v.a < 1", 1, false},        {"v.a < 1", 0, true},         {"v.a <= 1", 1, true},
      {"v.a > 1", INFINITY, true},  {"v.a < 1", INFINITY, false}, {"v.a >= 0.45", 0.45f, true},
      {"v.a > 0.45", 0.45f, false}, {"v.a > 1", NAN, false},      {"v.a <= 1", NAN, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    MetricLimit limit;
    assert_true(metric_limit_read(cases[i].text, &limit));
    assert_true(metric_limit_is_reached(&limit, cases[i].value) == cases[i].is_reached);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rules_are_read),
                                     cmocka_unit_test(limits_are_read),
                                     cmocka_unit_test(limits_are_reached)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
