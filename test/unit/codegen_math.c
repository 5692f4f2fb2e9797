/* codegen_math: the error of every function of kernels/math.c in units in the last place, over
 * dense samples and at the edges, against the next higher precision; Philox against the published
 * vectors; the 16-bit conversions over all patterns. The bounds here are those that math.h
 * promises. */
#include "kernels/math.c"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>

/* Distance of `got` from the truth in units in the last place of the truth; wrong kinds of result
 * (NaN against number, infinity against finite, a lost sign of zero) count as infinitely far. */
static double ulps_f32(float got, double truth) {
  if (isnan(truth) || isnan(got)) return isnan(truth) && isnan(got) ? 0 : INFINITY;
  float nearest = (float)truth;
  if (isinf(got) || isinf(nearest)) return got == nearest ? 0 : INFINITY;
  if (got == 0 && nearest == 0) return signbit(got) == signbit(nearest) ? 0 : INFINITY;
  int exponent;
  frexp(truth, &exponent);
  double unit = ldexp(1.0, exponent - 24 < -149 ? -149 : exponent - 24);
  return fabs((double)got - truth) / unit;
}
static double ulps_f64(double got, long double truth) {
  if (isnan(truth) || isnan(got)) return isnan(truth) && isnan(got) ? 0 : INFINITY;
  double nearest = (double)truth;
  if (isinf(got) || isinf(nearest)) return got == nearest ? 0 : INFINITY;
  if (got == 0 && nearest == 0) return signbit(got) == signbit(nearest) ? 0 : INFINITY;
  int exponent;
  frexpl(truth, &exponent);
  long double unit = ldexpl(1.0L, exponent - 53 < -1074 ? -1074 : exponent - 53);
  return (double)(fabsl((long double)got - truth) / unit);
}

static double logistic(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static long double logistic_l(long double x) {
  return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}
static double rsqrt_truth(double x) { return 1 / sqrt(x); }
static long double rsqrt_truth_l(long double x) { return 1 / sqrtl(x); }

typedef struct {
  const char *name;
  float (*function)(float);
  double (*truth)(double);
  double limit; /* |x| up to which the bound holds */
  double bound;
} CaseF32;
static const CaseF32 cases_f32[] = {
    {"exp", ft_exp_f32, exp, INFINITY, 1.1},
    {"expm1", ft_expm1_f32, expm1, INFINITY, 1.5},
    {"log", ft_log_f32, log, INFINITY, 1.0},
    {"log1p", ft_log1p_f32, log1p, INFINITY, 1.5},
    {"tanh", ft_tanh_f32, tanh, INFINITY, 2.6},
    {"sigmoid", ft_sigmoid_f32, logistic, INFINITY, 2.4},
    {"erf", ft_erf_f32, erf, INFINITY, 3.0},
    {"sin", ft_sin_f32, sin, 0x1p28, 1.6},
    {"cos", ft_cos_f32, cos, 0x1p28, 1.6},
    {"sqrt", ft_sqrt_f32, sqrt, INFINITY, 0.51},
    {"rsqrt", ft_rsqrt_f32, rsqrt_truth, INFINITY, 1.5},
};
typedef struct {
  const char *name;
  double (*function)(double);
  long double (*truth)(long double);
  double limit, bound;
} CaseF64;
static const CaseF64 cases_f64[] = {
    {"exp", ft_exp_f64, expl, INFINITY, 1.0},
    {"expm1", ft_expm1_f64, expm1l, INFINITY, 2.0},
    {"log", ft_log_f64, logl, INFINITY, 1.0},
    {"log1p", ft_log1p_f64, log1pl, INFINITY, 1.5},
    {"tanh", ft_tanh_f64, tanhl, INFINITY, 3.0},
    {"sigmoid", ft_sigmoid_f64, logistic_l, INFINITY, 2.5},
    {"erf", ft_erf_f64, erfl, INFINITY, 1.5},
    {"sin", ft_sin_f64, sinl, 0x1p20, 2.0},
    {"cos", ft_cos_f64, cosl, 0x1p20, 2.0},
    {"sqrt", ft_sqrt_f64, sqrtl, INFINITY, 0.51},
    {"rsqrt", ft_rsqrt_f64, rsqrt_truth_l, INFINITY, 1.5},
};

static const double edges[] = {
    0.0,
    1.0,
    2.0,
    0.5,
    0.625,
    0.921875,
    0.70710678,
    1.41421356,
    88.72283,
    88.72284,
    89.0,
    103.97208,
    103.97209,
    104.0,
    87.33654,
    709.782712893384,
    709.7827128933841,
    745.1332191019411,
    745.14,
    1e-45,
    1.17549435e-38,
    1.17549421e-38,
    1e-310,
    5e-324,
    3.4028234e38,
    1e300,
    1.7976931348623157e308,
    16777216.0,
    9007199254740992.0,
    1.5707963267948966,
    3.141592653589793,
    1e5,
    12345.678,
    0x1p-25,
    0x1p-54,
    5.9,
    6.0,
    4.0,
    30.0,
    INFINITY,
    NAN,
};
enum { EDGE_COUNT = sizeof edges / sizeof *edges };

static void check_f32(const CaseF32 *one, float x, double *worst, float *where) {
  if (fabs((double)x) > one->limit && !isinf(x)) return;
  double error = ulps_f32(one->function(x), one->truth((double)x));
  if (!(error <= *worst)) *worst = error, *where = x;
}
static void functions_f32(void **state) {
  (void)state;
  int bad = 0;
  for (size_t i = 0; i < sizeof cases_f32 / sizeof *cases_f32; i++) {
    const CaseF32 *one = &cases_f32[i];
    double worst = 0;
    float where = 0;
    for (int edge = 0; edge < EDGE_COUNT; edge++) {
      check_f32(one, (float)edges[edge], &worst, &where);
      check_f32(one, -(float)edges[edge], &worst, &where);
    }
    /* every 4099th bit pattern of both signs, and a dense sweep where training happens */
    for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 4099)
      check_f32(one, f32_bits((uint32_t)bits), &worst, &where);
    for (int step = -400000; step <= 400000; step++)
      check_f32(one, (float)step * 2.5e-5f, &worst, &where);
    printf("f32 %-8s worst %.3f ulp at %.9g (bound %.2f)\n", one->name, worst, (double)where,
           one->bound);
    bad += !(worst <= one->bound);
  }
  assert_int_equal(bad, 0);
}

