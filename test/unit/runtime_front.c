/* front: several goals: fronts and their order against a plain definition, the Tchebycheff number, samplers that come nearer to a known
 * front than drawing does. */
#define _GNU_SOURCE
#include "runtime/tune/front.h"
#include "runtime/tune/random.h"
#include "runtime/tune/sampler.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void goals_as_text(void **state) {
  (void)state;
  Goals goals;
  const char *wrong;
  assert_true(goals_read("min(valid.loss)", &goals, NULL));
  assert_int_equal(goals.count, 1);
  assert_true(goals_read(
      "max(valid.accuracy) , min(run.seconds),min(model.parameters),max(run.samples_per_s)", &goals,
      NULL));
  assert_int_equal(goals.count, 4);
  assert_true(goals.goal[0].rule.is_max && goals.goal[0].kind == GOAL_OF_LOG);
  assert_string_equal(goals.goal[0].rule.name, "accuracy");
  assert_int_equal(goals.goal[1].kind, GOAL_SECONDS);
  assert_int_equal(goals.goal[2].kind, GOAL_PARAMETERS);
  assert_int_equal(goals.goal[3].kind, GOAL_RATE);
  static const char *const none[] = {"",
                                     "loss",
                                     "min(loss)",
                                     "min(valid.loss),",
                                     ",min(valid.loss)",
                                     "min(valid.loss), max(valid.loss)",
                                     "min(run.nothing)",
                                     "min(model.loss)",
                                     "min(a.b),min(a.c),min(a.d),min(a.e),min(a.f)"};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++)
    assert_false(goals_read(none[i], &goals, NULL));
  const char *text = "min(valid.loss), min(run.nothing)";
  assert_false(goals_read(text, &goals, &wrong));
  assert_int_equal(wrong - text, 17);
}

/* Which front a point is on, by the definition: one behind the worst of those that dominate it. */
static int depth_of(const double *values, int count, int goals, int i) {
  int depth = 0;
  for (int j = 0; j < count; j++)
    if (front_dominates(values + j * goals, values + i * goals, goals)) {
      int above = depth_of(values, count, goals, j) + 1;
      depth = above > depth ? above : depth;
    }
  return depth;
}

static void ranks_go_by_fronts(void **state) {
  (void)state;
  for (int goals = 2; goals <= 3; goals++)
    for (uint64_t seed = 0; seed < 20; seed++) {
      enum { COUNT = 24 };
      double values[COUNT * 3];
      int rank[COUNT], depth[COUNT], at[COUNT];
      Random random = random_new(seed, (uint64_t)goals, 0);
      for (int i = 0; i < COUNT * goals; i++) { /* ties, too, and what has failed */
        values[i] = floor(6 * random_unit(&random));
        if (i / goals % 9 == 8) values[i] = INFINITY;
      }
      assert_true(front_rank(values, COUNT, goals, rank));
      for (int i = 0; i < COUNT; i++) {
        depth[i] = depth_of(values, COUNT, goals, i);
        at[i] = -1;
      }
      for (int i = 0; i < COUNT; i++) {
        assert_in_range(rank[i], 0, COUNT - 1);
        assert_int_equal(at[rank[i]], -1);
        at[rank[i]] = i;
      }
      for (int i = 1; i < COUNT; i++) assert_true(depth[at[i - 1]] <= depth[at[i]]);
    }
  double none[1];
  int rank[5];
  assert_true(front_rank(none, 0, 2, rank));
  /* In a front: (5, 5) encloses 36 with (11, 11), then (1.1, 8.9) adds the most, 3.9 * 2.1; the end (10, 0) 1 * 5; (0, 10) 1.1 * 1; (1, 9) 0.1 * 1. */
  double line[] = {0, 10, 1, 9, 1.1, 8.9, 5, 5, 10, 0};
  const int expected[] = {3, 4, 1, 0, 2};
  assert_true(front_rank(line, 5, 2, rank));
  assert_memory_equal(rank, expected, sizeof expected);
}

enum {
  CELLS = 5,
  POINTS = 9
}; /* values are 0 to 4; the far point, a tenth of the range beyond, is 4.4 */

