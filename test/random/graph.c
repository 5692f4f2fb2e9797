/* graph: well-typed random forward graphs, to compare passes and generated code with the
 * interpreter. Invariant: every tensor in the pool is f32 with values in [-4, 4] whenever inputs
 * and params lie in [-1, 1], so that nothing explodes whatever is built on it; integer inputs may
 * hold anything. Where a choice hangs on a comparison of computed values (max, argmax, pooling) the
 * values are first spread by a pattern of their position, so that rounding does not decide it.
 *
 * A seed means the same graph under every compiler: of the arguments of one call at most one draws
 * a number, and at most one makes nodes, for C leaves their order open. */
#include "test/random/graph_words.h"

/* ── recipes: each takes tensors of the pool and gives one that fits it, or NULL ────────────── */
static Node *recipe_unary(Random *r) {
  static const Op plain[] = {OP_TANH, OP_SIGMOID, OP_ERF, OP_SIN, OP_COS, OP_NEG, OP_ABS};
  Node *x = pick(r);
  int which = below(r, 14);
  switch (which) {
  case 7:
    return unary(r, OP_EXP, unary(r, OP_TANH, x));
  case 8:
    return unary(r, OP_EXPM1, unary(r, OP_TANH, x));
  case 9:
    return unary(r, OP_LOG, with(r, OP_ADD, unary(r, OP_ABS, x), 0.5));
  case 10:
    return unary(r, OP_LOG1P, unary(r, OP_ABS, x));
  case 11:
    return unary(r, OP_SQRT, with(r, OP_ADD, unary(r, OP_ABS, x), 0.125));
  case 12:
    return unary(r, OP_RSQRT, with(r, OP_ADD, unary(r, OP_ABS, x), 0.5));
  case 13:
    return cast(r, unary(r, chance(r, 2) ? OP_SIN : OP_NEG, cast(r, x, DT_F64)), DT_F32);
  default:
    return unary(r, plain[which], x);
  }
}

/* Steps: only of inputs, which no rounding has touched. */
static Node *recipe_step(Random *r) {
  static const Op ops[] = {OP_FLOOR, OP_CEIL, OP_ROUND, OP_SIGN, OP_ROUND_E4M3, OP_ROUND_E5M2};
  Node *x = pick(r);
  if (x->op != OP_INPUT && x->op != OP_PARAM) return NULL;
  if (chance(r, 4)) return cast(r, cast(r, scale(r, x, 4), DT_I32), DT_F32);
  return unary(r, ops[below(r, 6)], scale(r, x, 3));
}

static Node *recipe_binary(Random *r) {
  Node *x = pick(r), *y = partner(r, x);
  switch (below(r, 9)) {
  case 0:
    return scale(r, binary(r, OP_ADD, x, y), 0.5);
  case 1:
    return scale(r, binary(r, OP_SUB, x, y), 0.5);
  case 2:
    return scale(r, binary(r, OP_MUL, x, y), 0.25);
  case 3:
    return binary(r, OP_DIV, x, with(r, OP_ADD, unary(r, OP_ABS, y), 1));
  case 4:
    y = unary(r, OP_TANH, y);
    return binary(r, OP_POW, with(r, OP_ADD, scale(r, unary(r, OP_ABS, x), 0.25), 0.5), y);
  case 5:
    return binary(r, OP_MAX, x, with(r, OP_ADD, scale(r, y, 0.875), 0.1230));
  case 6:
    return binary(r, OP_MIN, x, with(r, OP_SUB, scale(r, y, 0.875), 0.0770));
  case 7:
    y = make_broadcast(r->graph, y, x->type.shape);
    return make_select(r->graph, mask(r, x), x, y);
  default:
    return binary(r, OP_MUL, cast(r, mask(r, x), DT_F32), x);
  }
}

static Node *recipe_reduce(Random *r) {
  Node *x = pick(r), *y;
  int64_t axes[MAX_RANK];
  int count = axes_of(r, &x->type.shape, axes);
  int64_t total = reduced(&x->type.shape, axes, count);
  switch (below(r, 5)) {
  case 0:
    y = reduce(r, OP_RMAX, spread(r, x), axes, count);
    break;
  case 1:
    y = reduce(r, OP_RMIN, spread(r, x), axes, count);
    break;
  case 2:
    if (total > 6) return NULL;
    y = with(r, OP_ADD, scale(r, unary(r, OP_TANH, x), 0.25), 1);
    y = reduce(r, OP_PROD, y, axes, count);
    break;
  case 3:
    if (count != 1) return NULL;
    y = spread(r, x);
    y = reduce(r, chance(r, 2) ? OP_ARGMAX : OP_ARGMIN, y, axes, 1);
    y = scale(r, cast(r, y, DT_F32), 1.0 / (double)total);
    break;
  default:
    y = mean(r, x, axes, count);
  }
  if (chance(r, 2)) return y;
  return scale(r, binary(r, OP_SUB, x, y), 0.5);
}

