/* lifetime: when values of a fused graph are born and read for the last time, in steps. A step is a
 * node that does something: a kernel, a contraction, scatter_add, pack, assign, in node order.
 * Views (reshape) are their base; a kernel's values are its `result` nodes. The operand of a
 * collective that goes on beside later steps is read by these, too. */
#ifndef FT_PASSES_LIFETIME_H
#define FT_PASSES_LIFETIME_H
#include "ir/graph.h"

typedef struct {
  int count;         /* steps */
  const Node **node; /* by step */
  int *step;         /* by node id: its step; of a result: its kernel's; -1: none */
  int *first, *last; /* by node id of a base value: written in step `first`, last read in step
                        `last`; leaves: -1; roots: the number of steps */
} Lifetimes;

const Node *lifetime_base(const Node *node); /* through views */
typedef VEC(int) LifetimeIds;
/* By node id of a state: the leaves that are it, or a param that is a part of it (of all
 * parameters, all rounded ones). */
LifetimeIds *lifetime_leaves_of_states(const Graph *graph, Arena *arena);
bool lifetime_is_step(const Node *node);
bool lifetime_is_value(const Node *node); /* a base that a step writes */
Lifetimes lifetimes_of(const Graph *graph, Arena *arena);

/* May result `index` of the kernel be written over its operands with base `base`? Only if
 * - each element of the result is stored where the kernel reads the operand for that element, and
 *   nowhere else does it read this element. That is so in loop kernels, in epilogues of products,
 *   for results of the reduced shape in row and column kernels, and for a row kernel's results of
 *   the domain's shape. The row's reductions may read the operand too: code generation stores the
 *   first element of a row only when they are complete, and rows do not overlap;
 * - the result itself reads the operand, so that an element is loaded before it is overwritten.
 * It relies on a kernel loading an element once for all results of an index. Put writes over its
 * base, all_reduce and broadcast_from over the operand of the same index. The caller checks that the operand is not
 * live after the kernel. */
bool lifetime_may_overwrite(const Node *fused, int index, const Node *base);
#endif
