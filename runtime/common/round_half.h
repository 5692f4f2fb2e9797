/* round_half: a float to the nearest f16 or bf16, ties to even, NaN to a quiet NaN: as a step
 * rounds. The same code for the host (element.c) and for a GPU (runtime/device/cuda/gpu/round.c),
 * without headers of the C library. */
#ifndef FT_RUNTIME_ROUND_HALF_H
#define FT_RUNTIME_ROUND_HALF_H
#include <stdint.h>

static inline uint32_t round_bits(float value) {
  union {
    float value;
    uint32_t bits;
  } both = {value};
  return both.bits;
}

static inline uint16_t round_to_half(float value) {
  uint32_t bits = round_bits(value), magnitude = bits & 0x7fffffff;
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  float size = __builtin_fabsf(value);
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (size >= 65520.0f) return sign | 0x7c00;
  if (size < 0x1p-14f) /* subnormal: units of 2^-24, rounded to even by rintf */
    return sign | (uint16_t)__builtin_rintf(size * 0x1p24f);
  magnitude += 0xfff + (magnitude >> 13 & 1); /* round to nearest even at bit 13 */
  return sign | (uint16_t)((magnitude - (112u << 23)) >> 13);
}

static inline uint16_t round_to_bfloat(float value) {
  uint32_t bits = round_bits(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#endif
