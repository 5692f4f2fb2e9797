/* scalar: see scalar.h. */
#include "ir/scalar.h"
#include <math.h>

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

double dtype_round(DType dtype, double value) {
  switch (dtype) {
  case DT_F16:
    return round_to(value, 11, -24, 65504);
  case DT_BF16:
    return round_to(value, 8, -133, 0x1.fep127);
  case DT_F32:
    return (float)value;
  default:
    return value;
  }
}

/* ── the notation of the functions ──────────────────────────────────────────────────────────────
 * `from` is the type of the operands, `to` that of the result. x, y: floats; i, j: integers. */
#define SCALAR(name) static Scalar scalar_##name(DType from, DType to, const Scalar *in)
#define FLOAT1(name, value)                                                                        \
  SCALAR(name) {                                                                                   \
    (void)from, (void)to;                                                                          \
    double x = in[0].f;                                                                            \
    return (Scalar){.f = (value)};                                                                 \
  }
#define INTEGER1(name, value)                                                                      \
  SCALAR(name) {                                                                                   \
    (void)from;                                                                                    \
    int64_t i = in[0].i;                                                                           \
    return (Scalar){.i = dtype_wrap(to, (value))};                                                 \
  }
#define INTEGER2(name, value)                                                                      \
  SCALAR(name) {                                                                                   \
    (void)from;                                                                                    \
    int64_t i = in[0].i, j = in[1].i;                                                              \
    return (Scalar){.i = dtype_wrap(to, (value))};                                                 \
  }
#define NUMBER1(name, of_float, of_integer)                                                        \
  INTEGER1(integer_##name, of_integer)                                                             \
  FLOAT1(float_##name, of_float)                                                                   \
  SCALAR(name) {                                                                                   \
    return dtype_is_float(to) ? scalar_float_##name(from, to, in)                                  \
                              : scalar_integer_##name(from, to, in);                               \
  }
#define NUMBER2(name, of_float, of_integer)                                                        \
  INTEGER2(integer_##name, of_integer)                                                             \
  SCALAR(name) {                                                                                   \
    double x = in[0].f, y = in[1].f;                                                               \
    return dtype_is_float(to) ? (Scalar){.f = (of_float)} : scalar_integer_##name(from, to, in);   \
  }
#define COMPARISON(name, operator)                                                                 \
  SCALAR(name) {                                                                                   \
    (void)to;                                                                                      \
    return (Scalar){.i = dtype_is_float(from) ? in[0].f operator in[1].f :                         \
                                                    in[0].i operator in[1].i };                    \
  }

/* As two's complement does it: no overflow is undefined. */
static int64_t negate(int64_t i) { return (int64_t)(0 - (uint64_t)i); }
static int64_t add(int64_t i, int64_t j) { return (int64_t)((uint64_t)i + (uint64_t)j); }
static int64_t multiply(int64_t i, int64_t j) { return (int64_t)((uint64_t)i * (uint64_t)j); }

/* ── one operand ────────────────────────────────────────────────────────────────────────────── */
NUMBER1(neg, -x, negate(i))
NUMBER1(abs, fabs(x), i < 0 ? negate(i) : i)
NUMBER1(sign, x > 0 ? 1 : x < 0 ? -1 : x, (i > 0) - (i < 0))
FLOAT1(exp, exp(x))
FLOAT1(expm1, expm1(x))
FLOAT1(log, log(x))
FLOAT1(log1p, log1p(x))
FLOAT1(sqrt, sqrt(x))
FLOAT1(rsqrt, 1 / sqrt(x))
FLOAT1(sin, sin(x))
FLOAT1(cos, cos(x))
FLOAT1(tanh, tanh(x))
FLOAT1(sigmoid, 1 / (1 + exp(-x)))
FLOAT1(erf, erf(x))
FLOAT1(floor, floor(x))
FLOAT1(ceil, ceil(x))
FLOAT1(round, nearbyint(x))
INTEGER1(not, ~i)

SCALAR(isfinite) {
  (void)from, (void)to;
  return (Scalar){.i = isfinite(in[0].f) != 0};
}

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

SCALAR(cast) {
  if (dtype_is_float(from))
    return dtype_is_float(to) ? in[0] : (Scalar){.i = float_to_integer(to, in[0].f)};
  if (dtype_is_float(to)) return (Scalar){.f = (double)in[0].i};
  return (Scalar){.i = to == DT_BOOL ? in[0].i != 0 : dtype_wrap(to, in[0].i)};
}

/* ── two and three operands ─────────────────────────────────────────────────────────────────── */
NUMBER2(add, x + y, add(i, j))
NUMBER2(sub, x - y, add(i, negate(j)))
NUMBER2(mul, x *y, multiply(i, j))
NUMBER2(div, x / y, j == 0 ? 0 : j == -1 ? negate(i) : i / j)
INTEGER2(rem, j == 0 || j == -1 ? 0 : i % j)
NUMBER2(max, isnan(x) || isnan(y) ? NAN : x > y ? x : y, i > j ? i : j)
NUMBER2(min, isnan(x) || isnan(y) ? NAN : x < y ? x : y, i < j ? i : j)
COMPARISON(eq, ==)
COMPARISON(ne, !=)
COMPARISON(lt, <)
COMPARISON(le, <=)
COMPARISON(gt, >)
COMPARISON(ge, >=)
INTEGER2(and, i &j)
INTEGER2(or, i | j)
INTEGER2(xor, i ^ j)

SCALAR(pow) {
  (void)from, (void)to;
  return (Scalar){.f = pow(in[0].f, in[1].f)};
}

SCALAR(select) {
  (void)from, (void)to;
  return in[0].i ? in[1] : in[2];
}

/* ── the table ──────────────────────────────────────────────────────────────────────────────── */
typedef Scalar ScalarFunction(DType from, DType to, const Scalar *in);
#define SCALAR_LEAF(name) NULL
#define SCALAR_POINTWISE(name) scalar_##name
#define SCALAR_REDUCE(name) NULL
#define SCALAR_CONTRACT(name) NULL
#define SCALAR_WINDOW(name) NULL
#define SCALAR_MOVE(name) NULL
#define SCALAR_STRUCT(name) NULL
static ScalarFunction *const function[OP_COUNT] = {
#define OP(ID, text, min, max, class, first, last, traits, attrs, rule, gradient, evaluator, ...)  \
  [OP_##ID] = SCALAR_##class(evaluator),
#include "ir/ops.def"
#undef OP
};

Scalar scalar_eval(Op op, DType from, DType to, const Scalar *in) {
  return function[op](from, to, in);
}
