/* mix: samples of a batch mixed with each other (mixup: Zhang et al. 2018; cutmix: Yun et al. 2019), and noise,
 * as torchvision.transforms.v2 has them, in the train graph. One number decides for a whole batch. The partner of sample
 * 2 i is 2 i + 1 and the other way round: the order is random, so any pairs are as good as those of torchvision (each
 * with the one before), and these are together in every part of a batch and on every rank. What is drawn is
 * marked `whole`: parts and ranks have the numbers of the whole batch.
 *
 * Labels that are numbers are mixed like images. Classes are left as they are, for metrics; what computes a loss of
 * them asks for the partner's and mixes (std/nn.ft: cross_entropy, one_hot). A loss that reads them otherwise is
 * refused, for it would train on the wrong ones. */
#include "frontend/builder.h"
#include <math.h>
#include <string.h>

/* ── drawing ──────────────────────────────────────────────────────────────────────────────── */
static Node *mix_number(Builder *b, double value, Loc loc) {
  return tensor_const(b, DT_F32, value, loc);
}

/* Uniform in [0, 1), by the place in the whole batch. */
static Node *mix_draw(Builder *b, Shape shape, Loc loc) {
  Node *random = tensor_uniform(b, shape, loc);
  if (!random) return NULL;
  node_set_attr(b->graph, random, attr_bool(ATTR_WHOLE, true));
  if (shape.rank) node_set_attr(b->graph, random, attr_int(ATTR_BATCH, 0));
  return random;
}

static Node *mix_one(Builder *b, Loc loc) { return mix_draw(b, shape_scalar(), loc); }

static Node *mix_add(Builder *b, Node *x, Node *y, Loc loc) {
  return tensor_binary(b, OP_ADD, "+", x, y, loc);
}
static Node *mix_sub(Builder *b, Node *x, Node *y, Loc loc) {
  return tensor_binary(b, OP_SUB, "-", x, y, loc);
}
static Node *mix_mul(Builder *b, Node *x, Node *y, Loc loc) {
  return tensor_binary(b, OP_MUL, "*", x, y, loc);
}

/* Beta(alpha, alpha), exactly: with t of Student's distribution with 2 alpha degrees of freedom,
 * 1/2 + t / (2 sqrt(2 alpha + t²)) (Devroye 1996), and t² = 2 alpha (u^(-1/alpha) - 1) cos²(2 pi v) by Bailey's
 * polar method (1994). In p = u^(1/alpha) and c = cos(2 pi v) it is 1/2 ± 1/2 sqrt((1-p) c² / (p + (1-p) c²)). */
static Node *mix_beta(Builder *b, Node *alpha, Loc loc) {
  Node *one = mix_number(b, 1, loc), *half = mix_number(b, 0.5, loc);
  Node *u = mix_sub(b, one, mix_one(b, loc), loc); /* not 0 */
  Node *angle = mix_mul(b, mix_one(b, loc), mix_number(b, 2 * M_PI, loc), loc);
  Node *cosine = tensor_unary(b, OP_COS, angle, loc);
  Node *power = tensor_binary(b, OP_DIV, "/", tensor_unary(b, OP_LOG, u, loc), alpha, loc);
  Node *p = tensor_unary(b, OP_EXP, power, loc);
  Node *rest = tensor_unary(b, OP_NEG, tensor_unary(b, OP_EXPM1, power, loc), loc); /* 1 - p */
  Node *square = mix_mul(b, rest, mix_mul(b, cosine, cosine, loc), loc);
  Node *whole = tensor_binary(b, OP_MAX, "+", mix_add(b, p, square, loc),
                              mix_number(b, 0x1p-126, loc), loc); /* never 0 / 0 */
  Node *root = tensor_unary(b, OP_SQRT, tensor_binary(b, OP_DIV, "/", square, whole, loc), loc);
  Node *is_low = tensor_binary(b, OP_LT, "<", cosine, mix_number(b, 0, loc), loc);
  root = tensor_select(b, is_low, tensor_unary(b, OP_NEG, root, loc), root, loc);
  return mix_add(b, half, mix_mul(b, half, root, loc), loc);
}

/* ── pairs ────────────────────────────────────────────────────────────────────────────────── */
static Node *mix_partner(Builder *b, Node *x, Loc loc) {
  Type type = {DT_I32, {.rank = 1, .dim = {x->type.shape.dim[0]}}};
  Attr axis = attr_int(ATTR_AXIS, 0);
  Node *row = tensor_node(b, OP_IOTA, NULL, 0, &axis, 1, &type, loc);
  row = tensor_binary(b, OP_XOR, "^", row, tensor_const(b, DT_I32, 1, loc), loc);
  return tensor_gather(b, x, row, loc);
}

