/* prune_select: which of many candidates have the highest scores, as nodes of a graph. */
#ifndef FT_PASSES_PRUNE_SELECT_H
#define FT_PASSES_PRUNE_SELECT_H
#include "passes/pass.h"

/* score: f32[c, n]; keep: f64[], or f64[c, 1], integers from 0 to n. bool[c, n]: the `keep` highest of each row, the one with the lower
 * index first where scores are equal. A NaN is not among them. */
Node *prune_select(Graph *graph, Node *score, Node *keep);

/* Candidates of which each of several ranks has some, [c, n] of them here. */
typedef struct {
  Node *score;   /* f32[c, n] */
  Node *number;  /* i32[c, n]: which of its row's candidates it is */
  Node *is_here; /* bool[c, n]: it is one, which no other rank counts; NULL: all are */
  Node *keep;    /* f64[], or f64[c, 1] */
  int64_t all;   /* candidates of a row, on all ranks */
  Node *kept;    /* the result, bool[c, n]: as prune_select chooses from all of a row */
} PruneRows;
/* i32[...]: the sum over the ranks. */
typedef Node *PruneJoin(void *user, Node *counts);
/* Several such at a time: each count is one collective. join: NULL, there is one rank. */
void prune_select_ranks(Graph *graph, PruneRows *rows, int count, PruneJoin *join, void *user);
#endif
