/* shard_matrices: Muon's matrices where each rank has a part of every matrix (distributed.zero).
 * Products need whole matrices. So each rank is given whole a share of the matrices of a shape: it
 * receives the other ranks' parts of these, and sends back parts of the results. Those are two
 * all_to_all of 1/R of the bytes that gathering all matrices and all results would take, and
 * a rank needs room for its share only. */
#ifndef FT_PASSES_SHARD_MATRICES_H
#define FT_PASSES_SHARD_MATRICES_H
#include "ir/graph.h"

/* The update of all ranks takes a rank's share of matrices by a gather of rows, from the reshaped
 * slice of a flat value (passes/optimizer_muon.c): returns that value, and where the slice begins.
 * NULL: the node is no such gather. */
const Node *shard_matrices_source(const Node *gather, int64_t *begin);
/* Their all_gather, of which the flat value is the beginning; NULL: it is of none. */
const Node *shard_matrices_directions(const Node *flat);

/* What the gather of whole matrices gives, of this rank's part of its source. */
Node *shard_matrices_own(Graph *fresh, const Node *gather, Node *part, int64_t begin,
                         int64_t ranks);
/* This rank's part of the flat value, of what its all_gather has from this rank. */
Node *shard_matrices_part(Graph *fresh, const Node *flat, Node *own);
#endif
