/* tune: spaces as text and as numbers, the samplers on functions whose minimum is known, pruning by hand-made studies. */
#define _GNU_SOURCE
#include "runtime/tune/gp.h"
#include "runtime/tune/prune.h"
#include "runtime/tune/random.h"
#include "runtime/tune/sampler_private.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void add(Space *space, const char *text) {
  assert_int_equal(space_add(space, text), STATUS_OK);
}

static void spaces_read_back(void **state) {
  (void)state;
  static const char *const texts[] = {"lr=log(1e-05, 0.1)",
                                      "dropout=range(0, 0.5)",
                                      "share=range(0, 1, step=0.25)",
                                      "layers=int(1, 8)",
                                      "even=int(2, 10, step=4)",
                                      "width=log_int(16, 1024)",
                                      "hidden=[64, 128, 256]",
                                      "optimizer=[adamw, sgd, lion]",
                                      "momentum=range(0, 0.99) if optimizer=sgd|lion",
                                      "quantize=[none, \"*=w8a8\", \"fc*=w4 a b\", \"\"]",
                                      "seed=int(1, 3) if quantize=none|\"fc*=w4 a b\"|\"\""};
  Space space = {0};
  for (int i = 0; i < 11; i++) {
    Text out = {0};
    add(&space, texts[i]);
    dim_describe(&space, i, &out);
    assert_string_equal(text_cstr(&out), texts[i]);
    text_free(&out);
  }
  assert_int_equal(dim_values(&space.dim[0]), 0);
  assert_int_equal(dim_values(&space.dim[2]), 5);
  assert_int_equal(dim_values(&space.dim[4]), 3);
  assert_int_equal(dim_values(&space.dim[6]), 3);
  assert_true(space.dim[6].is_ordered);
  assert_false(space.dim[7].is_ordered);
  space_free(&space);
}

static void spaces_refuse(void **state) {
  (void)state;
  static const char *const wrong[] = {"",
                                      "lr",
                                      "lr=",
                                      "lr=(1, 2)",
                                      "lr=log(0, 1)",
                                      "lr=log(1, 0.5)",
                                      "lr=range(1)",
                                      "lr=range(1, nan)",
                                      "n=int(1.5, 3)",
                                      "n=int(1, 8, step=0)",
                                      "a=[]",
                                      "a=[1, 1]",
                                      "a=[1, 2",
                                      "a=[1,2] 3",
                                      "a=[*]",
                                      "a=[\"*]",
                                      "a=['\"']",
                                      "a=[\"a\tb\"]",
                                      "a=[x, 'x']",
                                      "a=[\"x\"y]",
                                      "b=range(0, 1) if c=1",
                                      "first=range(0, 1)",
                                      "b=range(0, 1) if first=9",
                                      "b=range(0, 1) if ratio=1",
                                      "lr=log(1, 2, step=1)",
                                      "n=int(0, 1e300)"};
  Space space = {0};
  add(&space, "first=[1, 2]");
  add(&space, "ratio=range(0, 1)");
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    if (space_add(&space, wrong[i]) == STATUS_OK) fail_msg("taken: %s", wrong[i]);
    assert_int_equal(space.count, 2);
    assert_non_null(strstr(status_message(), "--space"));
  }
  space_free(&space);
}

/* Texts of up to 1023 letters, such as train.quantize of many layers; a longer one is no value, nor its beginning that of a condition. */
static void long_texts(void **state) {
  (void)state;
  Space space = {0};
  char text[2400], many[9000] = "b=[";
  double back;
  snprintf(text, sizeof text, "a=[x, '%01023d']", 0);
  add(&space, text);
  Text printed = {0};
  dim_print(&space.dim[0], 1, &printed);
  assert_int_equal(printed.count, 1023);
  assert_true(dim_read(&space.dim[0], text_cstr(&printed), &back) && back == 1);
  snprintf(text, sizeof text, "c=range(0, 1) if a='%01023d'", 0);
  add(&space, text);
  snprintf(text, sizeof text, "d=range(0, 1) if a='%01024d'", 0);
  assert_int_equal(space_add(&space, text), STATUS_USER);
  snprintf(text, sizeof text, "d=[x, '%01024d']", 0);
  assert_int_equal(space_add(&space, text), STATUS_USER);
  assert_non_null(strstr(status_message(), "longer than 1023 letters"));
  for (int i = 0; i < 8; i++) snprintf(many + strlen(many), sizeof many - strlen(many), "%s'%d%0999d'", i ? ", " : "", i, 0);
  snprintf(many + strlen(many), sizeof many - strlen(many), "]");
  assert_int_equal(space_add(&space, many), STATUS_USER);
  assert_non_null(strstr(status_message(), "7000 letters together"));
  text_free(&printed);
  space_free(&space);
}

