/* simplify: what the rule files share. A rule looks at one node, whose inputs are simplified
 * already, and returns what to use in its place, a node of the same type, or NULL if it does not
 * apply. Rules must make progress (fewer or cheaper nodes, or one step towards the canonical form):
 * no rule undoes another. */
#ifndef FT_PASSES_SIMPLIFY_H
#define FT_PASSES_SIMPLIFY_H
#include "ir/graph.h"

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

/* Any pointwise node: the const it is, if all its inputs are consts. */
Node *simplify_fold(Graph *graph, Node *node);

/* Any pointwise node: done on smaller operands and broadcast after, where all of them are broadcast
 * along the same dimensions. */
Node *simplify_sink(Graph *graph, Node *node);

/* Is the node one value in every element? */
static inline bool simplify_is_const(const Node *node, double *value) {
  if (node->op != OP_CONST) return false;
  *value = node_float(node, ATTR_VALUE, 0);
  return true;
}
static inline bool simplify_is_value(const Node *node, double value) {
  double is;
  return simplify_is_const(node, &is) && is == value;
}
#endif
