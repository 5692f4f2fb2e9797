/* simplify_math: rules for pointwise ops. Canonical form: a constant stands on the right; x - c is
 * x + -c; a minus sign moves towards a constant or into a subtraction; of several constants on one
 * chain of sums or of products, one is left. */
#include "passes/simplify.h"
#include <math.h>
#include <stdlib.h>

#define A (node->input[0])
#define B (node->input[1])

static bool is_float(const Node *node) { return dtype_is_float(node->type.dtype); }

static bool simplify_is_signed(const Node *node) {
  return is_float(node) || node->type.dtype == DT_I32 || node->type.dtype == DT_I64;
}
static bool is_in_range(const Node *node, double c) { /* of any signed type */
  return is_float(node) || fabs(c) < 2147483647.0;
}

/* May two float factors be taken together? Not where that could overflow or vanish in f32. */
static bool is_tame(double factor) { return fabs(factor) > 1e-30 && fabs(factor) < 1e30; }

/* ── order ──────────────────────────────────────────────────────────────────────────────────── */
static Node *constant_right(Graph *graph, Node *node) {
  double c;
  if (!match_const(A, &c) || match_const(B, &c)) return NULL;
  Op op = node->op == OP_LT   ? OP_GT
          : node->op == OP_LE ? OP_GE
          : node->op == OP_GT ? OP_LT
          : node->op == OP_GE ? OP_LE
                              : node->op;
  return make_binary(graph, op, B, A);
}

/* ── sums ───────────────────────────────────────────────────────────────────────────────────── */
static Node *add_zero(Graph *graph, Node *node) {
  (void)graph;
  return match_value(B, 0) ? A : NULL;
}
static Node *add_constants(Graph *graph, Node *node) {
  double c, d;
  Node *x;
  if (!simplify_is_signed(node) || !match_const(B, &c)) return NULL;
  if (match_with_const(A, OP_ADD, &x, &d) && is_in_range(node, c + d))
    return make_binary(graph, OP_ADD, x, make_like(graph, node, c + d));
  if (A->op == OP_SUB && match_const(A->input[0], &d) && is_in_range(node, c + d))
    return make_binary(graph, OP_SUB, make_like(graph, node, c + d), A->input[1]);
  return NULL;
}
static Node *add_negative(Graph *graph, Node *node) {
  if (B->op == OP_NEG) return make_binary(graph, OP_SUB, A, B->input[0]);
  if (A->op == OP_NEG) return make_binary(graph, OP_SUB, B, A->input[0]);
  return NULL;
}
static Node *add_itself(Graph *graph, Node *node) {
  return A == B ? make_binary(graph, OP_MUL, A, make_like(graph, node, 2)) : NULL;
}
static Node *sub_constant(Graph *graph, Node *node) {
  double c;
  if (!match_const(B, &c)) return NULL;
  if (c == 0) return A;
  if (!simplify_is_signed(node)) return NULL;
  return make_binary(graph, OP_ADD, A, make_like(graph, node, -c));
}
static Node *sub_negative(Graph *graph, Node *node) {
  return B->op == OP_NEG ? make_binary(graph, OP_ADD, A, B->input[0]) : NULL;
}
static Node *sub_itself(Graph *graph, Node *node) { /* of floats: NaN - NaN is NaN */
  return A == B && !is_float(node) ? make_like(graph, node, 0) : NULL;
}
static Node *sub_from_zero(Graph *graph, Node *node) {
  return match_value(A, 0) && simplify_is_signed(node) ? make_unary(graph, OP_NEG, B) : NULL;
}

/* ── products ───────────────────────────────────────────────────────────────────────────────── */
static Node *mul_constant(Graph *graph, Node *node) {
  if (match_value(B, 1)) return A;
  if (match_value(B, 0) && !is_float(node)) return B; /* 0 * NaN is NaN */
  if (match_value(B, -1) && simplify_is_signed(node)) return make_unary(graph, OP_NEG, A);
  return NULL;
}
static Node *mul_constants(Graph *graph, Node *node) {
  double c, d;
  Node *x;
  if (!is_float(node) || !match_const(B, &c)) return NULL;
  if (match_with_const(A, OP_MUL, &x, &d) && is_tame(c * d))
    return make_binary(graph, OP_MUL, x, make_like(graph, node, c * d));
  if (match_with_const(A, OP_DIV, &x, &d) && is_tame(c / d))
    return make_binary(graph, OP_MUL, x, make_like(graph, node, c / d));
  return NULL;
}
static Node *mul_negative(Graph *graph, Node *node) {
  double c;
  if (A->op == OP_NEG && simplify_is_signed(node) && match_const(B, &c))
    return make_binary(graph, OP_MUL, A->input[0], make_like(graph, node, -c));
  if (A->op == OP_NEG && B->op == OP_NEG)
    return make_binary(graph, OP_MUL, A->input[0], B->input[0]);
  return NULL;
}
static bool is_power_of_two(double value) {
  int exponent;
  return fabs(frexp(value, &exponent)) == 0.5 && abs(exponent) < 100;
}
static Node *div_constant(Graph *graph, Node *node) {
  double c, d;
  Node *x;
  if (!match_const(B, &c)) return NULL;
  if (c == 1) return A;
  if (!is_float(node)) return NULL;
  if (is_power_of_two(c)) return make_binary(graph, OP_MUL, A, make_like(graph, node, 1 / c));
  if (match_with_const(A, OP_MUL, &x, &d) && is_tame(d / c))
    return make_binary(graph, OP_MUL, x, make_like(graph, node, d / c));
  if (match_with_const(A, OP_DIV, &x, &d) && is_tame(c * d))
    return make_binary(graph, OP_DIV, x, make_like(graph, node, c * d));
  return NULL;
}
static Node *neg_of(Graph *graph, Node *node) {
  double c;
  if (A->op == OP_NEG) return A->input[0];
  if (A->op == OP_SUB) return make_binary(graph, OP_SUB, A->input[1], A->input[0]);
  if ((A->op == OP_MUL || A->op == OP_DIV) && is_float(node) && match_const(A->input[1], &c))
    return make_binary(graph, A->op, A->input[0], make_like(graph, node, -c));
  return NULL;
}
static Node *pow_constant(Graph *graph, Node *node) {
  double c;
  if (!match_const(B, &c)) return NULL;
  if (c == 0) return make_like(graph, node, 1); /* of NaN too, as C and IEEE 754 say */
  if (c == 1) return A;
  if (c == 2) return make_binary(graph, OP_MUL, A, A);
  if (c == 3) return make_binary(graph, OP_MUL, make_binary(graph, OP_MUL, A, A), A);
  if (c == 0.5) return make_unary(graph, OP_SQRT, A);
  if (c == -0.5) return make_unary(graph, OP_RSQRT, A);
  if (c == -1) return make_binary(graph, OP_DIV, make_like(graph, node, 1), A);
  return NULL;
}

