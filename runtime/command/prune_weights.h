/* prune_weights: which elements of a parameter become 0 by their magnitude, for commands that prune weights between trainings. The same
 * ones as a training with prune = magnitude chooses in its step (passes/prune.h). */
#ifndef FT_RUNTIME_PRUNE_WEIGHTS_H
#define FT_RUNTIME_PRUNE_WEIGHTS_H
#include "ir/type.h"
#include "plan/prune_structure.h"
#include "runtime/common/status.h"

/* The elements, blocks or channels that are pruned as one. */
int64_t prune_weights_units(const Shape *shape, PruneStructure structure);
/* keep[i]: element i of `value` (f32, row-major, rank 2 or more) stays. share: of the units, rounded to the nearest number of
 * them, halves up; n:m has no share. Of equal units the first ones stay. */
STATUS_CHECKED Status prune_weights_choose(const float *value, const Shape *shape, PruneStructure structure, double share, bool *keep);
/* The `most` highest of the scores; of equal ones the first. A NaN is not among them. */
STATUS_CHECKED Status prune_weights_best(const float *score, int64_t count, int64_t most, bool *keep);
#endif
