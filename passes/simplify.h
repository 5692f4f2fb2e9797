/* simplify: what the rule files share. A rule looks at one node, whose inputs are simplified
 * already, and returns what to use in its place, a node of the same type, or NULL if it does not
 * apply. Rules must make progress (fewer or cheaper nodes, or one step towards the canonical form):
 * no rule undoes another. */
#ifndef FT_PASSES_SIMPLIFY_H
#define FT_PASSES_SIMPLIFY_H
#include "ir/match.h"

typedef Node *SimplifyRun(Graph *graph, Node *node);
typedef struct {
  Op op;
  SimplifyRun *run;
} SimplifyRule;

/* Each table ends with a rule whose run is NULL. */
extern const SimplifyRule simplify_math_rules[], simplify_move_rules[], simplify_sum_rules[];

/* Rules that pay only where the node is the one user of its first input: else that input is made
 * all the same. */
extern const SimplifyRule simplify_single_rules[];

/* The same, and only where no gradient will be taken: they keep values, and not all gradients. */
extern const SimplifyRule simplify_value_rules[];

/* Any pointwise node: the const it is, if all its inputs are consts. */
Node *simplify_fold(Graph *graph, Node *node);

/* Any pointwise node: done on smaller operands and broadcast after, where all of them are broadcast
 * along the same dimensions. */
Node *simplify_sink(Graph *graph, Node *node);
#endif
