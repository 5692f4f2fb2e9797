/* own_index: which values of a kernel's body are read only at the index that the kernel is at.
 *
 * A skeleton asks for the roots and for the inputs of reductions at an index of the domain, its own
 * one. Pointwise ops and views hand it on as it is; everything else (a transpose, a slice, a
 * broadcast, a window ...) reads its inputs at an index that it makes from it. A
 * skeleton that keeps a value for later, in a buffer of its row or in a tile, has it at its own
 * index only: so it may keep only values that are read at no other. That two shapes have equally
 * many elements says nothing about it. */
#ifndef FT_CODEGEN_OWN_INDEX_H
#define FT_CODEGEN_OWN_INDEX_H
#include "ir/graph.h"

/* By node id of the fused node's body: is it read, and at the kernel's own index only? */
const bool *own_index_reads(Arena *scratch, const Node *fused);
/* The same where a loop of its own makes `root`, at that node's index. */
const bool *own_index_reads_of(Arena *scratch, const Graph *body, const Node *root);
#endif