static void check_f64(const CaseF64 *one, double x, double *worst, double *where) {
  if (fabs(x) > one->limit && !isinf(x)) return;
  double error = ulps_f64(one->function(x), one->truth((long double)x));
  if (!(error <= *worst)) *worst = error, *where = x;
}
static void functions_f64(void **state) {
  (void)state;
  int bad = 0;
  for (size_t i = 0; i < sizeof cases_f64 / sizeof *cases_f64; i++) {
    const CaseF64 *one = &cases_f64[i];
    double worst = 0, where = 0;
    for (int edge = 0; edge < EDGE_COUNT; edge++) {
      check_f64(one, edges[edge], &worst, &where);
      check_f64(one, -edges[edge], &worst, &where);
    }
    uint64_t bits = 0x9e3779b97f4a7c15u;
    for (int draw = 0; draw < 400000; draw++) {
      bits = bits * 6364136223846793005u + 1442695040888963407u;
      check_f64(one, f64_bits(bits), &worst, &where);
      double unit = (double)(bits >> 11) * 0x1p-53;
      check_f64(one, (unit - 0.5) * 4, &worst, &where);
      check_f64(one, (unit - 0.5) * 1500, &worst, &where);
    }
    printf("f64 %-8s worst %.3f ulp at %.17g (bound %.2f)\n", one->name, worst, where, one->bound);
    bad += !(worst <= one->bound);
  }
  assert_int_equal(bad, 0);
}

static void power(void **state) {
  (void)state;
  static const double bases[] = {0.0,   1.0,  2.0,      0.5,  3.0,  10.0,  1e-300,   5e-324,
                                 1e300, 0.99, 1.000001, 7.25, 1e30, 1e-30, INFINITY, NAN};
  static const double exponents[] = {0.0,
                                     1.0,
                                     2.0,
                                     3.0,
                                     0.5,
                                     -0.5,
                                     1e10,
                                     1e300,
                                     7.0,
                                     33.3,
                                     2.5,
                                     1e-9,
                                     1e-300,
                                     127.0,
                                     1023.0,
                                     9007199254740991.0,
                                     9007199254740992.0,
                                     4503599627370497.0,
                                     INFINITY,
                                     NAN};
  double worst_f32 = 0, worst_f64 = 0;
  for (size_t i = 0; i < 2 * sizeof bases / sizeof *bases; i++)
    for (size_t j = 0; j < 2 * sizeof exponents / sizeof *exponents; j++) {
      double x = i & 1 ? -bases[i / 2] : bases[i / 2];
      double y = j & 1 ? -exponents[j / 2] : exponents[j / 2];
      double error = ulps_f64(ft_pow_f64(x, y), powl((long double)x, (long double)y));
      if (!(error <= 1.5)) fail_msg("pow(%.17g, %.17g) is %.3f ulp off", x, y, error);
      error = ulps_f32(ft_pow_f32((float)x, (float)y), pow((double)(float)x, (double)(float)y));
      if (!(error <= 0.51)) fail_msg("powf(%.9g, %.9g) is %.3f ulp off", x, y, error);
    }
  uint64_t bits = 1;
  for (int draw = 0; draw < 1000000; draw++) {
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    double x = exp(((double)(bits >> 11) * 0x1p-53 - 0.5) * (draw & 1 ? 4 : 60));
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    double y = ((double)(bits >> 11) * 0x1p-53 - 0.5) * (draw & 2 ? 10 : 700 / fabs(log(x) + 1e-9));
    double error = ulps_f64(ft_pow_f64(x, y), powl((long double)x, (long double)y));
    if (!(error <= worst_f64)) worst_f64 = error;
    error = ulps_f32(ft_pow_f32((float)x, (float)y), pow((double)(float)x, (double)(float)y));
    if (!(error <= worst_f32)) worst_f32 = error;
  }
  printf("pow: f32 worst %.3f ulp (bound 0.51), f64 worst %.3f ulp (bound 1.5)\n", worst_f32,
         worst_f64);
  assert_true(worst_f32 <= 0.51);
  assert_true(worst_f64 <= 1.5);
}

