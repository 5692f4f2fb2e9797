/* simplify_move: rules for moves, reductions and products. Two moves of a kind become one, moves
 * that do nothing go, a move of a constant is a constant, a transpose goes into the product that
 * reads it, and work on repeated values is done once, before they are repeated. */
#include "passes/simplify.h"
#include <string.h>

#define A (node->input[0])

/* Moves that only rearrange or repeat: of a const, a const. */
static Node *move_constant(Graph *graph, Node *node) {
  double c;
  return match_const(A, &c) ? make_like(graph, node, c) : NULL;
}
static Node *move_nothing(Graph *graph, Node *node) {
  (void)graph;
  return shape_equal(&node->type.shape, &A->type.shape) ? A : NULL;
}

/* ── reshape, transpose, broadcast ──────────────────────────────────────────────────────────── */
static Node *reshape_of(Graph *graph, Node *node) {
  return A->op == OP_RESHAPE ? make_reshape(graph, A->input[0], node->type.shape) : NULL;
}

/* A transpose that leaves the dimensions larger than 1 in order is a reshape, which is free. */
static Node *transpose_units(Graph *graph, Node *node) {
  const Attr *perm = node_attr(node, ATTR_PERM);
  int64_t last = -1;
  for (int i = 0; i < perm->count; i++) {
    if (A->type.shape.dim[perm->ints[i]] == 1) continue;
    if (perm->ints[i] < last) return NULL;
    last = perm->ints[i];
  }
  return make_reshape(graph, A, node->type.shape);
}
static Node *transpose_of(Graph *graph, Node *node) {
  if (A->op != OP_TRANSPOSE) return NULL;
  const Attr *outer = node_attr(node, ATTR_PERM), *inner = node_attr(A, ATTR_PERM);
  int64_t perm[MAX_RANK];
  for (int i = 0; i < outer->count; i++) perm[i] = inner->ints[outer->ints[i]];
  return make_transpose(graph, A->input[0], perm);
}
static Node *broadcast_of(Graph *graph, Node *node) {
  if (A->op != OP_BROADCAST) return NULL;
  return make_broadcast(graph, A->input[0], node->type.shape);
}

/* The shape an operand has before it is repeated; of a const, 1 everywhere. */
static Shape source_shape(const Node *x) {
  double c;
  Shape shape = x->op == OP_BROADCAST ? x->input[0]->type.shape : x->type.shape;
  if (match_const(x, &c))
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = 1;
  return shape;
}

Node *simplify_sink(Graph *graph, Node *node) {
  if (op_info[node->op].op_class != CLASS_POINTWISE || node->input_count > 3) return NULL;
  Shape common = node->type.shape;
  for (int i = 0; i < common.rank; i++) common.dim[i] = 1;
  for (int k = 0; k < node->input_count; k++) {
    Shape source = source_shape(node->input[k]);
    for (int i = 0; i < common.rank; i++)
      if (source.dim[i] != 1) common.dim[i] = source.dim[i];
  }
  if (shape_equal(&common, &node->type.shape)) return NULL;
  Node *inputs[3];
  for (int k = 0; k < node->input_count; k++) {
    Node *x = node->input[k];
    double c;
    if (match_const(x, &c))
      inputs[k] = make_const(graph, x->type.dtype, common, c);
    else /* repeated along other dimensions than the rest, or along fewer */
      inputs[k] = make_broadcast(graph, x->op == OP_BROADCAST ? x->input[0] : x, common);
  }
  Node *small = graph_node(graph, node->op, inputs, node->input_count, node->attr, node->attr_count,
                           &(Type){node->type.dtype, common});
  return make_broadcast(graph, small, node->type.shape);
}

/* ── slice, pad, concat ─────────────────────────────────────────────────────────────────────── */
static Node *slice_by(Graph *graph, Node *node, Node *x, const int64_t *start,
                      const int64_t *step) {
  int rank = node->type.shape.rank;
  Attr attrs[] = {attr_ints(ATTR_START, start, rank), attr_ints(ATTR_STEP, step, rank)};
  return graph_node(graph, OP_SLICE, &x, 1, attrs, 2, &node->type);
}

