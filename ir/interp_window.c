/* interp_window: convolution, pooling and their gradients. All three directions of a convolution
 * are one walk over the triples (output, input, weight) that meet; they differ in which of the
 * three is the sum of products of the other two. */
#include "ir/interp.h"
#include <math.h>
#include <string.h>

typedef struct {
  int64_t batch, channels, height, width; /* of the image x */
  int64_t outputs, rows, columns;         /* of the result y */
  int64_t kernel[2], stride[2], padding[4], dilation[2], groups;
  bool nhwc;
} Window;

static void interp_window_read_ints(const Node *node, AttrId id, int count, int64_t otherwise,
                                    int64_t *out) {
  const Attr *attr = node_attr(node, id);
  for (int i = 0; i < count; i++) out[i] = attr ? attr->ints[i] : otherwise;
}

static Window interp_window_read_window(const Node *node, const Shape *x, const Shape *y) {
  const char *layout = node_str(node, ATTR_LAYOUT);
  Window w = {.nhwc = layout && !strcmp(layout, "nhwc"), .groups = node_int(node, ATTR_GROUPS, 1)};
  int channel = w.nhwc ? 3 : 1, row = w.nhwc ? 1 : 2;
  w.batch = x->dim[0];
  w.channels = x->dim[channel];
  w.height = x->dim[row];
  w.width = x->dim[row + 1];
  w.outputs = y->dim[channel];
  w.rows = y->dim[row];
  w.columns = y->dim[row + 1];
  interp_window_read_ints(node, ATTR_KERNEL, 2, 1, w.kernel);
  interp_window_read_ints(node, ATTR_STRIDE, 2, 1, w.stride);
  interp_window_read_ints(node, ATTR_PADDING, 4, 0, w.padding);
  interp_window_read_ints(node, ATTR_DILATION, 2, 1, w.dilation);
  return w;
}

static int64_t window_image(const Window *w, int64_t n, int64_t c, int64_t h, int64_t v) {
  return w->nhwc ? ((n * w->height + h) * w->width + v) * w->channels + c
                 : ((n * w->channels + c) * w->height + h) * w->width + v;
}

static int64_t result_at(const Window *w, int64_t n, int64_t c, int64_t h, int64_t v) {
  return w->nhwc ? ((n * w->rows + h) * w->columns + v) * w->outputs + c
                 : ((n * w->outputs + c) * w->rows + h) * w->columns + v;
}

static int64_t window_weight(const Window *w, int64_t o, int64_t c, int64_t i, int64_t j) {
  int64_t inner = w->channels / w->groups;
  return w->nhwc ? ((o * w->kernel[0] + i) * w->kernel[1] + j) * inner + c
                 : ((o * inner + c) * w->kernel[0] + i) * w->kernel[1] + j;
}

/* Where element (i, j) of the window at (row, column) lies in the image; false: in the padding. */
static bool window_at(const Window *w, int64_t row, int64_t column, int64_t i, int64_t j,
                      int64_t *h, int64_t *v) {
  *h = row * w->stride[0] + i * w->dilation[0] - w->padding[0];
  *v = column * w->stride[1] + j * w->dilation[1] - w->padding[1];
  return *h >= 0 && *h < w->height && *v >= 0 && *v < w->width;
}

/* All pairs of a result element and a weight element: y += x * w, or one of the other two. */
static void convolve(const Window *w, Op op, double *y, double *x, double *weight, int64_t n,
                     int64_t o) {
  int64_t inner = w->channels / w->groups, group = o / (w->outputs / w->groups), h, v;
  for (int64_t row = 0; row < w->rows; row++)
    for (int64_t column = 0; column < w->columns; column++)
      for (int64_t c = 0; c < inner; c++)
        for (int64_t i = 0; i < w->kernel[0]; i++)
          for (int64_t j = 0; j < w->kernel[1]; j++) {
            if (!window_at(w, row, column, i, j, &h, &v)) continue;
            double *py = &y[result_at(w, n, o, row, column)];
            double *px = &x[window_image(w, n, group * inner + c, h, v)];
            double *pw = &weight[window_weight(w, o, c, i, j)];
            if (op == OP_CONV)
              *py += *px * *pw;
            else if (op == OP_CONV_GRAD_INPUT)
              *px += *py * *pw;
            else
              *pw += *py * *px;
          }
}

