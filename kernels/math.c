/* math: see math.h. The pattern of every function: reduce the argument with exactly representable
 * steps, a minimax polynomial (own fits: Remez exchange in 50 digits, relative weight), rebuild,
 * and selects for the special values at the end. Products that must be exact are exact with or
 * without a fused multiply-add, because not every processor has one. */
#include "kernels/math.h"

#define MATH extern inline __attribute__((always_inline))
#define HELPER static inline __attribute__((always_inline))

HELPER uint32_t bits_f32(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}
HELPER float f32_bits(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}
HELPER uint64_t bits_f64(double x) {
  uint64_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}
HELPER double f64_bits(uint64_t bits) {
  double x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}
HELPER float abs_f32(float x) { return f32_bits(bits_f32(x) & 0x7fffffffu); }
HELPER double abs_f64(double x) { return f64_bits(bits_f64(x) & 0x7fffffffffffffffu); }
HELPER float copy_sign_f32(float magnitude, float sign) {
  return f32_bits((bits_f32(magnitude) & 0x7fffffffu) | (bits_f32(sign) & 0x80000000u));
}
HELPER double copy_sign_f64(double magnitude, double sign) {
  return f64_bits((bits_f64(magnitude) & 0x7fffffffffffffffu) |
                  (bits_f64(sign) & 0x8000000000000000u));
}

/* Adding 1.5 * 2^(mantissa bits) rounds to an integer, half to even, and leaves that integer in the
 * low bits: no conversion instruction, which AVX2 lacks for 64 bits. */
#define ROUND_F32 0x1.8p23f
#define ROUND_F64 0x1.8p52
/* Powers of two for n beyond one exponent field: 2^n = power(n, 0) * power(n, 1). Multiplying by
 * one after the other rounds once, also into the subnormals. */
HELPER float half_power_f32(int32_t n, int second) {
  uint32_t half = (uint32_t)(n >> 1);
  return f32_bits(((second ? (uint32_t)n - half : half) + 127) << 23);
}
HELPER double half_power_f64(int64_t n, int second) {
  uint64_t half = (((uint64_t)n + 4096) >> 1) - 2048; /* unsigned: n is anything where x is NaN */
  return f64_bits(((second ? (uint64_t)n - half : half) + 1023) << 52);
}

#define LN2_HIGH_F32 0x1.62e4p-1f /* 15 bits: n times it is exact */
#define LN2_LOW_F32 0x1.7f7d1cp-20f
#define LN2_HIGH_F64 0x1.62e42fefa3800p-1 /* 42 bits */
#define LN2_LOW_F64 0x1.ef35793c76730p-45
#define LOG2_E_F32 0x1.715476p0f
#define LOG2_E_F64 0x1.71547652b82fep0

/* ── exponential ─────────────────────────────────────────────────────────────────────────────── */

/* x = n ln2 + r, |r| <= ln2 / 2 and a little. */
typedef struct {
  float r;
  int32_t n;
} ReducedF32;
HELPER ReducedF32 reduce_ln2_f32(float x) {
  float shifted = x * LOG2_E_F32 + ROUND_F32;
  float n = shifted - ROUND_F32;
  float r = (x - n * LN2_HIGH_F32) - n * LN2_LOW_F32;
  return (ReducedF32){r, (int32_t)(bits_f32(shifted) - bits_f32(ROUND_F32))};
}

HELPER float exp_of_rest_f32(float r) {
  float tail = 0x1.6dbc3ap-10f;
  tail = tail * r + 0x1.124146p-7f;
  tail = tail * r + 0x1.555454p-5f;
  tail = tail * r + 0x1.555486p-3f;
  tail = tail * r + 0.5f;
  return (tail * r) * r + r + 1.0f;
}

MATH float ft_exp_f32(float x) {
  float clamped = x > 89.0f ? 89.0f : x; /* NaN passes both */
  clamped = clamped < -104.0f ? -104.0f : clamped;
  ReducedF32 reduced = reduce_ln2_f32(clamped);
  return exp_of_rest_f32(reduced.r) * half_power_f32(reduced.n, 0) * half_power_f32(reduced.n, 1);
}

