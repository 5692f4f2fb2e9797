/* channels: on a GPU, images of few channels (3 of a photograph) are laid out for convolutions on
 * tensor cores, which copy 16 bytes at a time without a register between: channels are padded with
 * zeros to a power of two, and neighbouring places along a row, as many as fill 16 bytes, become
 * the channels of one. In bf16 a pixel of 3 channels is padded to 4, and with stride 2 two pixels
 * are joined: a 7x7 window of 3 channels, 147 steps, becomes one of 7x4 places of 8, 224 steps.
 * Where the stride is no multiple of the places joined, one place is padded to 16 bytes.
 *
 * Windows then begin at a multiple of the places joined, so the weight gets zeros in front and
 * behind. They add products of 0 only, and what gradients have for them is cut off. The pass adds
 * pad, reshape and slice only, which fuse with the producer of the image. */
#include "passes/pass.h"

enum { COPY_BYTES = 16 };

/* How one convolution is laid out. */
typedef struct {
  int64_t places, channels; /* joined; of each of them */
  int64_t lead, trail;      /* zeros in front of and behind the weight's rows */
  int64_t width, kernel;    /* of the image and of the window, in joined places */
  int64_t padding[4];
} Fit;

typedef struct {
  const Node *from;
  Fit fit;
  Node *made;
} Padded;
typedef struct {
  Arena *arena;
  VEC(Padded) images; /* a convolution and its weight's gradient read the same one */
} Channels;

static int64_t round_up(int64_t value, int64_t each) { return (value + each - 1) / each; }

/* Joins `places` of `channels` channels, if the stride allows it. */
static bool channels_fit(const ConvForm *f, int64_t places, int64_t channels, Fit *out) {
  int64_t left = f->padding[1], in_width = f->in_width;
  if (f->stride[1] % places || (places > 1 && f->dilation[1] != 1)) return false;
  *out = (Fit){.places = places, .channels = channels, .width = round_up(in_width, places)};
  int64_t begin = round_up(left, places), stride = f->stride[1] / places;
  out->lead = begin * places - left;
  out->kernel = round_up(out->lead + f->kernel_width, places);
  out->trail = out->kernel * places - f->kernel_width - out->lead;
  int64_t reach = (out->kernel - 1) * f->dilation[1] + 1;
  int64_t right = (f->out_width - 1) * stride + reach - out->width - begin;
  if (right < 0) right = 0;
  if ((out->width + begin + right - reach) / stride + 1 != f->out_width) return false;
  int64_t padding[4] = {f->padding[0], begin, f->padding[2], right};
  for (int i = 0; i < 4; i++) out->padding[i] = padding[i];
  return true;
}

/* 0: this convolution stays as it is. */
static int64_t copied_elements(const Node *node) {
  if (node->op != OP_CONV && node->op != OP_CONV_GRAD_WEIGHT && node->op != OP_CONV_GRAD_INPUT)
    return 0;
  if (node_attr(node, ATTR_INTEGERS)) return 0; /* which has its own way to pack */
  const Type *image = &node->input[node->op == OP_CONV_GRAD_WEIGHT]->type;
  bool is_narrow = dtype_is_narrow(image->dtype);
  bool is_tf32 = image->dtype == DT_F32 && node_int(node, ATTR_TF32, 0);
  return is_narrow || is_tf32 ? COPY_BYTES / dtype_bytes(image->dtype) : 0;
}

static bool find_fit(const Node *node, Fit *out) {
  int64_t wide = copied_elements(node);
  if (!wide) return false;
  ConvForm f = conv_form(node);
  if (!f.is_nhwc || f.groups != 1 || f.in >= wide) return false;
  int64_t channels = 1;
  while (channels < f.in) channels *= 2;
  while (!channels_fit(&f, wide / channels, channels, out))
    if ((channels *= 2) > wide) return false;
  /* no more is written than the convolution writes */
  int64_t image = f.images * f.in_height * out->width * wide;
  return image <= f.images * f.out_height * f.out_width * f.out;
}

