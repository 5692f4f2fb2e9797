/* join: launches that wait for nothing of each other are made as one launch (horizontal fusion; Li et al., "Automatic
 * Horizontal Fusion for GPU Kernels", CGO 2022), whose blocks are divided among them: blocks [0, n0) do what the
 * first kernel does, [n0, n0 + n1) what the second does. A small model is bound by the launches themselves and by the
 * slowest block of each: the gradients of a layer's weights, bias and input then cost one of both.
 *
 * A launch that goes by rows (codegen/chain.h) may also come behind another one that goes by the same rows, and that it waits
 * for, in the same blocks, if the bytes that both touch are the same rows in both (vertical fusion): a block does what
 * the first kernel does for its rows, meets at a barrier, and does what the second one does. Such a line of kernels is one of
 * those that the blocks are divided among.
 *
 *   join_launches  on the plan of a graph whose steps have their order: which steps; moves them together
 *   join_ptx       on the text of all modules: the kernels that these launches name
 *
 * Invariants: no block of a launch touches what another one writes, so it does not matter which blocks run first; a
 * step only ever moves in front of steps that it need not wait for; a block of a part does what it does in a launch of
 * its own, to the bit. */
#ifndef FT_CODEGEN_JOIN_H
#define FT_CODEGEN_JOIN_H
#include "codegen/module.h"

enum { JOIN_MOST_PARTS = 32 };

/* One of the kernels that a joined one is made of. */
typedef struct {
  const char *name;
  int64_t grid[3];
  bool follows; /* the part before it, in the same blocks, */
  bool is_followed;
  int threads, parameter_count;
  const int *parameters; /* which of the joined kernel's each of its own is */
} JoinPart;

typedef struct Join {
  Arena *arena;
  const char *name;
  int threads, parameter_count, part_count;
  JoinPart part[JOIN_MOST_PARTS];
} Join;

/* Is it for a GPU, and may launches be joined? */
bool join_is_wanted(const Module *first);
/* Joins steps of the graph, adds the kernels that it needs to `first`, the first of the program's modules, and gives
 * the steps their lists `after`. NULL, or why there is no order (plan_order_find). */
const char *join_launches(Module *first, Plan *plan, PlanGraph *graph);
/* Appends the modules' text: with the joined kernels, without those that no step of the plan launches any more. False,
 * and *what says which word of it is not understood: it has not the form that LLVM 19's has. */
bool join_ptx(const Module *first, const Plan *plan, const char *text, Text *out, const char **what);
#endif
