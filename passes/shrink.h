/* shrink: which elements along the dimensions of parameters and values a program can do without, given where its weights are 0:
 * so that with those left out every output, loss and metric is the same up to rounding. `ftc --shrink` asks.
 *
 * Along each dimension of each value an element stays or goes. What is tied by an op (the channels of a convolution's weight, of
 * its result, of the batch norm behind, of the other operand of a residual sum, of the next convolution's weight) stays or goes
 * together (Fang et al., DepGraph, CVPR 2023, of the idea; here it is found on the graph's own shapes). Elements stay that an
 * output has, or a reduction counts, and, along the dimension that a product sums over, those where neither operand is 0. All
 * others go: the largest such set, found by adding what must stay until nothing changes.
 *
 * That is a claim about one graph. shrink_compare makes it a fact: the program that the front end builds with the new widths must
 * have the same nodes, with these shapes. */
#ifndef FT_PASSES_SHRINK_H
#define FT_PASSES_SHRINK_H
#include "ir/graph.h"

/* Of a value, or of all params or states of one name. */
typedef struct {
  bool is_zero;                           /* all of it */
  bool *zero[MAX_RANK], *keep[MAX_RANK];  /* by dimension and element: what there is of it is 0; it stays */
} ShrinkValue;

typedef struct {
  Arena *arena;
  VEC(Graph *) graphs;
  VEC(ShrinkValue **) values; /* by graph and node */
  VEC(const bool *) live;     /* … is a root made of it? What is not needs nothing, and is not looked at */
  VEC(bool *) gone;           /* … is it left out whole? (shrink_leave_out) */
  VEC(const Node **) same;    /* … its operand that has its value, or itself */
  VEC(const Node *) leaves;   /* params and the model's states, one of each name */
  bool has_changed, has_gone;
} Shrink;

Shrink *shrink_new(Arena *arena, Graph *const *graphs, int count);
/* NULL: the program has none of that name. */
const Node *shrink_leaf(const Shrink *shrink, const char *name);
ShrinkValue *shrink_value(const Shrink *shrink, const Node *node); /* of a node of one of the graphs */
/* From what is 0 in the leaves to all values (shrink_zero.c). */
void shrink_spread_zeros(Shrink *shrink);
/* Adds what must stay. At least one element stays of each dimension. */
void shrink_settle(Shrink *shrink);
void shrink_keep_all(Shrink *shrink, const Node *node, int dim);
int64_t shrink_kept(const ShrinkValue *value, int dim, int64_t count); /* of the first `count` elements */

/* Settings and the step: the first to read one makes its node, for all. */
bool shrink_is_of_all(const Node *node);

/* ── nodes that are left out whole, as rounds of a `repeat` (shrink_rounds.c) ── */
void shrink_find_same(Shrink *shrink); /* once, with the zeros spread */
/* Would the others do without nodes [begin, end) of graph `index`, reading what is known to be the same? */
bool shrink_can_leave_out(const Shrink *shrink, int index, int begin, int end);
void shrink_leave_out(Shrink *shrink, int index, int begin, int end);
void shrink_leave_nothing_out(Shrink *shrink);
bool shrink_is_gone(const Shrink *shrink, const Node *node);

typedef struct {
  const Node *node; /* of the large program; NULL: the programs agree */
  int dim;          /* of which the small one has another size than is kept; -1: something else differs */
  int64_t kept, size;
} ShrinkDifference;
/* Is graph `index`, built with other widths, the same but for what goes? (shrink_compare.c) */
ShrinkDifference shrink_compare(const Shrink *shrink, int index, const Graph *small);
#endif
