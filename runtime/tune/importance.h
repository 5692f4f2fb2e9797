/* importance: how much of a goal's variation over a space is due to each dimension alone, by functional ANOVA of
 * a forest of regression trees (Hutter, Hoos and Leyton-Brown: An Efficient Approach for Assessing Hyperparameter
 * Importance, ICML 2014). A tree is constant in boxes, so that its variance over the whole space, and that of its mean
 * along a dimension, are sums: exact, without sampling. Space and dimensions are those of the samplers, [0, 1] each.
 *
 * Trials that have not come to their end have no value here. Values worse than three interquartile ranges beyond the
 * upper quartile count as at that bound, as a few diverged trainings would else be all the variation there is. A dimension
 * that is not there in a trial has another random value in each tree: nothing can depend on it. */
#ifndef FT_RUNTIME_TUNE_IMPORTANCE_H
#define FT_RUNTIME_TUNE_IMPORTANCE_H
#include "runtime/tune/journal.h"

enum { IMPORTANCE_LEAST_TRIALS = 10, IMPORTANCE_MOST_TRIALS = 1000, IMPORTANCE_TREES = 64 };

typedef struct {
  int trials;                                      /* that it is of */
  double share[SPACE_MOST], deviation[SPACE_MOST]; /* mean over the trees; standard deviation */
  double together; /* what only several dimensions at a time explain */
} Importance;

/* false: too few trials, all values equal, or no memory. */
bool importance_of(const Journal *journal, Importance *out);

/* ── for tests ── */
typedef struct {
  double value, low[SPACE_MOST], high[SPACE_MOST];
} Leaf;
/* Variance over the unit cube of a function that is constant in boxes which fill it; of dimension d alone: single[d].
 * false: no memory. */
bool importance_variance(const Leaf *leaf, int count, int dims, double *total, double *single);
#endif
