/* weight: what counts in a mean. A tensor may have a weight, a tensor of the same shape: bool (does
 * the element count?) or float (how much). Whatever is computed from an element counts as that
 * element does. Every node of the front end is made by tensor_node, which calls this file, so these
 * are all the rules:
 *
 *   element by element  the operands' weight; those without one do not matter. Two different ones
 *                       are refused, for it is not known which of both is meant
 *   moves               the weight moves along; what pad and concat add counts once
 *   reductions          take in what counts, and use the weight up: the result has none
 *   products, windows   are refused: they mix what counts with what does not
 *
 * An element of weight 0 takes no part in a reduction, be it NaN or infinite. */
#include "frontend/builder.h"
#include "ir/match.h"
#include <string.h>

Node *weight_of(const Builder *b, const Node *node) {
  return node && node->id < b->weights.count ? b->weights.at[node->id] : NULL;
}

static void set_weight(Builder *b, const Node *node, Node *weight) {
  if (!weight && node->id >= b->weights.count) return;
  while (b->weights.count <= node->id) VEC_PUSH(b->arena, b->weights, NULL);
  b->weights.at[node->id] = weight;
}

/* The same elements as a node of its own, which has no weight yet. */
static Node *alias(Builder *b, Node *x, Loc loc) {
  Node *node = tensor_node(b, OP_RESHAPE, &x, 1, NULL, 0, &x->type, loc);
  if (node) set_weight(b, node, NULL);
  return node;
}

Node *weight_drop(Builder *b, Node *x, Loc loc) { return weight_of(b, x) ? alias(b, x, loc) : x; }

static Node *as_type(Builder *b, Node *weight, DType dtype, Loc loc) {
  return tensor_cast(b, weight, dtype, loc);
}

/* ── two weights ──────────────────────────────────────────────────────────────────────────── */
/* The same expression of the same inputs; `left` bounds the work. */
static bool weight_is_same(const Node *a, const Node *b, int *left) {
  if (a == b) return true;
  if (--*left < 0 || a->op != b->op || a->input_count != b->input_count ||
      !type_equal(&a->type, &b->type) || !node_attrs_equal(a, b, NULL))
    return false;
  for (int i = 0; i < a->input_count; i++)
    if (!weight_is_same(a->input[i], b->input[i], left)) return false;
  return true;
}

/* NULL after an error. */
static Node *agreed(Builder *b, Node *one, Node *other, Loc loc) {
  int left = 1000;
  if (weight_is_same(one, other, &left)) return one;
  builder_fail(
      b, loc,
      "these tensors count different elements in a mean, and the result cannot count both; "
      "take the mean of each, or let all elements of one count: unweighted(x)");
  builder_note(b, one->origin.loc, "what counts of the one is computed here");
  builder_note(b, other->origin.loc, "what counts of the other is computed here");
  return NULL;
}

/* The weight of what is computed element by element; NULL with *fine: there is none. */
static Node *common(Builder *b, Node *const *inputs, int count, Loc loc, bool *fine) {
  Node *weight = NULL;
  *fine = true;
  for (int i = 0; i < count && *fine; i++) {
    Node *own = weight_of(b, inputs[i]);
    if (!own) continue;
    weight = weight ? agreed(b, weight, own, loc) : own;
    *fine = weight != NULL;
  }
  return weight;
}

/* ── moves ────────────────────────────────────────────────────────────────────────────────── */
static Node *ones_like(Builder *b, const Node *x, DType dtype, Loc loc) {
  return tensor_fill(b, dtype, x->type.shape, 1, loc);
}

