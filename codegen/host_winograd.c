/* host_winograd: what kernels/winograd_x86.c must know of one convolution by 3 x 3 weights, or one of its gradients. One launch
 * transforms the weights into the workspace, another one multiplies, and its epilogue is that of host_gemm.c; of a gradient of weights one
 * launch sums, and another one adds up the parts and transforms them. */
#include "codegen/host_gemm.h"
#include "kernels/winograd_host.h"
#include <stddef.h>
#include <string.h>

static bool winograd_has_form(const ConvForm *f) {
  bool is_plain = f->is_nhwc && f->groups == 1 && f->stride[0] * f->stride[1] == 1 && f->dilation[0] * f->dilation[1] == 1;
  return is_plain && f->kernel_height == 3 && f->kernel_width == 3 && f->in % GEMM_LANES == 0 && f->out % GEMM_LANES == 0 &&
         f->padding[0] <= 2 && f->padding[1] <= 2;
}

static WinogradProduct winograd_sides(const ConvProduct *c, int64_t side) {
  return (WinogradProduct){.side = side,
                           .images = c->images,
                           .height = c->height,
                           .width = c->width,
                           .channels = c->channels,
                           .out_height = c->out_height,
                           .out_width = c->out_width,
                           .outs = c->outs,
                           .pad_top = c->pad_top,
                           .pad_left = c->pad_left,
                           .is_turned = c->is_gradient};
}

/* Multiply-adds in the time of p, 32 in a cycle: the transforms take so many cycles for each vector of channels of a tile, and those of
 * weights, which go through memory, for each pair of channels. Transformed weights that no cache holds are read again for each work item,
 * however few tiles it has; a gradient of weights has none. */
static int64_t winograd_cost(const WinogradProduct *p, bool has_weights) {
  int64_t pixels = p->side == 2 ? 24 : 80, weights = p->side == 2 ? 16 : 36, products = winograd_places(p) * p->channels * p->outs;
  if (has_weights && winograd_packed_bytes(p) > GEMM_PACKED_MOST)
    products = products * WINOGRAD_TILES / winograd_most_tiles(p->side, p->channels);
  return winograd_lines(p) * winograd_across(p) * (products + pixels * 2 * (p->channels + p->outs)) + weights * 32 * p->channels * p->outs;
}

/* By the side of tiles that is fastest; false: the convolution, or the gradient, is faster without them. */
static bool winograd_fastest(const HostKernel *kernel, const Node *conv, const ConvForm *f, WinogradProduct *p) {
  ConvProduct sides = host_conv_sides(f, conv->op == OP_CONV_GRAD_INPUT);
  bool has_weights = conv->op != OP_CONV_GRAD_WEIGHT, is_found = false;
  int64_t least = sides.images * sides.out_height * sides.out_width * 9 * sides.channels * sides.outs;
  for (int64_t side = 2; side <= 4; side += 2) {
    if (side == 4 && module_leaves_out(kernel->module, "winograd4")) continue;
    WinogradProduct by_side = winograd_sides(&sides, side);
    int64_t cost = winograd_cost(&by_side, has_weights);
    if (cost < least) least = cost, *p = by_side, is_found = true;
  }
  return is_found;
}

static bool winograd_of(const HostKernel *kernel, const Node *conv, WinogradProduct *p) {
  const Module *module = kernel->module;
  bool is_conv = conv->op == OP_CONV || conv->op == OP_CONV_GRAD_INPUT || conv->op == OP_CONV_GRAD_WEIGHT;
  if (!is_conv || module->is_portable || module->vector_bytes < 32 || module_leaves_out(module, "winograd") ||
      conv->type.dtype != DT_F32 || conv->input[0]->type.dtype != DT_F32 || conv->input[1]->type.dtype != DT_F32)
    return false;
  ConvForm f = conv_form(conv);
  if (!winograd_has_form(&f) || f.images * f.in_height * f.in_width * f.out_height * f.out_width * f.in * f.out == 0) return false;
  if (!winograd_fastest(kernel, conv, &f, p)) return false;
  if (conv->op == OP_CONV_GRAD_WEIGHT) return !kernel->body && winograd_choose_weights(p, module->vector_bytes);
  return winograd_choose(p, module->vector_bytes);
}

