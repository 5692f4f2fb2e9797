/* prune_ranks: what one rank of several has of a param that is pruned, where ranks share the optimizer's work (distributed.zero) or each
 * layer's (distributed.tensor).
 *
 * With R ranks of zero, a rank has row `data_rank` of the param's place in the flat arrays, seen as [R, part]. The graph says so itself,
 * by a gather of that row and by an all_gather of the rows, so it means the same before the pass shard, which knows both. */
#ifndef FT_PASSES_PRUNE_RANKS_H
#define FT_PASSES_PRUNE_RANKS_H
#include "passes/optimizer.h"
#include "passes/tensor_cut.h"

/* The elements of a param. whole: as files have it. local: what the ranks that share each layer's work have of it each. own: what this
 * rank has of these. Numbers of elements; local and own with the padding that makes parts equal. */
typedef struct {
  int64_t begin, whole, local, own;
  Shape shape;           /* of the whole */
  int64_t ranks, tensor; /* that have parts, and runs; 1: none */
  Shape part;            /* local, of a param that is cut */
  Cut cut;
  bool is_spread; /* own is not the whole */
} PruneShare;

PruneShare prune_share(const Update *u, const Node *param);
/* [own] of a flat value. */
Node *prune_own(Update *u, Node *flat, const PruneShare *share);
/* [own] as [whole], on every rank, and back. */
Node *prune_whole(Update *u, Node *own, const PruneShare *share, const char *name);
Node *prune_part(Update *u, Node *whole, const PruneShare *share);
/* [own] as the beginning of what lies between the param's begin and the next one's, `room` elements; 0 behind it. */
Node *prune_place(Update *u, Node *own, const PruneShare *share, int64_t room);

/* What a rank counts, n of them. number: i32[n], their places. is_here: bool[n], it is one, and no other rank of the stage counts it. */
typedef struct {
  Node *number, *is_here;
} PruneNumbers;
/* Of the own elements, among those of the whole; of units that all ranks have. */
PruneNumbers prune_numbers(Update *u, const PruneShare *share);
PruneNumbers prune_numbers_of_units(Update *u, int64_t units);
/* i32[...]: added over the ranks that have parts of params, and over the stages of a pipeline. */
Node *prune_counts(Update *u, Node *counts, bool of_stages);

/* For the pass shard. The flat value of which the gather takes this rank's part of a param, which begins at *begin; NULL: it is no such
 * gather. And what lies on this rank of a param's place in a flat value; NULL. */
const Node *prune_part_source(const Node *gather, int64_t *begin);
const Node *prune_part_placed(const Node *place);
#endif
