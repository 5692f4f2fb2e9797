/* builtin_math: pointwise functions, reductions, casts. Functions of one number also work on
 * compile-time numbers. */
#include "frontend/builder.h"
#include "ir/scalar.h"
#include <math.h>
#include <string.h>

/* The ops of the table that are functions (TRAIT_FUNCTION). */
static Value run_op(Call *call) {
  Op op = (Op)call->builtin->which;
  Value *v = &call->arg[0];
  if (value_is_number(v)) {
    double y = scalar_eval(op, DT_F64, DT_F64, &(Scalar){.f = value_number(v)}).f;
    bool whole = op == OP_FLOOR || op == OP_CEIL || op == OP_ROUND ||
                 (v->kind == VALUE_INT && (op == OP_ABS || op == OP_SIGN));
    return whole && fabs(y) < 9e15 ? value_int((int64_t)y) : value_float(y);
  }
  bool any_number = op == OP_ABS || op == OP_SIGN;
  Node *x = any_number ? builtin_tensor(call, 0) : builtin_float_tensor(call, 0);
  return x ? value_tensor(tensor_unary(call->b, op, x, call->loc)) : value_error();
}

static Value run_power(Call *call) {
  return arith_binary(call->b, "**", call->arg[0], call->arg[1], call->loc);
}

/* Integer division: rounds down for compile-time numbers, towards zero for tensors. */
static Value run_div(Call *call) {
  Value *x = &call->arg[0], *y = &call->arg[1];
  Builder *b = call->b;
  int64_t l, r;
  if (value_to_int(x, &l) && value_to_int(y, &r)) {
    if (r == 0 || (l == INT64_MIN && r == -1)) {
      builder_fail(b, call->loc, r ? "the quotient does not fit 64 bits" : "division by zero");
      return value_error();
    }
    int64_t q = l / r;
    return value_int(l % r != 0 && (l < 0) != (r < 0) ? q - 1 : q);
  }
  const Value *tensor = x->kind == VALUE_TENSOR ? x : y;
  if (tensor->kind != VALUE_TENSOR || !dtype_is_integer(tensor->node->type.dtype)) {
    builder_fail(b, call->loc, "div() is for integers; / divides floats");
    return value_error();
  }
  DType dtype = tensor->node->type.dtype;
  return value_tensor(tensor_binary(b, OP_DIV, "divided by", tensor_of(b, x, dtype, call->loc),
                                    tensor_of(b, y, dtype, call->loc), call->loc));
}

static Value run_extreme(Call *call) {
  Value *x = &call->arg[0], *y = &call->arg[1];
  Builder *b = call->b;
  if (value_is_number(x) && value_is_number(y)) {
    bool first = call->builtin->which == OP_MAX ? value_number(x) >= value_number(y)
                                                : value_number(x) <= value_number(y);
    return first ? *x : *y;
  }
  const Value *tensor = x->kind == VALUE_TENSOR ? x : y;
  if (tensor->kind != VALUE_TENSOR) return value_tensor(builtin_tensor(call, 0));
  DType dtype = tensor->node->type.dtype;
  return value_tensor(tensor_binary(b, (Op)call->builtin->which, "and",
                                    tensor_of(b, x, dtype, call->at[0]),
                                    tensor_of(b, y, dtype, call->at[1]), call->loc));
}

