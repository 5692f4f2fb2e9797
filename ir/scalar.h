/* scalar: what the pointwise ops mean, one element at a time. The interpreter, constant folding and
 * compile-time numbers of the language all ask here; the rows of ir/ops.def name the functions. */
#ifndef FT_IR_SCALAR_H
#define FT_IR_SCALAR_H
#include "ir/op.h"

/* f: of a float type, in double, not rounded to the type; i: of bool and integers, in the range of
 * the type. */
typedef union {
  double f;
  int64_t i;
} Scalar;

/* A pointwise op of operands of type `from` (a selection: of its branches), with a result of type
 * `to`. Nothing is undefined: integers wrap, a division by zero gives 0, what is out of range
 * saturates when it is cast. A NaN is never lost. */
Scalar scalar_eval(Op op, DType from, DType to, const Scalar *in);
/* The value as the dtype holds it: integers wrap, floats round. */
int64_t dtype_wrap(DType dtype, int64_t value);
double dtype_round(DType dtype, double value);
/* The range of bool or an integer type. */
void dtype_range(DType dtype, int64_t *lowest, int64_t *highest);
#endif
