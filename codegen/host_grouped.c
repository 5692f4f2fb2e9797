/* host_grouped: what kernels/grouped_x86.c must know of one convolution, whose channels may be in groups. One launch packs the weights into the
 * workspace, another one computes; the epilogue is that of host_gemm.c. */
#include "codegen/host_gemm.h"
#include "kernels/grouped_host.h"
#include <stddef.h>
#include <string.h>

static bool grouped_conv_of(const HostKernel *kernel, const Node *conv, GroupedConv *p) {
  if (conv->op != OP_CONV || conv->type.dtype != DT_F32 || conv->input[0]->type.dtype != DT_F32 ||
      conv->input[1]->type.dtype != DT_F32)
    return false;
  ConvForm f = conv_form(conv);
  *p = (GroupedConv){.images = f.images,
                     .height = f.in_height,
                     .width = f.in_width,
                     .channels = f.in * f.groups,
                     .out_height = f.out_height,
                     .out_width = f.out_width,
                     .outs = f.out * f.groups,
                     .ins = f.in,
                     .each = f.out,
                     .kernel_height = f.kernel_height,
                     .kernel_width = f.kernel_width,
                     .stride_height = f.stride[0],
                     .stride_width = f.stride[1],
                     .dilation_height = f.dilation[0],
                     .dilation_width = f.dilation[1],
                     .pad_top = f.padding[0],
                     .pad_left = f.padding[1]};
  return f.is_nhwc && shape_elements(&conv->type.shape) && grouped_depth(p) &&
         grouped_choose(p, kernel->module->is_portable);
}

/* A deployed model has no library; what conv_x86.c has not is for this. Else oneDNN is as fast: it reads images where they lie. */
bool host_grouped_suits(const HostKernel *kernel, const Node *conv) {
  GroupedConv p;
  return kernel->module->options->is_inference && grouped_conv_of(kernel, conv, &p);
}

static LLVMValueRef define_grouped(HostKernel *kernel, const char *name, const GroupedConv *p, LLVMValueRef epilogue) {
  enum { NUMBERS = offsetof(GroupedConv, epilogue) / sizeof(int64_t) };
  _Static_assert(sizeof(GroupedConv) == (NUMBERS + 1) * 8, "the epilogue is last");
  int64_t numbers[NUMBERS];
  memcpy(numbers, p, sizeof numbers);
  return host_constant(kernel, name, numbers, NUMBERS, &epilogue, 1);
}

void host_grouped_emit(HostKernel *kernel, const Node *conv, const int argument[2], Kernel *out) {
  GroupedConv p, packing;
  grouped_conv_of(kernel, conv, &p);
  packing = p;
  packing.arg_w = 0, packing.arg_packed = 1;
  p.arg_packed = 0, p.arg_x = 1 + argument[0], p.arg_y = 1 + kernel->node->input_count;
  TileForm form = {p.images * p.out_height, p.out_width, p.outs, 1};
  LLVMValueRef epilogue = kernel->body ? host_tile_epilogue(kernel, conv, &form) : NULL;
  double window = (double)(grouped_depth(&p) * GROUPED_LANES), results = (double)(p.lines * p.pixels * grouped_blocks(&p));
  host_packed_emit(kernel, argument[1], grouped_packed_bytes(&p),
                   &(PackedLaunch){"grouped_pack_run", define_grouped(kernel, "packing", &packing, NULL), grouped_blocks(&p), window * 2},
                   &(PackedLaunch){"grouped_run", define_grouped(kernel, "conv", &p, epilogue), grouped_items(&p), results * window * 2},
                   out);
}