static Value run_where(Call *call) {
  Builder *b = call->b;
  Value *x = &call->arg[1], *y = &call->arg[2];
  Node *cond = builtin_tensor(call, 0);
  if (!cond) return value_error();
  if (cond->type.dtype != DT_BOOL) {
    char text[TYPE_TEXT];
    builder_fail(b, call->at[0], "where() needs a bool condition, not %s; compare it, e.g. x != 0",
                 type_text(&cond->type, text));
    return value_error();
  }
  DType dtype = x->kind == VALUE_TENSOR                        ? x->node->type.dtype
                : y->kind == VALUE_TENSOR                      ? y->node->type.dtype
                : x->kind == VALUE_BOOL                        ? DT_BOOL
                : x->kind == VALUE_INT && y->kind == VALUE_INT ? DT_I32
                                                               : DT_F32;
  Node *a = tensor_of(b, x, dtype, call->at[1]), *c = tensor_of(b, y, dtype, call->at[2]);
  if (a && c && a->type.dtype != c->type.dtype) {
    char left[TYPE_TEXT], right[TYPE_TEXT];
    builder_fail(b, call->loc, "where() chooses between two types: %s and %s",
                 type_text(&a->type, left), type_text(&c->type, right));
    return value_error();
  }
  return value_tensor(tensor_select(b, cond, a, c, call->loc));
}

static Value run_isfinite(Call *call) {
  Node *x = builtin_float_tensor(call, 0);
  return x ? value_tensor(tensor_unary(call->b, OP_ISFINITE, x, call->loc)) : value_error();
}

static Value run_cast(Call *call) {
  DType dtype = (DType)call->builtin->which;
  Value *v = &call->arg[0];
  if (v->kind == VALUE_TENSOR) return value_tensor(tensor_cast(call->b, v->node, dtype, call->loc));
  return value_tensor(tensor_of(call->b, v, dtype, call->at[0]));
}

/* ── reductions ───────────────────────────────────────────────────────────────────────────── */
static int64_t reduced_elements(const Node *x, const int64_t *axes, int count) {
  int64_t n = 1;
  for (int i = 0; i < count; i++) n *= x->type.shape.dim[axes[i]];
  return n;
}

static Value builtin_reduce(Call *call, Op op, Node *x) {
  int64_t axes[MAX_RANK];
  int count;
  bool keep;
  if (!x || !builtin_axes(call, 1, x, axes, &count) || !builtin_bool(call, 2, false, &keep))
    return value_error();
  return value_tensor(tensor_reduce(call->b, op, x, axes, count, keep, call->loc));
}

static Node *counted(Call *call) {
  Node *x = builtin_tensor(call, 0);
  return x && x->type.dtype == DT_BOOL ? tensor_cast(call->b, x, DT_F32, call->loc) : x;
}

static Value run_sum(Call *call) { return builtin_reduce(call, OP_SUM, counted(call)); }
static Value run_prod(Call *call) { return builtin_reduce(call, OP_PROD, counted(call)); }

/* sum(x weight) / sum(weight): what PyTorch divides by when targets are ignored. */
static Value weighted_mean(Call *call, Node *x, const int64_t *axes, int count, bool keep) {
  Builder *b = call->b;
  Node *total = tensor_reduce(b, OP_SUM, x, axes, count, keep, call->loc);
  Node *kept = weight_count(b, x, x->type.dtype, axes, count, keep, call->loc);
  return value_tensor(tensor_binary(b, OP_DIV, "/", total, kept, call->loc));
}

static Value run_mean(Call *call) {
  Builder *b = call->b;
  int64_t axes[MAX_RANK];
  int count;
  bool keep;
  Node *x = counted(call);
  if (!x || !builtin_axes(call, 1, x, axes, &count) || !builtin_bool(call, 2, false, &keep))
    return value_error();
  if (!dtype_is_float(x->type.dtype)) {
    char text[TYPE_TEXT];
    builder_fail(b, call->at[0], "mean() needs a float tensor, not %s; cast it with f32(x)",
                 type_text(&x->type, text));
    return value_error();
  }
  if (weight_of(b, x)) return weighted_mean(call, x, axes, count, keep);
  int64_t n = reduced_elements(x, axes, count);
  if (n == 0) {
    builder_fail(b, call->at[0], "the mean of no elements is not defined");
    return value_error();
  }
  Node *sum = tensor_reduce(b, OP_SUM, x, axes, count, keep, call->loc);
  if (!sum || count == 0) return value_tensor(sum); /* 1/1 stays: it follows the batch (sizes.c) */
  Node *factor = tensor_const(b, x->type.dtype, 1.0 / (double)n, call->loc);
  return value_tensor(tensor_binary(b, OP_MUL, "*", sum, factor, call->loc));
}

