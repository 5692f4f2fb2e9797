/* prune_weights: see prune_weights.h. */
#include "runtime/command/prune_weights.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  float score;
  int64_t at;
} Ranked;

static int by_score(const void *a, const void *b) {
  const Ranked *x = a, *y = b;
  bool nan_x = isnan(x->score), nan_y = isnan(y->score);
  if (nan_x != nan_y) return nan_x - nan_y;
  if (!nan_x && x->score != y->score) return x->score < y->score ? 1 : -1;
  return (x->at > y->at) - (x->at < y->at);
}

Status prune_weights_best(const float *score, int64_t count, int64_t most, bool *keep) {
  Ranked *ranked = malloc((size_t)count * sizeof *ranked + 1);
  if (!ranked) return status_errno(ENOMEM, "pruning");
  for (int64_t i = 0; i < count; i++) {
    ranked[i] = (Ranked){score[i], i};
    keep[i] = false;
  }
  if (count) qsort(ranked, (size_t)count, sizeof *ranked, by_score);
  for (int64_t i = 0; i < count && i < most; i++) keep[ranked[i].at] = !isnan(ranked[i].score);
  free(ranked);
  return STATUS_OK;
}

/* A parameter as the matrix [first dimension, all others], and the blocks that it falls into; the last ones may be smaller. */
typedef struct {
  int64_t rows, columns, high, wide; /* a block's */
  int64_t across, units;
} Blocks;

static Blocks blocks_of(const Shape *shape, PruneStructure structure) {
  Blocks b = {.rows = shape->dim[0], .high = 1, .wide = 1};
  b.columns = b.rows ? shape_elements(shape) / b.rows : 0;
  if (structure.kind == PRUNE_CHANNEL) b.wide = b.columns;
  if (structure.kind == PRUNE_BLOCK) b.high = structure.first, b.wide = structure.second;
  b.across = b.wide ? (b.columns + b.wide - 1) / b.wide : 0;
  b.units = (b.rows + b.high - 1) / b.high * b.across;
  return b;
}

int64_t prune_weights_units(const Shape *shape, PruneStructure structure) { return blocks_of(shape, structure).units; }

static int64_t block_at(const Blocks *b, int64_t element) {
  return element / b->columns / b->high * b->across + element % b->columns / b->wide;
}

/* A block's score is the mean over its elements. */
static Status score_blocks(const float *value, const Blocks *b, float *score) {
  double *sum = calloc((size_t)b->units + 1, sizeof *sum);
  int64_t *count = calloc((size_t)b->units + 1, sizeof *count);
  Status status = sum && count ? STATUS_OK : status_errno(ENOMEM, "pruning");
  for (int64_t i = 0; status == STATUS_OK && i < b->rows * b->columns; i++) {
    sum[block_at(b, i)] += fabs((double)value[i]);
    count[block_at(b, i)]++;
  }
  for (int64_t i = 0; status == STATUS_OK && i < b->units; i++) score[i] = (float)(sum[i] / (double)count[i]);
  free(sum);
  free(count);
  return status;
}

static Status choose_unit_blocks(const float *value, const Blocks *b, double share, bool *keep) {
  float *score = malloc((size_t)b->units * sizeof *score + 1);
  bool *stays = malloc((size_t)b->units + 1);
  Status status = score && stays ? score_blocks(value, b, score) : status_errno(ENOMEM, "pruning");
  int64_t most = b->units - (int64_t)floor(share * (double)b->units + 0.5);
  if (status == STATUS_OK) status = prune_weights_best(score, b->units, most, stays);
  for (int64_t i = 0; status == STATUS_OK && i < b->rows * b->columns; i++) keep[i] = stays[block_at(b, i)];
  free(score);
  free(stays);
  return status;
}

/* Of each m neighbours along the second dimension, the inputs, the n best. */
static Status choose_n_of_m(const float *value, const Shape *shape, PruneStructure structure, bool *keep) {
  float score[PRUNE_MOST_M];
  bool stays[PRUNE_MOST_M];
  int64_t inputs = shape->dim[1], rest = inputs ? shape_elements(shape) / shape->dim[0] / inputs : 0;
  for (int64_t row = 0; row < shape->dim[0]; row++)
    for (int64_t inside = 0; inside < rest; inside++)
      for (int64_t first = 0; first < inputs; first += structure.second) {
        int64_t count = inputs - first < structure.second ? inputs - first : structure.second;
        for (int64_t i = 0; i < count; i++) score[i] = fabsf(value[(row * inputs + first + i) * rest + inside]);
        STATUS_TRY(prune_weights_best(score, count, structure.first, stays));
        for (int64_t i = 0; i < count; i++) keep[(row * inputs + first + i) * rest + inside] = stays[i];
      }
  return STATUS_OK;
}

Status prune_weights_choose(const float *value, const Shape *shape, PruneStructure structure, double share, bool *keep) {
  if (shape_elements(shape) == 0) return STATUS_OK;
  if (structure.kind == PRUNE_N_OF_M) return choose_n_of_m(value, shape, structure, keep);
  Blocks blocks = blocks_of(shape, structure);
  return choose_unit_blocks(value, &blocks, share, keep);
}
