/* transpose_x86: see transpose_host.h. Rows are vectors, and rounds that interleave the first half of them with the second turn
 * so many rows into as many columns: log2 n rounds of n instructions for n by n numbers. */
#include "kernels/transpose_host.h"
#include "kernels/lanes_x86.h"
#include "kernels/panel_x86.h"

#define LOW_8(X, Y) CHOOSE(X, Y, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_8(X, Y) CHOOSE(X, Y, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW_16(X, Y) CHOOSE(X, Y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH_16(X, Y) CHOOSE(X, Y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

/* Square parts of a tile, of LANES numbers each way. */
#define TRANSPOSE(BITS, LANES, ROUNDS)                                                                                             \
  typedef uint##BITS##_t Row##BITS __attribute__((ext_vector_type(LANES), aligned(BITS / 8)));                                     \
  static void transpose_##BITS(const uint##BITS##_t *from, int64_t from_step, uint##BITS##_t *to, int64_t to_step, int64_t rows,   \
                               int64_t columns) {                                                                                  \
    for (int64_t r = 0; r < rows; r += LANES)                                                                                      \
      for (int64_t c = 0; c < columns; c += LANES) {                                                                               \
        Row##BITS x[LANES], y[LANES];                                                                                              \
        _Pragma("clang loop unroll(full)") for (int i = 0; i < LANES; i++) x[i] = *(const Row##BITS *)(from + (r + i) * from_step + c); \
        _Pragma("clang loop unroll(full)") for (int round = 0; round < ROUNDS; round++) {                                          \
          _Pragma("clang loop unroll(full)") for (int i = 0; i < LANES / 2; i++) {                                                 \
            y[2 * i] = LOW_##LANES(x[i], x[i + LANES / 2]);                                                                        \
            y[2 * i + 1] = HIGH_##LANES(x[i], x[i + LANES / 2]);                                                                   \
          }                                                                                                                        \
          _Pragma("clang loop unroll(full)") for (int i = 0; i < LANES; i++) x[i] = y[i];                                          \
        }                                                                                                                          \
        _Pragma("clang loop unroll(full)") for (int i = 0; i < LANES; i++) *(Row##BITS *)(to + (c + i) * to_step + r) = x[i];      \
      }                                                                                                                            \
  }

TRANSPOSE(8, 16, 4)
TRANSPOSE(16, 16, 4)
TRANSPOSE(64, 8, 3)

static void transpose_32(const float *from, int64_t from_step, float *to, int64_t to_step, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; r += TRANSPOSE_BLOCK)
    for (int64_t c = 0; c < columns; c += TRANSPOSE_BLOCK) {
      const float *block = from + r * from_step + c;
#ifdef __AVX512F__
      transpose_block(OPERAND_F32, block, 0, from_step, to + c * to_step + r, to_step);
#else
      for (int half = 0; half < TRANSPOSE_BLOCK; half += 8) {
        Lanes row[8];
#pragma clang loop unroll(full)
        for (int i = 0; i < 8; i++) row[i] = lanes_load(block + (half + i) * from_step);
        transpose_eight(row, to + c * to_step + r + half, to_step);
      }
#endif
    }
}

void transpose_tile(int64_t bytes, const void *from, int64_t from_step, void *to, int64_t to_step, int64_t rows, int64_t columns) {
  if (bytes == 1) transpose_8(from, from_step, to, to_step, rows, columns);
  if (bytes == 2) transpose_16(from, from_step, to, to_step, rows, columns);
  if (bytes == 4) transpose_32(from, from_step, to, to_step, rows, columns);
  if (bytes == 8) transpose_64(from, from_step, to, to_step, rows, columns);
}