/* The same as ft_exp_f32, bit by bit, for x <= 0: of the two products by powers of 2 only the last one rounds. */
HELPER float exp_to_0_f32(float x) {
  ReducedF32 reduced = reduce_ln2_f32(x < -104.0f ? -104.0f : x);
  return exp_of_rest_f32(reduced.r) * f32_bits(((uint32_t)reduced.n + 191) << 23) * 0x1p-64f;
}

MATH float ft_expm1_f32(float x) {
  float clamped = x > 89.0f ? 89.0f : x;
  clamped = clamped < -40.0f ? -40.0f : clamped;
  ReducedF32 reduced = reduce_ln2_f32(clamped);
  float r = reduced.r;
  float tail = 0x1.a1a92ep-13f;
  tail = tail * r + 0x1.6d7b7ep-10f;
  tail = tail * r + 0x1.11108ap-7f;
  tail = tail * r + 0x1.5554a8p-5f;
  tail = tail * r + 0x1.555556p-3f;
  tail = tail * r + 0.5f;
  float q = (tail * r) * r + r;
  /* half the power, doubled at the end: 2^128 itself is no float */
  float power = f32_bits(((uint32_t)reduced.n + 126) << 23);
  float value = 2.0f * (power * q + (power - 0.5f));
  return abs_f32(x) < 0x1p-25f ? x : value;
}

typedef struct {
  double r;
  int64_t n;
} ReducedF64;
HELPER ReducedF64 reduce_ln2_f64(double x) {
  double shifted = x * LOG2_E_F64 + ROUND_F64;
  double n = shifted - ROUND_F64;
  double r = (x - n * LN2_HIGH_F64) - n * LN2_LOW_F64;
  return (ReducedF64){r, (int64_t)(bits_f64(shifted) - bits_f64(ROUND_F64))};
}
/* (e^r - 1 - r) / r^2 */
HELPER double exp_tail_f64(double r) {
  double tail = 0x1.1f98b18f11464p-29;
  tail = tail * r + 0x1.af63bc2d6ee03p-26;
  tail = tail * r + 0x1.27e4c37ce4b1bp-22;
  tail = tail * r + 0x1.71ddf5abd2dc3p-19;
  tail = tail * r + 0x1.a01a01b1b6fc3p-16;
  tail = tail * r + 0x1.a01a01b0db8b2p-13;
  tail = tail * r + 0x1.6c16c16c14118p-10;
  tail = tail * r + 0x1.111111110f484p-7;
  tail = tail * r + 0x1.555555555555bp-5;
  tail = tail * r + 0x1.5555555555559p-3;
  return tail * r + 0.5;
}
HELPER double exp_rebuild_f64(double r, int64_t n) {
  double value = (exp_tail_f64(r) * r) * r + r + 1.0;
  return value * half_power_f64(n, 0) * half_power_f64(n, 1);
}

MATH double ft_exp_f64(double x) {
  double clamped = x > 710.0 ? 710.0 : x;
  clamped = clamped < -746.0 ? -746.0 : clamped;
  ReducedF64 reduced = reduce_ln2_f64(clamped);
  return exp_rebuild_f64(reduced.r, reduced.n);
}

MATH double ft_expm1_f64(double x) {
  double clamped = x > 710.0 ? 710.0 : x;
  clamped = clamped < -80.0 ? -80.0 : clamped;
  ReducedF64 reduced = reduce_ln2_f64(clamped);
  double q = (exp_tail_f64(reduced.r) * reduced.r) * reduced.r + reduced.r;
  double power = f64_bits(((uint64_t)reduced.n + 1022) << 52);
  double value = 2.0 * (power * q + (power - 0.5));
  return abs_f64(x) < 0x1p-54 ? x : value;
}

/* ── logarithm ───────────────────────────────────────────────────────────────────────────────── */

/* A positive normal or subnormal x = 2^exponent m, sqrt(1/2) <= m < sqrt(2); fraction = m - 1,
 * exact. */
