/* infer: the shape rules of ops.def, one function infer_<rule> each. They trust nothing: inputs,
 * attributes and given types may come from a user or from a hostile file. The reasons are sentences
 * for the user of the language, who sees them under a caret. Windowed ops are in infer_window.c,
 * data movement in infer_move.c, collectives in infer_ranks.c. */
#include "ir/infer.h"
#include <math.h>
#include <stdlib.h>

bool infer_fail(Infer *in, const char *format, ...) {
  va_list args;
  va_start(args, format);
  in->why = arena_vprintf(in->arena, format, args);
  va_end(args);
  return false;
}

const Attr *infer_attr(const Infer *in, AttrId id) {
  for (int i = 0; i < in->attr_count; i++)
    if (in->attrs[i].id == id) return &in->attrs[i];
  return NULL;
}

const char *infer_show(Infer *in, const Type *type) {
  char buffer[TYPE_TEXT];
  return arena_strdup(in->arena, type_text(type, buffer));
}

const char *infer_show_shape(Infer *in, const Shape *shape) {
  char buffer[TYPE_TEXT];
  return arena_strdup(in->arena, shape_text(shape, buffer));
}

bool infer_need_given(Infer *in) {
  return in->given || infer_fail(in, "%s needs its type to be given", in->name);
}

bool infer_take_given(Infer *in) {
  if (!infer_need_given(in)) return false;
  *in->out = *in->given;
  return true;
}

const Attr *infer_need_attr(Infer *in, AttrId id) {
  const Attr *attr = infer_attr(in, id);
  if (!attr) infer_fail(in, "%s needs the attribute '%s'", in->name, attr_info[id].text);
  return attr;
}

const Attr *infer_need_ints(Infer *in, AttrId id, int count) {
  const Attr *attr = infer_need_attr(in, id);
  if (attr && attr->count != count) {
    infer_fail(in, "'%s' of %s must have %d numbers, not %d", attr_info[id].text, in->name, count,
               attr->count);
    return NULL;
  }
  return attr;
}

static bool need_name(Infer *in, AttrId id) {
  const Attr *attr = infer_need_attr(in, id);
  if (!attr) return false;
  return (attr->s && *attr->s) ||
         infer_fail(in, "the '%s' of %s is empty", attr_info[id].text, in->name);
}

/* Whether a value of the attribute `value` exists in the dtype. */
bool infer_value(Infer *in, DType dtype, double value) {
  if (dtype_is_float(dtype)) return true;
  bool is_within = value >= dtype_extreme(dtype, true) && value <= dtype_extreme(dtype, false);
  if (is_within && value == floor(value)) return true;
  return infer_fail(in, "the constant %g does not exist in %s", value, dtype_text(dtype));
}

/* ── pointwise ──────────────────────────────────────────────────────────────────────────────── */
static bool all_same(Infer *in) {
  for (int i = 1; i < in->input_count; i++) {
    const Type *a = infer_operand(in, 0), *b = infer_operand(in, i);
    if (a->dtype != b->dtype)
      return infer_fail(in, "%s cannot mix %s and %s: convert one of them, for example with %s(x)",
                        in->name, dtype_text(a->dtype), dtype_text(b->dtype),
                        dtype_text(dtype_is_float(b->dtype) ? b->dtype : a->dtype));
    if (!shape_equal(&a->shape, &b->shape))
      return infer_fail(in, "the shapes of %s disagree: %s and %s", in->name,
                        infer_show_shape(in, &a->shape), infer_show_shape(in, &b->shape));
  }
  if (in->input_count) *in->out = *infer_operand(in, 0);
  return true;
}

static bool infer_same_any(Infer *in) { return all_same(in); }

static bool infer_same(Infer *in) {
  if (infer_operand(in, 0)->dtype == DT_BOOL)
    return infer_fail(in, "%s does not apply to bool: convert it first, for example with f32(x)",
                      in->name);
  return all_same(in);
}

static bool infer_same_bits(Infer *in) {
  DType dtype = infer_operand(in, 0)->dtype;
  if (dtype_is_float(dtype))
    return infer_fail(in,
                      "%s is for bool and integer tensors, not for %s: compare it with "
                      "something first",
                      in->name, dtype_text(dtype));
  return all_same(in);
}

static bool infer_same_integer(Infer *in) {
  DType dtype = infer_operand(in, 0)->dtype;
  if (!dtype_is_integer(dtype))
    return infer_fail(in, "a remainder is for integer tensors, not for %s", dtype_text(dtype));
  return all_same(in);
}

static bool infer_same_float(Infer *in) {
  DType dtype = infer_operand(in, 0)->dtype;
  if (!dtype_is_float(dtype))
    return infer_fail(in,
                      "%s is for floating-point tensors, not for %s: convert it first, for "
                      "example with f32(x)",
                      in->name, dtype_text(dtype));
  return all_same(in);
}

