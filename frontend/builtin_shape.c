/* builtin_shape: functions that move elements and never compute. rearrange is in rearrange.c. */
#include "frontend/builder.h"
#include <math.h>
#include <string.h>

Value rearrange_run(Call *call);

/* reshape(x, 2, -1): one dimension may be left to be computed. */
static Value run_reshape(Call *call) {
  Builder *b = call->b;
  Node *x = builtin_tensor(call, 0);
  Shape shape;
  if (!x || !builtin_shape_arg(call, 1, &shape)) return value_error();
  int64_t known = 1, elements = shape_elements(&x->type.shape);
  int open = -1;
  for (int i = 0; i < shape.rank; i++) {
    if (shape.dim[i] != -1) {
      if (shape.dim[i] < 0 || (shape.dim[i] && known > LIMIT_ELEMENTS / shape.dim[i])) {
        builder_fail(b, call->at[1], "%lld cannot be a dimension here", (long long)shape.dim[i]);
        return value_error();
      }
      known *= shape.dim[i];
    } else if (open >= 0) {
      builder_fail(b, call->at[1], "only one dimension of a reshape can be -1");
      return value_error();
    } else {
      open = i;
    }
  }
  if (open >= 0) {
    char text[TYPE_TEXT];
    if (known == 0 || elements % known != 0) {
      builder_fail(b, call->at[1],
                   "%s cannot be reshaped: its %lld elements are not a multiple of "
                   "%lld",
                   type_text(&x->type, text), (long long)elements, (long long)known);
      return value_error();
    }
    shape.dim[open] = elements / known;
  }
  return value_tensor(tensor_reshape(b, x, shape, call->loc));
}

static Value run_flatten(Call *call) {
  Node *x = builtin_tensor(call, 0);
  int from;
  if (!x) return value_error();
  if (x->type.shape.rank == 0)
    return value_tensor(tensor_reshape(call->b, x, (Shape){1, {1}}, call->loc));
  if (!builtin_axis(call, 1, x, 0, &from)) return value_error();
  Shape shape = {.rank = from + 1};
  int64_t rest = 1;
  for (int i = 0; i < x->type.shape.rank; i++) {
    if (i < from)
      shape.dim[i] = x->type.shape.dim[i];
    else
      rest *= x->type.shape.dim[i];
  }
  shape.dim[from] = rest;
  return value_tensor(tensor_reshape(call->b, x, shape, call->loc));
}

/* transpose(x) swaps the last two dimensions; transpose(x, 0, 2, 1) says where each comes from. */
static Value run_transpose(Call *call) {
  Builder *b = call->b;
  Node *x = builtin_tensor(call, 0);
  if (!x) return value_error();
  int rank = x->type.shape.rank;
  Value *given = &call->arg[1];
  int64_t perm[MAX_RANK];
  char text[TYPE_TEXT];
  if (given->kind == VALUE_ABSENT) {
    if (rank < 2) {
      builder_fail(b, call->at[0], "transpose(x) needs at least two dimensions, not %s",
                   type_text(&x->type, text));
      return value_error();
    }
    perm_of_matrices(rank, perm);
    return value_tensor(tensor_transpose(b, x, perm, call->loc));
  }
  Shape order;
  if (!builtin_shape_arg(call, 1, &order)) return value_error();
  bool seen[MAX_RANK] = {false}, fine = order.rank == rank;
  for (int i = 0; i < order.rank && fine; i++) {
    perm[i] = order.dim[i] < 0 ? order.dim[i] + rank : order.dim[i];
    fine = perm[i] >= 0 && perm[i] < rank && !seen[perm[i]];
    if (fine) seen[perm[i]] = true;
  }
  if (!fine) {
    builder_fail(b, call->at[1], "the order must name each of the %d dimensions of %s once", rank,
                 type_text(&x->type, text));
    return value_error();
  }
  return value_tensor(tensor_transpose(b, x, perm, call->loc));
}

static Value run_squeeze(Call *call) {
  Builder *b = call->b;
  Node *x = builtin_tensor(call, 0);
  int64_t axes[MAX_RANK];
  int count;
  if (!x || !builtin_axes(call, 1, x, axes, &count)) return value_error();
  bool all = !value_is_given(&call->arg[1]);
  Shape shape = {0};
  for (int i = 0, next = 0; i < x->type.shape.rank; i++) {
    int64_t size = x->type.shape.dim[i];
    bool named = next < count && axes[next] == i;
    next += named;
    if (named && size != 1 && !all) {
      char text[TYPE_TEXT];
      builder_fail(b, call->at[1], "dimension %d of %s is %lld and cannot be squeezed", i,
                   type_text(&x->type, text), (long long)size);
      return value_error();
    }
    if (!named || size != 1) shape.dim[shape.rank++] = size;
  }
  return value_tensor(tensor_reshape(b, x, shape, call->loc));
}

