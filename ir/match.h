/* match: is this node such a function of its operands, however it is written? Passes and code
 * generation ask here, so that what one of them knows, all know. A match means the same values for
 * all operands, NaN and infinity too (the sign of a zero apart), and says nothing of gradients:
 * those of maximum(x, 0) and of relu(x) differ at 0, so before autodiff the one may not take the
 * place of the other. Functions that passes have taken apart and put together anew are told by
 * their values instead (codegen/recognise.h). */
#ifndef FT_IR_MATCH_H
#define FT_IR_MATCH_H
#include "ir/graph.h"

/* One number in every element, however it is seen; this number. */
bool match_const(const Node *node, double *value);
bool match_value(const Node *node, double value);
/* op(x, c) with a const on the right, where simplify puts it: x + c, x * c, ... */
bool match_with_const(const Node *node, Op op, Node **x, double *c);
/* What the node is the relu of: select(x <= 0, 0, x), max(x, 0) or max(0, x); else NULL. */
Node *match_relu(const Node *node);
/* The sum that the node is the mean of, sum(y) * (1 / n) of n elements each; else NULL. */
Node *match_mean(const Node *node);
/* A transpose of the last two dimensions. */
bool match_swap_of_last_two(const Node *node);
/* The rows of a table with each two neighbours, 2 i and 2 i + 1, exchanged: gather(table, iota ^ 1). */
bool match_neighbours(const Node *node);
/* A sum over all dimensions but the last. */
bool match_column_sum(const Node *node);
#endif
