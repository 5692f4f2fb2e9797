/* host_conv: what kernels/conv_x86.c must know of one convolution, or gradient of a convolution's images.
 * One launch packs the weights into the workspace, another one computes; the epilogue is that of
 * host_gemm.c. */
#include "codegen/host_gemm.h"
#include <stddef.h>
#include <string.h>

/* Images [n, h, w, c] in one group, whose windows are runs of neighbours. */
static bool conv_has_runs(const ConvForm *f) {
  return f->is_nhwc && f->groups == 1 && (f->dilation[1] == 1 || f->kernel_width == 1);
}

static ConvProduct forward_of(const ConvForm *f) {
  return (ConvProduct){.images = f->images,
                       .height = f->in_height,
                       .width = f->in_width,
                       .channels = f->in,
                       .out_height = f->out_height,
                       .out_width = f->out_width,
                       .outs = f->out,
                       .kernel_height = f->kernel_height,
                       .kernel_width = f->kernel_width,
                       .stride_height = f->stride[0],
                       .stride_width = f->stride[1],
                       .dilation_height = f->dilation[0],
                       .pad_top = f->padding[0],
                       .pad_left = f->padding[1]};
}

/* dx[y][x][c] = the sum over kh, kw, o of dy[y + top - kh * dilation][x + left - kw][o] w[o][kh][kw][c]: a
 * convolution of dy by weights that are turned round. */
static ConvProduct gradient_of(const ConvForm *f) {
  return (ConvProduct){.images = f->images,
                       .height = f->out_height,
                       .width = f->out_width,
                       .channels = f->out,
                       .out_height = f->in_height,
                       .out_width = f->in_width,
                       .outs = f->in,
                       .kernel_height = f->kernel_height,
                       .kernel_width = f->kernel_width,
                       .stride_height = 1,
                       .stride_width = 1,
                       .dilation_height = f->dilation[0],
                       .pad_top = (f->kernel_height - 1) * f->dilation[0] - f->padding[0],
                       .pad_left = f->kernel_width - 1 - f->padding[1],
                       .is_gradient = true};
}

/* A kernel of 1 by 1 may take several rows of an image for one, which cuts into tiles better. */
static void join_pixel_rows(ConvProduct *p) {
  if (p->kernel_height * p->kernel_width != 1 || p->stride_height * p->stride_width != 1 ||
      p->pad_top || p->pad_left || p->out_height != p->height || p->out_width != p->width)
    return;
  int64_t joined = 1;
  for (int64_t i = 2; i <= p->height; i++)
    if (p->height % i == 0 && i * p->width * p->channels <= CONV_JOINED) joined = i;
  p->width = p->out_width = p->width * joined;
  p->height = p->out_height = p->height / joined;
}

ConvProduct host_conv_sides(const ConvForm *form, bool is_gradient) {
  return is_gradient ? gradient_of(form) : forward_of(form);
}

static bool conv_product_of(const HostKernel *kernel, const Node *conv, ConvProduct *p) {
  if ((conv->op != OP_CONV && conv->op != OP_CONV_GRAD_INPUT) || conv->type.dtype != DT_F32 ||
      conv->input[0]->type.dtype != DT_F32 || conv->input[1]->type.dtype != DT_F32)
    return false;
  ConvForm f = conv_form(conv);
  if (!conv_has_runs(&f) || !module_has_tiles(kernel->module)) return false;
  *p = host_conv_sides(&f, conv->op != OP_CONV);
  if (conv->op != OP_CONV && f.stride[0] * f.stride[1] != 1) return false;
  join_pixel_rows(p);
  bool is_empty = !shape_elements(&conv->type.shape) || !conv_depth(p);
  return !is_empty && p->pad_top >= 0 && p->pad_left >= 0 &&
         conv_choose(p, kernel->module->vector_bytes, conv_room(kernel->module->is_portable));
}

/* A deployed model has no library. Else oneDNN is as fast or faster, but where its formats fill channels up to 16, and where
 * windows are strided. */
bool host_conv_suits(const HostKernel *kernel, const Node *conv) {
  ConvProduct p;
  if (!conv_product_of(kernel, conv, &p)) return false;
  bool is_strided = p.stride_height * p.stride_width > 1 && p.out_width >= 8;
  return kernel->module->options->is_inference || (conv->op == OP_CONV && (p.channels % GEMM_LANES != 0 || is_strided));
}

/* tiles: NULL for the packing. */
static LLVMValueRef define_host_conv(HostKernel *kernel, const char *name, const ConvProduct *p, const TileForm *tiles,
                                     LLVMValueRef epilogue) {
  enum { NUMBERS = offsetof(ConvProduct, tile) / sizeof(int64_t) };
  _Static_assert(sizeof(ConvProduct) == (NUMBERS + 5) * 8, "a field was added to ConvProduct");
  int64_t numbers[NUMBERS];
  memcpy(numbers, p, sizeof numbers);
  LLVMValueRef pointers[5] = {[4] = epilogue};
  if (tiles) host_tile_kernels(kernel, "conv_tile_", tiles, p->rows, pointers);
  return host_constant(kernel, name, numbers, NUMBERS, pointers, 5);
}

void host_conv_emit(HostKernel *kernel, const Node *conv, const int argument[2], Kernel *out) {
  ConvProduct p, packing;
  conv_product_of(kernel, conv, &p);
  packing = p;
  packing.arg_w = 0, packing.arg_packed = 1;
  p.arg_packed = 0, p.arg_x = 1 + argument[0], p.arg_y = 1 + kernel->node->input_count;
  TileForm form = {p.images * p.out_height, p.out_width, p.outs, p.vectors};
  LLVMValueRef epilogue = kernel->body ? host_tile_epilogue(kernel, conv, &form) : NULL;
  double strip = (double)(conv_depth(&p) * p.vectors * GEMM_LANES), pixels = (double)(p.lines * p.out_width);
  host_packed_emit(kernel, argument[1], conv_packed_bytes(&p),
                   &(PackedLaunch){"conv_pack_run", define_host_conv(kernel, "packing", &packing, NULL, NULL), conv_strips(&p), strip * 16},
                   &(PackedLaunch){"conv_run", define_host_conv(kernel, "conv", &p, &form, epilogue), conv_items(&p),
                                   pixels * strip * (double)conv_strips(&p) * 2},
                   out);
}