static Value run_unsqueeze(Call *call) {
  Builder *b = call->b;
  Node *x = builtin_tensor(call, 0);
  int64_t axis;
  if (!x || !builtin_int(call, 1, 0, &axis)) return value_error();
  int rank = x->type.shape.rank;
  if (axis < -rank - 1 || axis > rank || rank == MAX_RANK) {
    builder_fail(b, call->at[1], "there is no place %lld for a new dimension of a tensor with %d",
                 (long long)axis, rank);
    return value_error();
  }
  if (axis < 0) axis += rank + 1;
  Shape shape = {.rank = rank + 1};
  for (int i = 0, from = 0; i <= rank; i++)
    shape.dim[i] = i == axis ? 1 : x->type.shape.dim[from++];
  return value_tensor(tensor_reshape(b, x, shape, call->loc));
}

static Value run_broadcast(Call *call) {
  Node *x = builtin_tensor(call, 0);
  Shape shape;
  if (!x || !builtin_shape_arg(call, 1, &shape)) return value_error();
  if (!tensor_shape_fits(call->b, &shape, call->at[1])) return value_error();
  return value_tensor(tensor_broadcast(call->b, x, shape, call->loc));
}

/* ── several tensors ──────────────────────────────────────────────────────────────────────── */
static Node **tensor_list(Call *call, int *count) {
  Value *v = &call->arg[0];
  if ((v->kind != VALUE_LIST && v->kind != VALUE_TUPLE) || v->count == 0) {
    if (v->kind != VALUE_ERROR)
      builder_fail(call->b, call->at[0], "%s() needs a list of tensors: %s([x, y], axis=1)",
                   call->builtin->name, call->builtin->name);
    return NULL;
  }
  Node **nodes = ARENA_ARRAY(call->b->arena, Node *, v->count);
  for (int i = 0; i < v->count; i++) {
    if (v->items[i].kind != VALUE_TENSOR) {
      builder_fail(call->b, call->at[0], "item %d of the list is not a tensor but %s", i,
                   value_describe(call->b->arena, &v->items[i]));
      return NULL;
    }
    nodes[i] = v->items[i].node;
  }
  *count = v->count;
  return nodes;
}

static Value concat(Call *call, Node **nodes, int count, int axis) {
  Attr attr = attr_int(ATTR_AXIS, axis);
  return value_tensor(tensor_node(call->b, OP_CONCAT, nodes, count, &attr, 1, NULL, call->loc));
}

static Value run_concat(Call *call) {
  int count, axis;
  Node **nodes = tensor_list(call, &count);
  if (!nodes || !builtin_axis(call, 1, nodes[0], 0, &axis)) return value_error();
  return count == 1 ? value_tensor(nodes[0]) : concat(call, nodes, count, axis);
}

static Value run_stack(Call *call) {
  Builder *b = call->b;
  int count;
  int64_t axis;
  Node **nodes = tensor_list(call, &count);
  if (!nodes || !builtin_int(call, 1, 0, &axis)) return value_error();
  int rank = nodes[0]->type.shape.rank;
  if (axis < 0) axis += rank + 1;
  if (axis < 0 || axis > rank || rank == MAX_RANK) {
    builder_fail(b, call->at[1], "there is no place for a new dimension there");
    return value_error();
  }
  Shape shape = {.rank = rank + 1};
  for (int i = 0, from = 0; i <= rank; i++)
    shape.dim[i] = i == axis ? 1 : nodes[0]->type.shape.dim[from++];
  for (int i = 0; i < count; i++) {
    if (!type_equal(&nodes[i]->type, &nodes[0]->type)) {
      char left[TYPE_TEXT], right[TYPE_TEXT];
      builder_fail(b, call->at[0], "stacked tensors must be alike: %s and %s",
                   type_text(&nodes[0]->type, left), type_text(&nodes[i]->type, right));
      return value_error();
    }
  }
  Node **grown = ARENA_ARRAY(b->arena, Node *, count);
  for (int i = 0; i < count; i++) grown[i] = tensor_reshape(b, nodes[i], shape, call->loc);
  return concat(call, grown, count, (int)axis);
}

