/* front: see front.h. */
#include "runtime/tune/front.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool front_dominates(const double *a, const double *b, int goals) {
  bool any = false;
  for (int g = 0; g < goals; g++) {
    if (a[g] > b[g]) return false;
    any |= a[g] < b[g];
  }
  return any;
}

typedef struct {
  double value, crowd;
  int index;
} FrontPoint;

static int compare_front_value(const void *a, const void *b) {
  const FrontPoint *x = a, *y = b;
  if (x->value != y->value) return x->value < y->value ? -1 : 1;
  return x->index - y->index;
}

static int compare_lonely(const void *a, const void *b) {
  const FrontPoint *x = a, *y = b;
  if (x->crowd != y->crowd) return x->crowd > y->crowd ? -1 : 1;
  return x->index - y->index;
}

/* How far apart a point's neighbours in its front are, over all goals; without end for the first and the last of a goal. */
static void measure_crowd(const double *values, int goals, FrontPoint *front, int count) {
  for (int g = 0; g < goals; g++) {
    for (int i = 0; i < count; i++) front[i].value = values[(long)front[i].index * goals + g];
    qsort(front, (size_t)count, sizeof *front, compare_front_value);
    double span = front[count - 1].value - front[0].value;
    for (int i = 0; i < count; i++) {
      bool is_end = i == 0 || i == count - 1;
      double gap = is_end ? INFINITY : (front[i + 1].value - front[i - 1].value) / span;
      front[i].crowd += isnan(gap) ? 0 : gap;
    }
  }
}

/* above[i]: how many of those that are left dominate i. */
static void count_above(const double *values, int count, int goals, int *above) {
  for (int i = 0; i < count; i++)
    for (int j = 0; j < count; j++)
      above[i] += front_dominates(values + (long)j * goals, values + (long)i * goals, goals);
}

bool front_rank(const double *values, int count, int goals, int *rank) {
  FrontPoint *front = malloc(((size_t)count + 1) * sizeof *front);
  int *above = calloc((size_t)count + 1, sizeof *above);
  bool fine = front && above;
  if (fine) count_above(values, count, goals, above);
  for (int next = 0, found = 0; fine && next < count; next += found) {
    found = 0;
    for (int i = 0; i < count; i++)
      if (above[i] == 0) front[found++] = (FrontPoint){0, 0, i};
    measure_crowd(values, goals, front, found);
    qsort(front, (size_t)found, sizeof *front, compare_lonely);
    for (int k = 0; k < found; k++) {
      int taken = front[k].index;
      rank[taken] = next + k;
      above[taken] = -1;
      for (int j = 0; j < count; j++)
        above[j] -= front_dominates(values + (long)taken * goals, values + (long)j * goals, goals);
    }
  }
  free(front);
  free(above);
  return fine;
}

static bool has_all_values(const double *values, int goals) {
  for (int g = 0; g < goals; g++)
    if (!isfinite(values[g])) return false;
  return true;
}

/* The best and the worst of the first front, of each goal. Where it has but one value of a goal, the worst of all. */
static void front_ends(const double *values, int count, int goals, double *low, double *high) {
  double worst[GOALS_MOST];
  for (int g = 0; g < goals; g++) {
    low[g] = INFINITY;
    high[g] = worst[g] = -INFINITY;
  }
  for (int i = 0; i < count; i++) {
    const double *one = values + (long)i * goals;
    bool is_dominated = !has_all_values(one, goals);
    for (int g = 0; g < goals && !is_dominated; g++) worst[g] = fmax(worst[g], one[g]);
    for (int j = 0; j < count && !is_dominated; j++)
      is_dominated = front_dominates(values + (long)j * goals, one, goals);
    for (int g = 0; g < goals && !is_dominated; g++) {
      low[g] = fmin(low[g], one[g]);
      high[g] = fmax(high[g], one[g]);
    }
  }
  for (int g = 0; g < goals; g++)
    if (!(high[g] > low[g])) high[g] = worst[g] > low[g] ? worst[g] : low[g] + 1;
}

void front_scalarise(const double *values, int count, int goals, const double *weights,
                     double *out) {
  double low[GOALS_MOST], high[GOALS_MOST];
  front_ends(values, count, goals, low, high);
  for (int i = 0; i < count; i++) {
    const double *one = values + (long)i * goals;
    double most = -INFINITY, sum = 0;
    for (int g = 0; g < goals; g++) {
      double part = weights[g] * (one[g] - low[g]) / (high[g] - low[g]);
      most = fmax(most, part);
      sum += part;
    }
    out[i] = has_all_values(one, goals) ? most + 0.05 * sum : INFINITY;
  }
}