/* Values of a range come back from their place in [0, 1], the ends are reached, and texts are exact. */
static void units_read_back(void **state) {
  (void)state;
  Space space = {0};
  add(&space, "a=log(1e-5, 1e-1)");
  add(&space, "b=int(-3, 12)");
  add(&space, "c=log_int(1, 1000)");
  add(&space, "d=range(0, 1, step=0.3)");
  add(&space, "e=[x, 'y *', z]");
  add(&space, "f=range(-0.2, 0.7, step=0.1)"); /* 9 steps of 0.1 in binary lead beyond 0.7 */
  Random random = random_new(1, 2, 3);
  for (int i = 0; i < 2000; i++) {
    const Dim *dim = &space.dim[i % 6];
    double value = dim_from_unit(dim, i < 12 ? i / 6 : random_unit(&random)), back;
    Text text = {0};
    dim_print(dim, value, &text);
    assert_true(dim_read(dim, text_cstr(&text), &back));
    assert_true(back == value);
    if (i % 6 == 5) assert_true(text.count <= 4 && value <= 0.7); /* -0.1 and the like */
    text_free(&text);
    double again = dim_from_unit(dim, dim_to_unit(dim, value));
    assert_true(fabs(again - value) <= 1e-9 * fabs(value));
  }
  assert_true(dim_from_unit(&space.dim[1], 0) == -3 && dim_from_unit(&space.dim[1], 1) == 12);
  assert_true(dim_from_unit(&space.dim[3], 1) == 0.9);
  double old;
  assert_true(dim_read(&space.dim[5], "0.70000000000000007", &old) && old == 0.7); /* what journals of 0.1 have */
  assert_false(dim_read(&space.dim[5], "0.71", &old));
  add(&space, "g=range(-0.3, 0.3, step=0.1)"); /* -0.3 + 3 · 0.1 is 5.6e-17 in binary */
  add(&space, "h=range(-3e-12, 3e-12, step=1e-12)");
  for (int i = 6; i < 8; i++)
    for (int nth = 0; nth < 7; nth++) {
      Text text = {0};
      dim_print(&space.dim[i], dim_nth(&space.dim[i], nth), &text);
      assert_true(text.count <= (i == 6 ? 4 : 6) && (nth != 3 || !strcmp(text_cstr(&text), "0")));
      text_free(&text);
    }
  space_free(&space);
}

/* Of 2^k points of the sequence each of 2^k equal intervals has one, in every dimension, whatever the scrambling; and in the
 * first two dimensions each of the 2^k boxes of any form. */
static void sobol_is_even(void **state) {
  (void)state;
  enum { POINTS = 64 };
  static SobolTable table;
  sobol_prepare(&table);
  for (uint64_t seed = 0; seed < 3; seed++) {
    double unit[POINTS][SOBOL_MOST];
    for (int i = 0; i < POINTS; i++) sobol_point(&table, SOBOL_MOST, seed, i, unit[i]);
    for (int d = 0; d < SOBOL_MOST; d++) {
      uint64_t seen = 0;
      for (int i = 0; i < POINTS; i++) seen |= (uint64_t)1 << (int)(unit[i][d] * POINTS);
      assert_true(seen == UINT64_MAX);
    }
    for (int across = 0; across <= 6; across++) {
      uint64_t seen = 0;
      for (int i = 0; i < POINTS; i++) {
        int x = (int)(unit[i][0] * (1 << across)), y = (int)(unit[i][1] * (1 << (6 - across)));
        seen |= (uint64_t)1 << (x << (6 - across) | y);
      }
      assert_true(seen == UINT64_MAX);
    }
  }
}

/* Against values of the normal distribution from tables of its logarithm (SciPy's log_ndtr). */
static void normal_masses(void **state) {
  (void)state;
  assert_true(fabs(normal_log_mass(-1, 1) - log(0.682689492137086)) < 1e-12);
  assert_true(fabs(normal_log_mass(-60, -20) - -203.91715537109727) < 1e-5);
  assert_true(fabs(normal_log_mass(20, 60) - -203.91715537109727) < 1e-5);
  assert_true(fabs(normal_log_mass(-INFINITY, -5) - -15.064998393988727) < 1e-9);
  Random random = random_new(5, 0, 0);
  double mean = 0;
  for (int i = 0; i < 4000; i++) {
    double value = random_normal_within(&random, 0.2, 0.3, 0, 1);
    assert_true(value >= 0 && value <= 1);
    mean += value / 4000;
  }
  assert_true(fabs(mean - 0.325) < 0.02); /* 0.2 + 0.3 (φ(a) - φ(b)) / (Φ(b) - Φ(a)) */
}

