/* attention_wgmma: the products of attention on Hopper's tensor cores (wgmma.mma_async, sm_90a), in
 * f16 and bf16. A warpgroup, four warps, has 64 rows. Its first product, scores = rows x columns
 * over features, reads both operands from shared memory. Its second one, sums += weights x columns
 * over columns, takes the weights from the registers in which the first one left the scores.
 *
 * Panels are [width / 64][rows][64 features]: rows of 128 bytes, in which piece i of 16 bytes is
 * stored at place i xor (row modulo 8), the 128-byte swizzle of the descriptors. They begin at
 * multiples of 1024 bytes. The first product reads them along their rows, the second across.
 *
 * Instructions are asynchronous: their registers must not be touched between `wgmma_begin` and the
 * `wgmma_wait` that covers them. LLVM does not know that. So `hold` names the registers before the
 * first and after the second: LLVM then moves no computation of an operand behind the one, and no
 * use of a result before the other (PTX ISA 8.0: wgmma). */
#ifndef FT_KERNELS_ATTENTION_WGMMA_H
#define FT_KERNELS_ATTENTION_WGMMA_H
#include "kernels/attention_lanes.h"
#include "kernels/mbarrier.h"
#include "kernels/wgmma.h"

enum {
  GROUP_THREADS = 128,
  GROUP_ROWS = 64,
  LINE = 64, /* elements of 128 bytes */
  MAX_SUMS = 128,
  MAX_STEPS = 8,
  MAX_DEPTHS = 16 /* of features */
};
/* The weights of a tile, in the form of left operands. */
typedef struct {
  unsigned at[MAX_STEPS][4];
} Weights;

/* sum[tile / 2] = rows x columns, or += with `adds`, for one warpgroup: a descriptor of each for every 16 features. */
void attention_multiply(float *sum, const uint64_t *rows, const uint64_t *columns, int adds);
/* sum[features / 2] = left x columns, or += with `adds`: a descriptor for every 16 columns of the tile. */
void attention_accumulate(float *sum, const Weights *left, const uint64_t *columns, int adds);

ALWAYS int groups_of_rows(void) { return attention_warps() / 4; }
ALWAYS int place(int rows, int row, int d) {
  return (d / LINE * rows + row) * LINE + ((d / 8 % 8 ^ row % 8) * 8 | d % 8);
}

/* ── order ───────────────────────────────────────────────────────────────────────────────────── */

#define HOLD_FOUR(constraint, x, y, z, w)                                                          \
  __asm__ volatile("" : "+" constraint(x), "+" constraint(y), "+" constraint(z), "+" constraint(w))

ALWAYS void hold(float x[MAX_ROWS][MAX_COLUMNS], int columns) {
#pragma clang loop unroll(full)
  for (int j = 0; j < columns; j += 2) HOLD_FOUR("f", x[0][j], x[0][j + 1], x[1][j], x[1][j + 1]);
}
ALWAYS void hold_weights(Weights *w) {
#pragma clang loop unroll(full)
  for (int step = 0; step < attention_tile() / DEPTH; step++)
    HOLD_FOUR("r", w->at[step][0], w->at[step][1], w->at[step][2], w->at[step][3]);
}

/* A barrier of the threads of one warpgroup. */
ALWAYS void group_barrier(int group) {
  __asm__ volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

/* ── products ────────────────────────────────────────────────────────────────────────────────── */

ALWAYS uint64_t describe(Panel panel, int rows) { return wgmma_descriptor(panel, rows * 128); }
/* What to add to a descriptor for 16 features, or 16 rows, further. */
ALWAYS uint64_t along(int step, int rows) {
  return (uint64_t)(step / 4 * rows * 128 + step % 4 * 32) >> 4;
}
ALWAYS uint64_t across(int step) { return (uint64_t)(step * DEPTH * 128) >> 4; }

ALWAYS void load_sums(float *sum, float s[MAX_ROWS][MAX_COLUMNS], int columns) {
#pragma clang loop unroll(full)
  for (int r = 0; r < 2 * columns; r++) sum[r] = s[r / 2 % 2][r / 4 * 2 + r % 2];
}
ALWAYS void store_sums(const float *sum, float s[MAX_ROWS][MAX_COLUMNS], int columns) {
#pragma clang loop unroll(full)
  for (int r = 0; r < 2 * columns; r++) s[r / 2 % 2][r / 4 * 2 + r % 2] = sum[r];
}

/* So that descriptors of rows do not stay in registers over a loop. */
ALWAYS Panel recomputed(Panel rows) {
  uint32_t at = (uint32_t)(uintptr_t)rows;
  __asm__ volatile("" : "+r"(at));
  return (Panel)(uintptr_t)at;
}

/* scores = rows x columns, of a warpgroup's 64 rows and a tile of columns. The old contents of s are
 * no operand: LLVM would move their copies between the fence and the instruction. */
ALWAYS void multiply(float s[MAX_ROWS][MAX_COLUMNS], Panel rows, Panel columns) {
  float sum[MAX_SUMS];
  uint64_t left = describe(attention_width() > LINE ? recomputed(rows) : rows, block_rows());
  uint64_t right = describe(columns, attention_tile()), lefts[MAX_DEPTHS], rights[MAX_DEPTHS];
#pragma clang loop unroll(full)
  for (int step = 0; step < (attention_features() + DEPTH - 1) / DEPTH; step++) {
    lefts[step] = left + along(step, block_rows());
    rights[step] = right + along(step, attention_tile());
  }
  attention_multiply(sum, lefts, rights, 0);
  store_sums(sum, s, columns_each());
}

/* sums += weights x a tile of columns. */
ALWAYS void accumulate(float s[MAX_ROWS][MAX_COLUMNS], const Weights *weights, Panel columns) {
  float sum[MAX_SUMS];
  uint64_t right = describe(columns, attention_tile()), rights[MAX_STEPS];
  load_sums(sum, s, features_each());
#pragma clang loop unroll(full)
  for (int step = 0; step < attention_tile() / DEPTH; step++) rights[step] = right + across(step);
  attention_accumulate(sum, weights, rights, 1);
  store_sums(sum, s, features_each());
}

ALWAYS void turn_weights(Weights *weights, float s[MAX_ROWS][MAX_COLUMNS]) {
#pragma clang loop unroll(full)
  for (int step = 0; step < attention_tile() / DEPTH; step++)
    turn_left(weights->at[step], s, 0, step);
}
#endif
