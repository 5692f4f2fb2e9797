/* host_conv: what kernels/conv_x86.c must know of one convolution, or gradient of a convolution's images.
 * One launch packs the weights into the workspace, another one computes; the epilogue is that of
 * host_gemm.c. */
#include "codegen/host_gemm.h"
#include "kernels/conv_host.h"
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

static bool conv_product_of(const HostKernel *kernel, const Node *conv, ConvProduct *p) {
  if ((conv->op != OP_CONV && conv->op != OP_CONV_GRAD_INPUT) || conv->type.dtype != DT_F32 ||
      conv->input[0]->type.dtype != DT_F32 || conv->input[1]->type.dtype != DT_F32)
    return false;
  ConvForm f = conv_form(conv);
  if (!conv_has_runs(&f) || !module_has_tiles(kernel->module)) return false;
  *p = conv->op == OP_CONV ? forward_of(&f) : gradient_of(&f);
  if (conv->op != OP_CONV && f.stride[0] * f.stride[1] != 1) return false;
  join_pixel_rows(p);
  bool is_empty = !shape_elements(&conv->type.shape) || !conv_depth(p);
  return !is_empty && p->pad_top >= 0 && p->pad_left >= 0 &&
         conv_choose(p, kernel->module->vector_bytes, conv_room(kernel->module->is_portable));
}

/* A deployed model has no library. Else oneDNN is as fast, and faster where Winograd's algorithm saves
 * products, but for images of one channel, which its formats fill up to 16. */
bool host_conv_suits(const HostKernel *kernel, const Node *conv) {
  ConvProduct p;
  return conv_product_of(kernel, conv, &p) &&
         (kernel->module->options->is_inference || (conv->op == OP_CONV && p.channels == 1));
}

static LLVMValueRef define_host_conv(HostKernel *kernel, const ConvProduct *p,
                                     const TileForm *form, LLVMValueRef epilogue) {
  enum { NUMBERS = offsetof(ConvProduct, tile) / sizeof(int64_t) };
  _Static_assert(sizeof(ConvProduct) == (NUMBERS + 5) * 8, "a field was added to ConvProduct");
  int64_t numbers[NUMBERS];
  memcpy(numbers, p, sizeof numbers);
  LLVMValueRef pointers[5] = {[4] = epilogue};
  host_tile_kernels(kernel, "conv_tile_", form, p->rows, pointers);
  return host_constant(kernel, "conv", numbers, NUMBERS, pointers, 5);
}

void host_conv_emit(HostKernel *kernel, const Node *conv, const int argument[2], Kernel *out) {
  const Node *node = kernel->node;
  ConvProduct p;
  conv_product_of(kernel, conv, &p);
  p.arg_x = argument[0];
  p.arg_w = argument[1];
  p.arg_y = node->input_count;
  p.arg_packed = node->input_count + node_result_count(node);
  TileForm form = {p.images * p.out_height, p.out_width, p.outs, p.vectors};
  LLVMValueRef epilogue = kernel->body ? host_tile_epilogue(kernel, conv, &form) : NULL;
  LLVMValueRef data = define_host_conv(kernel, &p, &form, epilogue);
  const char *pack = arena_printf(kernel->scratch, "%s_pack", kernel->name);
  out->workspace = conv_packed_bytes(&p);
  host_call_library(kernel, pack, "conv_pack_run", data);
  host_call_library(kernel, kernel->name, "conv_run", data);
  const int64_t worth = 2500; /* cycles: several times the cost of a barrier */
  int split = kernel->module->vector_bytes >= 64 ? 1 : 64 / kernel->module->vector_bytes;
  int64_t depth = conv_depth(&p), tiles = (p.out_width + p.rows - 1) / p.rows;
  int64_t item = p.lines * tiles * conv_strips(&p) * gemm_tile_cycles(p.rows, p.vectors, depth, split);
  host_add_launch(kernel, out, pack, conv_strips(&p), worth / (depth * p.vectors) + 1);
  host_add_launch(kernel, out, kernel->name, conv_items(&p), worth / item + 1);
}