/* The last two dimensions, as joined places and their channels. */
static Node *channels_joined(Graph *fresh, Node *x, const Fit *fit) {
  Shape shape = x->type.shape;
  shape.dim[2] /= fit->places;
  shape.dim[3] *= fit->places;
  return make_reshape(fresh, x, shape);
}

static Node *padded_image(Channels *c, Graph *fresh, Node *x, const Fit *fit) {
  for (int i = 0; i < c->images.count; i++) {
    const Padded *one = &c->images.at[i];
    if (one->from == x && one->fit.places == fit->places && one->fit.channels == fit->channels)
      return one->made;
  }
  const int64_t *dim = x->type.shape.dim, none[4] = {0};
  int64_t high[4] = {0, 0, fit->width * fit->places - dim[2], fit->channels - dim[3]};
  const Origin reader = fresh->origin;
  fresh->origin.loc = x->origin.loc;
  Node *made = channels_joined(fresh, make_pad(fresh, x, none, high), fit);
  fresh->origin = reader;
  VEC_PUSH(c->arena, c->images, ((Padded){x, *fit, made}));
  return made;
}

static Node *padded_weight(Graph *fresh, Node *w, const Fit *fit) {
  int64_t low[4] = {0, 0, fit->lead, 0};
  int64_t high[4] = {0, 0, fit->trail, fit->channels - w->type.shape.dim[3]};
  return channels_joined(fresh, make_pad(fresh, w, low, high), fit);
}

/* What of a gradient is not of zeros that were added: `first` places on. */
static Node *without_padding(Graph *fresh, Node *gradient, const Node *old, const Fit *fit,
                             int64_t first) {
  Shape apart = gradient->type.shape;
  apart.dim[2] *= fit->places;
  apart.dim[3] /= fit->places;
  Node *x = make_reshape(fresh, gradient, apart);
  return make_slice(fresh, x, (int64_t[]){0, 0, first, 0}, old->type.shape);
}

static Node *laid_out(Channels *c, Graph *fresh, const Node *old, Node **inputs, const Fit *fit) {
  bool is_weight = old->op == OP_CONV_GRAD_WEIGHT, is_input = old->op == OP_CONV_GRAD_INPUT;
  int image = is_weight, weight = 1;
  if (!is_input) inputs[image] = padded_image(c, fresh, inputs[image], fit);
  if (!is_weight) inputs[weight] = padded_weight(fresh, inputs[weight], fit);
  const int64_t *strides = node_attr(old, ATTR_STRIDE)->ints;
  int64_t stride[2] = {strides[0], strides[1] / fit->places};
  Attr attrs[] = {attr_ints(ATTR_STRIDE, stride, 2), attr_ints(ATTR_PADDING, fit->padding, 4)};
  Type type = old->type;
  if (is_input || is_weight) {
    type.shape.dim[2] = is_input ? fit->width : fit->kernel;
    type.shape.dim[3] = fit->places * fit->channels;
  }
  Node *made = graph_copy_with(fresh, old, inputs, &type, attrs, 2);
  return is_weight || is_input ? without_padding(fresh, made, old, fit, is_weight ? fit->lead : 0)
                               : made;
}

static Node *channels_visit(Graph *fresh, const Node *old, Node **inputs, void *context) {
  Fit fit;
  if (!find_fit(old, &fit)) return NULL;
  return laid_out(context, fresh, old, inputs, &fit);
}

Graph *pass_channels(PassContext *context, Graph *graph) {
  bool is_any = false;
  Fit fit;
  for (int i = 0; i < graph->nodes.count; i++) is_any |= find_fit(graph->nodes.at[i], &fit);
  Channels channels = {.arena = context->scratch};
  return is_any ? graph_rewrite(graph, channels_visit, &channels) : graph;
}
