/* onnx_ops: the operators of ONNX that an op is. What has none is refused. */
#include "codegen/onnx_private.h"
#include <math.h>

/* Ops that are one operator, of inputs of one shape. */
static const char *onnx_pointwise(const Node *node) {
  bool is_bool = node->input_count && node->input[0]->type.dtype == DT_BOOL;
  switch (node->op) {
  case OP_NEG: return "Neg";
  case OP_ABS: return "Abs";
  case OP_SIGN: return "Sign";
  case OP_EXP: return "Exp";
  case OP_LOG: return "Log";
  case OP_SQRT: return "Sqrt";
  case OP_SIN: return "Sin";
  case OP_COS: return "Cos";
  case OP_TANH: return "Tanh";
  case OP_SIGMOID: return "Sigmoid";
  case OP_ERF: return "Erf";
  case OP_FLOOR: return "Floor";
  case OP_CEIL: return "Ceil";
  case OP_ROUND: return "Round";
  case OP_NOT: return is_bool ? "Not" : "BitwiseNot";
  case OP_ADD: return "Add";
  case OP_SUB: return "Sub";
  case OP_MUL: return "Mul";
  case OP_DIV: return "Div";
  case OP_POW: return "Pow";
  case OP_MAX: return "Max";
  case OP_MIN: return "Min";
  case OP_EQ: return "Equal";
  case OP_LT: return "Less";
  case OP_LE: return "LessOrEqual";
  case OP_GT: return "Greater";
  case OP_GE: return "GreaterOrEqual";
  case OP_AND: return is_bool ? "And" : "BitwiseAnd";
  case OP_OR: return is_bool ? "Or" : "BitwiseOr";
  case OP_XOR: return is_bool ? "Xor" : "BitwiseXor";
  case OP_SELECT: return "Where";
  default: return NULL;
  }
}

/* Dimensions as its inputs have them together. */
static void join_shapes(const Onnx *o, const Node *node, Shape *shape) {
  for (int i = 0; i < shape->rank; i++) {
    shape->dim[i] = 1;
    for (int k = 0; k < node->input_count; k++) {
      int64_t dim = o->value[node->input[k]->id].shape.dim[i];
      if (dim != 1) shape->dim[i] = dim;
    }
  }
}

const char *onnx_cast(Onnx *o, const char *x, DType dtype) {
  Text to = {0};
  onnx_int(&to, "to", onnx_type(dtype));
  return onnx_node(o, "Cast", &to, x, NULL, NULL);
}

static const char *onnx_unary(Onnx *o, const char *op, const char *x) {
  return onnx_node(o, op, NULL, x, NULL, NULL);
}

static const char *onnx_binary(Onnx *o, const char *op, const char *a, const char *b) {
  return onnx_node(o, op, NULL, a, b, NULL);
}

/* NULL without a refusal: none of these. */
static const char *onnx_elements(Onnx *o, const Node *node, Shape *shape) {
  const char *op = onnx_pointwise(node), *in[3] = {NULL, NULL, NULL};
  DType dtype = node->type.dtype;
  Text attributes = {0};
  if (op_info[node->op].op_class != CLASS_POINTWISE) return NULL;
  for (int i = 0; i < node->input_count && i < 3; i++) in[i] = onnx_value(o, node->input[i]);
  join_shapes(o, node, shape);
  if (op) return onnx_node(o, op, NULL, in[0], in[1], in[2]);
  switch (node->op) {
  case OP_CAST:
    return onnx_cast(o, in[0], dtype);
  case OP_RSQRT:
    return onnx_unary(o, "Reciprocal", onnx_unary(o, "Sqrt", in[0]));
  case OP_EXPM1:
    return onnx_binary(o, "Sub", onnx_unary(o, "Exp", in[0]), onnx_number(o, dtype, 1));
  case OP_LOG1P:
    return onnx_unary(o, "Log", onnx_binary(o, "Add", in[0], onnx_number(o, dtype, 1)));
  case OP_NE:
    return onnx_unary(o, "Not", onnx_binary(o, "Equal", in[0], in[1]));
  case OP_ISFINITE:
    return onnx_unary(o, "Not", onnx_binary(o, "Or", onnx_unary(o, "IsNaN", in[0]), onnx_unary(o, "IsInf", in[0])));
  case OP_REM:
    onnx_int(&attributes, "fmod", 1);
    return onnx_node(o, "Mod", &attributes, in[0], in[1], NULL);
  default:
    return onnx_refuse(o, node, arena_printf(o->arena, "ONNX has no operator for '%s'", op_info[node->op].text));
  }
}

