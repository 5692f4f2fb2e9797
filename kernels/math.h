/* math: ft's own elementary functions, random numbers and 16-bit float conversions, one source for
 * both targets, so that cpu, sim and cuda agree. ftc links the bitcode and inlines it.
 * Invariant: no branches, no tables, no calls, no external symbols: a loop over any of them
 * vectorises. Infinities, NaN, signed zeros and subnormal arguments and results are C's (Annex F);
 * correct in the default rounding mode. No function traps, none sets errno.
 *
 * Each has the same bits in every kernel of an artifact: where a processor has fused
 * multiply-add, clang contracts this source statement by statement, before anything is inlined.
 * The gradient of a maximum needs that: it computes a value again and asks whether it is the same.
 *
 * Error bounds in units in the last place of the result, measured by test/unit/codegen_math.c
 * against higher precision; they hold with and without contraction to fused multiply-add:
 *   f32: exp 1.1, expm1 1.5, log 1.0, log1p 1.5, tanh 2.6, sigmoid 2.4, erf 3.0, pow 0.51,
 *        rsqrt 1.5, sin and cos 1.6 for |x| < 2^28
 *   f64: exp 1.5, expm1 2.0, log 1.0, log1p 1.5, tanh 3.0, sigmoid 2.5, erf 2.0, pow 1.5,
 *        sin and cos 1.5 for |x| <= 2^20 (beyond: see ft_sin_f64) */
#ifndef FT_KERNELS_MATH_H
#define FT_KERNELS_MATH_H
#include <stdint.h>

float ft_exp_f32(float x);
float ft_expm1_f32(float x);
float ft_log_f32(float x);
float ft_log1p_f32(float x);
float ft_tanh_f32(float x);
float ft_sigmoid_f32(float x);
float ft_erf_f32(float x);
/* An argument of 2^28 or more is taken as a multiple of pi (its own ulp exceeds 2 pi): sin 0, cos
 * 1; infinity gives NaN. */
float ft_sin_f32(float x);
float ft_cos_f32(float x);
float ft_pow_f32(float x, float y);
float ft_sqrt_f32(float x);
float ft_rsqrt_f32(float x);
/* For what is rounded to 16 bits: kernels/approximate.h. */
float ft_exp_approximate_f32(float x);
float ft_tanh_approximate_f32(float x);
float ft_sigmoid_approximate_f32(float x);
float ft_erf_approximate_f32(float x);
/* To the nearest number of an 8-bit float format, half to even; at most its largest. */
float ft_round_e4m3_f32(float x);
float ft_round_e5m2_f32(float x);

double ft_exp_f64(double x);
double ft_expm1_f64(double x);
double ft_log_f64(double x);
double ft_log1p_f64(double x);
double ft_tanh_f64(double x);
double ft_sigmoid_f64(double x);
double ft_erf_f64(double x);
/* Beyond 2^20 the absolute error grows as |x| 2^-74; at 2^46 and more: sin 0, cos 1. */
double ft_sin_f64(double x);
double ft_cos_f64(double x);
double ft_pow_f64(double x, double y);
double ft_sqrt_f64(double x);
double ft_rsqrt_f64(double x);
double ft_round_e4m3_f64(double x);
double ft_round_e5m2_f64(double x);

/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): key = seed,
 * counter = (index / 4 low, index / 4 high, step, stream), lane = index % 4. */
uint32_t ft_philox_bits(uint64_t seed, uint64_t step, uint32_t stream, uint64_t index);
/* The same as a uniform number in [0, 1): (bits >> 8) * 2^-24; the stream is `stream` + step / 2^32. */
float ft_random_f32(int64_t seed, int64_t step, int64_t stream, int64_t element);

/* Storage formats; to the narrow one rounds half to even, NaN stays NaN. */
float ft_f32_from_f16(uint16_t half);
uint16_t ft_f16_from_f32(float x);
float ft_f32_from_bf16(uint16_t half);
uint16_t ft_bf16_from_f32(float x);
#endif