static Node *recipe_softmax(Random *r) {
  Node *x = pick(r);
  int64_t axes[MAX_RANK];
  int count = axes_of(r, &x->type.shape, axes);
  if (!count) return NULL;
  Node *top = reduce(r, OP_RMAX, x, axes, count);
  if (chance(r, 2)) top = unary(r, OP_STOP_GRADIENT, top);
  Node *shifted = binary(r, OP_SUB, x, top), *power = unary(r, OP_EXP, shifted);
  Node *sum = reduce(r, OP_SUM, power, axes, count);
  if (chance(r, 2)) return binary(r, OP_DIV, power, sum);
  return scale(r, binary(r, OP_SUB, shifted, unary(r, OP_LOG, sum)), 0.25);
}

static Node *recipe_norm(Random *r) {
  Node *x = pick(r);
  int64_t axes[MAX_RANK];
  int count = axes_of(r, &x->type.shape, axes);
  if (!count) return NULL;
  Node *centred = binary(r, OP_SUB, x, mean(r, x, axes, count));
  Node *variance = mean(r, binary(r, OP_MUL, centred, centred), axes, count);
  Node *y = binary(r, OP_MUL, centred, unary(r, OP_RSQRT, with(r, OP_ADD, variance, 0.25)));
  y = binary(r, OP_MUL, y, partner(r, y));
  return activation(r, binary(r, OP_ADD, y, partner(r, y)));
}

/* Picks one class of each row by label, as a cross entropy does. */
static Node *recipe_label(Random *r) {
  Node *x = pick(r);
  int64_t last = x->type.shape.rank ? x->type.shape.dim[x->type.shape.rank - 1] : 1;
  int64_t rows = elements(x) / last, dims[] = {rows, last};
  Shape column = shape_of(2, (int64_t[]){rows, 1});
  Node *index = indices(r, rows, last);
  Node *classes = make_iota(r->graph, index->type.dtype, shape_of(2, dims), 1);
  Node *hit = binary(r, OP_EQ, classes, reshape(r, index, column));
  x = reshape(r, x, shape_of(2, dims));
  return reduce(r, OP_SUM, make_select(r->graph, hit, x, constant(r, DT_F32, 0)), (int64_t[]){1},
                1);
}

static Node *recipe_dot(Random *r) {
  int rank = 2 + below(r, 3);
  Node *x = pick(r);
  bool ta = chance(r, 3), tb = chance(r, 2);
  if (x->type.shape.rank == 4 && chance(r, 2)) { /* flattened images */
    rank = 2;
    x = reshape(r, x,
                shape_of(2, (int64_t[]){x->type.shape.dim[0], elements(x) / x->type.shape.dim[0]}));
  } else {
    x = reshape(r, x, factor(r, elements(x), rank));
  }
  int64_t inner = x->type.shape.dim[ta ? rank - 2 : rank - 1], columns = size(r);
  Shape of = x->type.shape;
  of.dim[rank - 2] = tb ? columns : inner;
  of.dim[rank - 1] = tb ? inner : columns;
  if (shape_elements(&of) > MOST_ELEMENTS || elements(x) / inner * columns > MOST_ELEMENTS)
    return NULL;
  Shape small = shape_of(2, &of.dim[rank - 2]);
  Node *w = chance(r, 2) ? param(r, small) : param(r, of);
  Node *y = make_dot(r->graph, x, make_broadcast(r->graph, w, of), ta, tb);
  y = scale(r, y, 0.5);
  if (chance(r, 2)) y = binary(r, OP_ADD, y, partner(r, y));
  return activation(r, y);
}

static Node *image(Random *r) {
  Node *x = pick(r);
  if (x->type.shape.rank != 2 || chance(r, 2)) return reshape(r, x, factor(r, elements(x), 4));
  Shape to = factor(r, x->type.shape.dim[1], 3); /* rows become images */
  return reshape(r, x,
                 shape_of(4, (int64_t[]){x->type.shape.dim[0], to.dim[0], to.dim[1], to.dim[2]}));
}