/* ── reductions ─────────────────────────────────────────────────────────────────────────────── */
static const char *onnx_reduce(Onnx *o, const Node *node, Shape *shape) {
  const Attr *axes = node_attr(node, ATTR_AXES);
  const char *op = node->op == OP_SUM ? "ReduceSum" : node->op == OP_PROD ? "ReduceProd" : node->op == OP_RMAX ? "ReduceMax" : "ReduceMin";
  const char *x = onnx_whole(o, node->input[0]);
  Text attributes = {0};
  *shape = node->type.shape;
  onnx_int(&attributes, "keepdims", 1);
  if (node->op != OP_ARGMAX && node->op != OP_ARGMIN)
    return onnx_node(o, op, &attributes, x, onnx_list(o, axes->ints, axes->count), NULL);
  onnx_int(&attributes, "axis", axes->ints[0]);
  x = onnx_node(o, node->op == OP_ARGMAX ? "ArgMax" : "ArgMin", &attributes, x, NULL, NULL);
  return onnx_cast(o, x, node->type.dtype);
}

/* ── products ───────────────────────────────────────────────────────────────────────────────── */
static const char *swap_last(Onnx *o, const char *x, int rank) {
  int64_t perm[MAX_RANK];
  Text attributes = {0};
  for (int i = 0; i < rank; i++) perm[i] = i;
  perm[rank - 2] = rank - 1, perm[rank - 1] = rank - 2;
  onnx_ints(&attributes, "perm", perm, rank);
  return onnx_node(o, "Transpose", &attributes, x, NULL, NULL);
}

/* What is summed over is whole; a row that stands for all rows gives one. */
static const char *onnx_dot(Onnx *o, const Node *node, Shape *shape) {
  int rank = node->type.shape.rank;
  bool ta = node_int(node, ATTR_TRANS_A, 0) != 0, tb = node_int(node, ATTR_TRANS_B, 0) != 0;
  const char *a = onnx_whole_along(o, node->input[0], 1u << (rank - 1 - ta));
  const char *b = onnx_whole_along(o, node->input[1], 1u << (rank - 2 + tb));
  const Shape *left = &o->value[node->input[0]->id].shape, *right = &o->value[node->input[1]->id].shape;
  for (int i = 0; i < rank - 2; i++) shape->dim[i] = left->dim[i] != 1 ? left->dim[i] : right->dim[i];
  shape->dim[rank - 2] = left->dim[rank - 2 + ta], shape->dim[rank - 1] = right->dim[rank - 1 - tb];
  if (ta) a = swap_last(o, a, rank);
  if (tb) b = swap_last(o, b, rank);
  return onnx_binary(o, "MatMul", a, b);
}

static void window_attributes(const Node *node, const int64_t *kernel, Text *out) {
  onnx_ints(out, "kernel_shape", kernel, 2);
  onnx_ints(out, "strides", node_attr(node, ATTR_STRIDE)->ints, 2);
  onnx_ints(out, "pads", node_attr(node, ATTR_PADDING)->ints, 4);
}

static const char *onnx_conv(Onnx *o, const Node *node) {
  const Shape *w = &node->input[1]->type.shape, *x = &node->input[0]->type.shape, *y = &node->type.shape;
  const int64_t *stride = node_attr(node, ATTR_STRIDE)->ints, *pads = node_attr(node, ATTR_PADDING)->ints;
  const int64_t *dilation = node_attr(node, ATTR_DILATION)->ints;
  Text attributes = {0};
  bool is_back = node->op == OP_CONV_GRAD_INPUT;
  window_attributes(node, w->dim + 2, &attributes);
  onnx_ints(&attributes, "dilations", dilation, 2);
  onnx_int(&attributes, "group", node_int(node, ATTR_GROUPS, 1));
  if (is_back) {
    int64_t more[2];
    for (int i = 0; i < 2; i++)
      more[i] = y->dim[2 + i] - ((x->dim[2 + i] - 1) * stride[i] + dilation[i] * (w->dim[2 + i] - 1) + 1 - pads[i] - pads[i + 2]);
    onnx_ints(&attributes, "output_padding", more, 2);
  }
  return onnx_node(o, is_back ? "ConvTranspose" : "Conv", &attributes, onnx_whole(o, node->input[0]),
                   onnx_whole(o, node->input[1]), NULL);
}