static Node *builtin_slice(Call *call, Node *x, int axis, int64_t start, int64_t size) {
  int64_t starts[MAX_RANK] = {0}, steps[MAX_RANK];
  for (int i = 0; i < MAX_RANK; i++) steps[i] = 1;
  starts[axis] = start;
  Type type = x->type;
  type.shape.dim[axis] = size;
  if (shape_equal(&type.shape, &x->type.shape)) return x;
  Attr attrs[2] = {attr_ints(ATTR_START, starts, x->type.shape.rank),
                   attr_ints(ATTR_STEP, steps, x->type.shape.rank)};
  return tensor_node(call->b, OP_SLICE, &x, 1, attrs, 2, &type, call->loc);
}

/* split(x, 3, axis=-1): three equal parts; split(x, [10, 20], axis=-1): parts of these sizes. */
static Value run_split(Call *call) {
  Builder *b = call->b;
  Node *x = builtin_tensor(call, 0);
  Value *parts = &call->arg[1];
  int axis;
  char text[TYPE_TEXT];
  if (!x || !builtin_axis(call, 2, x, 0, &axis)) return value_error();
  int64_t size = x->type.shape.dim[axis], count, total = 0;
  bool sizes = parts->kind == VALUE_LIST || parts->kind == VALUE_TUPLE;
  if (sizes)
    count = parts->count;
  else if (!builtin_int(call, 1, 0, &count))
    return value_error();
  if (count < 1 || count > LIMIT_ITEMS || (!sizes && size % count != 0)) {
    builder_fail(b, call->at[1], "dimension %d of %s cannot be split into %lld equal parts", axis,
                 type_text(&x->type, text), (long long)count);
    return value_error();
  }
  Value *items = ARENA_ARRAY(b->arena, Value, count);
  for (int64_t i = 0; i < count; i++) {
    int64_t part = size / count;
    if (sizes && (!value_to_int(&parts->items[i], &part) || part < 0 || part > size - total)) {
      builder_fail(b, call->at[1], "the parts must be sizes that add up to dimension %d of %s",
                   axis, type_text(&x->type, text));
      return value_error();
    }
    items[i] = value_tensor(builtin_slice(call, x, axis, total, part));
    if (items[i].kind == VALUE_ERROR) return value_error();
    total += part;
  }
  if (total != size) {
    builder_fail(b, call->at[1], "the parts add up to %lld, but dimension %d of %s is %lld",
                 (long long)total, axis, type_text(&x->type, text), (long long)size);
    return value_error();
  }
  return value_sequence(VALUE_TUPLE, items, (int)count);
}

/* One number for each dimension. */
static bool margins(Call *call, int index, int rank, int64_t out[MAX_RANK]) {
  Value *v = &call->arg[index];
  bool fine = (v->kind == VALUE_LIST || v->kind == VALUE_TUPLE) && v->count == rank;
  for (int i = 0; fine && i < rank; i++) fine = value_to_int(&v->items[i], &out[i]);
  return fine || builder_fail(call->b, call->at[index],
                              "pad() needs %d numbers here, one for each dimension, not %s", rank,
                              value_text(call->b->arena, v));
}

/* pad(x, low=(1, 0), high=(0, 2), value=0) */
static Value run_pad(Call *call) {
  Node *x = builtin_tensor(call, 0);
  double value;
  int64_t low[MAX_RANK] = {0}, high[MAX_RANK] = {0};
  if (!x || !margins(call, 1, x->type.shape.rank, low) ||
      !margins(call, 2, x->type.shape.rank, high) ||
      !builtin_element(call, 3, x->type.dtype, &value))
    return value_error();
  int rank = x->type.shape.rank;
  Attr attrs[3] = {attr_float(ATTR_VALUE, value), attr_ints(ATTR_LOW, low, rank),
                   attr_ints(ATTR_HIGH, high, rank)};
  return value_tensor(tensor_node(call->b, OP_PAD, &x, 1, attrs, 3, NULL, call->loc));
}

/* gather and embed; what embed looks up are ids, of which none may be outside of the table: where
 * the loader cannot see to that, rows of what is outside are NaN. */
static Value run_gather(Call *call) {
  Builder *b = call->b;
  Node *table = builtin_tensor(call, 0), *index = builtin_tensor(call, 1);
  if (call->builtin->which) table = quantize_table(b, table, call->loc);
  if (!table || !index) return value_error();
  bool is_strict = call->builtin->which && table->type.shape.rank;
  int64_t count = is_strict ? table->type.shape.dim[0] : 0;
  bool is_known = !is_strict || tensor_within(b, index, count, NULL);
  Node *rows = tensor_gather(b, table, index, call->loc);
  if (is_known || !rows || !dtype_is_float(rows->type.dtype)) return value_tensor(rows);
  Node *fits = tensor_is_within(b, index, count, NULL, call->loc);
  Shape shape = rows->type.shape;
  for (int i = index->type.shape.rank; i < shape.rank; i++) shape.dim[i] = 1;
  fits =
      tensor_broadcast(b, tensor_reshape(b, fits, shape, call->loc), rows->type.shape, call->loc);
  Node *nan = tensor_fill(b, rows->type.dtype, rows->type.shape, NAN, call->loc);
  return value_tensor(tensor_select(b, fits, rows, nan, call->loc));
}

