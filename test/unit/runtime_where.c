/* where: conditions between dimensions as text, what they refuse and where, three kinds of truth, and samplers that keep them. */
#define _GNU_SOURCE
#include "runtime/tune/sampler.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void begin_space(Space *space, const char *const *texts) {
  *space = (Space){0};
  for (; *texts; texts++) assert_int_equal(space_add(space, *texts), STATUS_OK);
}

static const char *const plain[] = {"a=int(1, 9)",
                                    "b=range(-2, 2)",
                                    "train.lr=log(1e-4, 1)",
                                    "kind=[sgd, adamw]",
                                    "size=[64, 128]",
                                    "m=range(0, 1) if kind=sgd",
                                    NULL};

/* Of one condition, at a = 3, b = -0.5, lr = 0.01, kind = adamw, size = 128, without m. */
static void conditions_hold(void **state) {
  (void)state;
  static const struct {
    const char *text;
    bool holds;
  } cases[] = {
      {"a == 3", true},
      {"a != 3", false},
      {"a*2 + b/0.5 <= 5", true},
      {"a*2 + b/0.5 < 5", false},
      {"-a ** 2 == -9", true},
      {"2 ** a ** 2 == 512", true},
      {"(2 ** a) ** 2 == 64", true},
      {"2 ** -a == 0.125", true},
      {"a - 1 - 1 == 1", true},
      {"12 / a / 2 == 2", true},
      {"min(a, 2, 7) == 2 and max(b, a) == 3", true},
      {"max(-a) == -3", true},
      {"lr < 0.1", true},
      {"train.lr > 1e-1", false},
      {"kind == adamw", true},
      {"kind != adamw", false},
      {"\"sgd\" == kind", false},
      {"kind != 'sgd'", true},
      {"size == 128", true},
      {"a * size <= 384", true},
      {"a * size < 384", false},
      {"not a < 3", true},
      {"not (a > 3 or b < 0)", false},
      {"a > 3 or b < 0 and a == 3", true},
      {"(a > 3 or b < 0) and a == 4", false},
      {"not not a == 3", true},
      /* m is not there: neither true nor false, and so allowed, unless the rest decides */
      {"m < 0.5", true},
      {"m >= 0.5", true},
      {"not m < 0.5", true},
      {"m < 0.5 and a == 4", false},
      {"a == 4 and m < 0.5", false},
      {"m < 0.5 or a == 4", true},
      {"not (m < 0.5 or a == 3)", false},
      {"min(m, 0) > 5", true},
      {"m ** 0 == 2", true},
      {"0 / (a - 3) < 0", true}, /* a number that does not exist */
      {"1 / (a - 3) < 0", false},
      {"   a\t <   4  ", true},
  };
  double point[] = {3, -0.5, 0.01, 1, 1, NAN};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Space space;
    begin_space(&space, plain);
    if (space_add_where(&space, cases[i].text)) fail_msg("%s", status_message());
    if (space_allows(&space, point) != cases[i].holds) fail_msg("wrong: %s", cases[i].text);
    space_free(&space);
  }
}

static void conditions_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int letter;
    const char *says;
  } cases[] = {
      {"", 1, "ends where"},
      {"a <", 4, "ends where"},
      {"a < 3 and", 10, "ends where"},
      {"a < b < 3", 7, "two comparisons"},
      {"c < 3", 1, "no dimension 'c'"},
      {"a < 3 or train.ir < 1", 10, "did you mean 'train.lr'?"},
      {"kind + 1 < 3", 1, "no number but one of sgd, adamw"},
      {"1 + kind < 3", 5, "no number"},
      {"min(a, kind) < 3", 8, "no number"},
      {"kind", 1, "no condition"},
      {"kind < sgd", 1, "no order"},
      {"kind == 3", 9, "'3' is no value of 'kind'"},
      {"kind == -3", 9, "no value"},
      {"kind == kind", 9, "compared with one of its values"},
      {"kind == (a < 3)", 9, "compared with one of its values"},
      {"kind == lion", 9, "'lion' is no value"},
      {"a == sgd", 6, "no dimension 'sgd'"},
      {"(a < 3", 7, "expected )"},
      {"a < 3)", 6, "no ( for this )"},
      {"min(a < 3", 7, "expected , or )"},
      {"min() < 3", 5, "expected a name"},
      {"a", 1, "no condition"},
      {"not a", 5, "no condition"},
      {"a < 3 and b", 11, "no condition"},
      {"(a < 3) + 1 < 2", 1, "true or false"},
      {"(a < 3) == (b < 3)", 1, "true or false"},
      {"3 < 4", 1, "no dimension"},
      {"a = 3", 3, "write =="},
      {"a < 3 && b < 3", 7, "write and"},
      {"a < 3 || b < 3", 7, "write or"},
      {"a < 3 b < 3", 7, "expected and"},
      {"a < 3x", 5, "no number"},
      {"a < 1e999", 5, "no number"},
      {"a < 0x", 5, "no number"},
      {"kind == \"sgd", 9, "no end"},
      {"a < 3 \x01", 7, "letter"},
      {"a < \xc3\xa9", 5, "expected a name"},
  };
  Space space;
  begin_space(&space, plain);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char place[40];
    snprintf(place, sizeof place, ": letter %d: ", cases[i].letter);
    if (space_add_where(&space, cases[i].text) != STATUS_USER) fail_msg("taken: %s", cases[i].text);
    if (!strstr(status_message(), cases[i].says) || !strstr(status_message(), place))
      fail_msg("%s: %s", cases[i].text, status_message());
    assert_int_equal(space.where_count, 0);
  }
  char deep[WHERE_LETTERS + 8], *at = deep;
  for (int i = 0; i < 200; i++) at += sprintf(at, i % 2 ? "(" : "-");
  sprintf(at, "a");
  assert_int_equal(space_add_where(&space, deep), STATUS_USER);
  assert_non_null(strstr(status_message(), "levels"));
  at = deep;
  for (int i = 0; i < 100; i++) at += sprintf(at, "a+a+");
  sprintf(at, "a < 3");
  assert_int_equal(space_add_where(&space, deep), STATUS_USER);
  assert_non_null(strstr(status_message(), "too long"));
  memset(deep, ' ', sizeof deep - 1);
  deep[sizeof deep - 1] = 0;
  assert_int_equal(space_add_where(&space, deep), STATUS_USER);
  for (int i = 0; i < SPACE_MOST_WHERE; i++)
    assert_int_equal(space_add_where(&space, "a < 9"), STATUS_OK);
  assert_int_equal(space_add_where(&space, "a < 9"), STATUS_USER);
  space_free(&space);
}

