/* select: how a contraction is done on the CPU: which library call or kernel of ours, and which
 * part of its epilogue the call does. */
#ifndef FT_CODEGEN_SELECT_H
#define FT_CODEGEN_SELECT_H
#include "codegen/host_private.h"

/* A standing DOT, CONV or CONV_GRAD_*, or a fused node of kind dot or conv. */
bool select_contraction(HostKernel *kernel, Kernel *out);
#endif