/* ── idempotent, involutive ─────────────────────────────────────────────────────────────────── */
static Node *same_twice(Graph *graph, Node *node) {
  (void)graph;
  return A == B ? A : NULL;
}
static Node *abs_of(Graph *graph, Node *node) {
  if (A->op == OP_ABS) return A;
  return A->op == OP_NEG ? make_unary(graph, OP_ABS, A->input[0]) : NULL;
}
static Node *not_of(Graph *graph, Node *node) {
  if (A->op == OP_NOT) return A->input[0];
  /* the ordered comparisons have no opposite: with NaN both x < y and x >= y are false */
  if (node->type.dtype == DT_BOOL && (A->op == OP_EQ || A->op == OP_NE))
    return make_binary(graph, A->op == OP_EQ ? OP_NE : OP_EQ, A->input[0], A->input[1]);
  return NULL;
}
static Node *logic_constant(Graph *graph, Node *node) {
  double c;
  if (node->type.dtype != DT_BOOL || !match_const(B, &c)) return NULL;
  if (node->op == OP_AND) return c != 0 ? A : B;
  if (node->op == OP_OR) return c != 0 ? B : A;
  return c != 0 ? make_unary(graph, OP_NOT, A) : A;
}

/* ── select, cast ───────────────────────────────────────────────────────────────────────────── */
static Node *select_of(Graph *graph, Node *node) {
  Node *cond = node->input[0], *a = node->input[1], *b = node->input[2];
  double c;
  if (match_const(cond, &c)) return c != 0 ? a : b;
  if (a == b) return a;
  if (cond->op == OP_NOT) return make_select(graph, cond->input[0], b, a);
  if (a->op == OP_SELECT && a->input[0] == cond) return make_select(graph, cond, a->input[1], b);
  if (b->op == OP_SELECT && b->input[0] == cond) return make_select(graph, cond, a, b->input[2]);
  double d;
  if (match_const(a, &c) && match_const(b, &d) && c == d) return a;
  return NULL;
}

/* Does every value of `from` exist in `to`? */
static bool cast_is_exact(DType from, DType to) {
  if (from == to || from == DT_BOOL) return true;
  switch (from) {
  case DT_U8:
    return to != DT_BOOL;
  case DT_I32:
  case DT_U32:
    return to == DT_I64 || to == DT_F64;
  case DT_E4M3:
  case DT_E5M2:
    return dtype_is_narrow(to) || to == DT_F32 || to == DT_F64;
  case DT_F16:
  case DT_BF16:
    return to == DT_F32 || to == DT_F64;
  case DT_F32:
    return to == DT_F64;
  default:
    return false;
  }
}
static Node *cast_of(Graph *graph, Node *node) {
  if (type_equal(&node->type, &A->type)) return A;
  if (A->op != OP_CAST) return NULL;
  DType from = A->input[0]->type.dtype, middle = A->type.dtype, to = node->type.dtype;
  bool is_plain = dtype_is_float(to) || to == DT_BOOL || cast_is_exact(from, to);
  return cast_is_exact(from, middle) && is_plain ? make_cast(graph, A->input[0], to) : NULL;
}

const SimplifyRule simplify_math_rules[] = {
    {OP_ADD, constant_right}, {OP_MUL, constant_right}, {OP_MAX, constant_right},
    {OP_MIN, constant_right}, {OP_EQ, constant_right},  {OP_NE, constant_right},
    {OP_LT, constant_right},  {OP_LE, constant_right},  {OP_GT, constant_right},
    {OP_GE, constant_right},  {OP_AND, constant_right}, {OP_OR, constant_right},
    {OP_XOR, constant_right}, {OP_ADD, add_zero},       {OP_ADD, add_constants},
    {OP_ADD, add_negative},   {OP_ADD, add_itself},     {OP_SUB, sub_constant},
    {OP_SUB, sub_negative},   {OP_SUB, sub_itself},     {OP_SUB, sub_from_zero},
    {OP_MUL, mul_constant},   {OP_MUL, mul_constants},  {OP_MUL, mul_negative},
    {OP_DIV, div_constant},   {OP_NEG, neg_of},         {OP_POW, pow_constant},
    {OP_MAX, same_twice},     {OP_MIN, same_twice},     {OP_AND, same_twice},
    {OP_OR, same_twice},      {OP_ABS, abs_of},         {OP_NOT, not_of},
    {OP_AND, logic_constant}, {OP_OR, logic_constant},  {OP_XOR, logic_constant},
    {OP_SELECT, select_of},   {OP_CAST, cast_of},       {0, NULL},
};