typedef struct {
  float fraction, exponent;
} SplitF32;
HELPER SplitF32 split_f32(float x) {
  int is_subnormal = x < 0x1p-126f;
  uint32_t bits = bits_f32(is_subnormal ? x * 0x1p23f : x);
  int32_t exponent = (int32_t)(bits - 0x3f3504f3u) >> 23;
  float m = f32_bits(bits - ((uint32_t)exponent << 23));
  return (SplitF32){m - 1.0f, (float)(is_subnormal ? exponent - 23 : exponent)};
}
HELPER float log_rebuild_f32(float f, float exponent) {
  float tail = 0x1.1b4616p-4f;
  tail = tail * f - 0x1.e31696p-4f;
  tail = tail * f + 0x1.e66626p-4f;
  tail = tail * f - 0x1.fb3d62p-4f;
  tail = tail * f + 0x1.23310cp-3f;
  tail = tail * f - 0x1.5562fep-3f;
  tail = tail * f + 0x1.99a55ap-3f;
  tail = tail * f - 0x1.ffffeep-3f;
  tail = tail * f + 0x1.555546p-2f;
  float square = f * f;
  float value = (tail * f) * square + exponent * LN2_LOW_F32;
  value = value - 0.5f * square;
  return (f + value) + exponent * LN2_HIGH_F32;
}
HELPER float log_special_f32(float x, float value) {
  value = x == 0.0f ? -__builtin_inff() : value;
  value = x == __builtin_inff() ? x : value;
  return x >= 0.0f ? value : __builtin_nanf("");
}

MATH float ft_log_f32(float x) {
  SplitF32 split = split_f32(x);
  return log_special_f32(x, log_rebuild_f32(split.fraction, split.exponent));
}

/* log(1 + x) = log(u) + log1p(c / u), where u = 1 + x rounded and c what the rounding lost; c goes
 * into the fraction, so no division. */
MATH float ft_log1p_f32(float x) {
  float u = 1.0f + x;
  float lost = x > 1.0f ? 1.0f - (u - x) : x - (u - 1.0f);
  uint32_t bits = bits_f32(u);
  int32_t exponent = (int32_t)(bits - 0x3f3504f3u) >> 23;
  float m = f32_bits(bits - ((uint32_t)exponent << 23));
  /* beyond 2^64 c means nothing, and its scale would leave the format */
  int32_t scale = exponent > 64 ? 64 : exponent;
  float f = (m - 1.0f) + lost * f32_bits((uint32_t)(127 - scale) << 23);
  float value = log_special_f32(u, log_rebuild_f32(f, (float)exponent));
  return abs_f32(x) < 0x1p-25f ? x : value;
}

typedef struct {
  double fraction, exponent;
  int64_t n;
} SplitF64;
HELPER SplitF64 split_f64(double x) {
  int is_subnormal = x < 0x1p-1022;
  uint64_t bits = bits_f64(is_subnormal ? x * 0x1p54 : x);
  /* biased by 2048, so that a logical shift does and small integers convert by their bits */
  uint64_t biased = (bits - 0x3fe6a09e667f3bcdu + (2048ull << 52)) >> 52;
  int64_t n = (int64_t)(biased & 4095) - 2048;
  double m = f64_bits(bits - ((uint64_t)n << 52));
  n = is_subnormal ? n - 54 : n;
  double exponent = f64_bits(bits_f64(ROUND_F64) + (uint64_t)n) - ROUND_F64;
  return (SplitF64){m - 1.0, exponent, n};
}
HELPER double log_rebuild_f64(double f, double exponent) {
  double s = f / (2.0 + f), z = s * s, half_square = 0.5 * f * f;
  double tail = 0x1.0f7b55b20d026p-3;
  tail = tail * z + 0x1.0f5a20a7a25acp-3;
  tail = tail * z + 0x1.3b20c99bf6940p-3;
  tail = tail * z + 0x1.745cdd86719cdp-3;
  tail = tail * z + 0x1.c71c725b2b9cbp-3;
  tail = tail * z + 0x1.2492492429695p-2;
  tail = tail * z + 0x1.9999999999e16p-2;
  tail = tail * z + 0x1.5555555555555p-1;
  double value = s * (half_square + tail * z) + exponent * LN2_LOW_F64;
  return (f - (half_square - value)) + exponent * LN2_HIGH_F64;
}
HELPER double log_special_f64(double x, double value) {
  value = x == 0.0 ? -__builtin_inf() : value;
  value = x == __builtin_inf() ? x : value;
  return x >= 0.0 ? value : __builtin_nan("");
}

MATH double ft_log_f64(double x) {
  SplitF64 split = split_f64(x);
  return log_special_f64(x, log_rebuild_f64(split.fraction, split.exponent));
}