/* What a set of points, by bits, encloses with the far point: cell by cell, of which the last ones are 0.4 long. */
static double plain_volume(const double *values, int goals, unsigned set) {
  int cells = 1;
  double total = 0;
  for (int g = 0; g < goals; g++) cells *= CELLS;
  for (int cell = 0; cell < cells; cell++) {
    double size = 1;
    bool is_inside = false;
    for (int g = 0, rest = cell; g < goals; g++, rest /= CELLS)
      size *= rest % CELLS == CELLS - 1 ? 0.4 : 1;
    for (int i = 0; i < POINTS; i++) {
      bool is_within = set >> i & 1;
      for (int g = 0, rest = cell; g < goals; g++, rest /= CELLS)
        is_within &= values[i * goals + g] <= rest % CELLS;
      is_inside |= is_within;
    }
    total += is_inside ? size : 0;
  }
  return total;
}

/* Points whose least value of each goal is 0 and whose largest is 4. */
static void draw_points(uint64_t seed, int goals, double *values) {
  Random random = random_new(seed, (uint64_t)goals, 1);
  for (int i = 0; i < POINTS * goals; i++) values[i] = floor(CELLS * random_unit(&random));
  for (int g = 0; g < goals; g++) {
    values[g] = g == 0 ? 4 : 0;
    values[goals + g] = g == 0 ? 0 : 4;
  }
}

static void weights_are_exclusive_volumes(void **state) {
  (void)state;
  const unsigned all = (1u << POINTS) - 1;
  int parts = 0;
  for (int goals = 2; goals <= GOALS_MOST; goals++)
    for (uint64_t seed = 0; seed < 20; seed++) {
      double values[POINTS * GOALS_MOST], weight[POINTS], alone[POINTS], most = 0;
      draw_points(seed, goals, values);
      for (int i = 0; i < POINTS; i++) {
        alone[i] = plain_volume(values, goals, all) - plain_volume(values, goals, all & ~(1u << i));
        most = fmax(most, alone[i]);
      }
      front_weights(values, POINTS, goals, weight);
      for (int i = 0; i < POINTS; i++) {
        assert_true(fabs(weight[i] - alone[i] / most) < 1e-9);
        assert_true(weight[i] > 0);
        parts += alone[i] > 0 && alone[i] < most;
      }
    }
  assert_true(parts > 50);
  double same[] = {1, 2, 1, 2}, failed[] = {1, 2, 0, INFINITY}, weight[2];
  front_weights(same, 2, 2, weight); /* neither adds anything */
  assert_true(weight[0] == 1 && weight[1] == 1);
  front_weights(failed, 2, 2, weight);
  assert_true(weight[0] == 1 && weight[1] == 1);
}

/* The first front goes on by the point that adds the most volume to the ones before. */
static void fronts_go_by_volume(void **state) {
  (void)state;
  int choices = 0;
  for (int goals = 2; goals <= GOALS_MOST; goals++)
    for (uint64_t seed = 0; seed < 60; seed++) {
      double values[POINTS * GOALS_MOST];
      int rank[POINTS], at[POINTS];
      unsigned first = 0, chosen = 0, ends = 3; /* the first two points */
      draw_points(seed, goals, values);
      assert_true(front_rank(values, POINTS, goals, rank));
      for (int i = 0; i < POINTS; i++) {
        at[rank[i]] = i;
        if (depth_of(values, POINTS, goals, i) == 0) first |= 1u << i;
      }
      if ((first & ends) != ends) continue; /* the far point is another one */
      for (int k = 0; chosen != first; k++) {
        double most = 0, before = plain_volume(values, goals, chosen);
        for (int i = 0; i < POINTS; i++)
          if (first >> i & 1)
            most = fmax(most, plain_volume(values, goals, chosen | 1u << i) - before);
        chosen |= 1u << at[k];
        assert_true(fabs(plain_volume(values, goals, chosen) - before - most) < 1e-9);
        choices++;
      }
    }
  assert_true(choices > 100);
}

