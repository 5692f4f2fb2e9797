/* importance: see importance.h. */
#include "runtime/tune/importance.h"
#include "runtime/tune/random.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_OF_LEAF = 3, DEEPEST_TREE = 40 };

/* ── variance of a tree ───────────────────────────────────────────────────────────────────── */
typedef struct {
  double at, change; /* of the mean along a dimension */
} Edge;

static int compare_edges(const void *left, const void *right) {
  double a = ((const Edge *)left)->at, b = ((const Edge *)right)->at;
  return (a > b) - (a < b);
}

/* The mean over all other dimensions is constant between edges: a leaf adds its value times its share of those. */
static double variance_along(const Leaf *leaf, int count, int dim, const double *volume,
                             double mean, Edge *edge) {
  double sum = 0, here = -mean, from = 0;
  for (int i = 0; i < count; i++) {
    double width = leaf[i].high[dim] - leaf[i].low[dim];
    double change = width > 0 ? leaf[i].value * volume[i] / width : 0;
    edge[2 * i] = (Edge){leaf[i].low[dim], change};
    edge[2 * i + 1] = (Edge){leaf[i].high[dim], -change};
  }
  qsort(edge, 2 * (size_t)count, sizeof *edge, compare_edges);
  for (int i = 0; i < 2 * count; i++) {
    sum += here * here * (edge[i].at - from);
    from = edge[i].at;
    here += edge[i].change;
  }
  return sum;
}

bool importance_variance(const Leaf *leaf, int count, int dims, double *total, double *single) {
  double *volume = calloc((size_t)count, sizeof *volume);
  Edge *edge = calloc(2 * (size_t)count, sizeof *edge);
  double mean = 0;
  *total = 0;
  if (volume && edge) {
    for (int i = 0; i < count; i++) {
      volume[i] = 1;
      for (int d = 0; d < dims; d++) volume[i] *= leaf[i].high[d] - leaf[i].low[d];
      mean += leaf[i].value * volume[i];
    }
    for (int i = 0; i < count; i++)
      *total += (leaf[i].value - mean) * (leaf[i].value - mean) * volume[i];
    for (int d = 0; d < dims; d++) single[d] = variance_along(leaf, count, d, volume, mean, edge);
  }
  bool is_fine = volume && edge;
  free(volume);
  free(edge);
  return is_fine;
}

/* ── a tree ───────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  double x, y;
  int sample;
} Pair;

typedef struct {
  int dims, count; /* samples */
  const double *x; /* [count][dims] */
  const double *y;
  Random random;
  Pair *pair; /* [count] */
  int *order; /* [count] samples, with repetitions; those of a node stand together */
  Leaf *leaf; /* [count] */
  int leaf_count;
} Tree;

static int importance_compare_pairs(const void *left, const void *right) {
  const Pair *a = left, *b = right;
  return a->x != b->x ? (a->x > b->x) - (a->x < b->x) : a->sample - b->sample;
}

static void sort_along(Tree *t, int first, int count, int dim) {
  for (int i = 0; i < count; i++) {
    int sample = t->order[first + i];
    t->pair[i] = (Pair){t->x[(size_t)sample * (size_t)t->dims + (size_t)dim], t->y[sample], sample};
  }
  qsort(t->pair, (size_t)count, sizeof *t->pair, importance_compare_pairs);
}

/* Where the sums of squares about the two means are the least; gain 0: nowhere. */
static double best_split(Tree *t, int first, int count, int dim, double *at) {
  double all = 0, left = 0, best = 0;
  sort_along(t, first, count, dim);
  for (int i = 0; i < count; i++) all += t->pair[i].y;
  for (int i = 0; i + 1 < count; i++) {
    left += t->pair[i].y;
    int n = i + 1, rest = count - n;
    if (n < LEAST_OF_LEAF || rest < LEAST_OF_LEAF || t->pair[i].x == t->pair[i + 1].x) continue;
    double difference = left / n - (all - left) / rest;
    double gain = difference * difference * n * rest / count;
    if (gain <= best) continue;
    best = gain;
    *at = t->pair[i].x / 2 + t->pair[i + 1].x / 2;
  }
  return best;
}

/* Five in six dimensions are looked at, as in the paper's forests. */
static double choose_split(Tree *t, int first, int count, int *dim, double *at) {
  int order[SPACE_MOST], looked = (5 * t->dims + 5) / 6;
  double best = 0;
  for (int d = 0; d < t->dims; d++) order[d] = d;
  for (int i = 0; i < looked; i++) {
    int other = i + random_below(&t->random, t->dims - i), d = order[other];
    double where = 0;
    order[other] = order[i];
    double gain = best_split(t, first, count, d, &where);
    if (gain <= best) continue;
    best = gain;
    *dim = d;
    *at = where;
  }
  return best;
}

static void importance_add_leaf(Tree *t, int first, int count, const Leaf *box) {
  Leaf *leaf = &t->leaf[t->leaf_count++];
  *leaf = *box;
  leaf->value = 0;
  for (int i = 0; i < count; i++) leaf->value += t->y[t->order[first + i]] / count;
}