MATH double ft_log1p_f64(double x) {
  double u = 1.0 + x;
  double lost = x > 1.0 ? 1.0 - (u - x) : x - (u - 1.0);
  SplitF64 split = split_f64(u);
  int64_t scale = split.n > 128 ? 128 : split.n;
  double f = split.fraction + lost * f64_bits((1023 - (uint64_t)scale) << 52);
  double value = log_special_f64(u, log_rebuild_f64(f, split.exponent));
  return abs_f64(x) < 0x1p-54 ? x : value;
}

/* ── hyperbolic tangent, logistic function ───────────────────────────────────────────────────── */

/* v / (v + 1) with v = (e^2|x| - 1) / 2 = 2^n (e^2r - 1) / 2 + (2^n - 1) / 2: no two cases that both are computed, and
 * never beyond 1. |r| <= ln2 / 4, since 2 |x| is reduced; n ln2 in one product, because what that loses counts less as v grows. */
MATH float ft_tanh_f32(float x) {
  float size = abs_f32(x), clamped = size > 9.1f ? 9.1f : size; /* NaN passes */
  float shifted = clamped * (2.0f * LOG2_E_F32) + ROUND_F32, n = shifted - ROUND_F32;
  float r = clamped - n * 0x1.62e430p-2f;
  float tail = 0x1.6be912p-5f;
  tail = tail * r + 0x1.12281ap-3f;
  tail = tail * r + 0x1.555678p-2f;
  tail = tail * r + 0x1.5554b0p-1f;
  tail = tail * r + 0x1.fffffep-1f;
  float power = f32_bits((bits_f32(shifted) << 23) + 0x3f800000u);
  float v = power * ((tail * r) * r + r) + (0.5f * power - 0.5f);
  return copy_sign_f32(v / (v + 1.0f), x);
}

MATH double ft_tanh_f64(double x) {
  double magnitude = abs_f64(x);
  double clamped = magnitude > 30.0 ? 30.0 : magnitude;
  double e = ft_expm1_f64(2.0 * clamped);
  return copy_sign_f64(e / (e + 2.0), x);
}