static Node *slice_of_slice(Graph *graph, Node *node) {
  if (A->op != OP_SLICE) return NULL;
  const int64_t *outer = node_attr(node, ATTR_START)->ints, *inner = node_attr(A, ATTR_START)->ints;
  const int64_t *outer_step = node_attr(node, ATTR_STEP)->ints;
  const int64_t *inner_step = node_attr(A, ATTR_STEP)->ints;
  int64_t start[MAX_RANK], step[MAX_RANK];
  for (int i = 0; i < node->type.shape.rank; i++) {
    start[i] = inner[i] + outer[i] * inner_step[i];
    step[i] = outer_step[i] * inner_step[i];
  }
  return slice_by(graph, node, A->input[0], start, step);
}

/* Does the slice stay in [low, low + size) along dimension i? */
static bool slice_within(const Node *node, int i, int64_t low, int64_t size) {
  int64_t first = node_attr(node, ATTR_START)->ints[i], count = node->type.shape.dim[i];
  int64_t last = first + (count - 1) * node_attr(node, ATTR_STEP)->ints[i];
  return count > 0 && first >= low && last < low + size;
}

/* A slice of a padded tensor that takes none of the padding. */
static Node *slice_of_pad(Graph *graph, Node *node) {
  if (A->op != OP_PAD) return NULL;
  const int64_t *low = node_attr(A, ATTR_LOW)->ints;
  int64_t start[MAX_RANK];
  for (int i = 0; i < node->type.shape.rank; i++) {
    if (!slice_within(node, i, low[i], A->input[0]->type.shape.dim[i])) return NULL;
    start[i] = node_attr(node, ATTR_START)->ints[i] - low[i];
  }
  return slice_by(graph, node, A->input[0], start, node_attr(node, ATTR_STEP)->ints);
}

/* A slice of a concatenation that lies in one of its operands. */
static Node *slice_of_concat(Graph *graph, Node *node) {
  if (A->op != OP_CONCAT) return NULL;
  int axis = (int)node_int(A, ATTR_AXIS, 0);
  int64_t low = 0, start[MAX_RANK];
  memcpy(start, node_attr(node, ATTR_START)->ints, sizeof(int64_t) * (size_t)node->type.shape.rank);
  for (int i = 0; i < A->input_count; i++) {
    Node *operand = A->input[i];
    int64_t size = operand->type.shape.dim[axis];
    if (slice_within(node, axis, low, size)) {
      start[axis] -= low;
      return slice_by(graph, node, operand, start, node_attr(node, ATTR_STEP)->ints);
    }
    low += size;
  }
  return NULL;
}

static Node *pad_of_pad(Graph *graph, Node *node) {
  double value = node_float(node, ATTR_VALUE, 0);
  if (A->op != OP_PAD || node_float(A, ATTR_VALUE, 0) != value) return NULL;
  int rank = node->type.shape.rank;
  int64_t low[MAX_RANK], high[MAX_RANK];
  for (int i = 0; i < rank; i++) {
    low[i] = node_attr(node, ATTR_LOW)->ints[i] + node_attr(A, ATTR_LOW)->ints[i];
    high[i] = node_attr(node, ATTR_HIGH)->ints[i] + node_attr(A, ATTR_HIGH)->ints[i];
  }
  Attr attrs[] = {attr_float(ATTR_VALUE, value), attr_ints(ATTR_LOW, low, rank),
                  attr_ints(ATTR_HIGH, high, rank)};
  return graph_node(graph, OP_PAD, A->input, 1, attrs, 3, NULL);
}
static Node *pad_constant(Graph *graph, Node *node) {
  double value = node_float(node, ATTR_VALUE, 0);
  return match_value(A, value) ? make_like(graph, node, value) : NULL;
}

static Node *concat_one(Graph *graph, Node *node) {
  (void)graph;
  return node->input_count == 1 ? A : NULL;
}