static void importance_grow(Tree *t, int first, int count, Leaf *box, int depth) {
  int dim = 0, left = 0;
  double at = 0, gain = 0;
  if (count >= 2 * LEAST_OF_LEAF && depth < DEEPEST_TREE)
    gain = choose_split(t, first, count, &dim, &at);
  if (!(gain > 1e-12)) {
    importance_add_leaf(t, first, count, box);
    return;
  }
  sort_along(t, first, count, dim);
  for (int i = 0; i < count; i++) {
    t->order[first + i] = t->pair[i].sample;
    left += t->pair[i].x <= at;
  }
  double low = box->low[dim], high = box->high[dim];
  box->high[dim] = at;
  importance_grow(t, first, left, box, depth + 1);
  box->high[dim] = high;
  box->low[dim] = at;
  importance_grow(t, first + left, count - left, box, depth + 1);
  box->low[dim] = low;
}

/* Of as many samples as there are, drawn with repetition. */
static void grow_tree(Tree *t) {
  Leaf box = {0};
  for (int d = 0; d < t->dims; d++) box.high[d] = 1;
  for (int i = 0; i < t->count; i++) t->order[i] = random_below(&t->random, t->count);
  t->leaf_count = 0;
  importance_grow(t, 0, t->count, &box, 0);
}

/* ── the trials ───────────────────────────────────────────────────────────────────────────── */
static int importance_compare(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

/* Brought to [0, 1], 0 the best; false: all are equal. */
static bool scale_values(double *y, int count, bool is_max) {
  double *sorted = malloc((size_t)count * sizeof *sorted);
  if (!sorted) return false;
  for (int i = 0; i < count; i++) y[i] = (is_max ? -y[i] : y[i]) / 8; /* far from an overflow */
  memcpy(sorted, y, (size_t)count * sizeof *y);
  qsort(sorted, (size_t)count, sizeof *sorted, importance_compare);
  double low = sorted[0], high = sorted[count - 1];
  double quarter = sorted[count / 4], upper = sorted[(3 * count) / 4];
  double bound = upper + 3 * (upper - quarter);
  free(sorted);
  if (upper > quarter && bound < high) high = bound;
  if (!(high > low) || !isfinite(high - low)) return false;
  for (int i = 0; i < count; i++) y[i] = (fmin(y[i], high) - low) / (high - low);
  return true;
}

/* The trials that have a value, evenly taken where there are very many. */
static int choose_trials(const Journal *journal, int *chosen) {
  int count = 0, seen = 0, taken = 0;
  for (int i = 0; i < journal->count; i++) count += journal->trial[i].state == TRIAL_COMPLETE;
  int most = count < IMPORTANCE_MOST_TRIALS ? count : IMPORTANCE_MOST_TRIALS;
  for (int i = 0; i < journal->count && taken < most; i++) {
    if (journal->trial[i].state != TRIAL_COMPLETE) continue;
    if ((int64_t)seen++ * most / count >= taken) chosen[taken++] = i;
  }
  return taken;
}

static void place_samples(const Journal *journal, const int *chosen, int count, Random *random,
                          double *x) {
  int dims = journal->space.count;
  for (int i = 0; i < count; i++)
    for (int d = 0; d < dims; d++) {
      double value = journal->trial[chosen[i]].point[d];
      x[i * dims + d] =
          isnan(value) ? random_unit(random) : dim_to_unit(&journal->space.dim[d], value);
    }
}

static bool importance_sum_up(const Journal *journal, const int *chosen, Tree *t, double *x,
                              Importance *out) {
  double square[SPACE_MOST] = {0};
  int trees = 0;
  for (int n = 0; n < IMPORTANCE_TREES; n++) {
    double total, single[SPACE_MOST];
    t->random = random_new(journal->seed, (uint64_t)n, 0x696d70);
    place_samples(journal, chosen, t->count, &t->random, x);
    grow_tree(t);
    if (!importance_variance(t->leaf, t->leaf_count, t->dims, &total, single)) return false;
    if (!(total > 0)) continue; /* a single leaf says nothing */
    trees++;
    for (int d = 0; d < t->dims; d++) {
      out->share[d] += single[d] / total;
      square[d] += single[d] / total * (single[d] / total);
    }
  }
  if (!trees) return false;
  out->together = 1;
  for (int d = 0; d < t->dims; d++) {
    double mean = out->share[d] / trees;
    out->share[d] = mean;
    out->deviation[d] = sqrt(fmax(square[d] / trees - mean * mean, 0));
    out->together -= mean;
  }
  out->together = fmax(out->together, 0);
  return true;
}

bool importance_of(const Journal *journal, Importance *out) {
  int chosen[IMPORTANCE_MOST_TRIALS];
  *out = (Importance){.trials = choose_trials(journal, chosen)};
  size_t count = (size_t)out->trials, dims = (size_t)journal->space.count;
  if (out->trials < IMPORTANCE_LEAST_TRIALS || !dims) return false;
  double *x = malloc(count * dims * sizeof *x), *y = malloc(count * sizeof *y);
  Tree tree = {.dims = journal->space.count,
               .count = out->trials,
               .x = x,
               .y = y,
               .pair = malloc(count * sizeof(Pair)),
               .order = malloc(count * sizeof(int)),
               .leaf = malloc(count * sizeof(Leaf))};
  bool is_fine = x && y && tree.pair && tree.order && tree.leaf;
  for (int i = 0; is_fine && i < out->trials; i++) y[i] = journal->trial[chosen[i]].value;
  is_fine = is_fine && scale_values(y, out->trials, journal->is_max) &&
            importance_sum_up(journal, chosen, &tree, x, out);
  free(x);
  free(y);
  free(tree.pair);
  free(tree.order);
  free(tree.leaf);
  return is_fine;
}