static Node *concat_weight(Builder *b, const Node *node, Loc loc) {
  int count = node->input_count;
  Node **parts = ARENA_ARRAY(b->arena, Node *, count);
  DType dtype = DT_BOOL;
  for (int i = 0; i < count; i++) {
    parts[i] = weight_of(b, node->input[i]);
    if (parts[i] && parts[i]->type.dtype != DT_BOOL && dtype == DT_BOOL)
      dtype = parts[i]->type.dtype;
  }
  for (int i = 0; i < count; i++)
    parts[i] = parts[i] ? as_type(b, parts[i], dtype, loc)
                        : ones_like(b, node->input[i], dtype, loc);
  return tensor_node(b, OP_CONCAT, parts, count, node->attr, node->attr_count, NULL, loc);
}

/* Rows count as their elements do, and as the index that takes them. */
static Node *gather_weight(Builder *b, const Node *node, Loc loc, bool *fine) {
  Node *rows = weight_of(b, node->input[0]), *taken = weight_of(b, node->input[1]);
  DType dtype = rows ? rows->type.dtype : DT_BOOL;
  if (rows) {
    if (dtype == DT_BOOL) rows = as_type(b, rows, DT_F32, loc);
    Node *inputs[] = {rows, node->input[1]};
    rows = as_type(b, tensor_node(b, OP_GATHER, inputs, 2, NULL, 0, NULL, loc), dtype, loc);
  }
  if (taken) {
    Shape shape = node->type.shape;
    for (int i = taken->type.shape.rank; i < shape.rank; i++) shape.dim[i] = 1;
    taken = tensor_broadcast(b, tensor_reshape(b, taken, shape, loc), node->type.shape, loc);
  }
  *fine = true;
  if (!rows || !taken) return rows ? rows : taken;
  rows = agreed(b, rows, taken, loc);
  *fine = rows != NULL;
  return rows;
}

static Node *weight_moved(Builder *b, const Node *node, Loc loc, bool *fine) {
  Node *weight = weight_of(b, node->input[0]);
  if (node->op == OP_CONCAT) return concat_weight(b, node, loc);
  if (node->op == OP_GATHER) return gather_weight(b, node, loc, fine);
  Attr *attrs = ARENA_ARRAY(b->arena, Attr, node->attr_count);
  for (int i = 0; i < node->attr_count; i++) {
    attrs[i] = node->attr[i];
    if (attrs[i].id == ATTR_VALUE) attrs[i].f = 1; /* pad */
  }
  Type type = {weight->type.dtype, node->type.shape};
  return tensor_node(b, node->op, &weight, 1, attrs, node->attr_count, &type, loc);
}

/* ── reductions ───────────────────────────────────────────────────────────────────────────── */
/* What changes nothing: 0 in a sum, 1 in a product, the least in a maximum. */
static double neutral(Op op, DType dtype) {
  if (op == OP_SUM) return 0;
  return op == OP_PROD ? 1 : dtype_extreme(dtype, op == OP_RMAX || op == OP_ARGMAX);
}

/* x without a weight, if it is 0 where the mask is false, as the values of cross_entropy are. */
static Node *zero_where_ignored(const Builder *b, Node *x, const Node *mask) {
  if (x->op == OP_RESHAPE && shape_equal(&x->type.shape, &x->input[0]->type.shape)) x = x->input[0];
  bool fits = x->op == OP_SELECT && x->input[0] == mask && match_value(x->input[2], 0);
  return fits && !weight_of(b, x) ? x : NULL;
}

Node *weight_reduced(Builder *b, Op op, Node *x, Loc loc) {
  Node *weight = weight_of(b, x), *value = x;
  if (!weight) return x;
  char text[TYPE_TEXT];
  DType dtype = x->type.dtype;
  bool is_mask = weight->type.dtype == DT_BOOL;
  if (op == OP_SUM && is_mask) value = zero_where_ignored(b, x, weight);
  if (value && value != x) return value;
  if (op == OP_SUM && !is_mask && !dtype_is_float(dtype)) {
    builder_fail(b, loc, "a sum with weights needs a float tensor, not %s; cast it with f32(x)",
                 type_text(&x->type, text));
    return NULL;
  }
  value = alias(b, x, loc);
  Node *zero = tensor_fill(b, weight->type.dtype, weight->type.shape, 0, loc);
  Node *counts = is_mask ? weight : tensor_binary(b, OP_NE, "and", weight, zero, loc);
  if (op == OP_SUM && !is_mask)
    value = tensor_binary(b, OP_MUL, "and", value, as_type(b, weight, dtype, loc), loc);
  Node *nothing = tensor_fill(b, dtype, x->type.shape, neutral(op, dtype), loc);
  return tensor_select(b, counts, value, nothing, loc);
}

