/* infer_window: the shape rules of convolution and pooling and of their gradients. A gradient's
 * given type is checked by running the forward rule on it. Window attributes are kept below 2^20,
 * so that no product here can overflow. */
#include "ir/infer.h"
#include <string.h>

enum { LARGEST = 1 << 20 };

typedef struct {
  int64_t stride[2], padding[4], dilation[2], groups;
  int channel, row, column; /* dimensions of images, and of weights */
} Window;

static bool infer_window_read_ints(Infer *in, AttrId id, int count, int64_t least, int64_t *out) {
  const Attr *attr = infer_attr(in, id);
  if (!attr) return true;
  if (!infer_need_ints(in, id, count)) return false;
  for (int i = 0; i < count; i++) {
    if (attr->ints[i] < least || attr->ints[i] > LARGEST)
      return infer_fail(in, "the %s of %s must be between %lld and %d, not %lld",
                        attr_info[id].text, in->name, (long long)least, LARGEST,
                        (long long)attr->ints[i]);
    out[i] = attr->ints[i];
  }
  return true;
}

static bool infer_window_read_window(Infer *in, Window *window) {
  *window = (Window){{1, 1}, {0}, {1, 1}, 1, 1, 2, 3};
  const Attr *layout = infer_attr(in, ATTR_LAYOUT), *groups = infer_attr(in, ATTR_GROUPS);
  if (layout && !strcmp(layout->s, "nhwc")) {
    window->row = 1;
    window->column = 2;
    window->channel = 3;
  } else if (layout && strcmp(layout->s, "nchw")) {
    return infer_fail(in, "the layout of %s must be \"nchw\" or \"nhwc\", not \"%s\"", in->name,
                      layout->s);
  }
  if (groups) window->groups = groups->i;
  if (window->groups < 1 || window->groups > LARGEST)
    return infer_fail(in, "the groups of %s must be between 1 and %d", in->name, LARGEST);
  return infer_window_read_ints(in, ATTR_STRIDE, 2, 1, window->stride) &&
         infer_window_read_ints(in, ATTR_PADDING, 4, 0, window->padding) &&
         infer_window_read_ints(in, ATTR_DILATION, 2, 1, window->dilation);
}

/* How often a window of `kernel` fits; 0 if it never does. */
static int64_t steps(const Window *window, int axis, int64_t size, int64_t kernel) {
  int64_t span = window->dilation[axis] * (kernel - 1) + 1;
  int64_t room = size + window->padding[axis] + window->padding[axis + 2];
  return room < span ? 0 : (room - span) / window->stride[axis] + 1;
}

static bool need_image(Infer *in, const Type *x) {
  return (dtype_is_float(x->dtype) && x->shape.rank == 4) ||
         infer_fail(in,
                    "%s needs a floating-point image tensor with 4 dimensions [batch, channels, "
                    "height, width], not %s",
                    in->name, infer_show(in, x));
}

static bool conv_shape(Infer *in, const Type *x, const Type *w, Shape *out) {
  Window window;
  if (!infer_window_read_window(in, &window) || !need_image(in, x)) return false;
  if (w->dtype != x->dtype || w->shape.rank != 4)
    return infer_fail(in, "the weight of a convolution must be %s of the image's type, not %s",
                      window.channel == 1 ? "[out channels, in channels / groups, height, width]"
                                          : "[out channels, height, width, in channels / groups]",
                      infer_show(in, w));
  int64_t channels = x->shape.dim[window.channel], outputs = w->shape.dim[0];
  int64_t inner = w->shape.dim[window.channel];
  int64_t height = w->shape.dim[window.row], width = w->shape.dim[window.column];
  if (channels % window.groups || outputs % window.groups)
    return infer_fail(in,
                      "the groups of a convolution, %lld, must divide its %lld input and %lld "
                      "output channels",
                      (long long)window.groups, (long long)channels, (long long)outputs);
  if (channels / window.groups != inner)
    return infer_fail(in,
                      "the channels of a convolution disagree: the image %s has %lld in each "
                      "of %lld groups, the weight %s takes %lld",
                      infer_show_shape(in, &x->shape), (long long)(channels / window.groups),
                      (long long)window.groups, infer_show_shape(in, &w->shape), (long long)inner);
  for (int i = 0; i < 4; i++)
    if (x->shape.dim[i] > MAX_WINDOW || w->shape.dim[i] > MAX_WINDOW)
      return infer_fail(in, "a dimension of a convolution is at most %lld: %s, weight %s",
                        (long long)MAX_WINDOW, infer_show_shape(in, &x->shape),
                        infer_show_shape(in, &w->shape));
  if (height < 1 || width < 1)
    return infer_fail(in, "the kernel of a convolution is empty: %s",
                      infer_show_shape(in, &w->shape));
  int64_t rows = steps(&window, 0, x->shape.dim[window.row], height);
  int64_t columns = steps(&window, 1, x->shape.dim[window.column], width);
  if (!rows || !columns)
    return infer_fail(in, "the kernel of a convolution, %lldx%lld, does not fit the image %s",
                      (long long)height, (long long)width, infer_show_shape(in, &x->shape));
  *out = x->shape;
  out->dim[window.channel] = outputs;
  out->dim[window.row] = rows;
  out->dim[window.column] = columns;
  return true;
}