static double bowl(const double *x, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += (x[i] - 0.3 - 0.1 * i) * (x[i] - 0.3 - 0.1 * i) * (i + 1);
  return sum;
}

/* The model's own derivatives against differences; its mean goes through what it has seen. */
static void gp_is_a_function(void **state) {
  (void)state;
  enum { N = 40, D = 3 };
  Gp gp;
  bool is_apart[D] = {false};
  double x[N * D], y[N], mean, deviation, by_mean[D], by_deviation[D], sum = 0;
  Random random = random_new(7, 0, 0);
  for (int i = 0; i < N * D; i++) x[i] = random_unit(&random);
  for (int i = 0; i < N; i++) sum += y[i] = sin(3 * x[i * D]) + bowl(x + i * D, D);
  for (int i = 0; i < N; i++) y[i] -= sum / N;
  assert_true(gp_init(&gp, D, is_apart));
  assert_true(gp_fit(&gp, x, y, N));
  for (int i = 0; i < N; i += 7) {
    gp_predict(&gp, x + i * D, &mean, &deviation, NULL, NULL);
    assert_true(fabs(mean - y[i]) < 0.02);
  }
  for (int t = 0; t < 5; t++) {
    double at[D];
    for (int d = 0; d < D; d++) at[d] = random_unit(&random);
    gp_predict(&gp, at, &mean, &deviation, by_mean, by_deviation);
    for (int d = 0; d < D; d++) {
      double h = 1e-5, above[2], below[2], moved[D];
      memcpy(moved, at, sizeof at);
      moved[d] += h;
      gp_predict(&gp, moved, &above[0], &above[1], NULL, NULL);
      moved[d] -= 2 * h;
      gp_predict(&gp, moved, &below[0], &below[1], NULL, NULL);
      assert_true(fabs((above[0] - below[0]) / (2 * h) - by_mean[d]) <
                  1e-4 * (1 + fabs(by_mean[d])));
      assert_true(fabs((above[1] - below[1]) / (2 * h) - by_deviation[d]) <
                  1e-3 * (1 + fabs(by_deviation[d])));
    }
  }
  gp_free(&gp);
}

enum { MOST = 120 };
typedef struct {
  double point[MOST][SPACE_MOST];
  Observation seen[MOST];
  int count;
} Run;

static void step(Sampler *sampler, Run *run, double (*function)(const Space *, const double *)) {
  double *point = run->point[run->count];
  bool is_over;
  assert_int_equal(sampler_next(sampler, run->seen, run->count, run->count, point, &is_over),
                   STATUS_OK);
  assert_false(is_over);
  run->seen[run->count++] = (Observation){point, function(sampler->space, point), TRIAL_COMPLETE};
}

static double best_value(const Run *run) {
  double best = INFINITY;
  for (int i = 0; i < run->count; i++) best = fmin(best, run->seen[i].value);
  return best;
}

static double smooth(const Space *space, const double *point) { return bowl(point, space->count); }

static double run_sampler(SamplerKind kind, const Space *space, int trials, uint64_t seed,
                          double (*function)(const Space *, const double *)) {
  static Run run;
  Sampler *sampler;
  run.count = 0;
  assert_int_equal(sampler_new(kind, space, seed, &sampler), STATUS_OK);
  for (int i = 0; i < trials; i++) step(sampler, &run, function);
  for (int i = 0; i < run.count; i++) /* no point twice, all within their ranges */
    for (int j = 0; j < i; j++) assert_false(space_is_same(space, run.point[i], run.point[j]));
  sampler_free(sampler);
  return best_value(&run);
}

/* Models come nearer to a smooth minimum than drawing does, by far. */
static void samplers_descend(void **state) {
  (void)state;
  Space space = {0};
  for (int i = 0; i < 3; i++) {
    char text[40];
    snprintf(text, sizeof text, "x%d=range(0, 1)", i);
    add(&space, text);
  }
  double worst[SAMPLER_KINDS] = {0};
  for (uint64_t seed = 0; seed < 3; seed++)
    for (int kind = SAMPLER_GP; kind <= SAMPLER_SOBOL; kind++)
      worst[kind] = fmax(worst[kind], run_sampler((SamplerKind)kind, &space,
                                                  kind == SAMPLER_GP ? 40 : 120, seed, smooth));
  assert_true(worst[SAMPLER_GP] < 1e-4);
  assert_true(worst[SAMPLER_TPE] < 0.02);
  assert_true(worst[SAMPLER_CMA] < 0.005);
  assert_true(worst[SAMPLER_RANDOM] < 0.2 && worst[SAMPLER_SOBOL] < 0.1);
  assert_true(worst[SAMPLER_GP] < worst[SAMPLER_RANDOM] / 10);
  space_free(&space);
}