bool host_winograd_suits(const HostKernel *kernel, const Node *conv) {
  WinogradProduct p;
  return winograd_of(kernel, conv, &p);
}

/* The module's constant; tiles: of the products for each place. */
static LLVMValueRef define_winograd(HostKernel *kernel, const char *name, const WinogradProduct *p, const char *family, const TileForm *tiles,
                                    LLVMValueRef epilogue) {
  enum { NUMBERS = offsetof(WinogradProduct, tile) / sizeof(int64_t) };
  _Static_assert(sizeof(WinogradProduct) == (NUMBERS + 5) * 8, "pointers are last");
  int64_t numbers[NUMBERS];
  memcpy(numbers, p, sizeof numbers);
  LLVMValueRef pointers[5] = {[4] = epilogue};
  if (tiles) host_tile_kernels(kernel, family, tiles, p->rows, pointers);
  return host_constant(kernel, name, numbers, NUMBERS, pointers, 5);
}

static void winograd_emit_weights(HostKernel *kernel, WinogradProduct *p, const int argument[2], Kernel *out) {
  const Node *node = kernel->node;
  p->arg_w = argument[0];
  p->arg_x = argument[1];
  p->arg_y = node->input_count;
  p->arg_packed = node->input_count + 1;
  TileForm tiles = {1, p->block_outs, p->block_channels, p->vectors};
  LLVMValueRef data = define_winograd(kernel, "winograd", p, "gemm_tile_t", &tiles, NULL);
  const char *add = arena_printf(kernel->scratch, "%s_combine", kernel->name);
  out->workspace = winograd_sums_bytes(p);
  host_call_library(kernel, kernel->name, "winograd_sum_run", data);
  host_call_library(kernel, add, "winograd_weights_run", data);
  const int64_t worth = 2500; /* cycles: several times the cost of a barrier */
  host_add_launch(kernel, out, kernel->name, p->parts * winograd_blocks(p), 1);
  host_add_launch(kernel, out, add, p->outs, worth / (p->channels * (p->parts + 1)) + 1);
}

void host_winograd_emit(HostKernel *kernel, const Node *conv, const int argument[2], Kernel *out) {
  WinogradProduct p, packing;
  winograd_of(kernel, conv, &p);
  if (conv->op == OP_CONV_GRAD_WEIGHT) {
    winograd_emit_weights(kernel, &p, argument, out);
    return;
  }
  packing = p;
  packing.arg_w = 0, packing.arg_packed = 1;
  p.arg_packed = 0, p.arg_x = 1 + argument[0], p.arg_y = 1 + kernel->node->input_count;
  TileForm form = {p.images * p.out_height, p.out_width, p.outs, p.vectors}, tiles = {1, p.lines * p.across, p.outs, p.vectors};
  LLVMValueRef epilogue = kernel->body ? host_tile_epilogue(kernel, conv, &form) : NULL;
  double filters = (double)(p.channels * GEMM_LANES), item = (double)(p.lines * p.across * p.channels * p.outs);
  host_packed_emit(kernel, argument[1], winograd_packed_bytes(&p),
                   &(PackedLaunch){"winograd_pack_run", define_winograd(kernel, "packing", &packing, NULL, NULL, NULL),
                                   winograd_pack_items(&p), filters * 256},
                   &(PackedLaunch){"winograd_run", define_winograd(kernel, "winograd", &p, "gemm_tile_n", &tiles, epilogue),
                                   winograd_items(&p), item * (double)winograd_places(&p) * 2},
                   out);
}
