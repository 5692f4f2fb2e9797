/* graph: random graphs, to compare passes and generated code with the interpreter. Random programs
 * of the language are test/random/generate.py's. */
#ifndef FT_TEST_RANDOM_GRAPH_H
#define FT_TEST_RANDOM_GRAPH_H
#include "ir/graph.h"

/* A well-typed forward graph "train" of about `size` steps, the same for the same seed: params, f32
 * inputs (to be filled with values in [-1, 1]), i32 and i64 inputs (any values), states with
 * assigns, the setting train.seed; roots: a scalar f32 loss, a metric, up to two outputs. No value
 * is NaN, infinite or large, and no comparison hangs on rounding. */
Graph *graph_random(Arena *arena, uint64_t seed, int size);
#endif
