/* float16: f16 and bf16 as they lie in memory. Included by math.c. */
#ifndef FT_KERNELS_FLOAT16_H
#define FT_KERNELS_FLOAT16_H

MATH float ft_f32_from_f16(uint16_t half) {
  uint32_t magnitude = half & 0x7fffu, sign = (uint32_t)(half & 0x8000u) << 16;
  uint32_t normal = (magnitude << 13) + (112u << 23);
  uint32_t special = normal + (112u << 23);
  uint32_t subnormal = bits_f32((float)(int32_t)magnitude * 0x1p-24f);
  uint32_t bits = magnitude < 0x400u ? subnormal : normal;
  bits = magnitude >= 0x7c00u ? special : bits;
  return f32_bits(bits | sign);
}

MATH uint16_t ft_f16_from_f32(float x) {
  uint32_t bits = bits_f32(x), magnitude = bits & 0x7fffffffu, sign = (bits >> 16) & 0x8000u;
  uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1)) >> 13;
  /* adding 1/2 makes the unit in the last place 2^-24, the smallest subnormal */
  uint32_t subnormal = bits_f32(f32_bits(magnitude) + 0.5f) - bits_f32(0.5f);
  uint32_t half = magnitude < (113u << 23) ? subnormal : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half; /* 65520 and more */
  half = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x3ffu) : half;
  return (uint16_t)(half | sign);
}

MATH float ft_f32_from_bf16(uint16_t half) { return f32_bits((uint32_t)half << 16); }

MATH uint16_t ft_bf16_from_f32(float x) {
  uint32_t bits = bits_f32(x);
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
  return (uint16_t)(x != x ? (bits >> 16) | 0x40u : rounded);
}
#endif