/* ── fresh tensors ────────────────────────────────────────────────────────────────────────── */
bool builtin_dtype(Call *call, int index, DType otherwise, DType *out) {
  Value *v = &call->arg[index];
  *out = otherwise;
  if (v->kind == VALUE_ABSENT) return true;
  if (v->kind == VALUE_STRING && dtype_parse_named(v->s, out)) return true;
  if (v->kind == VALUE_BUILTIN && dtype_parse_named(v->builtin->name, out)) return true; /* dtype=i32 */
  return builder_fail(call->b, call->at[index],
                      "expected an element type such as f32 or i32, not %s",
                      value_describe(call->b->arena, v));
}

static Value run_iota(Call *call) {
  Builder *b = call->b;
  Type type = {0};
  int64_t axis;
  if (!builtin_shape_arg(call, 0, &type.shape) || !builtin_int(call, 1, -1, &axis) ||
      !builtin_dtype(call, 2, DT_I32, &type.dtype))
    return value_error();
  int rank = type.shape.rank;
  if (axis < -rank || axis >= rank) {
    builder_fail(b, call->at[1], "axis %lld is outside a shape with %d dimensions", (long long)axis,
                 rank);
    return value_error();
  }
  Attr attr = attr_int(ATTR_AXIS, axis < 0 ? axis + rank : axis);
  return value_tensor(tensor_node(b, OP_IOTA, NULL, 0, &attr, 1, &type, call->loc));
}

static Value run_full(Call *call) {
  bool is_full = strcmp(call->builtin->name, "full") == 0;
  double value = call->builtin->which;
  Type type = {0};
  if (!builtin_shape_arg(call, 0, &type.shape) ||
      !builtin_dtype(call, is_full ? 2 : 1, DT_F32, &type.dtype))
    return value_error();
  const Value *given = &call->arg[is_full ? 1 : 0];
  if (is_full && value_is_number(given) && value_number(given) != floor(value_number(given)) &&
      !dtype_is_float(type.dtype)) { /* there is no tensor that could be cast */
    builder_fail(call->b, call->at[1], "%s does not fit %s", value_text(call->b->arena, given),
                 dtype_text(type.dtype));
    return value_error();
  }
  if (is_full && !builtin_element(call, 1, type.dtype, &value)) return value_error();
  return value_tensor(tensor_fill(call->b, type.dtype, type.shape, value, call->loc));
}

static Value run_like(Call *call) {
  Node *x = builtin_tensor(call, 0);
  if (!x) return value_error();
  return value_tensor(
      tensor_fill(call->b, x->type.dtype, x->type.shape, call->builtin->which, call->loc));
}

static Value run_matmul(Call *call) {
  return arith_binary(call->b, "@", call->arg[0], call->arg[1], call->loc);
}

/* axis_of(x, axis): the number of that dimension of x, counted from the front. */
static Value run_axis_of(Call *call) {
  Node *x = builtin_tensor(call, 0);
  int axis;
  if (!x || !builtin_axis(call, 1, x, 0, &axis)) return value_error();
  return value_int(axis);
}

const Builtin builtin_shape[] = {
    {"axis_of", "x axis", run_axis_of, 0},
    {"reshape", "x *shape", run_reshape, 0},
    {"flatten", "x from=", run_flatten, 0},
    {"transpose", "x *order", run_transpose, 0},
    {"permute", "x *order", run_transpose, 0},
    {"squeeze", "x axis=", run_squeeze, 0},
    {"unsqueeze", "x axis", run_unsqueeze, 0},
    {"broadcast_to", "x shape", run_broadcast, 0},
    {"concat", "tensors axis=", run_concat, 0},
    {"stack", "tensors axis=", run_stack, 0},
    {"split", "x parts axis=", run_split, 0},
    {"pad", "x low high value=", run_pad, 0},
    {"gather", "table index", run_gather, 0},
    {"embed", "table ids", run_gather, 1},
    {"iota", "shape axis= dtype=", run_iota, 0},
    {"zeros", "shape dtype=", run_full, 0},
    {"ones", "shape dtype=", run_full, 1},
    {"full", "shape value dtype=", run_full, 0},
    {"zeros_like", "x", run_like, 0},
    {"ones_like", "x", run_like, 1},
    {"matmul", "x y", run_matmul, 0},
    {"rearrange", "x pattern *sizes", rearrange_run, 0},
    {0},
};