static bool infer_isfinite(Infer *in) {
  if (!infer_same_float(in)) return false;
  in->out->dtype = DT_BOOL;
  return true;
}

static bool infer_compare(Infer *in) {
  if (!all_same(in)) return false;
  in->out->dtype = DT_BOOL;
  return true;
}

static bool infer_cast(Infer *in) {
  if (!infer_need_given(in)) return false;
  *in->out = *infer_operand(in, 0);
  in->out->dtype = in->given->dtype;
  return true;
}

static bool infer_select(Infer *in) {
  const Type *cond = infer_operand(in, 0), *a = infer_operand(in, 1), *b = infer_operand(in, 2);
  if (cond->dtype != DT_BOOL)
    return infer_fail(in, "the condition of a selection must be bool, not %s",
                      dtype_text(cond->dtype));
  if (a->dtype != b->dtype)
    return infer_fail(in, "the two branches of a selection differ: %s and %s", infer_show(in, a),
                      infer_show(in, b));
  if (!shape_equal(&a->shape, &b->shape) || !shape_equal(&a->shape, &cond->shape))
    return infer_fail(in, "the shapes of a selection disagree: condition %s, branches %s and %s",
                      infer_show_shape(in, &cond->shape), infer_show_shape(in, &a->shape),
                      infer_show_shape(in, &b->shape));
  *in->out = *a;
  return true;
}

/* ── reductions ─────────────────────────────────────────────────────────────────────────────── */
static bool infer_reduce(Infer *in) {
  const Type *x = infer_operand(in, 0);
  const Attr *axes = infer_need_attr(in, ATTR_AXES);
  if (!axes) return false;
  if (x->dtype == DT_BOOL)
    return infer_fail(in, "%s does not apply to bool: convert it first, for example with f32(x)",
                      in->name);
  *in->out = *x;
  for (int i = 0; i < axes->count; i++) {
    int64_t axis = axes->ints[i];
    if (axis < 0 || axis >= x->shape.rank)
      return infer_fail(in, "%s over axis %lld of a tensor with %d dimensions, %s", in->name,
                        (long long)axis, x->shape.rank, infer_show_shape(in, &x->shape));
    if (i && axis <= axes->ints[i - 1])
      return infer_fail(in, "the axes of %s must be different and in ascending order", in->name);
    in->out->shape.dim[axis] = 1;
  }
  return true;
}

static bool infer_moment(Infer *in) {
  DType dtype = infer_operand(in, 0)->dtype;
  if (dtype == DT_F32 || dtype == DT_F64) return infer_reduce(in);
  return infer_fail(in, "%s is of f32 or f64, not %s", in->name, dtype_text(dtype));
}

static bool infer_arg_reduce(Infer *in) {
  if (!infer_reduce(in)) return false;
  const Attr *axes = infer_attr(in, ATTR_AXES);
  if (axes->count != 1)
    return infer_fail(in, "%s works along one axis, not %d", in->name, axes->count);
  int64_t size = infer_operand(in, 0)->shape.dim[axes->ints[0]];
  if (size == 0)
    return infer_fail(in, "%s along an empty axis: %s has no element to choose", in->name,
                      infer_show_shape(in, &infer_operand(in, 0)->shape));
  if (size > INT32_MAX)
    return infer_fail(in, "%s along an axis of %lld elements: its i32 result cannot hold the index",
                      in->name, (long long)size);
  in->out->dtype = DT_I32;
  return true;
}

bool infer_result_dtype(Infer *in, DType operands, DType *out) {
  const Attr *result = infer_attr(in, ATTR_RESULT);
  bool is_narrow = dtype_is_narrow(operands) || dtype_is_float8(operands);
  *out = result ? (DType)result->i : operands;
  if (dtype_is_float8(operands) && *out != DT_F32)
    return infer_fail(in, "%s of %s has a result of f32", in->name, dtype_text(operands));
  return *out == operands || (is_narrow && *out == DT_F32) ||
         infer_fail(in, "%s of %s cannot have a result of %s", in->name, dtype_text(operands),
                    dtype_text(*out));
}

