/* select: how a contraction is done on the CPU: which library call or kernel of ours, and what of
 * its epilogue the call takes along; and which of the GPU's products a library could do too. */
#ifndef FT_CODEGEN_SELECT_H
#define FT_CODEGEN_SELECT_H
#include "codegen/host_private.h"

/* A standing DOT, CONV or CONV_GRAD_*, or a fused node of kind dot or conv. */
bool select_contraction(HostKernel *kernel, Kernel *out);
/* For a GPU: can the whole of this node (its product, bias and relu, nothing else) be one call
 * "matmul"? alias: as for nvptx_emit. */
bool select_library(Arena *arena, const Node *node, const int *alias, KernelLaunch *out);
#endif