/* share x + (1 - share) y */
static Node *mix_both(Builder *b, Node *share, Node *x, Node *y, Loc loc) {
  if (!share || !x || !y) return NULL;
  share = tensor_cast(b, share, x->type.dtype, loc);
  Node *rest = mix_sub(b, tensor_const(b, x->type.dtype, 1, loc), share, loc);
  return mix_add(b, mix_mul(b, x, share, loc), mix_mul(b, y, rest, loc), loc);
}

/* In what it is computed: f32, or the input's own f64. */
static Node *mix_float(Builder *b, Node *x, Loc loc) {
  return x && x->type.dtype != DT_F64 ? tensor_cast(b, x, DT_F32, loc) : x;
}

/* ── cutmix ───────────────────────────────────────────────────────────────────────────────── */
/* Which dimensions of [B, ...] are height and width. */
static bool mix_sides(const Shape *shape, int *height, int *width) {
  Shape sample = {.rank = shape->rank - 1};
  memcpy(sample.dim, shape->dim + 1, sizeof sample.dim - sizeof *sample.dim);
  ImageLayout layout;
  if (sample.rank < 2) return false;
  *width = shape->rank - 1;
  if (image_layout(&sample, &layout) && !layout.is_channels_first) *width = shape->rank - 2;
  *height = *width - 1;
  return true;
}

/* Along one side: which of its places are in the box, bool, 1 but for that side; *length: how many. */
static Node *mix_side(Builder *b, const Shape *shape, int axis, Node *radius, Node **length,
                      Loc loc) {
  Node *size = mix_number(b, (double)shape->dim[axis], loc);
  Node *middle = tensor_unary(b, OP_FLOOR, mix_mul(b, mix_one(b, loc), size, loc), loc);
  Node *half = tensor_unary(b, OP_FLOOR, mix_mul(b, radius, size, loc), loc);
  Node *from = mix_sub(b, middle, half, loc), *to = mix_add(b, middle, half, loc);
  from = tensor_binary(b, OP_MAX, "-", from, mix_number(b, 0, loc), loc);
  to = tensor_binary(b, OP_MIN, "+", to, size, loc);
  *length = mix_sub(b, to, from, loc);
  Type line = {DT_I32, {.rank = shape->rank}};
  for (int i = 0; i < shape->rank; i++) line.shape.dim[i] = i == axis ? shape->dim[i] : 1;
  Attr attr = attr_int(ATTR_AXIS, axis);
  Node *place = tensor_node(b, OP_IOTA, NULL, 0, &attr, 1, &line, loc);
  place = tensor_cast(b, place, DT_F32, loc);
  Node *is_behind = tensor_binary(b, OP_GE, ">=", place, from, loc);
  return tensor_binary(b, OP_AND, "and", is_behind, tensor_binary(b, OP_LT, "<", place, to, loc),
                       loc);
}

/* x with the partner's pixels in a box that takes 1 - *share of the area, as far as it lies in the
 * picture; *share becomes what is left. */
static Node *mix_cut(Builder *b, Node *x, Node *partner, Node **share, Loc loc) {
  const Shape *shape = &x->type.shape;
  int height, width;
  if (!mix_sides(shape, &height, &width)) return NULL; /* mix_check has passed it */
  Node *one = mix_number(b, 1, loc), *columns, *rows;
  Node *radius = tensor_unary(b, OP_SQRT, mix_sub(b, one, *share, loc), loc);
  radius = mix_mul(b, radius, mix_number(b, 0.5, loc), loc);
  Node *across = mix_side(b, shape, width, radius, &columns, loc);
  Node *down = mix_side(b, shape, height, radius, &rows, loc);
  Node *is_inside = tensor_binary(b, OP_AND, "and", across, down, loc);
  Node *area = mix_number(b, (double)(shape->dim[height] * shape->dim[width]), loc);
  Node *covered = tensor_binary(b, OP_DIV, "/", mix_mul(b, columns, rows, loc), area, loc);
  *share = mix_sub(b, one, covered, loc);
  return tensor_select(b, is_inside, partner, x, loc);
}

/* ── the inputs ───────────────────────────────────────────────────────────────────────────── */
bool mix_check(Builder *b, const Transform *mixing, const Ast *input, const Type *declared) {
  const char *name = mixing->kind->name;
  bool cuts = strcmp(name, "mixup") != 0, blends = strcmp(name, "cutmix") != 0;
  char text[TYPE_TEXT];
  int height, width;
  if (declared->shape.dim[0] % 2)
    return builder_fail(b, input->loc,
                        "%s mixes each sample with its neighbour, the second with the first and so "
                        "on, so train.batch must be even, not %lld",
                        name, (long long)declared->shape.dim[0]);
  if (blends && !dtype_is_float(declared->dtype))
    return builder_fail(b, input->loc,
                        "%s makes floats, but input '%s' is %s: declare it f32[...]%s", name,
                        input->name, type_text(declared, text),
                        declared->dtype == DT_U8 ? ", with normalize in front of it" : "");
  if (cuts && !mix_sides(&declared->shape, &height, &width))
    return builder_fail(b, input->loc, "%s cuts pictures, but input '%s' is %s", name, input->name,
                        type_text(declared, text));
  return true;
}

