/* lanes_x86: sixteen floats at a time, for the kernels in machine code: one register where they are
 * 64 bytes wide, else LLVM makes it of two or four. */
#ifndef FT_KERNELS_LANES_X86_H
#define FT_KERNELS_LANES_X86_H
#include "kernels/operand_host.h"
#include <stdbool.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#define ALWAYS static inline __attribute__((always_inline))
enum { LANES = 16 };
typedef float Lanes __attribute__((ext_vector_type(16)));
typedef float LooseLanes __attribute__((ext_vector_type(16), aligned(4)));
typedef int32_t IntLanes __attribute__((ext_vector_type(16)));

ALWAYS Lanes lanes_load(const float *from) { return *(const LooseLanes *)from; }
ALWAYS void lanes_store(float *to, Lanes value) { *(LooseLanes *)to = value; }
/* The first `count` of them, fewer than all. */
ALWAYS void lanes_store_first(float *to, Lanes value, int64_t count) {
#ifdef __AVX512F__
  _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), (__m512)value);
#else
  for (int64_t i = 0; i < count; i++) to[i] = value[i];
#endif
}

/* Up to 16 numbers, `step` apart, zeros behind them. */
ALWAYS Lanes lanes_some(const float *from, int64_t step, int64_t count) {
  if (count >= LANES && step == 1) return lanes_load(from);
  Lanes x = (Lanes)0.0f;
  for (int64_t i = 0; i < count && i < LANES; i++) x[i] = from[i * step];
  return x;
}

/* ── whole numbers ──────────────────────────────────────────────────────────────────────────── */
typedef struct {
  Lanes low, high;
} Bounds;

/* The numbers as integers; `bad` is set where one is not whole or out of range. */
ALWAYS IntLanes lanes_whole(Lanes x, Bounds bounds, IntLanes *bad) {
  Lanes within = x > bounds.low ? x : bounds.low; /* NaN: low; as vmaxps has it */
  within = within < bounds.high ? within : bounds.high;
  IntLanes whole = __builtin_convertvector(within, IntLanes);
  *bad |= __builtin_convertvector(whole, Lanes) != x;
  return whole;
}
ALWAYS bool lanes_any(IntLanes x) {
  int any = 0;
  for (int i = 0; i < LANES; i++) any |= x[i];
  return any != 0;
}
ALWAYS int32_t lanes_total(IntLanes x) {
  uint32_t total = 0;
  for (int i = 0; i < LANES; i++) total += (uint32_t)x[i];
  return (int32_t)total;
}

/* ── bf16 and f16 in memory ─────────────────────────────────────────────────────────────────── */
typedef uint16_t NarrowLanes __attribute__((ext_vector_type(16), aligned(2)));
typedef uint32_t Words __attribute__((ext_vector_type(16)));

