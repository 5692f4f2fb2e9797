/* element: elements of a file to a tensor's dtype.
 * Each element goes through the widest type of its class (int64, double), which holds every
 * element kind exactly; copying without conversion is a memcpy. */
#include "runtime/common/element.h"
#include "runtime/common/round_half.h"
#include <math.h>
#include <string.h>

const char *element_text(Element element) {
  static const char *const text[] = {
#define X(ID, text, bytes) text,
      ELEMENTS(X)
#undef X
  };
  return text[element];
}

int element_bytes(Element element) {
  static const int size[] = {
#define X(ID, text, bytes) bytes,
      ELEMENTS(X)
#undef X
  };
  return size[element];
}

Element element_of(DType dtype) {
  static const Element of[DT_COUNT] = {
      [DT_BOOL] = ELEMENT_BOOL, [DT_U8] = ELEMENT_U8,   [DT_I32] = ELEMENT_I32,
      [DT_U32] = ELEMENT_U32,   [DT_I64] = ELEMENT_I64, [DT_F16] = ELEMENT_F16,
      [DT_BF16] = ELEMENT_BF16, [DT_F32] = ELEMENT_F32, [DT_F64] = ELEMENT_F64,
  };
  return of[dtype];
}

bool element_is_float(Element element) {
  return element == ELEMENT_F16 || element == ELEMENT_BF16 || element == ELEMENT_F32 ||
         element == ELEMENT_F64;
}

bool element_converts(Element from, DType to) {
  if (element_is_float(from)) return dtype_is_float(to);
  if (to == DT_BOOL) return from == ELEMENT_BOOL;
  if (!dtype_is_float(to)) return true; /* value by value */
  /* every integer of this many bits is exact in the float's significand */
  int bits = from == ELEMENT_BOOL ? 1 : 8 * element_bytes(from);
  int exact = to == DT_F64 ? 53 : to == DT_F32 ? 24 : to == DT_F16 ? 11 : 8;
  return bits <= exact;
}

float half_to_float(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, part = half & 1023;
  uint32_t bits;
  if (exponent == 31) {
    bits = sign | 0x7f800000 | part << 13;
  } else if (exponent) {
    bits = sign | (exponent + 112) << 23 | part << 13;
  } else {
    float value = ldexpf((float)part, -24);
    return sign ? -value : value;
  }
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

uint16_t half_from_float(float value) { return round_to_half(value); }

uint16_t bfloat_from_float(float value) { return round_to_bfloat(value); }

void element_round(const float *from, int64_t count, DType dtype, uint16_t *to) {
  if (dtype == DT_F16)
    for (int64_t i = 0; i < count; i++) to[i] = round_to_half(from[i]);
  else
    for (int64_t i = 0; i < count; i++) to[i] = round_to_bfloat(from[i]);
}

static uint64_t load_bits(const uint8_t *at, int bytes, bool is_big_endian) {
  uint64_t bits = 0;
  for (int i = 0; i < bytes; i++)
    bits |= (uint64_t)at[is_big_endian ? bytes - 1 - i : i] << (8 * i);
  return bits;
}

static double load_float(const uint8_t *at, Element element, bool is_big_endian) {
  uint64_t bits = load_bits(at, element_bytes(element), is_big_endian);
  uint32_t low = (uint32_t)bits;
  float narrow;
  double wide;
  switch (element) {
  case ELEMENT_F16:
    return half_to_float((uint16_t)bits);
  case ELEMENT_BF16:
    low <<= 16;
    memcpy(&narrow, &low, 4);
    return narrow;
  case ELEMENT_F32:
    memcpy(&narrow, &low, 4);
    return narrow;
  default:
    memcpy(&wide, &bits, 8);
    return wide;
  }
}

static int64_t load_integer(const uint8_t *at, Element element, bool is_big_endian) {
  uint64_t bits = load_bits(at, element_bytes(element), is_big_endian);
  switch (element) {
  case ELEMENT_BOOL:
    return bits != 0;
  case ELEMENT_I8:
    return (int8_t)bits;
  case ELEMENT_I16:
    return (int16_t)bits;
  case ELEMENT_I32:
    return (int32_t)bits;
  default:
    return (int64_t)bits;
  }
}

/* Before a rounding to a narrower type, which is as one of the double then: of the two neighbours
 * of what f32 does not hold, the one whose last bit is 1. */
static float element_to_odd(double value) {
  float nearest = (float)value;
  uint32_t bits;
  memcpy(&bits, &nearest, 4);
  if (isnan(value) || nearest == value || bits & 1) return nearest;
  return nextafterf(nearest, value > nearest ? INFINITY : -INFINITY);
}

/* Does it fit? A finite number that is beyond the type's largest becomes an infinity, and does not. */
static bool store_float(double value, DType dtype, int64_t i, void *to) {
  uint16_t half;
  switch (dtype) {
  case DT_F64:
    ((double *)to)[i] = value;
    return true;
  case DT_F32:
    ((float *)to)[i] = (float)value;
    return !isinf((float)value) || isinf(value);
  case DT_F16:
    ((uint16_t *)to)[i] = half = half_from_float(element_to_odd(value));
    return (half & 0x7fff) != 0x7c00 || isinf(value);
  default:
    ((uint16_t *)to)[i] = half = bfloat_from_float(element_to_odd(value));
    return (half & 0x7fff) != 0x7f80 || isinf(value);
  }
}

static bool store_integer(int64_t value, DType dtype, int64_t i, void *to) {
  switch (dtype) {
  case DT_BOOL:
    ((uint8_t *)to)[i] = value != 0;
    return true;
  case DT_U8:
    ((uint8_t *)to)[i] = (uint8_t)value;
    return value >= 0 && value <= UINT8_MAX;
  case DT_I32:
    ((int32_t *)to)[i] = (int32_t)value;
    return value == (int32_t)value;
  case DT_U32:
    ((uint32_t *)to)[i] = (uint32_t)value;
    return value >= 0 && value <= UINT32_MAX;
  case DT_I64:
    ((int64_t *)to)[i] = value;
    return true;
  default:
    return store_float((double)value, dtype, i, to);
  }
}

int64_t element_convert(const void *from, Element element, bool is_big_endian, int64_t count,
                        DType dtype, void *to) {
  int size = element_bytes(element);
  bool is_native = !is_big_endian || size == 1;
  if (count == 0) return 0;
  if (is_native && element == element_of(dtype) && element != ELEMENT_BOOL) {
    memcpy(to, from, (size_t)(count * size));
    return count;
  }
  const uint8_t *at = from;
  if (element == ELEMENT_U8 && dtype == DT_I32) { /* labels: the common case */
    for (int64_t i = 0; i < count; i++) ((int32_t *)to)[i] = at[i];
    return count;
  }
  int64_t fitting = count;
  for (int64_t i = 0; i < count; i++, at += size) {
    bool fits = element_is_float(element)
                    ? store_float(load_float(at, element, is_big_endian), dtype, i, to)
                    : store_integer(load_integer(at, element, is_big_endian), dtype, i, to);
    if (!fits && fitting == count) fitting = i;
  }
  return fitting;
}