/* Window sizes that fit the image. */
static void window(Random *r, const Shape *of, bool is_pool, int64_t kernel[2], int64_t stride[2],
                   int64_t padding[4], int64_t dilation[2]) {
  for (int i = 0; i < 2; i++) {
    kernel[i] = 1 + below(r, 4);
    stride[i] = 1 + below(r, 3);
    dilation[i] = is_pool ? 1 : 1 + below(r, 2);
    padding[i] = below(r, kernel[i]);
    padding[i + 2] = below(r, kernel[i]);
    if (of->dim[2 + i] + padding[i] + padding[i + 2] < dilation[i] * (kernel[i] - 1) + 1)
      kernel[i] = dilation[i] = 1, padding[i] = padding[i + 2] = 0;
  }
}

static Node *recipe_conv(Random *r) {
  Node *x = image(r);
  int64_t kernel[2], stride[2], padding[4], dilation[2], channels = x->type.shape.dim[1];
  window(r, &x->type.shape, false, kernel, stride, padding, dilation);
  int64_t groups = chance(r, 3) ? channels : channels % 2 == 0 && chance(r, 2) ? 2 : 1;
  int64_t outputs = groups * (1 + below(r, 4));
  int64_t dims[] = {outputs, channels / groups, kernel[0], kernel[1]};
  Shape weight = shape_of(4, dims);
  if (shape_elements(&weight) > MOST_ELEMENTS || elements(x) / channels * outputs > MOST_ELEMENTS)
    return NULL;
  Node *inputs[] = {x, param(r, weight)};
  Attr attrs[] = {attr_ints(ATTR_STRIDE, stride, 2), attr_ints(ATTR_PADDING, padding, 4),
                  attr_ints(ATTR_DILATION, dilation, 2), attr_int(ATTR_GROUPS, groups)};
  Node *y = scale(r, graph_node(r->graph, OP_CONV, inputs, 2, attrs, 4, NULL), 0.5);
  if (elements(y) > MOST_ELEMENTS) return NULL;
  if (chance(r, 2)) y = binary(r, OP_ADD, y, param(r, shape_of(3, (int64_t[]){outputs, 1, 1})));
  return activation(r, y);
}

static Node *recipe_pool(Random *r) {
  Node *x = image(r);
  int64_t kernel[2], stride[2], padding[4], dilation[2];
  window(r, &x->type.shape, true, kernel, stride, padding, dilation);
  bool is_max = chance(r, 2);
  if (is_max) x = spread(r, x);
  Attr attrs[] = {attr_ints(ATTR_KERNEL, kernel, 2), attr_ints(ATTR_STRIDE, stride, 2),
                  attr_ints(ATTR_PADDING, padding, 4), attr_bool(ATTR_COUNT_PAD, chance(r, 2))};
  return graph_node(r->graph, is_max ? OP_POOL_MAX : OP_POOL_AVG, &x, 1, attrs, is_max ? 3 : 4,
                    NULL);
}

static Node *recipe_shape(Random *r) {
  Node *x = pick(r);
  Shape of = x->type.shape;
  int64_t perm[MAX_RANK];
  switch (below(r, 3)) {
  case 0:
    return reshape(r, x, factor(r, elements(x), 1 + below(r, 5)));
  case 1:
    for (int i = 0; i < of.rank; i++) {
      int k = below(r, i + 1);
      perm[i] = perm[k];
      perm[k] = i;
    }
    return make_transpose(r->graph, x, perm);
  default:
    for (int i = 0; i < of.rank; i++)
      if (of.dim[i] == 1) of.dim[i] = size(r);
    if (shape_elements(&of) > MOST_ELEMENTS) return NULL;
    return make_broadcast(r->graph, x, of);
  }
}

static Node *recipe_cut(Random *r) {
  Node *x = pick(r);
  Type to = x->type;
  int64_t start[MAX_RANK], step[MAX_RANK], low[MAX_RANK], high[MAX_RANK];
  bool is_pad = chance(r, 2);
  for (int i = 0; i < to.shape.rank; i++) {
    int64_t size = to.shape.dim[i];
    low[i] = below(r, 3);
    high[i] = below(r, 3);
    start[i] = below(r, size);
    step[i] = 1 + below(r, 3);
    int64_t most = (size - 1 - start[i]) / step[i] + 1;
    to.shape.dim[i] = is_pad ? size + low[i] + high[i] : 1 + below(r, most);
  }
  if (shape_elements(&to.shape) > MOST_ELEMENTS) return NULL;
  int rank = to.shape.rank;
  Attr cut[] = {attr_ints(ATTR_START, start, rank), attr_ints(ATTR_STEP, step, rank)};
  Attr pad[] = {attr_ints(ATTR_LOW, low, rank), attr_ints(ATTR_HIGH, high, rank),
                attr_float(ATTR_VALUE, chance(r, 2) ? 0 : 0.75)};
  return is_pad ? graph_node(r->graph, OP_PAD, &x, 1, pad, 3, NULL)
                : graph_node(r->graph, OP_SLICE, &x, 1, cut, 2, &to);
}