/* Where p of the batches are mixed, and the others are not, their own share is 1. */
static Node *mix_share(Builder *b, Node *alpha, const Transform *mixing, Loc loc) {
  double p = transform_argument(mixing, "p")->number[0];
  Node *share = mix_beta(b, alpha, loc);
  if (p == 1) return share;
  Node *is_mixed = tensor_binary(b, OP_LT, "<", mix_one(b, loc), mix_number(b, p, loc), loc);
  return tensor_select(b, is_mixed, share, mix_number(b, 1, loc), loc);
}

static Node *mix_alpha(Builder *b, const Transform *mixing, const char *name, Loc loc) {
  return mix_number(b, transform_argument(mixing, name)->number[0], loc);
}

Node *mix_images(Builder *b, Node *x, const Transform *mixing, Loc loc) {
  const char *name = mixing->kind->name;
  if (!x) return NULL;
  b->mix.by = name;
  b->mix.batch = x->type.shape.dim[0];
  if (strcmp(name, "cutmix") == 0) {
    b->mix.share = mix_share(b, mix_alpha(b, mixing, "alpha", loc), mixing, loc);
    return mix_cut(b, x, mix_partner(b, x, loc), &b->mix.share, loc);
  }
  Node *partner = mix_float(b, mix_partner(b, x, loc), loc);
  x = mix_float(b, x, loc);
  if (strcmp(name, "mixup") == 0) {
    b->mix.share = mix_share(b, mix_alpha(b, mixing, "alpha", loc), mixing, loc);
    return mix_both(b, b->mix.share, x, partner, loc);
  }
  Node *cuts = tensor_binary(b, OP_LT, "<", mix_one(b, loc), mix_alpha(b, mixing, "cutmix_p", loc),
                             loc);
  Node *alpha = tensor_select(b, cuts, mix_alpha(b, mixing, "cutmix_alpha", loc),
                              mix_alpha(b, mixing, "mixup_alpha", loc), loc);
  Node *share = mix_share(b, alpha, mixing, loc), *left = share;
  Node *cut = mix_cut(b, x, partner, &left, loc);
  b->mix.share = tensor_select(b, cuts, left, share, loc);
  return tensor_select(b, cuts, cut, mix_both(b, share, x, partner, loc), loc);
}

Node *mix_label(Builder *b, Node *label, Loc loc) {
  char text[TYPE_TEXT];
  const Type *type = &label->type;
  if (!b->mix.by) return label;
  bool is_number = dtype_is_float(type->dtype), is_fit = type->shape.rank == 1;
  if (!is_fit && !(is_number && type->shape.rank == 2)) {
    builder_fail(b, loc,
                 "%s mixes the labels of a sample and its neighbour: classes i32[B], or numbers "
                 "f32[B] or f32[B, C], and this input is %s",
                 b->mix.by, type_text(type, text));
    return NULL;
  }
  if (!is_number) {
    VEC_PUSH(b->arena, b->mix.labels, label);
    return label;
  }
  Node *wide = mix_float(b, label, loc);
  wide = mix_both(b, b->mix.share, wide, mix_partner(b, wide, loc), loc);
  return tensor_cast(b, wide, type->dtype, loc);
}

/* By Box and Muller; scale: what 1 is of x. */
Node *mix_noise(Builder *b, Node *x, const Transform *noise, double scale, Loc loc) {
  if (!x) return NULL;
  if (!dtype_is_float(x->type.dtype) && scale == 1) {
    builder_fail(b, loc, "noise is added to floats, and this input is %s: declare it f32[...]",
                 dtype_text(x->type.dtype));
    return NULL;
  }
  double clip = transform_argument(noise, "clip")->number[0]; /* auto, true, false */
  if (scale == 1 && clip == 0) {
    builder_fail(b, loc,
                 "noise: are values below 0 and above 1 cut off, as torchvision does with images? "
                 "Say clip=true, or clip=false");
    return NULL;
  }
  Shape shape = x->type.shape;
  DType dtype = x->type.dtype == DT_F64 ? DT_F64 : DT_F32;
  Node *u = mix_sub(b, mix_number(b, 1, loc), mix_draw(b, shape, loc), loc);
  Node *turn = mix_mul(b, mix_draw(b, shape, loc), mix_number(b, 2 * M_PI, loc), loc);
  Node *square = mix_mul(b, tensor_unary(b, OP_LOG, u, loc), mix_number(b, -2, loc), loc);
  Node *normal = mix_mul(b, tensor_unary(b, OP_SQRT, square, loc),
                         tensor_unary(b, OP_COS, turn, loc), loc);
  double sigma = scale * transform_argument(noise, "sigma")->number[0];
  double mean = scale * transform_argument(noise, "mean")->number[0];
  normal = mix_add(b, mix_mul(b, normal, mix_number(b, sigma, loc), loc),
                   mix_number(b, mean, loc), loc);
  x = mix_add(b, mix_float(b, x, loc), tensor_cast(b, normal, dtype, loc), loc);
  if (clip == 2) return x;
  x = tensor_binary(b, OP_MAX, "-", x, tensor_const(b, dtype, 0, loc), loc);
  return tensor_binary(b, OP_MIN, "+", x, tensor_const(b, dtype, scale, loc), loc);
}

