/* host_rounded: what kernels/rounded_x86.c must know of one product by rounded weights. One launch packs the weights,
 * once for all runs where they are weights alone (lower_kernel.c), one rows that are whole numbers, another one multiplies; the epilogue is that of
 * host_gemm.c. */
#include "codegen/host_gemm.h"
#include "kernels/rounded_host.h"
#include "passes/integers.h"
#include <stddef.h>
#include <string.h>

_Static_assert((int)ROUNDED_ANY == (int)FIRST_ANY && (int)ROUNDED_BF16 == (int)FIRST_BF16 && (int)ROUNDED_WHOLE == (int)FIRST_WHOLE &&
                   (int)ROUNDED_WHOLE_RULE == (int)FIRST_WHOLE_RULE && (int)ROUNDED_BYTE == (int)FIRST_BYTE &&
                   (int)ROUNDED_BYTE_RULE == (int)FIRST_BYTE_RULE,
               "the pass knows the kernel");

/* Without the places of its arguments. */
static RoundedProduct rounded_product_of(const HostKernel *kernel, const Node *dot) {
  const int64_t *rounded = node_attr(dot, ATTR_ROUNDED)->ints;
  DotForm f = dot_form(dot);
  RoundedProduct p = {.batch = f.batch,
                      .m = f.m,
                      .n = f.n,
                      .k = f.k,
                      .ta = f.ta,
                      .tb = f.tb,
                      .low = rounded[ROUNDED_LOW],
                      .high = rounded[ROUNDED_HIGH],
                      .group = rounded[ROUNDED_GROUP],
                      .may_be_vnni = !module_leaves_out(kernel->module, "vnni"),
                      .first = rounded[ROUNDED_FIRST],
                      .may_use = host_bf16_ways(kernel->module)};
  rounded_choose(&p, kernel->module->vector_bytes);
  return p;
}

static LLVMValueRef define_rounded(HostKernel *kernel, const char *name, const RoundedProduct *p,
                                   const LLVMValueRef pointers[5]) {
  enum { NUMBERS = offsetof(RoundedProduct, tile) / sizeof(int64_t) };
  _Static_assert(sizeof(RoundedProduct) == (NUMBERS + 5) * 8,
                 "four tiles and the epilogue are last");
  int64_t numbers[NUMBERS];
  memcpy(numbers, p, sizeof numbers);
  return host_constant(kernel, name, numbers, NUMBERS, pointers, 5);
}

void host_rounded_emit(HostKernel *kernel, const Node *product, const int argument[2],
                       Kernel *out) {
  RoundedProduct p = rounded_product_of(kernel, product), packing = p, rows_of = p;
  TileForm form = {p.batch, p.m, p.n, p.vectors};
  LLVMValueRef none[5] = {NULL}, pointers[5] = {NULL};
  if (kernel->body) pointers[4] = host_tile_epilogue(kernel, product, &form);
  if (p.m > ROUNDED_FEW)
    host_tile_kernels(kernel, p.ta ? "gemm_tile_t" : "gemm_tile_n", &form, p.rows, pointers);
  int count = kernel->node->input_count + node_result_count(kernel->node);
  packing.arg_b = 0, packing.arg_packed = 1;
  rows_of.arg_a = 0, rows_of.arg_rows = 1;
  p.arg_packed = 0, p.arg_a = 1 + argument[0], p.arg_b = 1 + argument[1];
  p.arg_c = 1 + kernel->node->input_count, p.arg_rows = 1 + count;
  double width = (double)rounded_width(&p), k = (double)p.k;
  double rows = (double)(p.m < rounded_block(&p) ? p.m : rounded_block(&p));
  if (rounded_packs_rows(&p))
    host_rows_emit(kernel, argument[0], rounded_rows_bytes(&p),
                   &(PackedLaunch){"rounded_rows_run", define_rounded(kernel, "rows", &rows_of, none), p.batch * p.m, k * 2}, out);
  host_packed_emit(kernel, argument[1], rounded_packed_bytes(&p),
                   &(PackedLaunch){"rounded_pack_run",
                                   define_rounded(kernel, "packing", &packing, none),
                                   p.batch * rounded_strips(&p), width * k * 64},
                   &(PackedLaunch){"rounded_run", define_rounded(kernel, "product", &p, pointers),
                                   rounded_items(&p), rows * k * width},
                   out);
}