static Node *recipe_concat(Random *r) {
  Node *x = pick(r), *parts[3] = {x};
  int rank = x->type.shape.rank, count = 1 + below(r, 3);
  if (!rank || elements(x) * count > MOST_ELEMENTS) return NULL;
  for (int i = 1; i < count; i++) parts[i] = make_broadcast(r->graph, partner(r, x), x->type.shape);
  Attr attr = attr_int(ATTR_AXIS, below(r, rank));
  return graph_node(r->graph, OP_CONCAT, parts, count, &attr, 1, NULL);
}

static Node *recipe_lookup(Random *r) {
  Node *x = pick(r);
  x = reshape(r, x, factor(r, elements(x), 2));
  int64_t rows = x->type.shape.dim[0], width = x->type.shape.dim[1], count = 1 + below(r, 12);
  if (chance(r, 2)) {
    if (count * width > MOST_ELEMENTS) return NULL;
    Node *inputs[] = {x, indices(r, count, rows)};
    return graph_node(r->graph, OP_GATHER, inputs, 2, NULL, 0, NULL);
  }
  Node *inputs[] = {x, indices(r, rows, count)};
  Type to = {DT_F32, shape_of(2, (int64_t[]){count, width})};
  Node *y = graph_node(r->graph, OP_SCATTER_ADD, inputs, 2, NULL, 0, &to);
  return scale(r, y, 1.0 / (double)rows);
}

/* Some rows of a tensor made anew, or of a state that takes them; a few fall off its end. */
static Node *recipe_put(Random *r) {
  Node *x = pick(r);
  Shape of = x->type.shape;
  if (!of.rank) return NULL;
  int axis = below(r, of.rank);
  int64_t count = 1 + below(r, of.dim[axis]);
  bool is_kept = chance(r, 2);
  Node *base = x;
  const char *name = NULL;
  if (is_kept) {
    name = arena_printf(r->graph->arena, "s%d.kept", r->states++);
    base = leaf(r, OP_STATE, name, x->type, "uniform", -1, 1);
  }
  of.dim[axis] = count;
  Node *part = is_kept ? scale(r, param(r, of), 0.5) : param(r, of);
  Node *where = constant(r, DT_I64, below(r, x->type.shape.dim[axis] + 1) - 1);
  Node *inputs[] = {base, part, where};
  Attr along = attr_int(ATTR_AXIS, axis);
  Node *y = graph_node(r->graph, OP_PUT, inputs, 3, &along, 1, NULL);
  if (!is_kept) return y;
  Attr target = attr_str(ATTR_TARGET, name);
  Node *assign = graph_node(r->graph, OP_ASSIGN, &y, 1, &target, 1, NULL);
  graph_add_root(r->graph, ROOT_ASSIGN, name, assign);
  return chance(r, 2) ? y : scale(r, binary(r, OP_SUB, x, y), 0.5);
}

/* Attention of a few heads, some of which may share keys; its result is a mean of values. */
/* An attention's operands and attributes; drops: with dropout, whose draws are its last operand. */
typedef struct {
  Node *operand[5];
  int count;
  bool is_causal, is_capped, drops;
} Attended;

static Node *uniform(Random *r, Shape shape) {
  Type scalar = {DT_I64, shape_scalar()}, type = {DT_F32, shape}, setting = {DT_F64, shape_scalar()};
  if (!r->step) {
    r->step = make_state(r->graph, ROLE_STEP, OWN_STEP, scalar, 0);
    r->seed = cast(r, leaf(r, OP_SETTING, "train.seed", setting, NULL, 0, 0), DT_I64);
  }
  Attr stream = attr_int(ATTR_STREAM, r->streams++);
  return graph_node(r->graph, OP_RANDOM, (Node *[]){r->seed, r->step}, 2, &stream, 1, &type);
}