Node *weight_count(Builder *b, const Node *x, DType dtype, const int64_t *axes, int count,
                   bool keep, Loc loc) {
  Node *weight = weight_of(b, x);
  DType sums = dtype == DT_F64 ? DT_F64 : DT_F32; /* f16 counts to 2048 */
  Node *sum = tensor_reduce(b, OP_SUM, as_type(b, weight, sums, loc), axes, count, keep, loc);
  return as_type(b, sum, dtype, loc);
}

/* ── what tensor_node asks ────────────────────────────────────────────────────────────────── */
static bool mixes(Op op) {
  OpClass kind = op_info[op].op_class;
  return kind == CLASS_CONTRACT || kind == CLASS_WINDOW || op == OP_SCATTER_ADD || op == OP_PUT;
}

bool weight_follow(Builder *b, Node *node, Loc loc) {
  bool any = false, fine = true;
  Node *weight = NULL, *from = NULL;
  for (int i = 0; i < node->input_count && b->weights.count; i++) {
    Node *own = weight_of(b, node->input[i]);
    any = any || own;
    if (own) from = own;
  }
  if (!any) return true;
  if (mixes(node->op)) {
    builder_fail(
        b, loc,
        "%s mixes elements that count in a mean with others that do not; reduce the tensor "
        "before, or let all its elements count: unweighted(x)",
        op_info[node->op].op_class == CLASS_WINDOW ? "a window"
        : node->op == OP_DOT                       ? "a matrix product"
                                                   : tensor_written(b, node->op));
    builder_note(b, from->origin.loc, "what counts is computed here");
    return false;
  }
  OpClass kind = op_info[node->op].op_class;
  if (kind == CLASS_POINTWISE || node->op == OP_STOP_GRADIENT)
    weight = common(b, node->input, node->input_count, loc, &fine);
  else if (kind == CLASS_MOVE)
    weight = weight_moved(b, node, loc, &fine);
  if (weight) set_weight(b, node, weight);
  return fine && !b->exhausted;
}

/* ── weighted(x, w) ───────────────────────────────────────────────────────────────────────── */
/* A mask that was cast is the mask. */
static Node *weight_plain(Node *weight) {
  bool is_mask = weight->op == OP_CAST && weight->input[0]->type.dtype == DT_BOOL;
  return is_mask ? weight->input[0] : weight;
}

static Node *weight_product(Builder *b, Node *one, Node *other, Loc loc) {
  if (one->type.dtype == DT_BOOL && other->type.dtype == DT_BOOL)
    return tensor_binary(b, OP_AND, "and", one, other, loc);
  DType dtype = one->type.dtype == DT_BOOL ? other->type.dtype : one->type.dtype;
  return tensor_binary(b, OP_MUL, "and", as_type(b, one, dtype, loc),
                       as_type(b, other, dtype, loc), loc);
}

Node *weight_add(Builder *b, Node *x, Node *weight, Loc loc) {
  Node *old = weight_of(b, x), *own = weight_drop(b, weight_plain(weight), loc);
  if (own) own = tensor_broadcast(b, own, x->type.shape, loc);
  if (own && old) own = weight_product(b, own, old, loc);
  Node *result = own ? alias(b, x, loc) : NULL;
  if (result) set_weight(b, result, own);
  return result;
}
