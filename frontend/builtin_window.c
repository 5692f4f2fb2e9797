/* builtin_window: convolution and pooling over images [N, C, H, W]. */
#include "frontend/builder.h"
#include <string.h>

enum { WINDOW_LIMIT = 1 << 20 };

/* 3 or (3, 5): height and width. */
static bool pair(Call *call, int index, int64_t otherwise, int64_t least, int64_t out[2]) {
  Value *v = &call->arg[index];
  out[0] = out[1] = otherwise;
  if (!value_is_given(v)) return true;
  bool many = (v->kind == VALUE_LIST || v->kind == VALUE_TUPLE) && v->count == 2;
  for (int i = 0; i < 2; i++) {
    if (!value_to_int(many ? &v->items[i] : v, &out[i]))
      return builder_fail(call->b, call->at[index],
                          "expected a number or a pair (height, width), "
                          "not %s",
                          value_describe(call->b->arena, v));
    if (out[i] < least || out[i] > WINDOW_LIMIT)
      return builder_fail(call->b, call->at[index], "%lld is out of range here", (long long)out[i]);
  }
  return true;
}

/* "same" (output size = input size / stride, rounded up; the odd one at the end), "valid". */
static bool named_padding(Call *call, int index, const Node *x, const int64_t kernel[2],
                          const int64_t stride[2], const int64_t dilation[2], int64_t out[4]) {
  static const char *const names[] = {"same", "valid"};
  const char *name = call->arg[index].s;
  if (strcmp(name, "valid") == 0) return true;
  if (strcmp(name, "same") != 0)
    return builder_fail(call->b, call->at[index],
                        "padding is a number, a pair, four numbers, "
                        "\"same\" or \"valid\", not \"%s\"%s",
                        name, builder_hint(call->b, name, names, 2));
  if (x->type.shape.rank != 4) return true; /* refused later */
  for (int i = 0; i < 2; i++) {
    int64_t size = x->type.shape.dim[2 + i], steps = (size + stride[i] - 1) / stride[i];
    int64_t total = (steps - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1 - size;
    if (total < 0) total = 0;
    out[i] = total / 2;
    out[2 + i] = total - total / 2;
  }
  return true;
}

/* [top, left, bottom, right] */
static bool padding(Call *call, int index, const Node *x, const int64_t kernel[2],
                    const int64_t stride[2], const int64_t dilation[2], int64_t out[4]) {
  Value *v = &call->arg[index];
  memset(out, 0, 4 * sizeof *out);
  if (v->kind == VALUE_STRING) return named_padding(call, index, x, kernel, stride, dilation, out);
  bool four = (v->kind == VALUE_LIST || v->kind == VALUE_TUPLE) && v->count == 4;
  int64_t two[2];
  if (!four) {
    if (!pair(call, index, 0, 0, two)) return false;
    out[0] = out[2] = two[0];
    out[1] = out[3] = two[1];
    return true;
  }
  for (int i = 0; i < 4; i++)
    if (!value_to_int(&v->items[i], &out[i]) || out[i] < 0 || out[i] > WINDOW_LIMIT)
      return builder_fail(call->b, call->at[index], "padding cannot be %s",
                          value_text(call->b->arena, v));
  return true;
}

static Value run_conv2d(Call *call) {
  Node *x = builtin_float_tensor(call, 0), *w = builtin_float_tensor(call, 1);
  int64_t stride[2], pad[4], dilation[2], groups, kernel[2] = {1, 1};
  if (!x || !w) return value_error();
  if (w->type.shape.rank == 4) memcpy(kernel, &w->type.shape.dim[2], sizeof kernel);
  if (!pair(call, 2, 1, 1, stride) || !pair(call, 4, 1, 1, dilation) ||
      !padding(call, 3, x, kernel, stride, dilation, pad) || !builtin_int(call, 5, 1, &groups))
    return value_error();
  Attr attrs[] = {attr_ints(ATTR_STRIDE, stride, 2), attr_ints(ATTR_PADDING, pad, 4),
                  attr_ints(ATTR_DILATION, dilation, 2), attr_int(ATTR_GROUPS, groups),
                  attr_str(ATTR_LAYOUT, "nchw")};
  return value_tensor(
      tensor_node(call->b, OP_CONV, (Node *[]){x, w}, 2, attrs, 5, NULL, call->loc));
}

/* The sizes of a transposed convolution: its result is what a convolution with these settings would
 * make x of. Padding behind takes rows away, output_padding gives them back; what it gives beyond
 * that is no convolution's and is zero: extra[]. */
static bool transposed_sizes(Call *call, const Node *x, const Node *w, const int64_t stride[2],
                             const int64_t dilation[2], int64_t pad[4], int64_t extra[2],
                             int64_t size[2]) {
  int64_t more[2];
  if (!pair(call, 4, 0, 0, more)) return false;
  for (int i = 0; i < 2; i++) {
    int64_t most = stride[i] > dilation[i] ? stride[i] : dilation[i];
    if (more[i] >= most)
      return builder_fail(call->b, call->at[4],
                          "output_padding must be smaller than stride or dilation: %lld for "
                          "stride %lld, dilation %lld",
                          (long long)more[i], (long long)stride[i], (long long)dilation[i]);
    extra[i] = more[i] > pad[2 + i] ? more[i] - pad[2 + i] : 0;
    pad[2 + i] -= more[i] - extra[i];
    size[i] = (x->type.shape.dim[2 + i] - 1) * stride[i] - pad[i] - pad[2 + i] +
              dilation[i] * (w->type.shape.dim[2 + i] - 1) + 1;
    if (size[i] < 1)
      return builder_fail(call->b, call->loc,
                          "the result of conv_transpose2d has no %s: padding takes away all of it",
                          i ? "columns" : "rows");
  }
  return true;
}

static bool transposed_weight(Call *call, const Node *x, const Node *w, int64_t groups) {
  char image[TYPE_TEXT], weight[TYPE_TEXT];
  if (x->type.shape.rank == 4 && w->type.shape.rank == 4 && groups >= 1 &&
      w->type.shape.dim[0] == x->type.shape.dim[1] && w->type.dtype == x->type.dtype &&
      x->type.shape.dim[1] % groups == 0)
    return true;
  return builder_fail(call->b, call->loc,
                      "conv_transpose2d() needs an image [N, C, H, W] and a weight [C, out "
                      "channels / groups, height, width] of its type, with groups that divide C: "
                      "not %s, %s and groups=%lld",
                      type_text(&x->type, image), type_text(&w->type, weight), (long long)groups);
}

/* The gradient of a convolution for its input, as an operation of its own. */
static Value run_conv_transpose2d(Call *call) {
  Node *x = builtin_float_tensor(call, 0), *w = builtin_float_tensor(call, 1);
  int64_t stride[2], pad[4], dilation[2], groups, kernel[2] = {1, 1}, extra[2], size[2];
  if (!x || !w) return value_error();
  if (call->arg[3].kind == VALUE_STRING) {
    builder_fail(call->b, call->at[3],
                 "padding of a transposed convolution is a number, a pair or four numbers");
    return value_error();
  }
  if (!pair(call, 2, 1, 1, stride) || !pair(call, 5, 1, 1, dilation) ||
      !padding(call, 3, x, kernel, stride, dilation, pad) || !builtin_int(call, 6, 1, &groups) ||
      !transposed_weight(call, x, w, groups) ||
      !transposed_sizes(call, x, w, stride, dilation, pad, extra, size))
    return value_error();
  const int64_t *image = x->type.shape.dim;
  Type type = {x->type.dtype, {4, {image[0], w->type.shape.dim[1] * groups, size[0], size[1]}}};
  Attr attrs[] = {attr_ints(ATTR_STRIDE, stride, 2), attr_ints(ATTR_PADDING, pad, 4),
                  attr_ints(ATTR_DILATION, dilation, 2), attr_int(ATTR_GROUPS, groups),
                  attr_str(ATTR_LAYOUT, "nchw")};
  Node *y =
      tensor_node(call->b, OP_CONV_GRAD_INPUT, (Node *[]){x, w}, 2, attrs, 5, &type, call->loc);
  if (!extra[0] && !extra[1]) return value_tensor(y);
  Attr more[3] = {attr_float(ATTR_VALUE, 0), attr_ints(ATTR_LOW, (int64_t[4]){0}, 4),
                  attr_ints(ATTR_HIGH, (int64_t[]){0, 0, extra[0], extra[1]}, 4)};
  return value_tensor(tensor_node(call->b, OP_PAD, &y, 1, more, 3, NULL, call->loc));
}

static Value run_pool(Call *call) {
  bool is_max = call->builtin->which == OP_POOL_MAX, count_pad = true;
  Node *x = builtin_float_tensor(call, 0);
  int64_t kernel[2], stride[2], pad[4], dilation[2] = {1, 1};
  if (!x || !pair(call, 1, 1, 1, kernel) || !pair(call, 2, 0, 1, stride)) return value_error();
  for (int i = 0; i < 2; i++)
    if (!stride[i]) stride[i] = kernel[i]; /* as PyTorch: windows side by side */
  if (!padding(call, 3, x, kernel, stride, dilation, pad)) return value_error();
  if (!is_max && !builtin_bool(call, 4, true, &count_pad)) return value_error();
  for (int i = 0; i < 4; i++)
    if (pad[i] * 2 > kernel[i % 2]) {
      builder_fail(call->b, call->at[3],
                   "padding of a pool is at most half its window: %lld for %lld", (long long)pad[i],
                   (long long)kernel[i % 2]);
      return value_error();
    }
  Attr attrs[5] = {attr_ints(ATTR_KERNEL, kernel, 2), attr_ints(ATTR_STRIDE, stride, 2),
                   attr_ints(ATTR_PADDING, pad, 4), attr_str(ATTR_LAYOUT, "nchw"),
                   attr_bool(ATTR_COUNT_PAD, count_pad)};
  return value_tensor(tensor_node(call->b, (Op)call->builtin->which, &x, 1, attrs, is_max ? 4 : 5,
                                  NULL, call->loc));
}

const Builtin builtin_window[] = {
    {"conv2d", "x weight stride= padding= dilation= groups=", run_conv2d, 0},
    {"conv_transpose2d", "x weight stride= padding= output_padding= dilation= groups=",
     run_conv_transpose2d, 0},
    {"max_pool2d", "x kernel stride= padding=", run_pool, OP_POOL_MAX},
    {"avg_pool2d", "x kernel stride= padding= count_include_pad=", run_pool, OP_POOL_AVG},
    {0},
};