/* count(x, axis): how many elements count in the mean: a number, or the sum of weights. */
static Value run_count(Call *call) {
  Builder *b = call->b;
  int64_t axes[MAX_RANK];
  int count;
  bool keep;
  Node *x = builtin_tensor(call, 0);
  if (!x || !builtin_axes(call, 1, x, axes, &count) || !builtin_bool(call, 2, false, &keep))
    return value_error();
  if (!weight_of(b, x)) return value_int(reduced_elements(x, axes, count));
  DType dtype = dtype_is_float(x->type.dtype) ? x->type.dtype : DT_F32;
  return value_tensor(weight_count(b, x, dtype, axes, count, keep, call->loc));
}

/* max and min: of compile-time numbers, or over axes of a tensor. */
static Value run_most(Call *call) {
  bool is_max = call->builtin->which == OP_RMAX;
  Value *v = &call->arg[0];
  if (value_is_number(v) && value_is_number(&call->arg[1])) {
    bool first = is_max ? value_number(v) >= value_number(&call->arg[1])
                        : value_number(v) <= value_number(&call->arg[1]);
    return first ? *v : call->arg[1];
  }
  if (call->arg[1].kind == VALUE_TENSOR) {
    builder_fail(
        call->b, call->at[1], "%s(x, axis) reduces one tensor; %s(x, y) takes the %s of two",
        call->builtin->name, is_max ? "maximum" : "minimum", is_max ? "larger" : "smaller");
    return value_error();
  }
  return builtin_reduce(call, (Op)call->builtin->which, builtin_tensor(call, 0));
}

static Value run_arg(Call *call) {
  Builder *b = call->b;
  Node *x = builtin_tensor(call, 0);
  int axis;
  bool keep;
  if (!x || !builtin_axis(call, 1, x, -1, &axis) || !builtin_bool(call, 2, false, &keep))
    return value_error();
  int64_t axes[1] = {axis};
  return value_tensor(tensor_reduce(b, (Op)call->builtin->which, x, axes, 1, keep, call->loc));
}

/* By op, all of them: builtin_find looks at those that are functions. */
const Builtin builtin_ops[OP_COUNT] = {
#define OP(ID, text, ...) [OP_##ID] = {text, "x", run_op, OP_##ID},
#include "ir/ops.def"
#undef OP
};

const Builtin builtin_math[] = {
    {"pow", "x y", run_power, 0},
    {"div", "x y", run_div, 0},
    {"maximum", "x y", run_extreme, OP_MAX},
    {"minimum", "x y", run_extreme, OP_MIN},
    {"where", "condition x y", run_where, 0},
    {"isfinite", "x", run_isfinite, 0},
    {"bool", "x", run_cast, DT_BOOL},
    {"u8", "x", run_cast, DT_U8},
    {"i32", "x", run_cast, DT_I32},
    {"u32", "x", run_cast, DT_U32},
    {"i64", "x", run_cast, DT_I64},
    {"f16", "x", run_cast, DT_F16},
    {"bf16", "x", run_cast, DT_BF16},
    {"f32", "x", run_cast, DT_F32},
    {"f64", "x", run_cast, DT_F64},
    {"sum", "x axis= keepdims=", run_sum, 0},
    {"prod", "x axis= keepdims=", run_prod, 0},
    {"mean", "x axis= keepdims=", run_mean, 0},
    {"count", "x axis= keepdims=", run_count, 0},
    {"max", "x axis= keepdims=", run_most, OP_RMAX},
    {"min", "x axis= keepdims=", run_most, OP_RMIN},
    {"argmax", "x axis= keepdims=", run_arg, OP_ARGMAX},
    {"argmin", "x axis= keepdims=", run_arg, OP_ARGMIN},
    {0},
};