/* Two wells of Gaussian form: no value is extreme. */
static double wells(const Space *space, const double *point) {
  double near = 0, far = 0;
  for (int i = 0; i < space->count; i++) {
    near += (point[i] - 0.4) * (point[i] - 0.4);
    far += (point[i] - 0.9) * (point[i] - 0.9);
  }
  return 1 - exp(-near) - 0.3 * exp(-2 * far);
}

/* As a training that diverges where the rate is high. */
static double cliff(const Space *space, const double *point) {
  return bowl(point, space->count) + (point[0] > 0.8 ? 1e6 : 0);
}

static double worst_of_gp(int dims, int trials, double (*function)(const Space *, const double *)) {
  Space space = {0};
  double worst = -INFINITY;
  for (int i = 0; i < dims; i++) {
    char text[40];
    snprintf(text, sizeof text, "x%d=range(0, 1)", i);
    add(&space, text);
  }
  for (uint64_t seed = 0; seed < 3; seed++)
    worst = fmax(worst, run_sampler(SAMPLER_GP, &space, trials, seed, function));
  space_free(&space);
  return worst;
}

/* What a Gaussian process is fitted to: neither bent where it is smooth, nor flat beside a value that is extreme. */
static void gp_bears_extremes(void **state) {
  (void)state;
  assert_true(worst_of_gp(7, 60, wells) < -0.00969); /* the minimum is -0.009698 */
  assert_true(worst_of_gp(3, 40, cliff) < 1e-3);
}

/* "kind" decides what counts: with b, n = 7 and a rate near 1e-3 are best. */
static double mixed(const Space *space, const double *point) {
  (void)space;
  assert_true(isnan(point[2]) == (point[0] != 1) && isnan(point[3]) == (point[0] == 0));
  if (point[0] == 0) return 3;
  double rate = log10(point[3]) + 3;
  return point[0] == 2 ? 2 + rate * rate : fabs(point[2] - 7) / 4 + rate * rate;
}

static void samplers_know_conditions(void **state) {
  (void)state;
  Space space = {0};
  add(&space, "kind=[a, b, c]");
  add(&space, "unused=range(0, 1)");
  add(&space, "n=int(1, 12) if kind=b");
  add(&space, "rate=log(1e-5, 1) if kind=b|c");
  assert_true(run_sampler(SAMPLER_GP, &space, 60, 1, mixed) < 0.1);
  assert_true(run_sampler(SAMPLER_TPE, &space, 100, 1, mixed) < 0.5);
  run_sampler(SAMPLER_CMA, &space, 60, 1, mixed);
  run_sampler(SAMPLER_SOBOL, &space, 60, 1, mixed);
  space_free(&space);
}

/* All points of a grid come once, those that differ in an inactive dimension only count as one; then there is an end. Every other
 * sampler finds all points of a small space, too. */
static void grids_are_whole(void **state) {
  (void)state;
  Space space = {0};
  Sampler *sampler;
  add(&space, "kind=[a, b]");
  add(&space, "n=int(1, 4, step=3) if kind=b");
  add(&space, "x=range(0, 0.3, step=0.1)");
  for (int kind = 0; kind < SAMPLER_KINDS; kind++) {
    static Run run;
    run.count = 0;
    assert_int_equal(sampler_new((SamplerKind)kind, &space, 3, &sampler), STATUS_OK);
    for (int i = 0; i < 12; i++) { /* (1 + 2) · 4 */
      double *point = run.point[run.count];
      bool is_over;
      assert_int_equal(sampler_next(sampler, run.seen, run.count, run.count, point, &is_over),
                       STATUS_OK);
      assert_false(is_over);
      for (int j = 0; j < i; j++) assert_false(space_is_same(&space, point, run.point[j]));
      assert_true(point[2] == 0 || point[2] == 0.1 || point[2] == 0.2 || point[2] == 0.3); /* as a journal has them */
      run.seen[run.count++] =
          (Observation){point, (double)i, i % 3 ? TRIAL_COMPLETE : TRIAL_FAILED};
    }
    double none[SPACE_MOST];
    bool is_over;
    assert_int_equal(sampler_next(sampler, run.seen, run.count, 12, none, &is_over), STATUS_OK);
    assert_true(is_over);
    sampler_free(sampler);
  }
  space_free(&space);
}