static const char *onnx_pool(Onnx *o, const Node *node) {
  Text attributes = {0};
  window_attributes(node, node_attr(node, ATTR_KERNEL)->ints, &attributes);
  if (node->op == OP_POOL_AVG) onnx_int(&attributes, "count_include_pad", node_int(node, ATTR_COUNT_PAD, 0) != 0);
  return onnx_node(o, node->op == OP_POOL_AVG ? "AveragePool" : "MaxPool", &attributes, onnx_whole(o, node->input[0]), NULL, NULL);
}

/* ── moves ──────────────────────────────────────────────────────────────────────────────────── */
/* With -1 for the dimension that has the samples. */
static const char *onnx_reshaped(Onnx *o, const char *x, const Shape *shape, int batch_axis) {
  int64_t dims[MAX_RANK] = {0};
  for (int i = 0; i < shape->rank; i++) dims[i] = i == batch_axis ? -1 : shape->dim[i];
  return onnx_binary(o, "Reshape", x, onnx_list(o, dims, shape->rank));
}

/* One number that stands for all stays that. */
static const char *onnx_reshape(Onnx *o, const Node *node, Shape *shape) {
  const Node *from = node->input[0];
  if (shape_elements(&o->value[from->id].shape) != 1 || o->samples[from->id].kind != SAMPLES_NONE)
    return onnx_reshaped(o, onnx_whole(o, from), shape, onnx_batch_axis(o, node));
  for (int i = 0; i < shape->rank; i++) shape->dim[i] = 1;
  return onnx_reshaped(o, onnx_value(o, from), shape, -1);
}

static const char *onnx_slice(Onnx *o, const Node *node, Shape *shape) {
  const Shape *from = &node->input[0]->type.shape, *to = &node->type.shape;
  const int64_t *start = node_attr(node, ATTR_START)->ints, *step = node_attr(node, ATTR_STEP)->ints;
  int64_t starts[MAX_RANK], ends[MAX_RANK], axes[MAX_RANK], steps[MAX_RANK];
  int count = 0;
  unsigned cut = 0;
  for (int i = 0; i < to->rank; i++) {
    if (from->dim[i] == to->dim[i] && step[i] == 1) continue;
    if (i == onnx_batch_axis(o, node->input[0])) o->needs_fixed = true;
    cut |= 1u << i;
    int64_t last = start[i] + (to->dim[i] - 1) * step[i], end = last + (step[i] > 0 ? 1 : -1);
    starts[count] = start[i], ends[count] = end < 0 ? INT64_MIN : end, axes[count] = i, steps[count++] = step[i];
  }
  const char *x = onnx_whole_along(o, node->input[0], cut);
  for (int i = 0; i < to->rank; i++)
    if (!(cut >> i & 1)) shape->dim[i] = o->value[node->input[0]->id].shape.dim[i];
  if (!count) return x;
  const char *inputs[] = {x, onnx_list(o, starts, count), onnx_list(o, ends, count), onnx_list(o, axes, count), onnx_list(o, steps, count)};
  return onnx_node_of(o, "Slice", NULL, inputs, 5);
}

static const char *onnx_pad(Onnx *o, const Node *node) {
  int rank = node->type.shape.rank;
  int64_t pads[2 * MAX_RANK];
  for (int i = 0; i < rank; i++) {
    pads[i] = node_attr(node, ATTR_LOW)->ints[i], pads[rank + i] = node_attr(node, ATTR_HIGH)->ints[i];
    if (i == onnx_batch_axis(o, node->input[0]) && (pads[i] || pads[rank + i])) o->needs_fixed = true;
  }
  return onnx_node(o, "Pad", NULL, onnx_whole(o, node->input[0]), onnx_list(o, pads, 2 * rank),
                   onnx_number(o, node->type.dtype, node_float(node, ATTR_VALUE, 0)));
}

static const char *onnx_concat(Onnx *o, const Node *node) {
  const char **inputs = ARENA_ARRAY(o->arena, const char *, node->input_count);
  Text attributes = {0};
  for (int i = 0; i < node->input_count; i++) inputs[i] = onnx_whole(o, node->input[i]);
  onnx_int(&attributes, "axis", node_int(node, ATTR_AXIS, 0));
  return onnx_node_of(o, "Concat", &attributes, inputs, node->input_count);
}

static const char *onnx_transpose(Onnx *o, const Node *node, Shape *shape) {
  const Attr *perm = node_attr(node, ATTR_PERM);
  const OnnxValue *from = &o->value[node->input[0]->id];
  Text attributes = {0};
  for (int i = 0; i < shape->rank; i++) shape->dim[i] = from->shape.dim[perm->ints[i]];
  onnx_ints(&attributes, "perm", perm->ints, perm->count);
  return onnx_node(o, "Transpose", &attributes, from->name, NULL, NULL);
}

