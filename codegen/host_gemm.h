/* host_gemm: matrix products by kernels/gemm_x86.c with a generated epilogue: bias, activation and
 * whatever else the body holds cost no second pass over memory. */
#ifndef FT_CODEGEN_HOST_GEMM_H
#define FT_CODEGEN_HOST_GEMM_H
#include "codegen/host_private.h"
#include "kernels/conv_host.h"

/* Is our kernel at least as fast as a library's for this f32 DOT? */
bool host_gemm_suits(const HostKernel *kernel, const Node *dot);
/* Emits it: the whole of kernel->node. argument[]: positions of the operands of `dot`. */
bool host_gemm_emit(HostKernel *kernel, const Node *dot, const int argument[2], Kernel *out);
/* A product whose result is batch by m by n, made in tiles of so many vectors (kernels/gemm_host.h)
 * of columns. */
typedef struct {
  int64_t batch, m, n, vectors;
} TileForm;
/* The kernels of a form's register tiles, which are of so many rows: family "gemm_tile_n" makes gemm_tile_n14x2.
 * + 1: the rows at the bottom; + 2: the columns at the right; null where there are none such. */
void host_tile_kernels(HostKernel *kernel, const char *family, const TileForm *form, int64_t rows,
                       LLVMValueRef out[4]);
/* A constant of the module, KERNEL.name: numbers of 64 bits, then pointers (NULL: null). */
LLVMValueRef host_constant(HostKernel *kernel, const char *name, const int64_t *numbers, int count,
                           const LLVMValueRef *pointers, int pointer_count);
/* The GemmEpilogue that computes the rest of kernel->body from such tiles of `product`. */
LLVMValueRef host_tile_epilogue(HostKernel *kernel, const Node *product, const TileForm *form);

/* The same for a product of whole numbers (integers_have_kernel, kernels/integer_x86.c). */
void host_integer_emit(HostKernel *kernel, const Node *product, const int argument[2], Kernel *out);

/* One of the launches of a product whose operands are packed first. */
typedef struct {
  const char *run; /* of kernels/..._x86.c */
  LLVMValueRef data;
  int64_t work;      /* items, */
  double operations; /* and those of an item */
} PackedLaunch;
/* Emits both (host_integer.c): the packing takes that operand, at `argument`, and the workspace of so many bytes, where it
 * packs to; the product takes the workspace, then what the node does, and the workspace again in place of an operand that
 * it needs packed only. */
void host_packed_emit(HostKernel *kernel, int argument, int64_t bytes, const PackedLaunch *packing,
                      const PackedLaunch *product, Kernel *out);
/* Before that: a launch that packs the first operand in each run, to so many bytes, which the product takes behind all else. */
void host_rows_emit(HostKernel *kernel, int argument, int64_t bytes, const PackedLaunch *packing, Kernel *out);
/* The same for a product by rounded weights (rounded_has_kernel, kernels/rounded_x86.c). */
void host_rounded_emit(HostKernel *kernel, const Node *product, const int argument[2], Kernel *out);

/* The sizes of a convolution's two sides, or of its gradient's, which for a stride of 1 is a convolution by weights that are turned round. */
ConvProduct host_conv_sides(const ConvForm *form, bool is_gradient);
/* The same for a convolution of f32, or the gradient of its images (kernels/conv_x86.c). */
bool host_conv_suits(const HostKernel *kernel, const Node *conv);
void host_conv_emit(HostKernel *kernel, const Node *conv, const int argument[2], Kernel *out);
/* The same for any other one of a deployed model: channels in groups, windows dilated across, few registers (kernels/grouped_x86.c). */
bool host_grouped_suits(const HostKernel *kernel, const Node *conv);
void host_grouped_emit(HostKernel *kernel, const Node *conv, const int argument[2], Kernel *out);
/* The same for those by 3 x 3 weights, and gradients of such weights, by fewer multiplications (kernels/winograd_x86.c). */
bool host_winograd_suits(const HostKernel *kernel, const Node *conv);
void host_winograd_emit(HostKernel *kernel, const Node *conv, const int argument[2], Kernel *out);
/* Which instructions products of bf16 may use: GEMM_AMX and the like (kernels/gemm_host.h), less what --disable names. */
int64_t host_bf16_ways(const Module *module);
#endif
