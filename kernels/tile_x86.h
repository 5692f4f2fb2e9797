/* tile_x86: a register tile of sums, for products and convolutions. rows and vectors are constants wherever
 * this is inlined; the sums then stay in registers. */
#ifndef FT_KERNELS_TILE_X86_H
#define FT_KERNELS_TILE_X86_H
#include "kernels/gemm_host.h"
#include "kernels/lanes_x86.h"

typedef Lanes TileSums[GEMM_MAX_ROWS][GEMM_MAX_VECTORS];

/* Steps of k that a loop takes before it counts: a step of narrow registers has few multiply-adds for the instructions that count and
 * find rows. */
#ifdef __AVX512F__
enum { TILE_STEPS = 1 };
#else
enum { TILE_STEPS = 4 };
#endif

ALWAYS void tile_begin(int rows, int vectors, TileSums sum) {
#pragma clang loop unroll(full)
  for (int i = 0; i < rows; i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < vectors; j++) sum[i][j] = (Lanes)0.0f;
}

/* The vectors of b in a step of k. */
ALWAYS void tile_right(int vectors, const float *restrict b, Lanes right[GEMM_MAX_VECTORS]) {
#pragma clang loop unroll(full)
  for (int j = 0; j < vectors; j++) right[j] = *(const LooseLanes *)(b + j * GEMM_LANES);
}

/* One step of k: a[i * a_row] of row i, and the vectors at b. */
ALWAYS void tile_add(int rows, int vectors, TileSums sum, const float *restrict a, int64_t a_row,
                     const float *restrict b) {
  Lanes right[GEMM_MAX_VECTORS];
  tile_right(vectors, b, right);
#pragma clang loop unroll(full)
  for (int i = 0; i < rows; i++) {
    Lanes left = (Lanes)a[i * a_row];
#pragma clang loop unroll(full)
    for (int j = 0; j < vectors; j++) sum[i][j] += left * right[j];
  }
}

/* Stores the sums, rows `stride` apart, or with `adds` adds them to those of earlier parts of k: sums of sums have smaller errors
 * than one that goes on. */
ALWAYS void tile_end(int rows, int vectors, const TileSums sum, float *restrict tile, int64_t stride, bool adds) {
#pragma clang loop unroll(full)
  for (int i = 0; i < rows; i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < vectors; j++) {
      LooseLanes *to = (LooseLanes *)(tile + i * stride + j * GEMM_LANES);
      *to = adds ? *to + sum[i][j] : sum[i][j];
    }
}

/* A tile that no epilogue takes goes to where the result has it: rows `pitch` apart. Its own rows are whole vectors. */
ALWAYS void tile_copy(float *to, int64_t pitch, const float *tile, int64_t stride, int64_t rows,
                      int64_t columns) {
  for (int64_t i = 0; i < rows; i++) {
    int64_t j = 0;
    for (; j + LANES <= columns; j += LANES) lanes_store(to + i * pitch + j, lanes_load(tile + i * stride + j));
    if (j < columns) lanes_store_first(to + i * pitch + j, lanes_load(tile + i * stride + j), columns - j);
  }
}
#endif