static Node *attended(Random *r, Attended *a) {
  Attr attrs[4] = {attr_bool(ATTR_CAUSAL, a->is_causal), attr_float(ATTR_SCALE, 0.4)};
  int count = 2;
  Shape scores = a->operand[0]->type.shape;
  scores.dim[3] = a->operand[1]->type.shape.dim[2];
  if (a->is_capped) attrs[count++] = attr_float(ATTR_SOFTCAP, 0.7);
  if (a->drops) attrs[count++] = attr_float(ATTR_DROPOUT, scores.dim[3] % 2 ? 0.25 : 0.6);
  if (a->drops) a->operand[a->count++] = uniform(r, scores);
  return make_result(r->graph, graph_node(r->graph, OP_ATTENTION, a->operand, a->count, attrs, count, NULL), 0);
}

static Node *recipe_attention(Random *r) {
  enum { B, H, T, D };
  Node *x = pick(r), *inputs[4] = {reshape(r, x, factor(r, elements(x), 4))};
  Shape of = inputs[0]->type.shape, mask;
  int64_t keys = size(r);
  while (of.dim[H] > 1 && chance(r, 2) && of.dim[H] % 2 == 0) of.dim[H] /= 2;
  of.dim[T] = keys;
  if (shape_elements(&of) > MOST_ELEMENTS || elements(x) / of.dim[D] * keys > MOST_ELEMENTS)
    return NULL;
  inputs[1] = param(r, of);
  if (chance(r, 8)) of.dim[D] = size(r);
  if (shape_elements(&of) > MOST_ELEMENTS || elements(x) * of.dim[D] > MOST_ELEMENTS * 4)
    return NULL;
  inputs[2] = param(r, of);
  mask = inputs[0]->type.shape;
  for (int i = 0; i < 3; i++)
    if (chance(r, 2)) mask.dim[i] = 1;
  mask.dim[D] = keys;
  bool is_masked = chance(r, 3);
  if (is_masked) inputs[3] = make_broadcast(r->graph, pattern(r, mask), mask);
  if (is_masked && chance(r, 2)) inputs[3] = with(r, OP_GT, inputs[3], -0.3);
  Attended a = {{inputs[0], inputs[1], inputs[2], inputs[3]}, is_masked ? 4 : 3, chance(r, 2), keys % 3 == 1, keys % 4 == 2};
  return attended(r, &a);
}

static Node *heads_of(Random *r, Node *rows, int64_t from, int64_t heads, int64_t features) {
  static const int64_t swap[] = {0, 2, 1, 3};
  Shape part = rows->type.shape, apart = {4, {part.dim[0], part.dim[1], heads, features}};
  part.dim[2] = heads * features;
  int64_t start[3] = {0, 0, from}, step[3] = {1, 1, 1};
  Type type = {DT_F32, part};
  Attr attrs[] = {attr_ints(ATTR_START, start, 3), attr_ints(ATTR_STEP, step, 3)};
  Node *x = graph_node(r->graph, OP_SLICE, &rows, 1, attrs, 2, &type);
  return make_transpose(r->graph, reshape(r, x, apart), swap);
}

/* Attention as models have it: q, k and v are parts of one product, their heads beside one another.
 */
static Node *recipe_heads(Random *r) {
  static const int64_t swap[] = {0, 2, 1, 3};
  Node *x = pick(r), *operands[3];
  int64_t groups = 1 + below(r, 3), heads = groups * (1 + below(r, 2)), features = 1 + below(r, 9);
  Shape to = factor(r, elements(x), 3), flat = {2, {to.dim[0] * to.dim[1], to.dim[2]}};
  int64_t width = (heads + 2 * groups) * features;
  if (flat.dim[0] * width > MOST_ELEMENTS || flat.dim[1] * width > MOST_ELEMENTS ||
      flat.dim[0] * to.dim[1] * heads > MOST_ELEMENTS)
    return NULL;
  Node *weight = param(r, (Shape){2, {flat.dim[1], width}});
  Node *rows = make_dot(r->graph, reshape(r, x, flat), weight, false, false);
  rows = scale(r, rows, 1.0 / (double)flat.dim[1]);
  to.dim[2] = width;
  rows = reshape(r, rows, to);
  operands[0] = heads_of(r, rows, 0, heads, features);
  operands[1] = heads_of(r, rows, heads * features, groups, features);
  operands[2] = heads_of(r, rows, (heads + groups) * features, groups, features);
  if (chance(r, 3)) operands[0] = scale(r, operands[0], 1.5);
  Attended a = {{operands[0], operands[1], operands[2]}, 3, chance(r, 2), features % 3 == 1, features % 4 == 3};
  Node *y = make_transpose(r->graph, attended(r, &a), swap);
  to.dim[2] = heads * features;
  return reshape(r, y, to);
}

