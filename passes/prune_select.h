/* prune_select: which of many candidates have the highest scores, as nodes of a graph. */
#ifndef FT_PASSES_PRUNE_SELECT_H
#define FT_PASSES_PRUNE_SELECT_H
#include "passes/pass.h"

/* score: f32[c, n]; keep: f64[], or f64[c, 1], integers from 0 to n. bool[c, n]: the `keep` highest of each row, the one with the lower
 * index first where scores are equal. A NaN is not among them. */
Node *prune_select(Graph *graph, Node *score, Node *keep);
#endif
