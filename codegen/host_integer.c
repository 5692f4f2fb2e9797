/* host_integer: what kernels/integer_x86.c must know of one product of whole numbers. One launch packs
 * the second operand into the workspace, or where it is a weight, once for all runs, into memory of its own
 * (lower_kernel.c); another one multiplies; the epilogue is that of host_gemm.c. */
#include "codegen/host_gemm.h"
#include "kernels/integer_host.h"
#include "passes/integers.h"
#include <stddef.h>
#include <string.h>

_Static_assert((int)INTEGER_MOST_DEPTH == (int)INTEGERS_MOST_DEPTH &&
                   (int)INTEGER_MOST_HEIGHT == (int)INTEGERS_MOST_HEIGHT &&
                   (int)INTEGER_ROOM == (int)INTEGERS_ROOM &&
                   (int)INTEGER_MOST_POOL == (int)INTEGERS_MOST_POOL,
               "the pass knows the kernel");

static IntegerProduct of_dot(const Node *dot) {
  DotForm f = dot_form(dot);
  return (IntegerProduct){.batch = f.batch,
                          .m = f.m,
                          .n = f.n,
                          .k = f.k,
                          .ta = f.ta,
                          .tb = f.tb,
                          .segments = 1,
                          .length = f.k,
                          .pool_height = 1,
                          .pool_width = 1};
}

static IntegerProduct of_conv(const Node *conv) {
  ConvForm f = conv_form(conv);
  return (IntegerProduct){.batch = f.images,
                          .m = f.out_width,
                          .n = f.out,
                          .k = f.kernel_height * f.kernel_width * f.in,
                          .tb = true,
                          .segments = f.kernel_height,
                          .length = f.kernel_width * f.in,
                          .is_conv = true,
                          .height = f.in_height,
                          .width = f.in_width,
                          .channels = f.in,
                          .out_height = f.out_height,
                          .stride_height = f.stride[0],
                          .stride_width = f.stride[1],
                          .dilation_height = f.dilation[0],
                          .pad_top = f.padding[0],
                          .pad_left = f.padding[1],
                          .pool_height = 1,
                          .pool_width = 1};
}

/* Without the places of its arguments. result: the product, or the pooling of it. */
static IntegerProduct integer_product_of(const HostKernel *kernel, const Node *product,
                                         const Node *result) {
  const int64_t *range = node_attr(product, ATTR_INTEGERS)->ints;
  IntegerProduct p = product->op == OP_CONV ? of_conv(product) : of_dot(product);
  p.low_a = range[0];
  p.high_a = range[1];
  p.low_b = range[2];
  p.high_b = range[3];
  p.may_be_vnni = !module_leaves_out(kernel->module, "vnni");
  p.is_sure = range[INTEGERS_SURE];
  if (result != product) {
    p.pool_height = node_attr(result, ATTR_KERNEL)->ints[0];
    p.pool_width = node_attr(result, ATTR_KERNEL)->ints[1];
  }
  integer_choose(&p, kernel->module->vector_bytes);
  return p;
}

static LLVMValueRef define_integers(HostKernel *kernel, const char *name, const IntegerProduct *p,
                                    LLVMValueRef epilogue) {
  enum { NUMBERS = offsetof(IntegerProduct, epilogue) / sizeof(int64_t) };
  _Static_assert(sizeof(IntegerProduct) == (NUMBERS + 1) * 8, "the epilogue is last");
  int64_t numbers[NUMBERS];
  memcpy(numbers, p, sizeof numbers);
  return host_constant(kernel, name, numbers, NUMBERS, &epilogue, 1);
}

static KernelLaunch *packed_launch(HostKernel *kernel, Kernel *out, const char *name,
                                   const PackedLaunch *launch) {
  const double worth = 2500 * 64; /* operations in the cycles of several barriers */
  double operations = launch->operations;
  host_call_library(kernel, name, launch->run, launch->data);
  return host_add_launch(kernel, out, name, launch->work,
                         operations >= worth ? 1 : (int64_t)(worth / (operations + 1)) + 1);
}

/* Of the node's first or second packed operand, in the order of Kernel.packed. */
static void pack_args(const HostKernel *kernel, int argument, int which, KernelLaunch *launch) {
  const Node *node = kernel->node;
  launch->args = ARENA_ARRAY(kernel->module->arena, int, 2);
  launch->args[0] = argument;
  launch->args[1] = node->input_count + node_result_count(node) + 1 + which;
  launch->arg_count = 2;
  launch->input_count = 1;
  launch->packs = which == 1;
  launch->is_before = which == 0;
}

static void packed_args(const HostKernel *kernel, bool has_first, KernelLaunch *launch) {
  const Node *node = kernel->node;
  int count = node->input_count + node_result_count(node), packed = integers_packed_operand(node, false);
  launch->args = ARENA_ARRAY(kernel->module->arena, int, count + 2);
  for (int i = 0; i <= count; i++) launch->args[i] = i == 0 || i - 1 == packed ? count + 2 : i - 1;
  launch->args[count + 1] = count + 1;
  launch->arg_count = count + 1 + has_first;
  launch->input_count = node->input_count + 1;
}

void host_rows_emit(HostKernel *kernel, int argument, int64_t bytes, const PackedLaunch *packing, Kernel *out) {
  out->packed[0] = bytes;
  pack_args(kernel, argument, 0, packed_launch(kernel, out, arena_printf(kernel->scratch, "%s_rows", kernel->name), packing));
}

void host_packed_emit(HostKernel *kernel, int argument, int64_t bytes, const PackedLaunch *packing,
                      const PackedLaunch *product, Kernel *out) {
  const char *pack = arena_printf(kernel->scratch, "%s_pack", kernel->name);
  out->packed[1] = bytes;
  pack_args(kernel, argument, 1, packed_launch(kernel, out, pack, packing));
  packed_args(kernel, out->packed[0] > 0, packed_launch(kernel, out, kernel->name, product));
}

void host_integer_emit(HostKernel *kernel, const Node *product, const int argument[2],
                       Kernel *out) {
  const Node *result = kernel->body ? kernel_product(kernel->node) : product;
  IntegerProduct p = integer_product_of(kernel, product, result), packing = p;
  TileForm form = {p.is_conv ? p.batch * integer_result_height(&p) : p.batch,
                   integer_result_width(&p), p.n, p.vectors};
  LLVMValueRef epilogue = kernel->body ? host_tile_epilogue(kernel, result, &form) : NULL;
  packing.arg_b = 0, packing.arg_packed = 1;
  p.arg_packed = 0, p.arg_a = 1 + argument[0], p.arg_b = 1 + argument[1];
  p.arg_c = 1 + kernel->node->input_count;
  double width = (double)(p.vectors * INTEGER_LANES), k = (double)p.k;
  int64_t strips = (p.is_conv ? 1 : p.batch) * integer_strips(&p);
  double rows = (double)(p.is_conv ? p.rows * p.pool_height * p.m : p.rows);
  host_packed_emit(kernel, argument[1], integer_packed_bytes(&p),
                   &(PackedLaunch){"integer_pack_run",
                                   define_integers(kernel, "packing", &packing, NULL), strips,
                                   width * k * 16},
                   &(PackedLaunch){"integer_run", define_integers(kernel, "product", &p, epilogue),
                                   integer_items(&p), rows * k * (16 + (double)p.strips * width)},
                   out);
}
