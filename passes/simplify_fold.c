/* simplify_fold: evaluates a pointwise op on constants, as the interpreter would, in double. Where
 * the result would not be exact (an integer out of its type's range, NaN) it leaves the op alone.
 */
#include "passes/simplify.h"
#include "ir/interp.h"
#include <math.h>

static const double exact = 9007199254740992.0; /* 2^53: integers up to here are exact */

static bool fits(DType dtype, double value) {
  switch (dtype) {
  case DT_BOOL:
    return value == 0 || value == 1;
  case DT_U8:
    return value >= 0 && value <= 255;
  case DT_I32:
    return value >= -2147483648.0 && value <= 2147483647.0;
  case DT_U32:
    return value >= 0 && value <= 4294967295.0;
  case DT_I64:
    return fabs(value) <= exact;
  default:
    return !isnan(value);
  }
}

static double sign_of(double x) { return (x > 0) - (x < 0); }

static bool fold_unary(const Node *node, double x, double *out) {
  switch (node->op) {
  case OP_NEG:
    *out = -x;
    return true;
  case OP_ABS:
    *out = fabs(x);
    return true;
  case OP_SIGN:
    *out = sign_of(x);
    return true;
  case OP_EXP:
    *out = exp(x);
    return true;
  case OP_EXPM1:
    *out = expm1(x);
    return true;
  case OP_LOG:
    *out = log(x);
    return true;
  case OP_LOG1P:
    *out = log1p(x);
    return true;
  case OP_SQRT:
    *out = sqrt(x);
    return true;
  case OP_RSQRT:
    *out = 1 / sqrt(x);
    return true;
  case OP_SIN:
    *out = sin(x);
    return true;
  case OP_COS:
    *out = cos(x);
    return true;
  case OP_TANH:
    *out = tanh(x);
    return true;
  case OP_SIGMOID:
    *out = 1 / (1 + exp(-x));
    return true;
  case OP_ERF:
    *out = erf(x);
    return true;
  case OP_FLOOR:
    *out = floor(x);
    return true;
  case OP_CEIL:
    *out = ceil(x);
    return true;
  case OP_ROUND:
    *out = nearbyint(x);
    return true;
  case OP_ISFINITE:
    *out = isfinite(x);
    return true;
  case OP_NOT:
    *out = x == 0;
    return node->type.dtype == DT_BOOL;
  case OP_CAST:
    *out = node->type.dtype == DT_BOOL          ? x != 0
           : !dtype_is_float(node->type.dtype)  ? trunc(x)
           : dtype_bytes(node->type.dtype) == 2 ? interp_round(node->type.dtype, (float)x)
                                                : x;
    return true;
  default:
    return false;
  }
}

static bool fold_binary(const Node *node, double a, double b, double *out) {
  bool is_integer = dtype_is_integer(node->input[0]->type.dtype);
  bool is_bool = node->input[0]->type.dtype == DT_BOOL;
  switch (node->op) {
  case OP_ADD:
    *out = a + b;
    return true;
  case OP_SUB:
    *out = a - b;
    return true;
  case OP_MUL:
    *out = a * b;
    return true;
  case OP_DIV:
    *out = !is_integer ? a / b : b == 0 ? 0 : trunc(a / b);
    return true;
  case OP_REM:
    *out = b == 0 ? 0 : fmod(a, b);
    return true;
  case OP_POW:
    *out = pow(a, b);
    return true;
  case OP_MAX:
    *out = a > b ? a : b;
    return true; /* a const is never NaN here: see simplify_fold */
  case OP_MIN:
    *out = a < b ? a : b;
    return true;
  case OP_EQ:
    *out = a == b;
    return true;
  case OP_NE:
    *out = a != b;
    return true;
  case OP_LT:
    *out = a < b;
    return true;
  case OP_LE:
    *out = a <= b;
    return true;
  case OP_GT:
    *out = a > b;
    return true;
  case OP_GE:
    *out = a >= b;
    return true;
  case OP_AND:
    *out = a != 0 && b != 0;
    return is_bool;
  case OP_OR:
    *out = a != 0 || b != 0;
    return is_bool;
  case OP_XOR:
    *out = (a != 0) != (b != 0);
    return is_bool;
  default:
    return false;
  }
}

Node *simplify_fold(Graph *graph, Node *node) {
  double x[3], value;
  if (op_info[node->op].op_class != CLASS_POINTWISE || node->input_count > 3) return NULL;
  for (int i = 0; i < node->input_count; i++)
    if (!simplify_is_const(node->input[i], &x[i]) || !fits(node->input[i]->type.dtype, x[i]))
      return NULL;
  if (node->op == OP_SELECT)
    value = x[0] != 0 ? x[1] : x[2];
  else if (node->input_count == 1 ? !fold_unary(node, x[0], &value)
                                  : !fold_binary(node, x[0], x[1], &value))
    return NULL;
  if (!fits(node->type.dtype, value)) return NULL;
  return make_const(graph, node->type.dtype, node->type.shape, value, node->loc);
}
