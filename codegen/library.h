/* library: the `instead` lines of a plan: which launches of GPU products a library call "matmul"
 * (plan/calls.def) could replace. The runtime chooses the faster one. */
#ifndef FT_CODEGEN_LIBRARY_H
#define FT_CODEGEN_LIBRARY_H
#include "codegen/lower_private.h"
#include "codegen/module.h"

/* Can the whole of this node (a product, a bias, a relu or gelu with what goes into it, or what is
 * there already added) be one call? alias: as for nvptx_emit. */
bool library_call(Arena *arena, const Node *node, const int *alias, KernelLaunch *out);

/* The call of a kernel's product alone, without what the kernel does behind it; false: it has none, or
 * one that the library cannot make. */
bool library_product(Arena *arena, const Node *node, KernelLaunch *out);

/* After a graph is lowered and all its buffers have their places: calls for two kernels each: a
 * product and the gradient of relu or gelu behind it (with a bias's gradient), a weight's gradient
 * and its bias's. Launches are moved where that brings the two together and nothing depends on
 * their order. `steps` are the graph's, in the order of the launches. */
void library_pairs(Lowering *lowering, const Graph *graph, NodeSteps *steps, int count);
#endif