/* The known-answer vectors of Random123 1.14 (kat_vectors, philox4x32 10). */
static void philox(void **state) {
  (void)state;
  uint32_t bits[4];
  philox_block(0, 0, 0, 0, bits);
  assert_int_equal(bits[0], 0x6627e8d5u);
  assert_int_equal(bits[1], 0xe169c58du);
  assert_int_equal(bits[2], 0xbc57ac4cu);
  assert_int_equal(bits[3], 0x9b00dbd8u);
  philox_block(0xffffffffffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffffffffffu, bits);
  assert_int_equal(bits[0], 0x408f276du);
  assert_int_equal(bits[1], 0x41c83b0eu);
  assert_int_equal(bits[2], 0xa20bc7c6u);
  assert_int_equal(bits[3], 0x6d5451fdu);
  philox_block(0x299f31d0a4093822u, 0x13198a2eu, 0x03707344u, 0x85a308d3243f6a88u, bits);
  assert_int_equal(bits[0], 0xd16cfe09u);
  assert_int_equal(bits[1], 0x94fdccebu);
  assert_int_equal(bits[2], 0x5001e420u);
  assert_int_equal(bits[3], 0x24126ea1u);

  double sum = 0;
  for (uint64_t index = 0; index < 100000; index++) {
    philox_block(42, 7, 3, index / 4, bits);
    assert_int_equal(ft_philox_bits(42, 7, 3, index), bits[index % 4]);
    float uniform = ft_random_f32(42, 7, 3, index);
    assert_true(uniform >= 0 && uniform < 1);
    assert_true(uniform == (float)(bits[index % 4] >> 8) * 0x1p-24f);
    sum += (double)uniform;
  }
  assert_true(fabs(sum / 100000 - 0.5) < 0.005);
}

static void sixteen_bits(void **state) {
  (void)state;
  for (uint32_t half = 0; half < 0x10000; half++) {
    int exponent = (int)(half >> 10 & 31), fraction = (int)(half & 1023);
    double value = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    if (exponent == 31) value = fraction ? NAN : INFINITY;
    value = half & 0x8000 ? -value : value;
    float wide = ft_f32_from_f16((uint16_t)half);
    assert_true(isnan(value) ? isnan(wide) : (double)wide == value);
    assert_true(!signbit(wide) == !(half & 0x8000));
    uint16_t back = ft_f16_from_f32(wide);
    assert_true(isnan(wide) ? (back & 0x7fff) > 0x7c00 : back == half);
    wide = ft_f32_from_bf16((uint16_t)half);
    back = ft_bf16_from_f32(wide);
    assert_true(isnan(wide) ? (back & 0x7fff) > 0x7f80 : back == half);
  }
  /* rounding: between each two neighbours, below, at and above the middle; ties to even */
  for (uint32_t half = 0; half < 0x7bff; half++) {
    float low = ft_f32_from_f16((uint16_t)half), high = ft_f32_from_f16((uint16_t)(half + 1));
    float middle = (low + high) / 2;
    assert_int_equal(ft_f16_from_f32(nextafterf(middle, 0)), half);
    assert_int_equal(ft_f16_from_f32(middle), half & 1 ? half + 1 : half);
    assert_int_equal(ft_f16_from_f32(nextafterf(middle, INFINITY)), half + 1);
  }
  assert_int_equal(ft_f16_from_f32(65519.99f), 0x7bff);
  assert_int_equal(ft_f16_from_f32(65520.0f), 0x7c00);
  assert_int_equal(ft_f16_from_f32(-1e30f), 0xfc00);
  assert_int_equal(ft_f16_from_f32(-1e-30f), 0x8000);
  assert_int_equal(ft_bf16_from_f32(f32_bits(0x3f808000)), 0x3f80);
  assert_int_equal(ft_bf16_from_f32(f32_bits(0x3f818000)), 0x3f82);
  assert_int_equal(ft_bf16_from_f32(f32_bits(0x7f7fffff)), 0x7f80);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(functions_f32), cmocka_unit_test(functions_f64), cmocka_unit_test(power),
      cmocka_unit_test(philox),        cmocka_unit_test(sixteen_bits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