/* Are all of these numbers of rows of the table? */
static bool onnx_is_within(const Node *index, int64_t rows) {
  while (index->op == OP_RESHAPE || index->op == OP_CAST || index->op == OP_BROADCAST) index = index->input[0];
  if (index->op == OP_IOTA) return index->type.shape.dim[node_int(index, ATTR_AXIS, 0)] <= rows;
  int64_t below = node_int(index, ATTR_BELOW, 0);
  return index->op == OP_INPUT && below && below <= rows && !node_attr(index, ATTR_IGNORE);
}

/* A row of zeros where there is none of that number: ONNX has errors there, and counts negative ones from the end. */
static const char *onnx_gather(Onnx *o, const Node *node) {
  const Node *table = node->input[0], *index = node->input[1];
  const char *at = onnx_whole(o, index), *rows = onnx_whole(o, table);
  if (onnx_is_within(index, table->type.shape.dim[0])) return onnx_binary(o, "Gather", rows, at);
  const char *zero = onnx_number(o, index->type.dtype, 0);
  const char *most = onnx_number(o, index->type.dtype, (double)table->type.shape.dim[0] - 1);
  const char *is_in = onnx_binary(o, "And", onnx_binary(o, "GreaterOrEqual", at, zero), onnx_binary(o, "LessOrEqual", at, most));
  const char *found = onnx_binary(o, "Gather", rows, onnx_node(o, "Where", NULL, is_in, at, zero));
  Shape shape = index->type.shape;
  shape.rank = node->type.shape.rank;
  for (int i = index->type.shape.rank; i < shape.rank; i++) shape.dim[i] = 1;
  is_in = onnx_reshaped(o, is_in, &shape, onnx_batch_axis(o, index));
  return onnx_node(o, "Where", NULL, is_in, found, onnx_number(o, node->type.dtype, 0));
}

/* ── constants ──────────────────────────────────────────────────────────────────────────────── */
static const char *onnx_const(Onnx *o, const Node *node, Shape *shape) {
  const char *number = onnx_number(o, node->type.dtype, node_float(node, ATTR_VALUE, 0));
  int64_t ones[MAX_RANK];
  if (node_attr(node, ATTR_SAMPLES) && !o->is_fixed) o->needs_fixed = true;
  for (int i = 0; i < shape->rank; i++) shape->dim[i] = ones[i] = 1;
  return shape->rank ? onnx_binary(o, "Reshape", number, onnx_list(o, ones, shape->rank)) : number;
}

static const char *onnx_iota(Onnx *o, const Node *node, Shape *shape) {
  int axis = (int)node_int(node, ATTR_AXIS, 0);
  int64_t count = shape->dim[axis];
  if (node_int(node, ATTR_BATCH, -1) == axis && !o->is_fixed) o->needs_fixed = true;
  for (int i = 0; i < shape->rank; i++) shape->dim[i] = i == axis ? count : 1;
  const char *row = onnx_node(o, "Range", NULL, onnx_number(o, node->type.dtype, 0), onnx_number(o, node->type.dtype, (double)count),
                              onnx_number(o, node->type.dtype, 1));
  return shape->rank > 1 ? onnx_reshaped(o, row, shape, -1) : row;
}

/* ── attention ──────────────────────────────────────────────────────────────────────────────── */
/* Keys or values of as many heads as there are queries'. */
static const char *onnx_heads(Onnx *o, const Node *x, int64_t heads) {
  const Shape *shape = &x->type.shape;
  int64_t groups = shape->dim[1], each = heads / groups;
  const char *whole = onnx_whole(o, x);
  int batch = onnx_batch_axis(o, x);
  if (each == 1) return whole;
  Shape apart = {5, {shape->dim[0], groups, 1, shape->dim[2], shape->dim[3]}}, together = *shape;
  int64_t grown[] = {1, 1, each, 1, 1};
  whole = onnx_binary(o, "Expand", onnx_reshaped(o, whole, &apart, batch), onnx_list(o, grown, 5));
  together.dim[1] = heads;
  return onnx_reshaped(o, whole, &together, batch);
}

/* bool[rows, keys]: which keys a row sees. */
static const char *onnx_order(Onnx *o, int64_t rows, int64_t keys) {
  const char *ends[2];
  for (int i = 0; i < 2; i++)
    ends[i] = onnx_node(o, "Range", NULL, onnx_number(o, DT_I64, i ? 0 : (double)(keys - rows)), onnx_number(o, DT_I64, (double)keys),
                        onnx_number(o, DT_I64, 1));
  Shape column = {2, {rows, 1}};
  return onnx_binary(o, "LessOrEqual", ends[1], onnx_reshaped(o, ends[0], &column, -1));
}

