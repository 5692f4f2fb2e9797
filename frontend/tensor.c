/* tensor: graph nodes made on the user's behalf. Every rule the user can break is checked here,
 * with both shapes in the message; what infer_type refuses beyond that is passed on in its words.
 */
#include "frontend/builder.h"
#include <math.h>
#include <stdint.h>
#include <string.h>

bool tensor_shape_fits(Builder *b, const Shape *shape, Loc loc) {
  int64_t elements = 1;
  char text[TYPE_TEXT];
  for (int i = 0; i < shape->rank; i++) {
    if (shape->dim[i] < 0)
      return builder_fail(b, loc, "a dimension cannot be negative: %s", shape_text(shape, text));
    if (shape->dim[i] && elements > LIMIT_ELEMENTS / shape->dim[i])
      return builder_fail(b, loc, "a tensor of shape %s is too large (more than 2^40 elements)",
                          shape_text(shape, text));
    elements *= shape->dim[i] ? shape->dim[i] : 1;
  }
  return true;
}

int64_t tensor_flops(const Node *node) {
  const Shape *out = &node->type.shape;
  int64_t elements = shape_elements(out);
  switch (op_info[node->op].op_class) {
  case CLASS_POINTWISE:
    return node->op == OP_CAST ? 0 : elements;
  case CLASS_REDUCE:
    return shape_elements(&node->input[0]->type.shape);
  case CLASS_CONTRACT: {
    const Shape *x = &node->input[0]->type.shape, *w = &node->input[1]->type.shape;
    if (node->op == OP_DOT)
      return 2 * elements * x->dim[node_int(node, ATTR_TRANS_A, 0) ? x->rank - 2 : x->rank - 1];
    if (node->op == OP_ATTENTION)
      return 2 * shape_elements(x) * w->dim[2] + 2 * elements * w->dim[2];
    if (node->op == OP_CONV_GRAD_INPUT) elements = shape_elements(x); /* each meets a filter */
    return 2 * elements * w->dim[1] * w->dim[2] * w->dim[3];
  }
  case CLASS_WINDOW: {
    const Attr *kernel = node_attr(node, ATTR_KERNEL);
    return kernel ? elements * kernel->ints[0] * kernel->ints[1] : elements;
  }
  default:
    return 0;
  }
}

/* What the layer at work wants; a function works for the layer that calls it. Products that attention is written in
 * are of the type that attention has otherwise. */
static const char *precision_here(const Builder *b) {
  const Frame *frame = b->frame;
  while (frame && !frame->instance) frame = frame->up;
  const char *own = frame ? frame->instance->precision : NULL;
  const char *precision = own ? own : setting_text(b->program->settings, "train.precision");
  return b->is_in_attention && !strcmp(precision, "fp8") ? "bf16" : own;
}

/* ── for people: what a node is a part of ─────────────────────────────────────────────────── */
/* The param that a value is a view of; NULL: it is computed. */
static const char *param_behind(const Node *node) {
  while (node->op == OP_RESHAPE || node->op == OP_BROADCAST || node->op == OP_TRANSPOSE ||
         node->op == OP_CAST)
    node = node->input[0];
  return node->op == OP_PARAM ? node_str(node, ATTR_NAME) : NULL;
}

/* The layer at work. What the model computes by itself belongs to the parameter of its own that it
 * reads, or to the loss or metric that it is for; NULL: to neither. */
static const char *layer_here(Builder *b, Node *const *inputs, int count) {
  enum { LONGEST = 1000 };
  const char *layer = block_layer(b);
  for (int i = 0; i < count && !*layer; i++) {
    const char *param = param_behind(inputs[i]);
    if (param) layer = param;
  }
  if (!*layer) layer = b->result;
  return layer && strlen(layer) <= LONGEST ? layer : NULL;
}

/* The function at work; adding a bias is one to people. */
static const char *function_here(const Builder *b, Op op, Node *const *inputs, int count) {
  bool may_be_bias = op == OP_ADD || op_info[op].op_class == CLASS_MOVE;
  for (int i = 0; i < count && may_be_bias && !b->function; i++) {
    const char *param = param_behind(inputs[i]), *dot = param ? strrchr(param, '.') : NULL;
    if (param && !strcmp(dot ? dot + 1 : param, "bias")) return "bias";
  }
  return b->function ? b->function : b->std_block;
}

/* The number by which a product finds the scales of its operands: the same in all graphs, of whatever other products
 * these have, and another one for each application of a layer. */