enum { MOST_TRIES = 40 };

/* All samplers stay where they may; the model's comes to the best point, which lies on the edge. */
static void samplers_keep_conditions(void **state) {
  (void)state;
  static const char *const dims[] = {"x=range(0, 1)", "y=range(0, 1)", "n=int(1, 20)", NULL};
  for (int kind = 0; kind < SAMPLER_KINDS; kind++) {
    Space space;
    Sampler *sampler;
    Observation seen[MOST_TRIES];
    double point[MOST_TRIES][SPACE_MOST], best = INFINITY;
    bool is_over = false;
    begin_space(&space, dims);
    if (kind == SAMPLER_GRID) {
      space_free(&space);
      begin_space(&space, (const char *const[]){"x=range(0, 1, step=0.2)",
                                                "y=range(0, 1, step=0.5)", "n=int(1, 3)", NULL});
    }
    assert_int_equal(space_add_where(&space, "x + y <= 0.5"), STATUS_OK);
    assert_int_equal(space_add_where(&space, "n * x >= 0.4"), STATUS_OK);
    assert_int_equal(sampler_new((SamplerKind)kind, &space, 4, &sampler), STATUS_OK);
    int count = 0;
    for (; count < MOST_TRIES; count++) {
      double *p = point[count];
      assert_int_equal(sampler_next(sampler, seen, count, count, p, &is_over), STATUS_OK);
      if (is_over) break;
      assert_true(space_allows(&space, p) && p[0] + p[1] <= 0.5 && p[2] * p[0] >= 0.4);
      for (int j = 0; j < count; j++) assert_false(space_is_same(&space, p, point[j]));
      double value =
          pow(p[0] - 0.5, 2) + pow(p[1] - 0.5, 2) + 0.01 * p[2]; /* best: 0.25, 0.25, 2 */
      best = fmin(best, value);
      seen[count] = (Observation){p, value, TRIAL_COMPLETE};
    }
    if (kind == SAMPLER_GP) assert_true(best < 0.155); /* the best one has 0.145 */
    if (kind == SAMPLER_GRID) { /* x 0.2, n 2 and 3, y 0; x 0.4, n 1, 2, 3, y 0 */
      assert_true(is_over);
      assert_int_equal(count, 5);
    }
    sampler_free(sampler);
    space_free(&space);
  }
}

/* A space with nothing in it has an end: a sentence, or no point. */
static void nothing_is_allowed(void **state) {
  (void)state;
  static const char *const wide[] = {"x=range(0, 1)", "y=range(0, 1)", NULL};
  static const char *const few[] = {"a=int(1, 9)", "b=[1, 2, 3]", NULL};
  static const char *const vast[] = {"a=int(1, 1000000)", "b=int(1, 1000000)", NULL};
  const char *const *all[] = {wide, few, vast};
  for (int which = 0; which < 3; which++)
    for (int kind = 0; kind < SAMPLER_KINDS; kind++) {
      Space space;
      Sampler *sampler;
      double point[SPACE_MOST];
      bool is_over = false;
      if (which == 0 && kind == SAMPLER_GRID) continue;
      begin_space(&space, all[which]);
      assert_int_equal(
          space_add_where(&space, which == 0 ? "x + y > 2.5" : "a * b < 1 or a + b < 1"),
          STATUS_OK);
      assert_int_equal(sampler_new((SamplerKind)kind, &space, 4, &sampler), STATUS_OK);
      Status status = sampler_next(sampler, NULL, 0, 0, point, &is_over);
      if (which == 1)
        assert_true(status == STATUS_OK && is_over);
      else
        assert_true(status == STATUS_USER && strstr(status_message(), "allows"));
      sampler_free(sampler);
      space_free(&space);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(conditions_hold),
      cmocka_unit_test(conditions_are_refused),
      cmocka_unit_test(samplers_keep_conditions),
      cmocka_unit_test(nothing_is_allowed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
