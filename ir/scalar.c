/* scalar: see scalar.h. The rows of ir/ops.def hold the expressions; here are their forms. */
#include "ir/scalar.h"
#include <math.h>
#include <stddef.h>

void dtype_range(DType dtype, int64_t *lowest, int64_t *highest) {
  *lowest = dtype == DT_I32 ? INT32_MIN : dtype == DT_I64 ? INT64_MIN : 0;
  *highest = dtype == DT_BOOL  ? 1
             : dtype == DT_U8  ? UINT8_MAX
             : dtype == DT_I32 ? INT32_MAX
             : dtype == DT_U32 ? UINT32_MAX
                               : INT64_MAX;
}

int64_t dtype_wrap(DType dtype, int64_t value) {
  switch (dtype) {
  case DT_BOOL:
    return value & 1;
  case DT_U8:
    return (uint8_t)value;
  case DT_I32:
    return (int32_t)(uint32_t)(uint64_t)value;
  case DT_U32:
    return (uint32_t)value;
  default:
    return value;
  }
}

/* To the nearest float with `precision` bits whose last bit is worth at least 2^least. */
static double round_to(double value, int precision, int least, double largest) {
  if (!isfinite(value) || value == 0) return value;
  int exponent;
  frexp(value, &exponent);
  int unit = exponent - precision > least ? exponent - precision : least;
  double rounded = ldexp(nearbyint(ldexp(value, -unit)), unit);
  return fabs(rounded) > largest ? copysign(INFINITY, value) : rounded;
}

/* As round_to; what is beyond the largest number becomes that. */
static double saturated(double value, int precision, int least, double largest) {
  double rounded = round_to(value, precision, least, largest);
  return isinf(rounded) ? copysign(largest, rounded) : rounded;
}

double dtype_round(DType dtype, double value) {
  switch (dtype) {
  case DT_F16:
    return round_to(value, 11, -24, 65504);
  case DT_BF16:
    return round_to(value, 8, -133, 0x1.fep127);
  case DT_E4M3:
    return saturated(value, 4, -9, dtype_largest(dtype));
  case DT_E5M2:
    return saturated(value, 3, -16, dtype_largest(dtype));
  case DT_F32:
    return (float)value;
  default:
    return value;
  }
}

/* As two's complement does it: no overflow is undefined. */
static int64_t negate(int64_t i) { return (int64_t)(0 - (uint64_t)i); }
static int64_t add(int64_t i, int64_t j) { return (int64_t)((uint64_t)i + (uint64_t)j); }
static int64_t multiply(int64_t i, int64_t j) { return (int64_t)((uint64_t)i * (uint64_t)j); }

/* Truncates; out of range goes to the nearest end, NaN to 0. */
static int64_t float_to_integer(DType dtype, double x) {
  int64_t lowest, highest;
  if (dtype == DT_BOOL) return x != 0;
  if (isnan(x)) return 0;
  dtype_range(dtype, &lowest, &highest);
  if (x <= (double)lowest) return lowest;
  if (x >= (double)highest) return highest;
  return (int64_t)x;
}

/* Of more than 53 bits the last ones count only as "there is something": a double has what is left,
 * and its rounding to `to` is that of the integer itself. */
static double integer_to_float(DType to, int64_t i) {
  const int64_t most = INT64_C(1) << 53, low = (1 << 11) - 1;
  if (to == DT_F64 || (i >= -most && i <= most)) return (double)i;
  return (double)((i & ~low) | (i & low ? low + 1 : 0));
}

static Scalar scalar_cast(DType from, DType to, const Scalar *in) {
  if (dtype_is_float(from))
    return dtype_is_float(to) ? in[0] : (Scalar){.i = float_to_integer(to, in[0].f)};
  if (dtype_is_float(to)) return (Scalar){.f = integer_to_float(to, in[0].i)};
  return (Scalar){.i = to == DT_BOOL ? in[0].i != 0 : dtype_wrap(to, in[0].i)};
}

/* ── the forms of the evaluators ────────────────────────────────────────────────────────────────
 * `from` is the type of the operands, `to` that of the result. */
#define X double x = in[0].f
#define XY double x = in[0].f, y = in[1].f
#define I int64_t i = in[0].i
#define IJ int64_t i = in[0].i, j = in[1].i
#define A_FLOAT(value)                                                                             \
  return (Scalar) { .f = (value) }
#define AN_INTEGER(value)                                                                          \
  return (Scalar) { .i = dtype_wrap(to, (value)) }
/* of floats only */
#define FORM_FLOAT1(value)                                                                         \
  X;                                                                                               \
  A_FLOAT(value);
#define FORM_FLOAT2(value)                                                                         \
  XY;                                                                                              \
  A_FLOAT(value);
/* of integers and bool only */
#define FORM_INTEGER1(value)                                                                       \
  I;                                                                                               \
  AN_INTEGER(value);
#define FORM_INTEGER2(value)                                                                       \
  IJ;                                                                                              \
  AN_INTEGER(value);
/* of both */
#define FORM_NUMBER1(of_float, of_integer)                                                         \
  if (dtype_is_float(from)) {                                                                      \
    X;                                                                                             \
    A_FLOAT(of_float);                                                                             \
  }                                                                                                \
  I;                                                                                               \
  AN_INTEGER(of_integer);
#define FORM_NUMBER2(of_float, of_integer)                                                         \
  if (dtype_is_float(from)) {                                                                      \
    XY;                                                                                            \
    A_FLOAT(of_float);                                                                             \
  }                                                                                                \
  IJ;                                                                                              \
  AN_INTEGER(of_integer);
/* with a bool as result */
#define FORM_TEST1(of_float)                                                                       \
  X;                                                                                               \
  AN_INTEGER(of_float);
#define FORM_TEST2(of_float, of_integer)                                                           \
  if (dtype_is_float(from)) {                                                                      \
    XY;                                                                                            \
    AN_INTEGER(of_float);                                                                          \
  }                                                                                                \
  IJ;                                                                                              \
  AN_INTEGER(of_integer);
#define FORM_CAST return scalar_cast(from, to, in);
#define FORM_CHOICE return in[0].i ? in[1] : in[2];

#define SCALAR(ID, evaluator)                                                                      \
  static Scalar scalar_##ID(DType from, DType to, const Scalar *in) {                              \
    (void)from, (void)to;                                                                          \
    FORM_##evaluator                                                                               \
  }
#define OP(ID, text, min, max, class, first, last, traits, attrs, rule, gradient, evaluator, ...)  \
  IF_POINTWISE_##class(SCALAR(ID, evaluator), )
#include "ir/ops.def"
#undef OP

typedef Scalar ScalarFunction(DType from, DType to, const Scalar *in);
static ScalarFunction *const function[OP_COUNT] = {
#define OP(ID, text, min, max, class, ...) [OP_##ID] = IF_POINTWISE_##class(scalar_##ID, NULL),
#include "ir/ops.def"
#undef OP
};

Scalar scalar_eval(Op op, DType from, DType to, const Scalar *in) {
  return function[op](from, to, in);
}
