/* host_gemm: matrix products by kernels/gemm_x86.c with a generated epilogue: bias, activation and
 * whatever else the body holds cost no second pass over memory. */
#ifndef FT_CODEGEN_HOST_GEMM_H
#define FT_CODEGEN_HOST_GEMM_H
#include "codegen/host_private.h"

/* Is our kernel at least as fast as a library's for this f32 DOT? */
bool host_gemm_suits(const HostKernel *kernel, const Node *dot);
/* Emits it: the whole of kernel->node. argument[]: positions of the operands of `dot`. */
bool host_gemm_emit(HostKernel *kernel, const Node *dot, const int argument[2], Kernel *out);
#endif