bool infer_conv(Infer *in) {
  const Type *x = &in->input[0]->type, *w = &in->input[1]->type;
  return conv_shape(in, x, w, &in->out->shape) && infer_result_dtype(in, x->dtype, &in->out->dtype);
}

ConvForm conv_form(const Node *node) {
  const Type *first = &node->input[0]->type, *second = &node->input[1]->type, *made = &node->type;
  ConvForm f = {.y = first,
                .groups = node_int(node, ATTR_GROUPS, 1),
                .stride = node_attr(node, ATTR_STRIDE)->ints,
                .padding = node_attr(node, ATTR_PADDING)->ints,
                .dilation = node_attr(node, ATTR_DILATION)->ints,
                .is_nhwc = !strcmp(node_str(node, ATTR_LAYOUT), "nhwc")};
  if (node->op == OP_CONV) f.x = first, f.w = second, f.y = made;
  if (node->op == OP_CONV_GRAD_INPUT) f.x = made, f.w = second;
  if (node->op == OP_CONV_GRAD_WEIGHT) f.x = second, f.w = made;
  int row = f.is_nhwc ? 1 : 2;
  f.images = f.x->shape.dim[0];
  f.in = f.w->shape.dim[f.is_nhwc ? 3 : 1];
  f.out = f.w->shape.dim[0] / f.groups;
  f.in_height = f.x->shape.dim[row], f.in_width = f.x->shape.dim[row + 1];
  f.out_height = f.y->shape.dim[row], f.out_width = f.y->shape.dim[row + 1];
  f.kernel_height = f.w->shape.dim[row], f.kernel_width = f.w->shape.dim[row + 1];
  return f;
}

static bool same_shape(Infer *in, const char *what, const Type *have, DType dtype,
                       const Shape *want) {
  Type expected = {dtype, *want};
  return type_equal(have, &expected) ||
         infer_fail(in, "%s needs a %s of type %s, not %s", in->name, what,
                    infer_show(in, &expected), infer_show(in, have));
}

bool infer_conv_grad(Infer *in) {
  if (!infer_take_given(in)) return false;
  bool of_input = in->op == OP_CONV_GRAD_INPUT;
  const Type *other = &in->input[1]->type;
  Type given = {other->dtype, in->given->shape};
  Shape shape;
  DType dtype;
  if (!infer_result_dtype(in, other->dtype, &dtype)) return false;
  if (in->given->dtype != dtype)
    return infer_fail(in, "the result of %s is %s, not %s", in->name, dtype_text(dtype),
                      dtype_text(in->given->dtype));
  if (!conv_shape(in, of_input ? &given : other, of_input ? other : &given, &shape)) return false;
  return same_shape(in, "gradient", &in->input[0]->type, other->dtype, &shape);
}

static bool pool_shape(Infer *in, const Type *x, Shape *out, int64_t kernel[2]) {
  Window window;
  if (!infer_window_read_window(in, &window) || !need_image(in, x)) return false;
  if (!infer_need_attr(in, ATTR_KERNEL) || !infer_window_read_ints(in, ATTR_KERNEL, 2, 1, kernel))
    return false;
  if (!infer_attr(in, ATTR_STRIDE)) memcpy(window.stride, kernel, sizeof window.stride);
  for (int i = 0; i < 4; i++)
    if (window.padding[i] >= kernel[i % 2])
      return infer_fail(in,
                        "the padding of a pooling, %lld, must be smaller than its window, %lld: "
                        "a window would hold no element",
                        (long long)window.padding[i], (long long)kernel[i % 2]);
  int64_t height = x->shape.dim[window.row], width = x->shape.dim[window.column];
  int64_t rows = steps(&window, 0, height, kernel[0]),
          columns = steps(&window, 1, width, kernel[1]);
  if (!height || !width || !rows || !columns)
    return infer_fail(in, "the window of a pooling, %lldx%lld, does not fit the image %s",
                      (long long)kernel[0], (long long)kernel[1], infer_show_shape(in, &x->shape));
  *out = x->shape;
  out->dim[window.row] = rows;
  out->dim[window.column] = columns;
  return true;
}

bool infer_pool(Infer *in) {
  int64_t kernel[2];
  in->out->dtype = in->input[0]->type.dtype;
  return pool_shape(in, &in->input[0]->type, &in->out->shape, kernel);
}

static bool check_index_window(Infer *in, const int64_t kernel[2]) {
  return (kernel[0] <= 256 && kernel[1] <= 256 && kernel[0] * kernel[1] <= 256) ||
         infer_fail(in, "the window of a max pooling may have at most 256 elements, not %lldx%lld",
                    (long long)kernel[0], (long long)kernel[1]);
}

bool infer_pool_index(Infer *in) {
  int64_t kernel[2];
  in->out->dtype = DT_U8;
  return pool_shape(in, &in->input[0]->type, &in->out->shape, kernel) &&
         check_index_window(in, kernel);
}

bool infer_pool_grad(Infer *in) {
  if (!infer_take_given(in)) return false;
  int64_t kernel[2];
  Shape shape;
  if (!pool_shape(in, in->given, &shape, kernel)) return false;
  if (!same_shape(in, "gradient", &in->input[0]->type, in->given->dtype, &shape)) return false;
  return in->op != OP_POOL_MAX_GRAD ||
         (check_index_window(in, kernel) &&
          same_shape(in, "index", &in->input[1]->type, DT_U8, &shape));
}