static Node *recipe_dropout(Random *r) {
  Node *x = pick(r);
  Node *draw = uniform(r, x->type.shape);
  Node *keep = with(r, OP_LT, draw, chance(r, 2) ? 0.5 : 0.875);
  return make_select(r->graph, keep, x, constant(r, DT_F32, 0));
}

/* A running mean: read here, written at the end of the step. */
static Node *recipe_state(Random *r) {
  Node *x = pick(r);
  int64_t axes[MAX_RANK];
  int count = axes_of(r, &x->type.shape, axes);
  Node *now = mean(r, x, axes, count);
  const char *name = arena_printf(r->graph->arena, "s%d.mean", r->states++);
  Node *old = leaf(r, OP_STATE, name, now->type, "uniform", -1, 1);
  Node *part = scale(r, now, 0.25), *update = binary(r, OP_ADD, scale(r, old, 0.75), part);
  Attr target = attr_str(ATTR_TARGET, name);
  Node *assign = graph_node(r->graph, OP_ASSIGN, &update, 1, &target, 1, NULL);
  graph_add_root(r->graph, ROOT_ASSIGN, name, assign);
  return scale(r, binary(r, OP_SUB, x, old), 0.5);
}

static Node *recipe_leaf(Random *r) {
  return chance(r, 2) ? param(r, shape(r)) : input(r, DT_F32, shape(r));
}

static Node *(*const recipes[])(Random *) = {
    recipe_unary,     recipe_unary,  recipe_unary,   recipe_binary, recipe_binary, recipe_binary,
    recipe_reduce,    recipe_reduce, recipe_softmax, recipe_norm,   recipe_label,  recipe_dot,
    recipe_dot,       recipe_conv,   recipe_pool,    recipe_shape,  recipe_shape,  recipe_cut,
    recipe_concat,    recipe_lookup, recipe_dropout, recipe_state,  recipe_leaf,   recipe_step,
    recipe_attention, recipe_heads,  recipe_put,
};

/* ── the whole ──────────────────────────────────────────────────────────────────────────────── */
static Node *average(Random *r, Node *x) {
  int64_t axes[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
  return reshape(r, mean(r, x, axes, x->type.shape.rank), shape_scalar());
}

/* The mean over everything in the pool that nothing else uses, weighted by position: a softmax,
 * whose plain mean is constant, then has a gradient too. */
static void add_loss(Random *r) {
  int *uses = graph_use_counts(r->graph, r->graph->arena), terms = 0, count = r->pool.count;
  Node *loss = NULL;
  for (int i = 0; i < count; i++) {
    Node *x = r->pool.at[i];
    if (uses[x->id] || x->op == OP_INPUT) continue;
    uses[x->id] = 1; /* a recipe may give back what it took */
    Node *term = average(r, binary(r, OP_MUL, x, pattern(r, x->type.shape)));
    loss = loss ? binary(r, OP_ADD, loss, term) : term;
    terms++;
  }
  if (!loss) loss = average(r, r->pool.at[count - 1]), terms = 1;
  graph_add_root(r->graph, ROOT_LOSS, "loss", scale(r, loss, 1.0 / terms));
}

Graph *graph_random(Arena *arena, uint64_t seed, int size) {
  Random random = {.graph = graph_new(arena, "train"), .state = seed}, *r = &random;
  begin_recipe(r);
  Node *first = input(r, DT_F32, shape(r)), *second = param(r, shape(r));
  VEC_PUSH(arena, r->pool, first);
  VEC_PUSH(arena, r->pool, second);
  begin_recipe(r);
  for (int made = 0; made < size;) {
    Node *node = recipes[below(r, (int64_t)(sizeof recipes / sizeof *recipes))](r);
    if (!node) continue;
    VEC_PUSH(arena, r->pool, node);
    begin_recipe(r);
    made++;
  }
  graph_add_root(r->graph, ROOT_METRIC, "average", average(r, pick(r)));
  for (int i = 0, count = below(r, 3); i < count; i++)
    graph_add_root(r->graph, ROOT_OUTPUT, arena_printf(arena, "out%d", i), pick(r));
  add_loss(r);
  return r->graph;
}