/* concat(split(x)) is x: slices that follow one another along the axis and cover it. */
static Node *concat_of_slices(Graph *graph, Node *node) {
  (void)graph;
  if (A->op != OP_SLICE) return NULL;
  Node *whole = A->input[0];
  int axis = (int)node_int(node, ATTR_AXIS, 0);
  int64_t at = 0;
  if (!shape_equal(&whole->type.shape, &node->type.shape)) return NULL;
  for (int k = 0; k < node->input_count; k++) {
    const Node *part = node->input[k];
    if (part->op != OP_SLICE || part->input[0] != whole) return NULL;
    const int64_t *start = node_attr(part, ATTR_START)->ints;
    const int64_t *step = node_attr(part, ATTR_STEP)->ints;
    for (int i = 0; i < whole->type.shape.rank; i++)
      if (step[i] != 1 || start[i] != (i == axis ? at : 0)) return NULL;
    at += part->type.shape.dim[axis];
  }
  return whole;
}
/* concat(a, concat(b, c)) along one axis. */
static Node *concat_of_concat(Graph *graph, Node *node) {
  int64_t axis = node_int(node, ATTR_AXIS, 0);
  int count = 0;
  for (int k = 0; k < node->input_count; k++) {
    const Node *part = node->input[k];
    bool is_inner = part->op == OP_CONCAT && node_int(part, ATTR_AXIS, 0) == axis;
    count += is_inner ? part->input_count : 1;
  }
  if (count == node->input_count) return NULL;
  Node **parts = ARENA_ARRAY(graph->arena, Node *, count);
  count = 0;
  for (int k = 0; k < node->input_count; k++) {
    Node *part = node->input[k];
    bool is_inner = part->op == OP_CONCAT && node_int(part, ATTR_AXIS, 0) == axis;
    for (int i = 0; is_inner && i < part->input_count; i++) parts[count++] = part->input[i];
    if (!is_inner) parts[count++] = part;
  }
  return graph_node(graph, OP_CONCAT, parts, count, node->attr, node->attr_count, NULL);
}
/* Of values that were all cast alike: cast together. */
static Node *concat_of_casts(Graph *graph, Node *node) {
  Node **parts = ARENA_ARRAY(graph->arena, Node *, node->input_count);
  for (int k = 0; k < node->input_count; k++) {
    const Node *part = node->input[k];
    if (part->op != OP_CAST || part->input[0]->type.dtype != A->input[0]->type.dtype) return NULL;
    parts[k] = part->input[0];
  }
  return make_cast(graph, graph_copy_as(graph, node, parts, NULL), node->type.dtype);
}
static Node *concat_constant(Graph *graph, Node *node) {
  double c;
  if (!match_const(A, &c)) return NULL;
  for (int k = 1; k < node->input_count; k++)
    if (!match_value(node->input[k], c)) return NULL;
  return make_like(graph, node, c);
}

/* The one axis along which zeros are added, with the first place that is none; -1: there are more,
 * or other values than zeros. */
static int pad_axis(const Node *pad, int64_t *low) {
  if (pad->op != OP_PAD || node_float(pad, ATTR_VALUE, 0) != 0) return -1;
  const int64_t *before = node_attr(pad, ATTR_LOW)->ints, *after = node_attr(pad, ATTR_HIGH)->ints;
  int axis = -1;
  for (int i = 0; i < pad->type.shape.rank; i++) {
    if (!before[i] && !after[i]) continue;
    if (axis >= 0) return -1;
    axis = i;
    *low = before[i];
  }
  return axis;
}

/* The sum of two parts of a whole that touch, as split's gradient makes it: they stand side by
 * side. So do parts that were cast alike after that. */
static Node *add_of_pads(Graph *graph, Node *node) {
  bool is_cast = A->op == OP_CAST && node->input[1]->op == OP_CAST;
  const Node *pad[2] = {is_cast ? A->input[0] : A,
                        is_cast ? node->input[1]->input[0] : node->input[1]};
  int64_t low[2];
  int axis = pad_axis(pad[0], &low[0]);
  if (axis < 0 || pad_axis(pad[1], &low[1]) != axis || pad[0]->type.dtype != pad[1]->type.dtype)
    return NULL;
  int first = low[0] > low[1];
  Node *parts[2] = {pad[first]->input[0], pad[!first]->input[0]};
  int64_t size[2] = {parts[0]->type.shape.dim[axis], parts[1]->type.shape.dim[axis]};
  if (low[first] + size[0] != low[!first]) return NULL;
  Attr along = attr_int(ATTR_AXIS, axis);
  Node *both = graph_node(graph, OP_CONCAT, parts, 2, &along, 1, NULL);
  int64_t before[MAX_RANK] = {0}, after[MAX_RANK] = {0};
  before[axis] = low[first];
  after[axis] = node->type.shape.dim[axis] - low[first] - size[0] - size[1];
  both = make_pad(graph, both, before, after);
  return is_cast ? make_cast(graph, both, node->type.dtype) : both;
}