MATH float ft_sigmoid_f32(float x) {
  float e = exp_to_0_f32(-abs_f32(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

MATH double ft_sigmoid_f64(double x) {
  double e = ft_exp_f64(-abs_f64(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

/* ── error function ──────────────────────────────────────────────────────────────────────────── */

/* Near 0 an odd polynomial; beyond, w / (w + 1) with w = erf / erfc = (1 + s)^4 - 1: s grows slowly enough for a polynomial
 * (even and odd powers side by side, for a shorter chain), and what is lost in w counts less the nearer erf is to 1. */
MATH float ft_erf_f32(float x) {
  float size = abs_f32(x), t = size > 4.0f ? 4.0f : size, z = t * t; /* NaN passes */
  float tail = -0x1.a3bf42p-6f;
  tail = tail * z + 0x1.cdcbb6p-4f;
  tail = tail * z - 0x1.8126aap-2f;
  tail = tail * z + 0x1.06eba6p-3f; /* 2 / sqrt(pi) - 1 */
  float small = tail * t + t;
  float even = 0x1.dcececp-13f, odd = -0x1.0e21e2p-9f;
  even = even * z + 0x1.3288cap-7f;
  odd = odd * z - 0x1.7dea96p-6f;
  even = even * z + 0x1.54be00p-5f;
  odd = odd * z - 0x1.223630p-5f;
  even = even * z + 0x1.b7bdeap-5f;
  odd = odd * z + 0x1.e19b06p-5f;
  even = even * z + 0x1.a13156p-3f;
  odd = odd * z + 0x1.2003bcp-2f;
  even = even * z + 0x1.067a1cp-14f;
  float s = odd * t + even, squared = s * s + 2.0f * s;
  float w = squared * squared + 2.0f * squared;
  return copy_sign_f32(size < 0.35f ? small : w / (w + 1.0f), x);
}

MATH double ft_erf_f64(double x) {
  double magnitude = abs_f64(x), z = x * x;
  double tail = 0x1.065dd79e4c990p-34;
  tail = tail * z - 0x1.38c34b142b0dep-30;
  tail = tail * z + 0x1.f7c236fe0fb00p-27;
  tail = tail * z - 0x1.5f202bfd06f29p-23;
  tail = tail * z + 0x1.b9df50491e39dp-20;
  tail = tail * z - 0x1.f4d1e716a1626p-17;
  tail = tail * z + 0x1.f9a322119fb85p-14;
  tail = tail * z - 0x1.c02db3dd1d5c8p-11;
  tail = tail * z + 0x1.565bcd0dc9f29p-8;
  tail = tail * z - 0x1.b82ce312855a8p-6;
  tail = tail * z + 0x1.ce2f21a042b52p-4;
  tail = tail * z - 0x1.812746b0379e6p-2;
  tail = tail * z + 0x1.06eba8214db69p-3; /* 2 / sqrt(pi) - 1 */
  double small = tail * x + x;
  double t = (magnitude > 6.0 ? 6.0 : magnitude) - 1.0;
  double q = 0x1.5ad286ff8ef40p-38;
  q = q * t - 0x1.0971cc6628b73p-33;
  q = q * t + 0x1.6e4eb7270c0bcp-30;
  q = q * t - 0x1.276534ea44072p-27;
  q = q * t + 0x1.2169e27a30002p-25;
  q = q * t - 0x1.f9423c9c2b1d4p-25;
  q = q * t - 0x1.b47909426a726p-23;
  q = q * t + 0x1.1dd8fb0ec3d68p-19;
  q = q * t - 0x1.4470d2e3ccef4p-17;
  q = q * t + 0x1.c84b411f492ccp-16;
  q = q * t - 0x1.b929cde42d8c3p-16;
  q = q * t - 0x1.f1b07c5d0165dp-13;
  q = q * t + 0x1.033f5ae399671p-9;
  q = q * t - 0x1.48c9d3889062bp-7;
  q = q * t + 0x1.5477f099ef350p-5;
  q = q * t + 0x1.afabc11a2acf2p-1;
  q = q * t + 0x1.51c9b0006c21ep1;
  q = q * t + 0x1.d97fbf27aa2a1p0;
  double large = 1.0 - ft_exp_f64(-q);
  return copy_sign_f64(magnitude < 1.0 ? small : large, x);
}

/* ── sine, cosine ────────────────────────────────────────────────────────────────────────────── */

/* x = n pi/2 + r. pi/2 in three parts (Cody and Waite), the first two of so few bits that their
 * products with n are exact: for float to n = 2^28, for double to n = 2^20. */
HELPER ReducedF64 reduce_pi(double x, double first, double second, double third) {
  double shifted = x * 0x1.45f306dc9c883p-1 + ROUND_F64;
  double n = shifted - ROUND_F64;
  double r = ((x - n * first) - n * second) - n * third;
  return (ReducedF64){r, (int64_t)(bits_f64(shifted) - bits_f64(ROUND_F64))};
}

/* quarter: 0 for sine, 1 for cosine. The reduction in double costs little and leaves nothing of the
 * argument's size in the error. */
HELPER float sin_quarter_f32(float x, uint32_t quarter) {
  float magnitude = abs_f32(x);
  float usable = magnitude < 0x1p28f ? x : 0.0f;
  ReducedF64 reduced =
      reduce_pi((double)usable, 0x1.921fb5p0, 0x1.110b46p-26, 0x1.1a62633145c07p-54);
  float r = (float)reduced.r, z = r * r;
  uint32_t n = (uint32_t)reduced.n + quarter;
  float sine = 0x1.6cd5ecp-19f;
  sine = sine * z - 0x1.a00f94p-13f;
  sine = sine * z + 0x1.111108p-7f;
  sine = sine * z - 0x1.555556p-3f;
  sine = (sine * z) * r + r;
  float cosine = -0x1.24290ap-22f;
  cosine = cosine * z + 0x1.a01118p-16f;
  cosine = cosine * z - 0x1.6c16b8p-10f;
  cosine = cosine * z + 0x1.555556p-5f;
  cosine = (cosine * z) * z + (1.0f - 0.5f * z);
  float value = n & 1 ? cosine : sine;
  value = f32_bits(bits_f32(value) ^ ((n & 2) << 30));
  return magnitude < __builtin_inff() ? value : x - x;
}

MATH float ft_sin_f32(float x) {
  float value = sin_quarter_f32(x, 0);
  return x == 0.0f ? x : value; /* the reduction turns -0 into 0 */
}
MATH float ft_cos_f32(float x) { return sin_quarter_f32(x, 1); }

HELPER double sin_quarter_f64(double x, uint64_t quarter) {
  double magnitude = abs_f64(x);
  double usable = magnitude < 0x1p46 ? x : 0.0;
  ReducedF64 reduced = reduce_pi(usable, 0x1.921fb544p0, 0x1.0b4611a6p-34, 0x1.3198a2e037073p-69);
  double r = reduced.r, z = r * r;
  uint64_t n = (uint64_t)reduced.n + quarter;
  double sine = -0x1.aaa381996d077p-41;
  sine = sine * z + 0x1.61208f34c3233p-33;
  sine = sine * z - 0x1.ae645292e2f2fp-26;
  sine = sine * z + 0x1.71de3a5335652p-19;
  sine = sine * z - 0x1.a01a01a018ab3p-13;
  sine = sine * z + 0x1.111111111110bp-7;
  sine = sine * z - 0x1.5555555555555p-3;
  sine = (sine * z) * r + r;
  double cosine = 0x1.aac3f7a07f3a4p-45;
  cosine = cosine * z - 0x1.9393348351765p-37;
  cosine = cosine * z + 0x1.1eed8ca067b8dp-29;
  cosine = cosine * z - 0x1.27e4fb75fa9b1p-22;
  cosine = cosine * z + 0x1.a01a01a018dc0p-16;
  cosine = cosine * z - 0x1.6c16c16c16c10p-10;
  cosine = cosine * z + 0x1.5555555555555p-5;
  cosine = (cosine * z) * z + (1.0 - 0.5 * z);
  double value = n & 1 ? cosine : sine;
  value = f64_bits(bits_f64(value) ^ ((n & 2) << 62));
  return magnitude < __builtin_inf() ? value : x - x;
}

MATH double ft_sin_f64(double x) {
  double value = sin_quarter_f64(x, 0);
  return x == 0.0 ? x : value;
}
MATH double ft_cos_f64(double x) { return sin_quarter_f64(x, 1); }

/* ── power ───────────────────────────────────────────────────────────────────────────────────── */

/* What x^y is, given |x|^y: signs and C's special cases. y clamped to +-2^70 stands for larger
 * ones: there |x|^y is 0, 1 or infinite already. */
HELPER double pow_special(double x, double y, double value) {
  double magnitude = abs_f64(x), big = abs_f64(y), half = 0.5 * big;
  int is_integer = (big >= 0x1p52) | ((big + 0x1p52) - 0x1p52 == big);
  int is_odd = is_integer & (big < 0x1p53) & ((half + 0x1p52) - 0x1p52 != half);
  double infinity = __builtin_inf();
  value = magnitude == 0.0 ? (y < 0.0 ? infinity : 0.0) : value;
  value = magnitude == infinity ? (y < 0.0 ? 0.0 : infinity) : value;
  int is_negative = (int)(bits_f64(x) >> 63);
  int is_undefined = (x < 0.0) & (magnitude != infinity) & !is_integer;
  value = is_negative & is_odd ? -value : value;
  value = is_undefined ? __builtin_nan("") : value;
  value = ((x != x) | (y != y)) ? x + y : value;
  return ((y == 0.0) | (x == 1.0)) ? 1.0 : value;
}

MATH float ft_pow_f32(float x, float y) {
  double magnitude = abs_f64((double)x), exponent = (double)y;
  exponent = exponent > 0x1p70 ? 0x1p70 : exponent < -0x1p70 ? -0x1p70 : exponent;
  SplitF64 split = split_f64(magnitude);
  double product = exponent * log_rebuild_f64(split.fraction, split.exponent);
  double value = ft_exp_f64(product);
  return (float)pow_special((double)x, (double)y, value);
}

/* The 26 leading bits: the product of two such is exact. */
HELPER double high_bits(double x) { return f64_bits(bits_f64(x) & 0xfffffffff8000000u); }

/* A number as the unevaluated sum of two: `high` has 26 bits wherever it is multiplied. */
typedef struct {
  double high, low;
} Pair;
HELPER Pair pair_split(double high, double low) {
  double top = high_bits(high + low);
  return (Pair){top, (high - top) + low};
}
HELPER Pair pair_multiply(Pair a, Pair b) {
  return pair_split(a.high * b.high, a.high * b.low + a.low * (b.high + b.low));
}

/* ln of a positive number to about 2^-68 relative: 2 s + (2/3) s^3 + s^5 tail, s = f / (2 + f),
 * with the first two terms in pairs. */
HELPER Pair log_pair(double x) {
  SplitF64 split = split_f64(x);
  double f = split.fraction, below = 2.0 + f;
  Pair divisor = {high_bits(below), 0.0};
  divisor.low = (2.0 - divisor.high) + f;
  double quotient = f / below;
  Pair s = {high_bits(quotient), 0.0};
  s.low = ((f - s.high * divisor.high) - s.high * divisor.low) / below;
  Pair z = pair_split(s.high * s.high, s.low * (2.0 * s.high + s.low));
  double square = z.high + z.low;
  double tail = 0x1.eb40f5d8ce3f0p-4;
  tail = tail * square + 0x1.de2db5e76b245p-4;
  tail = tail * square + 0x1.1120d9a85cbefp-3;
  tail = tail * square + 0x1.3b1361c728508p-3;
  tail = tail * square + 0x1.745d1835cf138p-3;
  tail = tail * square + 0x1.c71c71c5792e2p-3;
  tail = tail * square + 0x1.2492492493071p-2;
  tail = tail * square + 0x1.9999999999995p-2;
  double rest = tail * square, two_thirds = 0x1.5555555555555p-1;
  double weight = high_bits(two_thirds + rest);
  Pair cubic = {weight, ((two_thirds - weight) + rest) + 0x1.5555555555555p-55};
  Pair third = pair_multiply(s, pair_multiply(z, cubic));
  double head = 2.0 * s.high + third.high;
  double lost = ((2.0 * s.high - head) + third.high) + (2.0 * s.low + third.low);
  double whole = split.exponent * LN2_HIGH_F64, sum = whole + head;
  return pair_split(sum, (((whole - sum) + head) + lost) + split.exponent * LN2_LOW_F64);
}

MATH double ft_pow_f64(double x, double y) {
  double exponent = y > 0x1p70 ? 0x1p70 : y < -0x1p70 ? -0x1p70 : y;
  Pair logarithm = log_pair(abs_f64(x));
  double top = high_bits(exponent);
  double high = top * logarithm.high;
  double low = exponent * logarithm.low + (exponent - top) * logarithm.high;
  double product = high + low;
  double rest = (high - product) + low;
  double clamped = product > 710.0 ? 710.0 : product;
  clamped = clamped < -746.0 ? -746.0 : clamped;
  rest = clamped == product ? rest : 0.0;
  ReducedF64 reduced = reduce_ln2_f64(clamped);
  return pow_special(x, y, exp_rebuild_f64(reduced.r + rest, reduced.n));
}

/* ── roots ───────────────────────────────────────────────────────────────────────────────────── */

MATH float ft_sqrt_f32(float x) { return __builtin_sqrtf(x); }
MATH double ft_sqrt_f64(double x) { return __builtin_sqrt(x); }
MATH float ft_rsqrt_f32(float x) { return 1.0f / __builtin_sqrtf(x); }
MATH double ft_rsqrt_f64(double x) { return 1.0 / __builtin_sqrt(x); }

/* ── random numbers ──────────────────────────────────────────────────────────────────────────── */
#include "kernels/philox.h"

MATH uint32_t ft_philox_bits(uint64_t seed, uint64_t step, uint32_t stream, uint64_t index) {
  uint32_t bits[4];
  philox_block(seed, (uint32_t)step, stream, index >> 2, bits);
  uint32_t low = index & 1 ? bits[1] : bits[0], high = index & 1 ? bits[3] : bits[2];
  return index & 2 ? high : low;
}

MATH float ft_random_f32(int64_t seed, int64_t step, int64_t stream, int64_t element) {
  uint32_t bits =
      ft_philox_bits((uint64_t)seed, (uint64_t)step, (uint32_t)stream + (uint32_t)((uint64_t)step >> 32), (uint64_t)element);
  return (float)(int32_t)(bits >> 8) * 0x1p-24f;
}

#include "kernels/float8.h"

/* ── 16-bit floats ───────────────────────────────────────────────────────────────────────────── */
#include "kernels/float16.h"
#include "kernels/approximate.h"