/* ── matrix product ─────────────────────────────────────────────────────────────────────────── */
static bool infer_dot(Infer *in) {
  const Type *a = infer_operand(in, 0), *b = infer_operand(in, 1);
  bool are_float8 = dtype_is_float8(a->dtype) && dtype_is_float8(b->dtype);
  if (!dtype_is_float(a->dtype) || (a->dtype != b->dtype && !are_float8))
    return infer_fail(in,
                      "a matrix product needs two floating-point tensors of one type, not %s "
                      "and %s",
                      infer_show(in, a), infer_show(in, b));
  int rank = a->shape.rank;
  if (rank < 2 || b->shape.rank != rank)
    return infer_fail(in,
                      "a matrix product needs two tensors with the same number of dimensions, "
                      "at least 2, not %s and %s",
                      infer_show_shape(in, &a->shape), infer_show_shape(in, &b->shape));
  const Attr *ta = infer_attr(in, ATTR_TRANS_A), *tb = infer_attr(in, ATTR_TRANS_B);
  int m = rank - 2, k = rank - 1;
  if (ta && ta->i) m = rank - 1, k = rank - 2;
  int kb = rank - 2, n = rank - 1;
  if (tb && tb->i) kb = rank - 1, n = rank - 2;
  if (a->shape.dim[k] != b->shape.dim[kb])
    return infer_fail(in, "the inner dimensions of a matrix product disagree: %s%s and %s%s",
                      infer_show_shape(in, &a->shape), ta && ta->i ? " transposed" : "",
                      infer_show_shape(in, &b->shape), tb && tb->i ? " transposed" : "");
  *in->out = *a;
  for (int i = 0; i + 2 < rank; i++)
    if (a->shape.dim[i] != b->shape.dim[i])
      return infer_fail(in, "the batch dimensions of a matrix product disagree: %s and %s",
                        infer_show_shape(in, &a->shape), infer_show_shape(in, &b->shape));
  in->out->shape.dim[rank - 2] = a->shape.dim[m];
  in->out->shape.dim[rank - 1] = b->shape.dim[n];
  return infer_result_dtype(in, a->dtype, &in->out->dtype);
}

/* ── leaves and structure ───────────────────────────────────────────────────────────────────── */
/* The first element may be one for each. */
static bool is_number_or_each(Infer *in, int operand) {
  const Shape *shape = &infer_operand(in, operand)->shape;
  return shape->rank == 0 || (operand == 2 && shape_equal(shape, &in->given->shape));
}

static bool infer_random(Infer *in) {
  if (!infer_take_given(in)) return false;
  static const char *const operand[] = {"seed", "step", "first element"};
  for (int i = 0; i < in->input_count; i++)
    if (infer_operand(in, i)->dtype != DT_I64 || !is_number_or_each(in, i))
      return infer_fail(in, "the %s of a random tensor must be i64[]%s, not %s", operand[i],
                        i == 2 ? " or one for each element" : "",
                        infer_show(in, infer_operand(in, i)));
  const Attr *stream = infer_need_attr(in, ATTR_STREAM);
  if (!stream) return false;
  if (stream->i < 0 || stream->i > UINT32_MAX)
    return infer_fail(in, "the stream of a random tensor must fit 32 bits");
  if (in->given->dtype != DT_F32)
    return infer_fail(in, "random numbers are f32, not %s", dtype_text(in->given->dtype));
  return true;
}

static bool infer_iota(Infer *in) {
  if (!infer_take_given(in)) return false;
  const Attr *axis = infer_need_attr(in, ATTR_AXIS);
  if (!axis) return false;
  if (in->given->dtype != DT_I32 && in->given->dtype != DT_I64)
    return infer_fail(in, "iota counts in i32 or i64, not in %s", dtype_text(in->given->dtype));
  if (axis->i < 0 || axis->i >= in->given->shape.rank)
    return infer_fail(in, "iota along axis %lld of %s", (long long)axis->i,
                      infer_show(in, in->given));
  return in->given->dtype == DT_I64 || in->given->shape.dim[axis->i] <= INT32_MAX ||
         infer_fail(in, "i32 cannot count to %lld", (long long)in->given->shape.dim[axis->i]);
}

static bool infer_pack(Infer *in) {
  if (!infer_take_given(in)) return false;
  const Attr *offsets = infer_need_ints(in, ATTR_OFFSETS, in->input_count);
  if (!offsets) return false;
  if (in->given->shape.rank != 1)
    return infer_fail(in, "pack makes a flat tensor, not %s", infer_show(in, in->given));
  int64_t end = 0;
  for (int i = 0; i < in->input_count; i++) {
    const Type *x = infer_operand(in, i);
    if (x->dtype != in->given->dtype)
      return infer_fail(in, "pack of %s to %s", infer_show(in, x), infer_show(in, in->given));
    if (offsets->ints[i] < end)
      return infer_fail(in, "the operands of pack overlap or are out of order at operand %d", i);
    if (offsets->ints[i] > in->given->shape.dim[0] - shape_elements(&x->shape))
      return infer_fail(in, "operand %d of pack leaves %s", i, infer_show(in, in->given));
    end = offsets->ints[i] + shape_elements(&x->shape);
  }
  return true;
}