/* ── what is computed of labels ───────────────────────────────────────────────────────────── */
/* The label that a node is computed of, but by way of what takes the partner into account; NULL: of none. */
static const Node *mix_reads_label(const Builder *b, const Node *node) {
  bool *wanted = ARENA_ARRAY(b->arena, bool, node->id + 1);
  wanted[node->id] = true;
  for (int i = node->id; i >= 0; i--) {
    const Node *at = b->graph->nodes.at[i];
    bool stops = !wanted[i];
    for (int k = 0; k < b->mix.mixed.count && !stops; k++) stops = b->mix.mixed.at[k] == at;
    if (stops) continue;
    for (int k = 0; k < b->mix.labels.count; k++)
      if (b->mix.labels.at[k] == at) return at;
    for (int k = 0; k < at->input_count; k++) wanted[at->input[k]->id] = true;
  }
  return NULL;
}

bool mix_check_loss(Builder *b) {
  for (int i = 0; b->mix.labels.count && i < b->graph->roots.count; i++) {
    const Root *root = &b->graph->roots.at[i];
    if (root->kind != ROOT_LOSS && root->kind != ROOT_ASSIGN) continue;
    const Node *label = mix_reads_label(b, root->node);
    if (!label) continue;
    const char *name = node_str(label, ATTR_NAME);
    return builder_fail(b, root->node->origin.loc,
                        "%s mixes samples, and this is computed of '%s', the class of one of two: "
                        "cross_entropy(logits, %s) and one_hot(%s, n) take both, and "
                        "mixed(f(%s), f(partner(%s))) does for any f",
                        b->mix.by, name, name, name, name, name);
  }
  return true;
}

/* is_mixed(x): classes of samples that are mixed? */
static Value run_is_mixed(Call *call) {
  const Value *v = &call->arg[0];
  if (v->kind != VALUE_TENSOR || dtype_is_float(v->node->type.dtype) || !call->b->mix.by)
    return value_bool(false);
  return value_bool(mix_reads_label(call->b, v->node) != NULL);
}

/* partner(x): what the neighbour has of x; x itself where nothing is mixed. */
static Value run_partner(Call *call) {
  Node *x = builtin_tensor(call, 0);
  char text[TYPE_TEXT];
  if (!x || !call->b->mix.by) return x ? value_tensor(x) : value_error();
  if (x->type.shape.rank && x->type.shape.dim[0] == call->b->mix.batch)
    return value_tensor(mix_partner(call->b, x, call->loc));
  builder_fail(call->b, call->at[0], "partner(x) is for something of each sample, [%lld, ...], not %s",
               (long long)call->b->mix.batch, type_text(&x->type, text));
  return value_error();
}

/* mixed(x, y): x of samples and y of their partners by the shares that images have; x itself where
 * nothing is mixed. */
static Value run_mixed(Call *call) {
  Builder *b = call->b;
  Node *x = builtin_float_tensor(call, 0), *y = builtin_float_tensor(call, 1);
  char left[TYPE_TEXT], right[TYPE_TEXT];
  if (!x || !y) return value_error();
  if (!type_equal(&x->type, &y->type)) {
    builder_fail(b, call->loc, "mixed(x, y): x is %s and y is %s", type_text(&x->type, left),
                 type_text(&y->type, right));
    return value_error();
  }
  if (!b->mix.by) return value_tensor(x);
  Node *out = mix_both(b, b->mix.share, x, y, call->loc);
  if (out) VEC_PUSH(b->arena, b->mix.mixed, out);
  return value_tensor(out);
}

const Builtin builtin_mix[] = {
    {"is_mixed", "x", run_is_mixed, 0},
    {"partner", "x", run_partner, 0},
    {"mixed", "x y", run_mixed, 0},
    {0},
};