/* Values that no arithmetic takes, and trials that still run. */
static void samplers_bear_anything(void **state) {
  (void)state;
  Space space = {0};
  add(&space, "x=range(0, 1)");
  add(&space, "y=[p, q, r]");
  for (int kind = SAMPLER_GP; kind <= SAMPLER_SOBOL; kind++) {
    static Run run;
    Sampler *sampler;
    run.count = 0;
    assert_int_equal(sampler_new((SamplerKind)kind, &space, 9, &sampler), STATUS_OK);
    static const double values[] = {INFINITY, NAN, -INFINITY, 1e300, -1e300, 0, 0, 0, 1e-300};
    for (int i = 0; i < 45; i++) {
      step(sampler, &run, smooth);
      run.seen[i].value = i < 20 ? 5 : values[i % 9]; /* all equal, then anything */
      run.seen[i].state = (TrialState)(i % 7 == 3   ? TRIAL_RUNNING
                                       : i % 5 == 2 ? TRIAL_FAILED
                                                    : TRIAL_COMPLETE);
      assert_true(run.point[i][0] >= 0 && run.point[i][0] <= 1);
    }
    sampler_free(sampler);
  }
  space_free(&space);
}

static Trial trial_of(TrialState state, const double *values, int count) {
  Trial trial = {
      .state = state, .report_count = count, .report = calloc((size_t)count + 1, sizeof(Report))};
  for (int i = 0; i < count; i++) trial.report[i] = (Report){100 * (i + 1), values[i]};
  return trial;
}

static void pruning_by_hand(void **state) {
  (void)state;
  static const double courses[9][4] = {{9, 5, 3, 1}, {8, 6, 4, 2}, {7, 5, 3, 3},
                                       {9, 7, 5, 4}, {9, 8, 6, 5}, {1, 1, 1, 1},
                                       {6, 6, 6, 6}, {9, 9, 9, 9}, {5, NAN, NAN, NAN}};
  Trial trials[10];
  Journal journal = {.trial = trials, .count = 9};
  for (int i = 0; i < 9; i++)
    trials[i] = trial_of(i < 6 ? TRIAL_COMPLETE : TRIAL_RUNNING, courses[i], 4);
  PruneRule median = {PRUNE_MEDIAN, 0, 3}, asha = {PRUNE_ASHA, 100, 3},
            late = {PRUNE_MEDIAN, 500, 3};
  assert_true(prune_now(&median, &journal, 6)); /* 6 against 1 2 3 4 5 1 9 5 */
  assert_true(prune_now(&median, &journal, 7));
  assert_false(prune_now(&median, &journal, 5));
  assert_false(prune_now(&late, &journal, 7));
  assert_true(prune_now(&(PruneRule){PRUNE_MEDIAN, 100, 3}, &journal, 8)); /* 5 was its best */
  journal.is_max = true; /* then the high ones are good */
  assert_false(prune_now(&median, &journal, 7));
  assert_true(prune_now(&median, &journal, 5));
  journal.is_max = false;
  /* rungs at 100 and 300: of nine, three stay */
  for (int i = 0; i < 9; i++) trials[i].report_count = 3;
  assert_false(prune_now(&asha, &journal, 0));
  assert_false(prune_now(&asha, &journal, 5));
  assert_true(prune_now(&asha, &journal, 3));
  assert_true(prune_now(&asha, &journal, 8)); /* not a number is the worst */
  for (int i = 0; i < 9; i++) trials[i].report_count = 2;
  assert_false(prune_now(&asha, &journal, 7)); /* 200 is no rung */
  for (int i = 0; i < 9; i++) trials[i].report_count = 1;
  assert_true(prune_now(&asha, &journal, 7));
  assert_false(prune_now(&asha, &journal, 8));
  for (int i = 0; i < 9; i++) free(trials[i].report);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(spaces_read_back), cmocka_unit_test(spaces_refuse),
      cmocka_unit_test(long_texts),
      cmocka_unit_test(units_read_back),  cmocka_unit_test(sobol_is_even),
      cmocka_unit_test(normal_masses),    cmocka_unit_test(gp_is_a_function),
      cmocka_unit_test(samplers_descend), cmocka_unit_test(gp_bears_extremes),
      cmocka_unit_test(samplers_know_conditions),
      cmocka_unit_test(grids_are_whole),  cmocka_unit_test(samplers_bear_anything),
      cmocka_unit_test(pruning_by_hand),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
