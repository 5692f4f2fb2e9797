/* tensor_cut: which values are split over the ranks of the axis tensor, and how
 * (distributed.tensor; the pass is tensor.c). A dimension is cut in runs: with n ranks it is a row of
 * groups of n * run elements, and rank r has elements [r run, (r + 1) run) of each group. One group
 * cuts heads or features; three groups cut a tensor that holds q, k and v side by side.
 *
 * A dimension that is no multiple of the ranks (a vocabulary of 50257) is cut unevenly: it is one
 * group, whose last run is padded. The padding is in no file. In params it is zeros, and in values
 * computed from them anything; sums over the dimension leave it out, and no gradient comes from
 * it. */
#ifndef FT_PASSES_TENSOR_CUT_H
#define FT_PASSES_TENSOR_CUT_H
#include "passes/pass.h"

typedef struct {
  int dim;
  int64_t run; /* 0: every rank has all of the value */
} Cut;

typedef struct {
  const Graph *graph;
  Arena *arena;
  int64_t ranks;
  Cut *cut;        /* by node */
  bool *is_fixed;  /* by node: a param, which has the cut of another graph */
  bool *is_joined; /* by node: every rank makes its share of it from parts, and the shares of all
                      ranks are joined */
  bool *is_taken;  /* by node: all ranks have it whole, and some nodes read only a part, `cut` */
  /* of the trial that is under way */
  VEC(int) trail; /* nodes that it has cut */
  int depth;
  int64_t saved; /* flops of products that are made in parts */
  bool goes_on;  /* it reads what is cut already */
} TensorCuts;

/* Chooses cuts, so that as many products as can be are made in parts with few joins: a product is
 * joined whose operands can be cut along what it adds up, by products before it. The params of all
 * graphs of a program are cut as those of its train graph, which comes first. */
TensorCuts tensor_choose(const Graph *graph, const Graph *train, int64_t ranks, Arena *arena);
/* How a param is cut already, and what that dimension of the whole has. */
Cut tensor_cut_of_param(const Node *param);
int64_t tensor_length_of_param(const Node *param);
/* Of operand k of a node that is made in parts `cut`; run 0: all of it is needed. False: a node can't
 * be made so. */
bool tensor_operand(const TensorCuts *t, const Node *node, Cut cut, int k, Cut *out);
/* Of operand k of a joined node. */
Cut tensor_joined_operand(const TensorCuts *t, const Node *node, int k);
/* A param, or what needs no operands' parts. */
bool tensor_is_made_in_parts(const Node *node);
bool tensor_cut_equal(Cut a, Cut b);
bool tensor_is_legal(const Shape *shape, Cut cut, int64_t ranks); /* in even parts */
bool tensor_is_uneven(const Shape *shape, Cut cut, int64_t ranks);
/* The same elements in another shape of as many; run 0: that is no cut of it. */
Cut tensor_reshaped(const Shape *from, Cut cut, const Shape *to, int64_t ranks);
/* Cuts what lies between joined products and the next cut ones (tensor_rows.c). */
void tensor_cut_rows(TensorCuts *t);
Shape tensor_local(const Shape *shape, Cut cut, int64_t ranks);
/* Elements of the value that lie behind one another on one rank. */
int64_t tensor_inner(const Shape *shape, Cut cut);
#endif