/* ── reductions ─────────────────────────────────────────────────────────────────────────────── */
/* Over dimensions of 1 there is nothing to reduce. */
static Node *reduce_units(Graph *graph, Node *node) {
  const Attr *axes = node_attr(node, ATTR_AXES);
  int64_t kept[MAX_RANK];
  int count = 0;
  for (int i = 0; i < axes->count; i++)
    if (A->type.shape.dim[axes->ints[i]] != 1) kept[count++] = axes->ints[i];
  if (count == axes->count) return NULL;
  return count == 0 ? A : make_reduce(graph, node->op, A, kept, count);
}
static Node *arg_of_unit(Graph *graph, Node *node) {
  return A->type.shape.dim[node_attr(node, ATTR_AXES)->ints[0]] == 1 ? make_like(graph, node, 0)
                                                                     : NULL;
}

/* How many elements of the input make one of the output. */
static double reduced_count(const Node *node) {
  double count = 1;
  const Attr *axes = node_attr(node, ATTR_AXES);
  for (int i = 0; i < axes->count; i++) count *= (double)A->type.shape.dim[axes->ints[i]];
  return count;
}
static Node *reduce_constant(Graph *graph, Node *node) {
  double c, count = reduced_count(node);
  if (!match_const(A, &c) || count == 0) return NULL;
  if (node->op != OP_SUM) return make_like(graph, node, c);
  bool fits = dtype_is_float(node->type.dtype) ||
              (c * count <= 2147483647.0 && c >= 0 && node->type.dtype != DT_U8);
  return fits ? make_like(graph, node, c * count) : NULL;
}

/* A sum or an extreme of values repeated along its axes: of each value once. */
static Node *reduce_of_broadcast(Graph *graph, Node *node) {
  if (A->op != OP_BROADCAST) return NULL;
  const Attr *axes = node_attr(node, ATTR_AXES);
  Node *x = A->input[0];
  Shape shape = A->type.shape;
  int64_t kept[MAX_RANK];
  int count = 0;
  double repeats = 1;
  for (int i = 0; i < axes->count; i++) {
    int axis = (int)axes->ints[i];
    if (x->type.shape.dim[axis] == 1 && shape.dim[axis] > 1) {
      repeats *= (double)shape.dim[axis];
      shape.dim[axis] = 1;
    } else {
      kept[count++] = axis;
    }
  }
  if (repeats == 1 || (node->op == OP_SUM && !dtype_is_float(node->type.dtype))) return NULL;
  x = make_broadcast(graph, x, shape);
  if (count > 0) x = make_reduce(graph, node->op, x, kept, count);
  if (node->op != OP_SUM) return x;
  return make_binary(graph, OP_MUL, x, make_like(graph, x, repeats));
}

/* Two reductions of a kind, one behind the other. */
static Node *reduce_of_reduce(Graph *graph, Node *node) {
  if (A->op != node->op) return NULL;
  const Attr *outer = node_attr(node, ATTR_AXES), *inner = node_attr(A, ATTR_AXES);
  bool reduced[MAX_RANK] = {false};
  int64_t axes[MAX_RANK];
  int count = 0;
  for (int i = 0; i < outer->count; i++) reduced[outer->ints[i]] = true;
  for (int i = 0; i < inner->count; i++) reduced[inner->ints[i]] = true;
  for (int i = 0; i < A->type.shape.rank; i++)
    if (reduced[i]) axes[count++] = i;
  return make_reduce(graph, node->op, A->input[0], axes, count);
}

/* ── products ───────────────────────────────────────────────────────────────────────────────── */
static Node *dot_of_transposed(Graph *graph, Node *node) {
  bool is_swapped[2] = {match_swap_of_last_two(node->input[0]),
                        match_swap_of_last_two(node->input[1])};
  if (!is_swapped[0] && !is_swapped[1]) return NULL;
  Node *x[2];
  for (int i = 0; i < 2; i++) x[i] = is_swapped[i] ? node->input[i]->input[0] : node->input[i];
  bool ta = node_int(node, ATTR_TRANS_A, 0), tb = node_int(node, ATTR_TRANS_B, 0);
  return make_dot_like(graph, node, x[0], x[1], ta != is_swapped[0], tb != is_swapped[1]);
}

/* ── pooling ────────────────────────────────────────────────────────────────────────────────── */
static Node *pool_like(Graph *graph, Node *node, Node *x) {
  return graph_node(graph, node->op, &x, 1, node->attr, node->attr_count, NULL);
}

