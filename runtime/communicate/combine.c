/* combine: see combine.h. */
#include "runtime/communicate/combine.h"
#include "runtime/common/round_half.h"
#include <string.h>

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__) &&             \
    !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("arch=x86-64-v3", "default"), optimize("O3")))
#else
#define WIDE
#endif

typedef union {
  float value;
  uint32_t bits;
} Float;

static inline float of_half(uint16_t half) {
  uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13;
  Float f = {.bits = magnitude};
  f.value *= 0x1p112f; /* also of subnormals */
  if (magnitude >= 0x7c00u << 13) f.bits = magnitude + (0x70000000u);
  f.bits |= (uint32_t)(half & 0x8000) << 16;
  return f.value;
}
static inline float of_bfloat(uint16_t half) { return (Float){.bits = (uint32_t)half << 16}.value; }
static inline float same_float(float x) { return x; }
static inline double same_double(double x) { return x; }

#define CLEAN(x) ((x) != (x) ? (typeof(x))__builtin_nan("") : (x))
#define SUM(a, b) CLEAN((a) + (b))
#define PRODUCT(a, b) CLEAN((a) * (b))
#define MIN_FLOAT(a, b)                                                                            \
  CLEAN((a) < (b) || (a) != (a) || ((a) == (b) && __builtin_signbit(a)) ? (a) : (b))
#define MAX_FLOAT(a, b)                                                                            \
  CLEAN((a) > (b) || (a) != (a) || ((a) == (b) && !__builtin_signbit(a)) ? (a) : (b))
#define ADD(a, b) ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

#define OPERATION(name, Stored, Computed, widen, narrow, combine)                                  \
  WIDE static void name(const void *in, void *inout, int64_t count) {                              \
    const Stored *restrict x = in;                                                                 \
    Stored *restrict y = inout;                                                                    \
    for (int64_t i = 0; i < count; i++) {                                                          \
      Computed a = widen(x[i]), b = widen(y[i]);                                                   \
      y[i] = (Stored)narrow(combine(a, b));                                                        \
    }                                                                                              \
  }

#define FLOATS(id, Stored, Computed, widen, narrow)                                                \
  OPERATION(id##_sum, Stored, Computed, widen, narrow, SUM)                                        \
  OPERATION(id##_min, Stored, Computed, widen, narrow, MIN_FLOAT)                                  \
  OPERATION(id##_max, Stored, Computed, widen, narrow, MAX_FLOAT)                                  \
  OPERATION(id##_prod, Stored, Computed, widen, narrow, PRODUCT)
#define INTEGERS(id, Stored, Wrapping)                                                             \
  OPERATION(id##_sum, Wrapping, Wrapping, , , ADD)                                                 \
  OPERATION(id##_min, Stored, Stored, , , MIN)                                                     \
  OPERATION(id##_max, Stored, Stored, , , MAX)                                                     \
  OPERATION(id##_prod, Wrapping, Wrapping, , , MULTIPLY)

INTEGERS(BOOL, uint8_t, uint8_t) /* no sum of these is asked for: comm_check */
INTEGERS(U8, uint8_t, uint8_t)
INTEGERS(I32, int32_t, uint32_t)
INTEGERS(U32, uint32_t, uint32_t)
INTEGERS(I64, int64_t, uint64_t)
FLOATS(F16, uint16_t, float, of_half, round_to_half)
FLOATS(BF16, uint16_t, float, of_bfloat, round_to_bfloat)
FLOATS(F32, float, float, same_float, same_float)
FLOATS(F64, double, double, same_double, same_double)

static Combine *const combine_functions[DT_COUNT][COMM_PROD + 1] = {
#define X(ID, text, bytes) [DT_##ID] = {ID##_sum, ID##_min, ID##_max, ID##_prod},
    DTYPES(X)
#undef X
};

Combine *combine_find(DType dtype, CommOp op) { return combine_functions[dtype][op]; }
