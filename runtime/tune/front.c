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
  int behind; /* how many were chosen when `value` was made */
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

/* ── hypervolume: what a set of points dominates below the point `far` ──────────────────────────
 * By the exclusive volumes of its points, each of which is the point's box less what the others, brought into it, dominate
 * there (While, Bradstreet and Barone 2012, "A fast way of calculating exact hypervolumes"). */
static double set_volume(const double *set, int count, int goals, const double *far);

static double exclusive_volume(const double *point, const double *set, int count, int goals,
                               const double *far) {
  double box = 1, inside[FRONT_BY_VOLUME * GOALS_MOST];
  for (int g = 0; g < goals; g++) box *= far[g] - point[g];
  int kept = 0;
  for (int i = 0; i < count; i++) {
    double *one = inside + (long)kept * goals;
    bool is_needed = true;
    for (int g = 0; g < goals; g++) {
      one[g] = fmax(set[(long)i * goals + g], point[g]);
      is_needed &= one[g] < far[g];
    }
    for (int j = 0; j < kept && is_needed; j++) {
      const double *other = inside + (long)j * goals;
      is_needed = !front_dominates(other, one, goals) &&
                  memcmp(other, one, (size_t)goals * sizeof *one) != 0;
    }
    kept += is_needed;
  }
  return box - set_volume(inside, kept, goals, far);
}

static double set_volume(const double *set, int count, int goals, const double *far) {
  double sum = 0;
  for (int i = 0; i < count; i++)
    sum += exclusive_volume(set + (long)i * goals, set + (long)(i + 1) * goals, count - i - 1,
                            goals, far);
  return sum;
}

/* A tenth of the points' range beyond the worst of them, so that the ends of a front have a volume, too. False: they are not all finite. */
static bool choose_far(const double *values, int goals, const FrontPoint *front, int count,
                       double *far) {
  for (int g = 0; g < goals; g++) {
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < count; i++) {
      double value = values[(long)front[i].index * goals + g];
      low = fmin(low, value);
      high = fmax(high, value);
    }
    double span = high - low;
    if (!isfinite(span)) return false;
    far[g] = high + 0.1 * (span > 0 ? span : 1);
  }
  return true;
}

typedef struct {
  double chosen[FRONT_BY_VOLUME * GOALS_MOST], far[GOALS_MOST];
  int count, goals;
} Chosen;

static double added_volume(const Chosen *c, const double *point) {
  return exclusive_volume(point, c->chosen, c->count, c->goals, c->far);
}

static int find_largest(const FrontPoint *front, int count) {
  int best = 0;
  for (int i = 1; i < count; i++)
    if (front[i].value > front[best].value) best = i;
  return best;
}

/* Brings those `most` of a front to its beginning that are chosen one by one, each the one that adds the largest volume. What a
 * point adds only shrinks as others are chosen: the largest number is the next one's if it has been made of all that are chosen. */
static void choose_by_volume(const double *values, int goals, FrontPoint *front, int count,
                             int most) {
  Chosen c = {.goals = goals};
  if (!choose_far(values, goals, front, count, c.far)) return;
  for (int i = 0; i < count; i++) front[i].value = INFINITY;
  for (int i = 0; i < count; i++) front[i].behind = -1;
  for (; c.count < most && c.count < count; c.count++) {
    FrontPoint *rest = front + c.count;
    int left = count - c.count, best = find_largest(rest, left);
    for (; rest[best].behind < c.count; best = find_largest(rest, left)) {
      rest[best].value = added_volume(&c, values + (long)rest[best].index * goals);
      rest[best].behind = c.count;
    }
    FrontPoint taken = rest[best];
    memmove(rest + 1, rest, (size_t)best * sizeof *rest);
    rest[0] = taken;
    memcpy(c.chosen + (long)c.count * goals, values + (long)taken.index * goals,
           (size_t)goals * sizeof *values);
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
      if (above[i] == 0) front[found++] = (FrontPoint){.index = i};
    measure_crowd(values, goals, front, found);
    qsort(front, (size_t)found, sizeof *front, compare_lonely);
    if (next < FRONT_BY_VOLUME)
      choose_by_volume(values, goals, front, found, FRONT_BY_VOLUME - next);
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

void front_weights(const double *values, int count, int goals, double *weight) {
  FrontPoint front[FRONT_BY_VOLUME] = {0};
  double far[GOALS_MOST], others[FRONT_BY_VOLUME * GOALS_MOST], most = 0;
  for (int i = 0; i < count; i++) {
    weight[i] = 1;
    front[i].index = i;
  }
  if (!choose_far(values, goals, front, count, far)) return;
  for (int i = 0; i < count; i++) {
    size_t row = (size_t)goals * sizeof *values, before = (size_t)i;
    memcpy(others, values, before * row);
    memcpy(others + i * goals, values + (long)(i + 1) * goals, ((size_t)count - before - 1) * row);
    weight[i] = exclusive_volume(values + (long)i * goals, others, count - 1, goals, far);
    most = fmax(most, weight[i]);
  }
  for (int i = 0; i < count; i++) weight[i] = most > 0 ? fmax(weight[i] / most, 1e-12) : 1;
}