static void one_number_of_several(void **state) {
  (void)state;
  /* the front is (0, 4), (1, 2), (2, 0); (9, 9) is dominated, the last one failed */
  double values[] = {0, 4, 1, 2, 2, 0, 9, 9, INFINITY, INFINITY}, out[5], half[] = {0.5, 0.5},
         first[] = {1, 0};
  front_scalarise(values, 5, 2, half, out);
  assert_true(fabs(out[0] - 0.525) < 1e-12 && fabs(out[1] - (0.25 + 0.025)) < 1e-12);
  assert_true(fabs(out[2] - 0.525) < 1e-12 && out[3] > 2 && out[4] == INFINITY);
  front_scalarise(values, 5, 2, first, out);
  assert_true(out[0] == 0 && out[1] < out[2] && out[2] < out[3]);
  front_scalarise(values, 1, 2, half, out); /* a single one */
  assert_true(out[0] == 0);
  front_scalarise(values + 8, 1, 2, half, out);
  assert_true(out[0] == INFINITY);
}

enum { BUDGET = 50, DIMS = 4 };

/* ZDT1: what the study's front encloses with (1.1, 6.1). */
static double front_of(SamplerKind kind, uint64_t seed) {
  Space space = {0};
  Sampler *sampler;
  static double point[BUDGET][SPACE_MOST], values[BUDGET][2];
  Observation seen[BUDGET];
  bool is_over;
  char text[] = "x0=range(0, 1)";
  for (int d = 0; d < DIMS; d++, text[1]++) assert_int_equal(space_add(&space, text), STATUS_OK);
  assert_int_equal(sampler_new(kind, &space, seed, &sampler), STATUS_OK);
  assert_int_equal(sampler_set_goals(sampler, 2), STATUS_OK);
  for (int i = 0; i < BUDGET; i++) {
    assert_int_equal(sampler_next(sampler, seen, i, i, point[i], &is_over), STATUS_OK);
    double g = 1;
    for (int d = 1; d < DIMS; d++) g += 9 * point[i][d] / (DIMS - 1);
    values[i][0] = point[i][0];
    values[i][1] = g * (1 - sqrt(point[i][0] / g));
    seen[i] = (Observation){point[i], values[i][0], i % 10 == 3 ? TRIAL_FAILED : TRIAL_COMPLETE,
                            values[i]};
    if (i % 10 == 3) values[i][1] = NAN;
    if (i == BUDGET - 1) seen[i].state = TRIAL_RUNNING;
  }
  double total = 0;
  for (int k = 0; k < 1000; k++) { /* by strips of the first goal */
    double low = 6.1;
    for (int i = 0; i < BUDGET; i++)
      if (values[i][0] <= k * 0.0011 && values[i][1] < low) low = values[i][1];
    total += 0.0011 * (6.1 - low);
  }
  sampler_free(sampler);
  space_free(&space);
  return total;
}

static void samplers_find_the_front(void **state) {
  (void)state;
  double sum[SAMPLER_KINDS] = {0};
  for (uint64_t seed = 0; seed < 3; seed++)
    for (int kind = 0; kind < SAMPLER_GRID; kind++)
      if (kind != SAMPLER_CMA) sum[kind] += front_of((SamplerKind)kind, seed) / 3;
  assert_true(sum[SAMPLER_GP] > sum[SAMPLER_RANDOM] + 0.5);
  assert_true(sum[SAMPLER_TPE] > sum[SAMPLER_RANDOM] + 0.2);
  assert_true(sum[SAMPLER_GP] > 5.6); /* the whole front: 5.877 */
  Space space = {0};
  Sampler *sampler;
  assert_int_equal(space_add(&space, "x=range(0, 1)"), STATUS_OK);
  assert_int_equal(sampler_new(SAMPLER_CMA, &space, 0, &sampler), STATUS_OK);
  assert_int_equal(sampler_set_goals(sampler, 2), STATUS_USER);
  sampler_free(sampler);
  space_free(&space);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(goals_as_text),
      cmocka_unit_test(ranks_go_by_fronts),
      cmocka_unit_test(weights_are_exclusive_volumes),
      cmocka_unit_test(fronts_go_by_volume),
      cmocka_unit_test(one_number_of_several),
      cmocka_unit_test(samplers_find_the_front),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
