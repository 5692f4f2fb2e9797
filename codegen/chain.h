/* chain: kernels that follow each other row by row. A small product, its activation, the next small product, a softmax with the
 * loss, and the gradients back to the first product: each row of one needs the same row of the one before, and no other one.
 * Where a GPU's block makes whole rows, the same in each of these kernels, it can make them one after the other in a single
 * launch (codegen/join.h), and no other block has to wait in between.
 *
 *   chain_find      on the graph that is lowered: which nodes' kernels are made to go by rows
 *   chain_by_rows   of a node: which operands and results a row's block touches in this row only
 *   chain_note      of a kernel that was emitted so, for join_launches
 *
 * Invariant: what a kernel that goes by rows computes does not depend on what it is joined with. */
#ifndef FT_CODEGEN_CHAIN_H
#define FT_CODEGEN_CHAIN_H
#include "codegen/module.h"
#include "ir/graph.h"

enum {
  CHAIN_THREADS = 256, /* of a block of any of these kernels */
  CHAIN_MOST_SIDE = 256, /* columns, and steps of k, of a product; elements of a row with reductions */
};

/* A launch that goes by rows. */
typedef struct ChainLaunch {
  const char *name;    /* of the kernel */
  int64_t rows;        /* of all blocks, */
  const bool *by_rows; /* by argument of the launch */
} ChainLaunch;

/* How many of all `rows` a block has: 1 to 8. */
int chain_block_rows(int64_t rows);
/* By node of the graph: the rows that its kernel goes by; 0: its kernel is made as any other. NULL: all are. */
int64_t *chain_find(const Module *module, Arena *arena, const Graph *graph);
/* May a kernel of the node go by so many rows? Then by_rows says of its operands and results, in this order, whether a block touches
 * nothing of them but its rows, which are equal parts of all elements. */
bool chain_by_rows(Arena *scratch, const Node *node, int64_t rows, bool *by_rows);
/* Is it a product whose blocks make whole rows? Of another one that goes by rows only the launch that adds the parts of its sums does. */
bool chain_is_small(const Node *product, int64_t rows);
/* Of the kernel's launches that go by rows; `count`: operands and results. */
void chain_note(Module *first, const Kernel *kernel, int64_t rows, const bool *by_rows, int count);
/* NULL: the launch of this name does not. */
const ChainLaunch *chain_launch(const Module *first, const char *name);
#endif
