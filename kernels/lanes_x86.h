/* lanes_x86: sixteen floats at a time, for the kernels in machine code: one register where they are
 * 64 bytes wide, else LLVM makes it of two or four. */
#ifndef FT_KERNELS_LANES_X86_H
#define FT_KERNELS_LANES_X86_H
#include <stdint.h>

#define ALWAYS static inline __attribute__((always_inline))
enum { LANES = 16 };
typedef float Lanes __attribute__((ext_vector_type(16)));
typedef float LooseLanes __attribute__((ext_vector_type(16), aligned(4)));
typedef int32_t IntLanes __attribute__((ext_vector_type(16)));

ALWAYS Lanes lanes_load(const float *from) { return *(const LooseLanes *)from; }
ALWAYS void lanes_store(float *to, Lanes value) { *(LooseLanes *)to = value; }

ALWAYS float lanes_sum(Lanes x) {
  float sum[4];
  for (int i = 0; i < 4; i++) sum[i] = (x[i] + x[i + 8]) + (x[i + 4] + x[i + 12]);
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}
ALWAYS Lanes lanes_larger(Lanes x, Lanes y) { return x > y ? x : y; } /* y if one is NaN */
ALWAYS float lanes_most(Lanes x) {
  float most = x[0];
  for (int i = 1; i < LANES; i++) most = x[i] > most ? x[i] : most;
  return most;
}

/* e^x for x <= 0 and some above, within 2 ulp; 0 below -87, where the result would be subnormal. */
ALWAYS Lanes lanes_exp(Lanes x) {
  const float round = 0x1.8p23f; /* adding it leaves the nearest integer in the low bits */
  Lanes y = x < -87.0f ? (Lanes)-87.0f : x;
  Lanes shifted = y * 0x1.715476p0f + round, n = shifted - round;
  Lanes r = (y - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  Lanes tail = 0x1.6dbc3ap-10f * r + 0x1.124146p-7f;
  tail = tail * r + 0x1.555454p-5f;
  tail = tail * r + 0x1.555486p-3f;
  tail = tail * r + 0.5f;
  Lanes value = (tail * r) * r + r + 1.0f;
  IntLanes power = __builtin_bit_cast(IntLanes, shifted) << 23; /* 2^n, less the exponent's bias */
  Lanes scaled = __builtin_bit_cast(Lanes, __builtin_bit_cast(IntLanes, value) + power);
  scaled = x != x ? x : scaled;
  return x < -87.0f ? (Lanes)0.0f : scaled;
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