/* What was before the pooling is now behind it, and still that operation of its layer. */
static void belongs_to(Graph *graph, const Node *moved) {
  graph->origin.loc = moved->origin.loc;
  graph->origin.layer = moved->origin.layer;
  graph->origin.function = moved->origin.function;
}

/* The maximum of rectified values is the rectified maximum: a fourth of the work, and the backward
 * pass needs the small tensor only. At a window without a positive value no gradient flows either
 * way; in the others the same element is the first maximum. */
static Node *pool_of_relu(Graph *graph, Node *node) {
  Node *x = match_relu(A);
  if (!x || A->op != OP_SELECT) return NULL;
  Node *pooled = pool_like(graph, node, x), *zero = make_like(graph, pooled, 0);
  belongs_to(graph, A);
  return make_select(graph, make_binary(graph, OP_LE, pooled, zero), zero, pooled);
}

/* So with maximum(x, 0), but not its gradient: half of it goes through a 0, which is the first
 * maximum of its window here, and there only if nothing negative stands before it. */
static Node *pool_of_maximum(Graph *graph, Node *node) {
  Node *x = match_relu(A);
  if (!x || A->op != OP_MAX) return NULL;
  Node *pooled = pool_like(graph, node, x);
  belongs_to(graph, A);
  return make_binary(graph, OP_MAX, pooled, make_like(graph, pooled, 0));
}

/* So with a bias, one for each channel: rounding keeps order. Its gradient is a sum of the small
 * tensor. */
static Node *pool_of_bias(Graph *graph, Node *node) {
  if (A->op != OP_ADD || A->input[1]->op != OP_BROADCAST) return NULL;
  Node *bias = A->input[1]->input[0];
  int row = strcmp(node_str(node, ATTR_LAYOUT), "nhwc") == 0 ? 1 : 2;
  if (bias->type.shape.dim[row] != 1 || bias->type.shape.dim[row + 1] != 1) return NULL;
  Node *pooled = pool_like(graph, node, A->input[0]);
  belongs_to(graph, A);
  return make_binary(graph, OP_ADD, pooled, bias);
}

const SimplifyRule simplify_single_rules[] = {
    {OP_POOL_MAX, pool_of_relu},
    {OP_POOL_MAX, pool_of_bias},
    {0, NULL},
};

const SimplifyRule simplify_value_rules[] = {
    {OP_POOL_MAX, pool_of_maximum},
    {0, NULL},
};

const SimplifyRule simplify_move_rules[] = {
    {OP_RESHAPE, move_constant},     {OP_RESHAPE, move_nothing},
    {OP_RESHAPE, reshape_of},        {OP_TRANSPOSE, move_constant},
    {OP_TRANSPOSE, transpose_units}, {OP_TRANSPOSE, transpose_of},
    {OP_BROADCAST, move_constant},   {OP_BROADCAST, move_nothing},
    {OP_BROADCAST, broadcast_of},    {OP_SLICE, move_constant},
    {OP_SLICE, move_nothing},        {OP_SLICE, slice_of_slice},
    {OP_SLICE, slice_of_pad},        {OP_SLICE, slice_of_concat},
    {OP_PAD, move_nothing},          {OP_PAD, pad_of_pad},
    {OP_PAD, pad_constant},          {OP_CONCAT, concat_one},
    {OP_CONCAT, concat_of_slices},   {OP_CONCAT, concat_of_concat},
    {OP_CONCAT, concat_of_casts},    {OP_CONCAT, concat_constant},
    {OP_ADD, add_of_pads},           {OP_SUM, reduce_units},
    {OP_PROD, reduce_units},         {OP_RMAX, reduce_units},
    {OP_RMIN, reduce_units},         {OP_ARGMAX, arg_of_unit},
    {OP_ARGMIN, arg_of_unit},        {OP_SUM, reduce_constant},
    {OP_RMAX, reduce_constant},      {OP_RMIN, reduce_constant},
    {OP_SUM, reduce_of_broadcast},   {OP_RMAX, reduce_of_broadcast},
    {OP_RMIN, reduce_of_broadcast},  {OP_SUM, reduce_of_reduce},
    {OP_RMAX, reduce_of_reduce},     {OP_RMIN, reduce_of_reduce},
    {OP_DOT, dot_of_transposed},     {0, NULL},
};
