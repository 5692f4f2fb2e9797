/* host_gemm: matrix products by kernels/gemm_x86.c with a generated epilogue: bias, activation and
 * whatever else the body holds cost no second pass over memory. */
#ifndef FT_CODEGEN_HOST_GEMM_H
#define FT_CODEGEN_HOST_GEMM_H
#include "codegen/host_private.h"

/* Is our kernel at least as fast as a library's for this f32 DOT? */
bool host_gemm_suits(const HostKernel *kernel, const Node *dot);
/* Emits it: the whole of kernel->node. argument[]: positions of the operands of `dot`. */
bool host_gemm_emit(HostKernel *kernel, const Node *dot, const int argument[2], Kernel *out);
/* A product whose result is batch by m by n, made in tiles of so many vectors (kernels/gemm_host.h)
 * of columns. */
typedef struct {
  int64_t batch, m, n, vectors;
} TileForm;
/* The GemmEpilogue that computes the rest of kernel->body from such tiles of `product`. */
LLVMValueRef host_tile_epilogue(HostKernel *kernel, const Node *product, const TileForm *form);

/* The same for a product of whole numbers, one with the attribute `integers`
 * (kernels/integer_x86.c). */
bool host_integer_suits(const Node *product);
void host_integer_emit(HostKernel *kernel, const Node *product, const int argument[2], Kernel *out);

/* The same for a convolution of f32, or the gradient of its images (kernels/conv_x86.c). */
bool host_conv_suits(const HostKernel *kernel, const Node *conv);
void host_conv_emit(HostKernel *kernel, const Node *conv, const int argument[2], Kernel *out);
#endif
