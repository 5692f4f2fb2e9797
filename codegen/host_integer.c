/* host_integer: what kernels/integer_x86.c must know of one product of whole numbers. One launch packs
 * the second operand into the workspace, another one multiplies; the epilogue is that of host_gemm.c.
 */
#include "codegen/host_gemm.h"
#include "kernels/integer_host.h"
#include "passes/integers.h"
#include <stddef.h>
#include <string.h>

_Static_assert((int)INTEGER_MOST_DEPTH == (int)INTEGERS_MOST_DEPTH, "the pass knows the kernel");

static IntegerProduct of_dot(const Node *dot) {
  DotForm f = dot_form(dot);
  return (IntegerProduct){.batch = f.batch,
                          .m = f.m,
                          .n = f.n,
                          .k = f.k,
                          .ta = f.ta,
                          .tb = f.tb,
                          .segments = 1,
                          .length = f.k};
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
                          .pad_left = f.padding[1]};
}

/* A row of a window is read as one run, and there must be room for an output row; oneDNN has the
 * others. */
static bool conv_suits(const Node *conv, const int64_t *range) {
  ConvForm f = conv_form(conv);
  if (!f.is_nhwc || f.groups != 1 || f.dilation[1] != 1 || range[3] > 127) return false;
  IntegerProduct p = of_conv(conv);
  return integer_conv_rows(&p) > 0;
}

bool host_integer_suits(const Node *product) {
  const Attr *range = node_attr(product, ATTR_INTEGERS);
  if (!range || product->type.dtype != DT_F32 || product->input[0]->type.dtype != DT_F32 ||
      !shape_elements(&product->type.shape))
    return false;
  bool is_conv = product->op == OP_CONV;
  if (is_conv && !conv_suits(product, range->ints)) return false;
  IntegerProduct p = is_conv ? of_conv(product) : of_dot(product);
  return integers_suit(p.k, range->ints);
}

static IntegerProduct integer_product_of(const HostKernel *kernel, const Node *product,
                                         const int argument[2]) {
  const Node *node = kernel->node;
  const int64_t *range = node_attr(product, ATTR_INTEGERS)->ints;
  IntegerProduct p = product->op == OP_CONV ? of_conv(product) : of_dot(product);
  p.low_a = range[0];
  p.high_a = range[1];
  p.low_b = range[2];
  p.high_b = range[3];
  p.may_be_vnni = !module_leaves_out(kernel->module, "vnni");
  p.arg_a = argument[0];
  p.arg_b = argument[1];
  p.arg_c = node->input_count;
  p.arg_packed = node->input_count + node_result_count(node);
  integer_choose(&p, kernel->module->vector_bytes);
  return p;
}

static LLVMValueRef define_integers(HostKernel *kernel, const IntegerProduct *p,
                                    LLVMValueRef epilogue) {
  enum { NUMBERS = offsetof(IntegerProduct, epilogue) / sizeof(int64_t) };
  _Static_assert(sizeof(IntegerProduct) == (NUMBERS + 1) * 8, "the epilogue is last");
  int64_t numbers[NUMBERS];
  memcpy(numbers, p, sizeof numbers);
  return host_constant(kernel, "product", numbers, NUMBERS, &epilogue, 1);
}

/* A launch of `work` items, each of which does so many operations. */
static void integer_launch(HostKernel *kernel, Kernel *out, const char *name, int64_t work,
                           double operations) {
  const double worth = 2500 * 64; /* operations in the cycles of several barriers */
  host_add_launch(kernel, out, name, work,
                  operations >= worth ? 1 : (int64_t)(worth / (operations + 1)) + 1);
}

void host_integer_emit(HostKernel *kernel, const Node *product, const int argument[2],
                       Kernel *out) {
  IntegerProduct p = integer_product_of(kernel, product, argument);
  TileForm form = {p.is_conv ? p.batch * p.out_height : p.batch, p.m, p.n, p.vectors};
  LLVMValueRef epilogue = kernel->body ? host_tile_epilogue(kernel, product, &form) : NULL;
  LLVMValueRef data = define_integers(kernel, &p, epilogue);
  const char *pack = arena_printf(kernel->scratch, "%s_pack", kernel->name);
  out->workspace = integer_packed_bytes(&p);
  host_call_library(kernel, pack, "integer_pack_run", data);
  host_call_library(kernel, kernel->name, "integer_run", data);
  double width = (double)(p.vectors * INTEGER_LANES), k = (double)p.k;
  integer_launch(kernel, out, pack, (p.is_conv ? 1 : p.batch) * integer_strips(&p), width * k * 16);
  integer_launch(kernel, out, kernel->name, integer_items(&p),
                 (double)(p.is_conv ? p.rows * p.m : p.rows) * k * (16 + (double)p.strips * width));
}