bool interp_conv(const Eval *eval) {
  Op op = eval->node->op;
  /* conv (x, w) -> y, conv_grad_input (y, w) -> x, conv_grad_weight (y, x) -> w */
  const Tensor *y = op == OP_CONV ? eval->out : eval->in[0];
  const Tensor *x = op == OP_CONV              ? eval->in[0]
                    : op == OP_CONV_GRAD_INPUT ? eval->out
                                               : eval->in[1];
  const Tensor *weight = op == OP_CONV_GRAD_WEIGHT ? eval->out : eval->in[1];
  Window w = interp_window_read_window(eval->node, &x->type.shape, &y->type.shape);
  for (int i = 0; i < 2; i++) w.kernel[i] = weight->type.shape.dim[(w.nhwc ? 1 : 2) + i];
  for (int64_t n = 0; n < w.batch; n++)
    for (int64_t o = 0; o < w.outputs; o++) convolve(&w, op, y->f, x->f, weight->f, n, o);
  return true;
}

/* One window of a pooling: `y` and `index` are its places in the result. */
static void pool_one(const Eval *eval, const Window *w, int64_t n, int64_t c, int64_t row,
                     int64_t column) {
  Op op = eval->node->op;
  int64_t at = result_at(w, n, c, row, column), h, v, count = 0, best = -1;
  const double *x = op == OP_POOL_MAX_GRAD || op == OP_POOL_AVG_GRAD ? NULL : eval->in[0]->f;
  double sum = 0, largest = 0;
  for (int64_t i = 0; i < w->kernel[0]; i++)
    for (int64_t j = 0; j < w->kernel[1]; j++) {
      if (!window_at(w, row, column, i, j, &h, &v)) continue;
      double value = x ? x[window_image(w, n, c, h, v)] : 0;
      sum += value;
      count++;
      if (best >= 0 && (isnan(largest) || !(value > largest || isnan(value)))) continue;
      largest = value;
      best = i * w->kernel[1] + j;
    }
  if (node_int(eval->node, ATTR_COUNT_PAD, 0)) count = w->kernel[0] * w->kernel[1];
  if (op == OP_POOL_MAX) eval->out->f[at] = largest;
  if (op == OP_POOL_INDEX) eval->out->i[at] = best;
  if (op == OP_POOL_AVG) eval->out->f[at] = sum / (double)count;
  for (int64_t i = 0; !x && i < w->kernel[0]; i++)
    for (int64_t j = 0; j < w->kernel[1]; j++) {
      if (!window_at(w, row, column, i, j, &h, &v)) continue;
      double *to = &eval->out->f[window_image(w, n, c, h, v)];
      if (op == OP_POOL_AVG_GRAD)
        *to += eval->in[0]->f[at] / (double)count;
      else if (eval->in[1]->i[at] == i * w->kernel[1] + j)
        *to += eval->in[0]->f[at];
    }
}

bool interp_pool(const Eval *eval) {
  Op op = eval->node->op;
  bool is_gradient = op == OP_POOL_MAX_GRAD || op == OP_POOL_AVG_GRAD;
  const Shape *in = &eval->in[0]->type.shape, *out = &eval->out->type.shape;
  Window w = interp_window_read_window(eval->node, is_gradient ? out : in, is_gradient ? in : out);
  if (!node_attr(eval->node, ATTR_STRIDE)) memcpy(w.stride, w.kernel, sizeof w.stride);
  for (int64_t n = 0; n < w.batch; n++)
    for (int64_t c = 0; c < w.channels; c++)
      for (int64_t row = 0; row < w.rows; row++)
        for (int64_t column = 0; column < w.columns; column++)
          pool_one(eval, &w, n, c, row, column);
  return true;
}
