/* float8: codes of the 8-bit float formats e4m3 (e4m3fn) and e5m2 (OCP 8-bit Floating Point Specification, 2023). A code
 * is a sign, 4 or 5 bits of an exponent (bias 7 or 15) and 3 or 2 of a mantissa. e4m3 has no infinity, and its NaN has
 * all bits set but the sign; e5m2 has both as IEEE's formats have them. */
#ifndef FT_RUNTIME_FLOAT8_H
#define FT_RUNTIME_FLOAT8_H
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum { FLOAT8_NAN = 0x7f };

static inline float float8_value(uint8_t code, bool is_e5m2) {
  int bits = is_e5m2 ? 2 : 3, bias = is_e5m2 ? 15 : 7;
  int exponent = (code & 0x7f) >> bits, mantissa = code & ((1 << bits) - 1);
  float size;
  if (is_e5m2 ? exponent == 31 : (code & 0x7f) == FLOAT8_NAN)
    size = is_e5m2 && !mantissa ? INFINITY : NAN;
  else if (exponent)
    size = ldexpf((float)(mantissa + (1 << bits)), exponent - bias - bits);
  else
    size = ldexpf((float)mantissa, 1 - bias - bits);
  return code & 0x80 ? -size : size;
}

/* To the nearest number, halves to even; beyond the largest number, infinity included, that one; a NaN has no sign: as
 * PTX's cvt.rn.satfinite. */
static inline uint8_t float8_code(float value, bool is_e5m2) {
  int bits = is_e5m2 ? 2 : 3, bias = is_e5m2 ? 15 : 7, exponent;
  float largest = is_e5m2 ? 57344 : 448, size = fabsf(value);
  if (isnan(value)) return FLOAT8_NAN;
  uint8_t sign = signbit(value) ? 0x80 : 0;
  if (size >= largest) return sign | (is_e5m2 ? 0x7b : 0x7e);
  frexpf(size, &exponent); /* size = part 2^exponent, 1/2 <= part < 1 */
  exponent = size == 0 || exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
  /* in units of the last place, which are also the distances of codes; carries go into the exponent */
  int units = (int)nearbyintf(ldexpf(size, bits - exponent));
  return sign | (uint8_t)(((exponent + bias - 1) << bits) + units);
}
#endif