static bool infer_result(Infer *in) {
  if (!infer_take_given(in)) return false;
  const Attr *index = infer_need_attr(in, ATTR_INDEX);
  if (!index) return false;
  const Node *node = in->input[0];
  if (!node_has_results(node))
    return infer_fail(in, "result projects a fused node, attention or all_reduce, not %s",
                      op_info[node->op].text);
  if (node->op == OP_FUSED && !node->body)
    return index->i >= 0 || infer_fail(in, "result %lld", (long long)index->i);
  if (index->i < 0 || index->i >= node_result_count(node))
    return infer_fail(in, "result %lld of %s with %d results", (long long)index->i,
                      node->op == OP_FUSED ? "a fused node" : op_info[node->op].text,
                      node_result_count(node));
  Type type = node_result_type(node, index->i);
  return type_equal(&type, in->given) ||
         infer_fail(in, "result %lld is %s, not %s", (long long)index->i, infer_show(in, &type),
                    infer_show(in, in->given));
}

static bool infer_named(Infer *in) { return infer_take_given(in) && need_name(in, ATTR_NAME); }

static bool infer_param(Infer *in) {
  if (!infer_named(in)) return false;
  return dtype_is_float(in->given->dtype) ||
         infer_fail(in, "a parameter must be floating-point, not %s", dtype_text(in->given->dtype));
}

/* What it begins with must exist in its type: no 0.5 in a counter. */
static bool infer_state(Infer *in) {
  if (!infer_named(in)) return false;
  const Attr *kind = infer_attr(in, ATTR_INIT), *args = infer_attr(in, ATTR_INIT_ARGS);
  bool is_const = kind && kind->s && !strcmp(kind->s, "const") && args && args->count;
  return !is_const || infer_value(in, in->given->dtype, args->floats[0]);
}

static bool infer_setting(Infer *in) {
  if (!infer_named(in)) return false;
  return (in->given->dtype == DT_F64 && !in->given->shape.rank) ||
         infer_fail(in, "a setting is f64[], not %s", infer_show(in, in->given));
}

static bool infer_const(Infer *in) {
  if (!infer_take_given(in)) return false;
  const Attr *value = infer_need_attr(in, ATTR_VALUE);
  return value && infer_value(in, in->given->dtype, value->f);
}

static bool infer_fused(Infer *in) { return infer_take_given(in) && need_name(in, ATTR_KIND); }

static bool infer_arg(Infer *in) {
  if (!infer_take_given(in)) return false;
  const Attr *index = infer_need_attr(in, ATTR_INDEX);
  return index && (index->i >= 0 || infer_fail(in, "argument %lld", (long long)index->i));
}

static bool infer_assign(Infer *in) { return need_name(in, ATTR_TARGET) && all_same(in); }

/* ── the entry ──────────────────────────────────────────────────────────────────────────────── */
static bool (*const rules[OP_COUNT])(Infer *) = {
#define OP(ID, text, min, max, class, first, last, traits, attrs, rule, ...)                       \
  [OP_##ID] = infer_##rule,
#include "ir/ops.def"
#undef OP
};

static bool check_arity(Infer *in) {
  const OpInfo *info = &op_info[in->op];
  if (in->input_count >= info->min_inputs &&
      (info->max_inputs < 0 || in->input_count <= info->max_inputs))
    return true;
  return infer_fail(in, "%s takes %s%d input%s, not %d", in->name,
                    info->max_inputs < 0 ? "at least " : "", info->min_inputs,
                    info->min_inputs == 1 ? "" : "s", in->input_count);
}

bool infer_type(Arena *arena, Op op, const char *called, Node *const *inputs, int input_count, const Attr *attrs,
                int attr_count, const Type *given, Type *out, const char **why) {
  Infer in = {.arena = arena,
              .op = op,
              .input = inputs,
              .input_count = input_count,
              .attrs = attrs,
              .attr_count = attr_count,
              .given = given,
              .out = out};
  if ((unsigned)op >= OP_COUNT) {
    *why = "there is no such operation";
    return false;
  }
  in.name = called ? called : op_info[op].text;
  *out = (Type){0};
  bool legal = check_arity(&in);
  if (legal && given && !shape_is_legal(&given->shape))
    legal = infer_fail(&in, "the shape %s has more than 2^40 elements",
                       infer_show_shape(&in, &given->shape));
  legal = legal && rules[op](&in);
  if (legal && !shape_is_legal(&out->shape))
    legal = infer_fail(&in, "the result of %s, %s, would have more than 2^40 elements", in.name,
                       infer_show_shape(&in, &out->shape));
  out->pitch = 0;
  if (!legal) *why = in.why;
  return legal;
}
