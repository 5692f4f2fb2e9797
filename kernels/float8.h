/* float8: numbers rounded to those of the 8-bit float formats e4m3 and e5m2 (OCP 8-bit Floating Point Specification,
 * 2023), half to even; a part of math.c, whose helpers it uses. What is larger than the largest number, 448 or 57344,
 * infinity included, becomes that, as with .satfinite of PTX's cvt; NaN and the sign of 0 stay.
 *
 * `dropped` is how many bits of the mantissa the format lacks, `normal` its least normal number. Below that the numbers
 * are as far apart as just above it: adding a power of two whose last bit is that distance rounds to it. */
#ifndef FT_KERNELS_FLOAT8_H
#define FT_KERNELS_FLOAT8_H

HELPER float round_float8_f32(float x, int dropped, float normal, float largest) {
  uint32_t bits = bits_f32(x) & 0x7fffffffu, last = 1u << dropped;
  float magnitude = f32_bits(bits), unit = normal * (float)(1u << dropped);
  float rounded = f32_bits((bits + (last / 2 - 1) + ((bits >> dropped) & 1)) & ~(last - 1));
  rounded = magnitude < normal ? (magnitude + unit) - unit : rounded;
  rounded = rounded > largest ? largest : rounded;
  return x != x ? x : copy_sign_f32(rounded, x);
}
HELPER double round_float8_f64(double x, int dropped, double normal, double largest) {
  uint64_t bits = bits_f64(x) & 0x7fffffffffffffffu, last = (uint64_t)1 << dropped;
  double magnitude = f64_bits(bits), unit = normal * (double)((uint64_t)1 << dropped);
  double rounded = f64_bits((bits + (last / 2 - 1) + ((bits >> dropped) & 1)) & ~(last - 1));
  rounded = magnitude < normal ? (magnitude + unit) - unit : rounded;
  rounded = rounded > largest ? largest : rounded;
  return x != x ? x : copy_sign_f64(rounded, x);
}

MATH float ft_round_e4m3_f32(float x) { return round_float8_f32(x, 20, 0x1p-6f, 448); }
MATH float ft_round_e5m2_f32(float x) { return round_float8_f32(x, 21, 0x1p-14f, 57344); }
MATH double ft_round_e4m3_f64(double x) { return round_float8_f64(x, 49, 0x1p-6, 448); }
MATH double ft_round_e5m2_f64(double x) { return round_float8_f64(x, 50, 0x1p-14, 57344); }
#endif
