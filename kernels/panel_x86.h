/* panel_x86: blocks of 16 by 16 elements, transposed on the way from an operand to a packed panel. */
#ifndef FT_KERNELS_PANEL_X86_H
#define FT_KERNELS_PANEL_X86_H
#include "kernels/lanes_x86.h"

/* The sixteen lanes of two vectors, chosen as the instructions that do it in one cycle choose. */
#define CHOOSE(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#define LOW_SINGLES 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define HIGH_SINGLES 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define LOW_PAIRS 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define HIGH_PAIRS 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define LOW_HALVES 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define HIGH_HALVES 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#define EVEN_QUARTERS 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#define ODD_QUARTERS 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31

/* Of so many rows, a multiple of four, elements and pairs are exchanged within quarters of four rows: y[i + 4 g] has
 * columns i, i + 4, i + 8, i + 12 of rows 4 g ... */
ALWAYS void exchange_in_quarters(int rows, const Lanes *row, Lanes *y) {
  Lanes x[16];
#pragma clang loop unroll(full)
  for (int i = 0; i < rows / 2; i++) {
    x[2 * i] = CHOOSE(row[2 * i], row[2 * i + 1], LOW_SINGLES);
    x[2 * i + 1] = CHOOSE(row[2 * i], row[2 * i + 1], HIGH_SINGLES);
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < rows; i += 4) {
    y[i] = CHOOSE(x[i], x[i + 2], LOW_PAIRS);
    y[i + 1] = CHOOSE(x[i], x[i + 2], HIGH_PAIRS);
    y[i + 2] = CHOOSE(x[i + 1], x[i + 3], LOW_PAIRS);
    y[i + 3] = CHOOSE(x[i + 1], x[i + 3], HIGH_PAIRS);
  }
}

/* Sixteen rows become sixteen columns, `width` apart: whole quarters are exchanged, too. */
ALWAYS void transpose_rows(const Lanes row[16], float *to, int64_t width) {
  Lanes y[16];
  exchange_in_quarters(16, row, y);
#pragma clang loop unroll(full)
  for (int i = 0; i < 4; i++) {
    Lanes a = CHOOSE(y[i], y[i + 4], LOW_HALVES), c = CHOOSE(y[i + 8], y[i + 12], LOW_HALVES);
    Lanes d = CHOOSE(y[i], y[i + 4], HIGH_HALVES), e = CHOOSE(y[i + 8], y[i + 12], HIGH_HALVES);
    *(LooseLanes *)(to + i * width) = CHOOSE(a, c, EVEN_QUARTERS);
    *(LooseLanes *)(to + (i + 4) * width) = CHOOSE(a, c, ODD_QUARTERS);
    *(LooseLanes *)(to + (i + 8) * width) = CHOOSE(d, e, EVEN_QUARTERS);
    *(LooseLanes *)(to + (i + 12) * width) = CHOOSE(d, e, ODD_QUARTERS);
  }
}

typedef float HalfLanes __attribute__((vector_size(32), aligned(4)));
#define FIRST_HALF(x) __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7)
#define QUARTERS(x, y, q) __builtin_shufflevector(x, y, 4 * q, 4 * q + 1, 4 * q + 2, 4 * q + 3, 4 * q + 16, 4 * q + 17, 4 * q + 18, 4 * q + 19)

/* Eight rows of 16 elements become sixteen columns of eight, `stride` apart, stored in their order: where they overlap, the
 * later one stays. */
ALWAYS void transpose_eight(const Lanes row[8], float *to, int64_t stride) {
  Lanes y[8];
  exchange_in_quarters(8, row, y);
#define COLUMNS(quarter)                                                                           \
  _Pragma("clang loop unroll(full)") for (int i = 0; i < 4; i++, to += stride)                     \
    *(HalfLanes *)to = QUARTERS(y[i], y[i + 4], quarter);
  COLUMNS(0)
  COLUMNS(1)
  COLUMNS(2)
  COLUMNS(3)
#undef COLUMNS
}

/* Transposes 16 rows of 16 elements, `stride` apart, to 16 columns `width` apart. */
ALWAYS void transpose_block(int type, const void *b, int64_t from, int64_t stride, float *to,
                            int64_t width) {
  Lanes row[16];
#pragma clang loop unroll(full)
  for (int i = 0; i < 16; i++) row[i] = lanes_load_as(type, b, from + i * stride);
  transpose_rows(row, to, width);
}
#endif