static void number_product(Builder *b, Node *product, const char *precision, Loc loc) {
  const SettingValue *settings = b->program->settings;
  const Origin *origin = &product->origin;
  if (!precision) precision = setting_text(settings, "train.precision");
  if (strcmp(precision, "fp8") != 0 || strcmp(setting_text(settings, "train.fp8.scaling"), "delayed") != 0) return;
  const char *key = arena_printf(b->arena, "%s %u:%u:%u %u:%u:%u", origin->layer ? origin->layer : "", origin->loc.file,
                                 origin->loc.line, origin->loc.column, loc.file, loc.line, loc.column);
  int place = lookup_add_text(&b->product_places, key, b->product_uses.count);
  if (place == b->product_uses.count) VEC_PUSH(b->arena, b->product_uses, 0);
  key = arena_printf(b->arena, "%s %d", key, b->product_uses.at[place]++);
  int number = lookup_add_text(b->program->products, key, b->program->products->entries.count);
  node_set_attr(b->graph, product, attr_int(ATTR_STREAM, number));
}

const char *tensor_written(const Builder *b, Op op) {
  const char *name = b->written.name;
  return name ? arena_printf(b->arena, b->written.is_operator ? "'%s'" : "%s()", name) : op_info[op].text;
}

/* Why there is no such node, in the user's words. */
static bool refuse_node(Builder *b, Op op, Node *const *inputs, int count, const Attr *attrs, int attr_count,
                        const Type *given, Loc loc) {
  Type type;
  const char *why = NULL;
  infer_type(b->graph->arena, op, tensor_written(b, op), inputs, count, attrs, attr_count, given, &type, &why);
  builder_about(b, count > 0 ? inputs[0] : NULL, count > 1 ? inputs[1] : NULL);
  return builder_fail(b, loc, "%s", why ? why : "this operation does not fit its operands");
}

Node *tensor_node(Builder *b, Op op, Node *const *inputs, int count, const Attr *attrs,
                  int attr_count, const Type *given, Loc loc) {
  for (int i = 0; i < count; i++)
    if (!inputs[i]) return NULL;
  if (b->exhausted) return NULL;
  if (b->graph->nodes.count >= LIMIT_NODES) {
    b->exhausted = true;
    builder_fail(b, loc, "the model has more than %d operations", LIMIT_NODES);
    return NULL;
  }
  if (given && !tensor_shape_fits(b, &given->shape, loc)) return NULL;
  const char *why = NULL;
  b->graph->origin = (Origin){.loc = builder_site(b, loc),
                              .region = b->region,
                              .layer = layer_here(b, inputs, count),
                              .function = function_here(b, op, inputs, count)};
  Node *node = graph_try_node(b->graph, op, inputs, count, attrs, attr_count, given, &why);
  if (!node) {
    refuse_node(b, op, inputs, count, attrs, attr_count, given, loc);
    return NULL;
  }
  if (!tensor_shape_fits(b, &node->type.shape, loc)) return NULL;
  if (b->frame) b->frame->flops += tensor_flops(node);
  const char *precision = op_info[op].op_class == CLASS_CONTRACT ? precision_here(b) : NULL;
  if (precision) node_set_attr(b->graph, node, attr_str(ATTR_PRECISION, precision));
  if (op == OP_DOT) number_product(b, node, precision, loc);
  return weight_follow(b, node, loc) ? node : NULL;
}

Node *tensor_unary(Builder *b, Op op, Node *x, Loc loc) {
  return tensor_node(b, op, &x, 1, NULL, 0, NULL, loc);
}

Node *tensor_fill(Builder *b, DType dtype, Shape shape, double value, Loc loc) {
  Type type = {dtype, shape};
  Attr attr = attr_float(ATTR_VALUE, value);
  return tensor_node(b, OP_CONST, NULL, 0, &attr, 1, &type, loc);
}

Node *tensor_const(Builder *b, DType dtype, double value, Loc loc) {
  return tensor_fill(b, dtype, shape_scalar(), value, loc);
}

Node *tensor_cast(Builder *b, Node *x, DType dtype, Loc loc) {
  if (!x || x->type.dtype == dtype) return x;
  Type type = {dtype, x->type.shape};
  return tensor_node(b, OP_CAST, &x, 1, NULL, 0, &type, loc);
}

Node *tensor_gather(Builder *b, Node *table, Node *index, Loc loc) {
  if (!table || !index) return NULL;
  DType dtype = index->type.dtype;
  if (dtype == DT_U8 || dtype == DT_U32) index = tensor_cast(b, index, DT_I32, loc);
  return tensor_node(b, OP_GATHER, (Node *[]){table, index}, 2, NULL, 0, NULL, loc);
}