/* A row that sees no key has no weights: ONNX's softmax of nothing but minus infinities is NaN. */
static const char *onnx_zeros_where_unseen(Onnx *o, const char *scores, const char *weights, DType dtype) {
  const int64_t last = 3;
  const char *largest = onnx_node(o, "ReduceMax", NULL, scores, onnx_list(o, &last, 1), NULL);
  const char *is_unseen = onnx_binary(o, "Equal", largest, onnx_number(o, dtype, -INFINITY));
  return onnx_node(o, "Where", NULL, is_unseen, onnx_number(o, dtype, 0), weights);
}

static const char *onnx_attention(Onnx *o, const Node *node) {
  const Node *q = node->input[0], *mask = node->input_count > 3 ? node->input[3] : NULL;
  int64_t heads = q->type.shape.dim[1], rows = q->type.shape.dim[2], keys = node->input[1]->type.shape.dim[2];
  DType dtype = q->type.dtype;
  Text attributes = {0};
  const char *k = onnx_heads(o, node->input[1], heads), *v = onnx_heads(o, node->input[2], heads);
  const char *scores = onnx_binary(o, "MatMul", onnx_whole(o, q), swap_last(o, k, 4)), *none = onnx_number(o, dtype, -INFINITY);
  double scale = node_float(node, ATTR_SCALE, 1), cap = node_float(node, ATTR_SOFTCAP, 0);
  scores = onnx_binary(o, "Mul", scores, onnx_number(o, dtype, cap > 0 ? scale / cap : scale));
  if (cap > 0) scores = onnx_binary(o, "Mul", onnx_node(o, "Tanh", NULL, scores, NULL, NULL), onnx_number(o, dtype, cap));
  if (mask && mask->type.dtype == DT_BOOL)
    scores = onnx_node(o, "Where", NULL, onnx_value(o, mask), scores, none);
  else if (mask)
    scores = onnx_binary(o, "Add", scores, onnx_value(o, mask));
  if (node_int(node, ATTR_CAUSAL, 0)) scores = onnx_node(o, "Where", NULL, onnx_order(o, rows, keys), scores, none);
  onnx_int(&attributes, "axis", 3);
  const char *weights = onnx_node(o, "Softmax", &attributes, scores, NULL, NULL);
  bool may_be_unseen = mask || (node_int(node, ATTR_CAUSAL, 0) && keys < rows);
  if (may_be_unseen) weights = onnx_zeros_where_unseen(o, scores, weights, dtype);
  return onnx_binary(o, "MatMul", weights, v);
}

/* ── all of them ────────────────────────────────────────────────────────────────────────────── */
const char *onnx_convert(Onnx *o, const Node *node, Shape *shape) {
  if (op_info[node->op].op_class == CLASS_POINTWISE) return onnx_elements(o, node, shape);
  switch (node->op) {
  case OP_CONST: return onnx_const(o, node, shape);
  case OP_IOTA: return onnx_iota(o, node, shape);
  case OP_SUM: case OP_PROD: case OP_RMAX: case OP_RMIN: case OP_ARGMAX: case OP_ARGMIN: return onnx_reduce(o, node, shape);
  case OP_DOT: return onnx_dot(o, node, shape);
  case OP_CONV: case OP_CONV_GRAD_INPUT: return onnx_conv(o, node);
  case OP_POOL_MAX: case OP_POOL_AVG: return onnx_pool(o, node);
  case OP_ATTENTION: return onnx_attention(o, node);
  case OP_RESULT:
    if (node->input[0]->op != OP_ATTENTION || node_int(node, ATTR_INDEX, 0) != 0) break;
    return onnx_value(o, node->input[0]);
  case OP_RESHAPE: return onnx_reshape(o, node, shape);
  case OP_TRANSPOSE: return onnx_transpose(o, node, shape);
  case OP_BROADCAST:
    *shape = o->value[node->input[0]->id].shape;
    return onnx_value(o, node->input[0]);
  case OP_STOP_GRADIENT:
    *shape = o->value[node->input[0]->id].shape;
    return onnx_value(o, node->input[0]);
  case OP_SLICE: return onnx_slice(o, node, shape);
  case OP_PAD: return onnx_pad(o, node);
  case OP_CONCAT: return onnx_concat(o, node);
  case OP_GATHER: return onnx_gather(o, node);
  default: break;
  }
  return onnx_refuse(o, node, arena_printf(o->arena, "ONNX has no operator for '%s'", op_info[node->op].text));
}