/* Elements [at, at + 16) of an operand; `type` is a constant wherever this is inlined. */
ALWAYS Lanes lanes_load_as(int type, const void *x, int64_t at) {
  if (type == OPERAND_F32) return *(const LooseLanes *)((const float *)x + at);
  Words word = __builtin_convertvector(*(const NarrowLanes *)((const uint16_t *)x + at), Words);
  if (type == OPERAND_BF16) return __builtin_bit_cast(Lanes, word << 16);
  /* the exponent's bias by a product, which subnormal numbers want too; the largest means inf, NaN
   */
  Lanes size = __builtin_bit_cast(Lanes, (word & 0x7fff) << 13) * 0x1p112f;
  Words special = (Words)((word & 0x7c00) == 0x7c00) & 0x7f800000;
  return __builtin_bit_cast(Lanes,
                            __builtin_bit_cast(Words, size) | special | (word & 0x8000) << 16);
}
ALWAYS float lanes_at(int type, const void *x, int64_t at) {
  if (type == OPERAND_F32) return ((const float *)x)[at];
  uint32_t word = ((const uint16_t *)x)[at];
  if (type == OPERAND_BF16) return __builtin_bit_cast(float, word << 16);
  float size = __builtin_bit_cast(float, (word & 0x7fff) << 13) * 0x1p112f;
  uint32_t special = (word & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;
  return __builtin_bit_cast(float,
                            __builtin_bit_cast(uint32_t, size) | special | (word & 0x8000) << 16);
}

/* The nearest bf16 or f16, to even where two are as near. */
ALWAYS Words lanes_round(int type, Lanes value) {
  Words word = __builtin_bit_cast(Words, value), size = word & 0x7fffffff;
  if (type == OPERAND_BF16) {
    Words near = (word + 0x7fff + (word >> 16 & 1)) >> 16;
    return size > 0x7f800000 ? (word >> 16 | 0x40) : near;
  }
  /* from 2^-14 on a new exponent's bias; below, a sum whose last bit is the smallest f16's */
  Words normal = (size + 0xc8000fff + (size >> 13 & 1)) >> 13;
  Lanes shifted = __builtin_bit_cast(Lanes, size) + 0.5f;
  Words small = __builtin_bit_cast(Words, shifted) - 0x3f000000;
  Words half = size < 0x38800000 ? small : normal;
  half = size >= 0x47800000 ? (Words)0x7c00 : half;
  half = size > 0x7f800000 ? (Words)0x7e00 : half;
  return half | (word >> 16 & 0x8000);
}
ALWAYS void lanes_store_as(int type, void *x, int64_t at, Lanes value) {
  if (type == OPERAND_F32)
    lanes_store((float *)x + at, value);
  else
    *(NarrowLanes *)((uint16_t *)x + at) =
        __builtin_convertvector(lanes_round(type, value), NarrowLanes);
}
ALWAYS void lanes_put(int type, void *x, int64_t at, float value) {
  if (type == OPERAND_F32)
    ((float *)x)[at] = value;
  else
    ((uint16_t *)x)[at] = (uint16_t)lanes_round(type, (Lanes)value)[0];
}

/* ── arithmetic ─────────────────────────────────────────────────────────────────────────────── */
ALWAYS float lanes_sum(Lanes x) {
  float sum[4];
  for (int i = 0; i < 4; i++) sum[i] = (x[i] + x[i + 8]) + (x[i + 4] + x[i + 12]);
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}
ALWAYS Lanes lanes_larger(Lanes x, Lanes y) { return x > y ? x : y; } /* y if one is NaN */
/* None is NaN. */
ALWAYS float lanes_most(Lanes x) {
  x = lanes_larger(x, __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  x = lanes_larger(x, __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  x = lanes_larger(x, __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  return x[0] > x[1] ? x[0] : x[1];
}

/* e^x for x <= 0 and some above, within 2 ulp; 0 below -87, where the result would be subnormal. */
ALWAYS Lanes lanes_exp(Lanes x) {
  const float round = 0x1.8p23f; /* adding it leaves the nearest integer in the low bits */
#ifdef __AVX512F__
  Lanes y = x;
#else
  Lanes y = x < -87.0f ? (Lanes)-87.0f : x;
#endif
  Lanes shifted = y * 0x1.715476p0f + round, n = shifted - round;
  Lanes r = (y - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  Lanes tail = 0x1.6dbc3ap-10f * r + 0x1.124146p-7f;
  tail = tail * r + 0x1.555454p-5f;
  tail = tail * r + 0x1.555486p-3f;
  tail = tail * r + 0.5f;
  Lanes value = (tail * r) * r + r + 1.0f;
#ifdef __AVX512F__ /* value * 2^n by one instruction, which leaves NaN as it is */
  __mmask16 is_large = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-87.0f), _CMP_NLT_UQ);
  return (Lanes)_mm512_maskz_scalef_ps(is_large, (__m512)value, (__m512)n);
#else
  IntLanes power = __builtin_bit_cast(IntLanes, shifted) << 23; /* 2^n, less the exponent's bias */
  Lanes scaled = __builtin_bit_cast(Lanes, __builtin_bit_cast(IntLanes, value) + power);
  scaled = x != x ? x : scaled;
  return x < -87.0f ? (Lanes)0.0f : scaled;
#endif
}

/* tanh(x), within 4 ulp: near 0 by its series, as kernels/math.c has it. */
ALWAYS Lanes lanes_tanh(Lanes x) {
  Lanes size = x < 0.0f ? -x : x, z = x * x;
  Lanes tail = 0x1.19700ap-9f * z - 0x1.0c1e42p-7f;
  tail = tail * z + 0x1.639444p-6f;
  tail = tail * z - 0x1.b9ef70p-5f;
  tail = tail * z + 0x1.11106ap-3f;
  tail = tail * z - 0x1.555554p-2f;
  Lanes small = (tail * z) * x + x, e = lanes_exp(-2.0f * size);
  Lanes large = (1.0f - e) / (1.0f + e);
  return size < 0.625f ? small : x < 0.0f ? -large : large;
}

/* Sixteen rows become sixteen columns: four rounds that interleave the first half with the second.
 */
ALWAYS void lanes_transpose(Lanes x[16]) {
#pragma clang loop unroll(full)
  for (int round = 0; round < 4; round++) {
    Lanes y[16];
#pragma clang loop unroll(full)
    for (int i = 0; i < 8; i++) {
      y[2 * i] = __builtin_shufflevector(x[i], x[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21,
                                         6, 22, 7, 23);
      y[2 * i + 1] = __builtin_shufflevector(x[i], x[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28,
                                             13, 29, 14, 30, 15, 31);
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < 16; i++) x[i] = y[i];
  }
}
#endif