Node *tensor_reshape(Builder *b, Node *x, Shape shape, Loc loc) {
  if (!x || shape_equal(&x->type.shape, &shape)) return x;
  char from[TYPE_TEXT], to[TYPE_TEXT];
  if (!tensor_shape_fits(b, &shape, loc)) return NULL;
  if (shape_elements(&shape) != shape_elements(&x->type.shape)) {
    builder_about(b, x, NULL);
    builder_fail(b, loc, "cannot reshape %s (%lld elements) to %s (%lld elements)",
                 shape_text(&x->type.shape, from), (long long)shape_elements(&x->type.shape),
                 shape_text(&shape, to), (long long)shape_elements(&shape));
    return NULL;
  }
  Type type = {x->type.dtype, shape};
  return tensor_node(b, OP_RESHAPE, &x, 1, NULL, 0, &type, loc);
}

Node *tensor_broadcast(Builder *b, Node *x, Shape shape, Loc loc) {
  if (!x || shape_equal(&x->type.shape, &shape)) return x;
  Shape whole;
  char from[TYPE_TEXT], to[TYPE_TEXT];
  if (!shape_broadcast(&x->type.shape, &shape, &whole) || !shape_equal(&whole, &shape)) {
    builder_about(b, x, NULL);
    builder_fail(b, loc, "cannot broadcast %s to %s", shape_text(&x->type.shape, from),
                 shape_text(&shape, to));
    return NULL;
  }
  if (x->op == OP_CONST) /* a number stays one node */
    return tensor_fill(b, x->type.dtype, shape, node_float(x, ATTR_VALUE, 0), loc);
  Shape grown = shape;
  for (int i = 0; i < shape.rank; i++) {
    int from_axis = i - (shape.rank - x->type.shape.rank);
    grown.dim[i] = from_axis >= 0 ? x->type.shape.dim[from_axis] : 1;
  }
  x = tensor_reshape(b, x, grown, loc);
  if (!x || shape_equal(&grown, &shape)) return x;
  Type type = {x->type.dtype, shape};
  return tensor_node(b, OP_BROADCAST, &x, 1, NULL, 0, &type, loc);
}

Node *tensor_transpose(Builder *b, Node *x, const int64_t *perm, Loc loc) {
  if (!x) return NULL;
  bool identity = true;
  for (int i = 0; i < x->type.shape.rank; i++) identity = identity && perm[i] == i;
  if (identity) return x;
  Attr attr = attr_ints(ATTR_PERM, perm, x->type.shape.rank);
  return tensor_node(b, OP_TRANSPOSE, &x, 1, &attr, 1, NULL, loc);
}

Node *tensor_take(Builder *b, Node *x, Node *index, int axis, Loc loc) {
  if (!x || !index) return NULL;
  int rank = x->type.shape.rank, from = index->type.shape.rank;
  int64_t to_front[MAX_RANK], back[MAX_RANK];
  for (int i = 0; i < rank; i++) to_front[i] = i == 0 ? axis : i <= axis ? i - 1 : i;
  Node *rows = tensor_gather(b, tensor_transpose(b, x, to_front, loc), index, loc);
  /* [index..., the dimensions before axis, those behind] */
  for (int i = 0; i < rank - 1 + from && i < MAX_RANK; i++)
    back[i] = i < axis ? from + i : i < axis + from ? i - axis : i;
  return rows ? tensor_transpose(b, rows, back, loc) : NULL;
}

Node *tensor_flip(Builder *b, Node *x, int axis, Loc loc) {
  if (!x) return NULL;
  int64_t size = x->type.shape.dim[axis];
  Type type = {size > INT32_MAX ? DT_I64 : DT_I32, {1, {size}}};
  Attr attr = attr_int(ATTR_AXIS, 0);
  Node *place = tensor_node(b, OP_IOTA, NULL, 0, &attr, 1, &type, loc);
  Node *last = tensor_const(b, type.dtype, (double)(size - 1), loc);
  return tensor_take(b, x, tensor_binary(b, OP_SUB, "-", last, place, loc), axis, loc);
}

/* Both operands at one shape; `name` is the operation in the user's words. */
static bool agree(Builder *b, const char *name, Node **x, Node **y, Loc loc) {
  if (!*x || !*y) return false;
  Shape shape;
  char left[TYPE_TEXT], right[TYPE_TEXT];
  if (!shape_broadcast(&(*x)->type.shape, &(*y)->type.shape, &shape)) {
    builder_about(b, *x, *y);
    return builder_fail(b, loc, "shapes do not agree: %s %s %s", type_text(&(*x)->type, left), name,
                        type_text(&(*y)->type, right));
  }
  *x = tensor_broadcast(b, *x, shape, loc);
  *y = tensor_broadcast(b, *y, shape, loc);
  return *x && *y;
}

