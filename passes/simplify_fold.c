/* simplify_fold: evaluates a pointwise op on constants, as the interpreter would, in double. Where
 * the result would not be exact (an integer out of its type's range, NaN) it leaves the op alone.
 */
#include "passes/simplify.h"
#include "ir/scalar.h"
#include <math.h>

static const double exact = 9007199254740992.0; /* 2^53: integers up to here are exact */

static bool fold_fits(DType dtype, double value) {
  if (dtype_is_float(dtype)) return !isnan(value);
  if (dtype == DT_I64) return fabs(value) <= exact;
  return value >= dtype_extreme(dtype, true) && value <= dtype_extreme(dtype, false);
}

static Scalar scalar_of(DType dtype, double value) {
  return dtype_is_float(dtype) ? (Scalar){.f = value} : (Scalar){.i = (int64_t)value};
}

Node *simplify_fold(Graph *graph, Node *node) {
  const int count = node->input_count;
  double x[3];
  Scalar in[3];
  if (op_info[node->op].op_class != CLASS_POINTWISE || count > 3) return NULL;
  for (int i = 0; i < count; i++) {
    DType dtype = node->input[i]->type.dtype;
    if (!match_const(node->input[i], &x[i]) || !fold_fits(dtype, x[i])) return NULL;
    in[i] = scalar_of(dtype, x[i]);
  }
  DType from = node->input[count - 1]->type.dtype, to = node->type.dtype;
  Scalar result = scalar_eval(node->op, from, to, in);
  double value = dtype_is_float(to) ? result.f : (double)result.i;
  if (node->op == OP_CAST && dtype_bytes(to) == 2) value = dtype_round(to, value);
  if (!fold_fits(to, value)) return NULL;
  return make_const(graph, to, node->type.shape, value);
}