Node *tensor_binary(Builder *b, Op op, const char *name, Node *x, Node *y, Loc loc) {
  if (!x || !y) return NULL;
  if (x->type.dtype != y->type.dtype) {
    char left[TYPE_TEXT], right[TYPE_TEXT];
    builder_about(b, x, y);
    builder_fail(b, loc, "types do not agree: %s %s %s; cast one, e.g. %s(x)",
                 type_text(&x->type, left), name, type_text(&y->type, right),
                 dtype_text(dtype_is_float(x->type.dtype)   ? x->type.dtype
                            : dtype_is_float(y->type.dtype) ? y->type.dtype
                                                            : DT_F32));
    return NULL;
  }
  if (!agree(b, name, &x, &y, loc)) return NULL;
  return tensor_node(b, op, (Node *[]){x, y}, 2, NULL, 0, NULL, loc);
}

Node *tensor_select(Builder *b, Node *cond, Node *x, Node *y, Loc loc) {
  if (!cond || !agree(b, "and", &x, &y, loc)) return NULL;
  if (!agree(b, "chooses from", &cond, &x, loc)) return NULL;
  y = tensor_broadcast(b, y, x->type.shape, loc);
  return tensor_node(b, OP_SELECT, (Node *[]){cond, x, y}, 3, NULL, 0, NULL, loc);
}

Node *tensor_reduce(Builder *b, Op op, Node *x, const int64_t *axes, int count, bool keep,
                    Loc loc) {
  if (x) x = weight_reduced(b, op, x, loc);
  if (!x) return NULL;
  Shape dropped = {0};
  for (int i = 0, next = 0; i < x->type.shape.rank; i++) {
    if (next < count && axes[next] == i)
      next++;
    else
      dropped.dim[dropped.rank++] = x->type.shape.dim[i];
  }
  if (count) {
    Attr attr = attr_ints(ATTR_AXES, axes, count);
    x = tensor_node(b, op, &x, 1, &attr, 1, NULL, loc);
  }
  return keep ? x : tensor_reshape(b, x, dropped, loc);
}

/* x is a transpose of its last two dimensions alone: the product can read it as it lies. */
static bool swaps_last(const Node *x) {
  if (x->op != OP_TRANSPOSE) return false;
  const Attr *perm = node_attr(x, ATTR_PERM);
  int rank = x->type.shape.rank;
  for (int i = 0; i < rank - 2; i++)
    if (perm->ints[i] != i) return false;
  return rank >= 2 && perm->ints[rank - 1] == rank - 2;
}

static Node *tensor_dot(Builder *b, Node *x, Node *y, Loc loc) {
  if (!x || !y) return NULL;
  bool swap_x = swaps_last(x), swap_y = swaps_last(y);
  Node *inputs[2] = {swap_x ? x->input[0] : x, swap_y ? y->input[0] : y};
  Attr attrs[2] = {attr_bool(ATTR_TRANS_A, swap_x), attr_bool(ATTR_TRANS_B, swap_y)};
  return tensor_node(b, OP_DOT, inputs, 2, attrs, 2, NULL, loc);
}

static Shape with_batch(const Shape *batch, int64_t rows, int64_t columns) {
  Shape shape = *batch;
  shape.dim[shape.rank++] = rows;
  shape.dim[shape.rank++] = columns;
  return shape;
}

/* NumPy's rules: vectors are promoted, leading dimensions broadcast. x[..., K] @ w[K, N] is one
 * matrix product over all leading dimensions. */
Node *tensor_matmul(Builder *b, Node *x, Node *y, Loc loc) {
  if (!x || !y) return NULL;
  Shape sx = x->type.shape, sy = y->type.shape;
  char left[TYPE_TEXT], right[TYPE_TEXT];
  type_text(&x->type, left);
  type_text(&y->type, right);
  if (x->type.dtype != y->type.dtype || !dtype_is_float(x->type.dtype)) {
    builder_about(b, x, y);
    builder_fail(b, loc, "a matrix product needs floats of one type: %s @ %s", left, right);
    return NULL;
  }
  bool row = sx.rank == 1, column = sy.rank == 1;
  if (row) sx = (Shape){2, {1, sx.dim[0]}};
  if (column) sy = (Shape){2, {sy.dim[0], 1}};
  if (sx.rank < 2 || sy.rank < 2 || sx.dim[sx.rank - 1] != sy.dim[sy.rank - 2]) {
    builder_about(b, x, y);
    builder_fail(b, loc, "shapes do not agree: %s @ %s", left, right);
    return NULL;
  }
  x = tensor_reshape(b, x, sx, loc);
  y = tensor_reshape(b, y, sy, loc);
  int64_t m = sx.dim[sx.rank - 2], k = sx.dim[sx.rank - 1], n = sy.dim[sy.rank - 1];
  Shape batch_x = {.rank = sx.rank - 2}, batch_y = {.rank = sy.rank - 2}, batch;
  memcpy(batch_x.dim, sx.dim, sizeof batch_x.dim);
  memcpy(batch_y.dim, sy.dim, sizeof batch_y.dim);
  if (!shape_broadcast(&batch_x, &batch_y, &batch)) {
    builder_about(b, x, y);
    builder_fail(b, loc, "leading dimensions do not agree: %s @ %s", left, right);
    return NULL;
  }
  Node *product;
  if (batch_y.rank == 0 && batch_x.rank > 0) {
    Shape flat = {2, {shape_elements(&batch_x) * m, k}};
    product = tensor_dot(b, tensor_reshape(b, x, flat, loc), y, loc);
  } else {
    if (!shape_equal(&batch_x, &batch)) x = tensor_broadcast(b, x, with_batch(&batch, m, k), loc);
    if (!shape_equal(&batch_y, &batch)) y = tensor_broadcast(b, y, with_batch(&batch, k, n), loc);
    product = tensor_dot(b, x, y, loc);
  }
  Shape out = batch;
  if (!row) out.dim[out.rank++] = m;
  if (!column) out.dim[out.rank++] = n;
  return tensor_reshape(b, product, out, loc);
}

Node *tensor_step(Builder *b, Loc loc) {
  Type scalar = {DT_I64, shape_scalar()};
  Attr step[2] = {attr_str(ATTR_NAME, OWN_STEP), attr_str(ATTR_INIT, "zeros")};
  if (b->step) return b->step;
  b->step = tensor_node(b, OP_STATE, NULL, 0, step, 2, &scalar, loc);
  if (b->step) b->step->role = ROLE_STEP;
  return b->step;
}

Node *tensor_uniform(Builder *b, Shape shape, Loc loc) {
  Type scalar_f64 = {DT_F64, shape_scalar()};
  if (!b->seed) {
    Attr name = attr_str(ATTR_NAME, "train.seed");
    Node *seed = tensor_node(b, OP_SETTING, NULL, 0, &name, 1, &scalar_f64, loc);
    b->seed = tensor_cast(b, seed, DT_I64, loc);
  }
  Type type = {DT_F32, shape};
  Attr stream = attr_int(ATTR_STREAM, b->streams++);
  return tensor_node(b, OP_RANDOM, (Node *[]){b->seed, tensor_step(b, loc)}, 2, &stream, 1, &type, loc);
}

bool tensor_number(Builder *b, const Value *v, DType dtype, Loc loc, double *out) {
  double number = *out = value_number(v);
  if (!dtype_is_float(dtype) && number != floor(number))
    return builder_fail(b, loc, "%s does not fit a tensor of %s; cast the tensor: f32(x)",
                        value_text(b->arena, v), dtype_text(dtype));
  /* a constant is a double: 64 bits only as far as those are exact */
  double low = dtype == DT_I64 ? -0x1p53 : dtype_extreme(dtype, true);
  double high = dtype == DT_I64 ? 0x1p53 : dtype_extreme(dtype, false);
  bool is_within = number >= low && number <= high;
  bool is_exact = /* 2^53 + 1 is not */
      v->kind != VALUE_INT || (is_within && (int64_t)number == v->i);
  return dtype_is_float(dtype) || (is_within && is_exact) ||
         builder_fail(b, loc, "%s is out of range for %s", value_text(b->arena, v),
                      dtype_text(dtype));
}

Node *tensor_of(Builder *b, const Value *v, DType dtype, Loc loc) {
  if (v->kind == VALUE_TENSOR) return v->node;
  if (v->kind == VALUE_BOOL && dtype == DT_BOOL) return tensor_const(b, dtype, (double)v->i, loc);
  if (!value_is_number(v)) {
    if (v->kind != VALUE_ERROR)
      builder_fail(b, loc, "expected a tensor or a number, not %s", value_describe(b->arena, v));
    return NULL;
  }
  double number;
  if (dtype == DT_BOOL) {
    builder_fail(b, loc, "a number does not fit a bool tensor; cast the tensor, e.g. f32(x)");
    return NULL;
  }
  return tensor_number(b, v, dtype, loc, &number) ? tensor_const(b, dtype, number, loc) : NULL;
}
