/* attention_mma: the products of attention_ptx.h on tensor cores (PTX ISA 7.0: mma.m16n8k16 of
 * 16-bit elements, m16n8k8 of tf32; sm_80). A warp has `micro` rows, 16 or 32. */
#ifndef FT_KERNELS_ATTENTION_MMA_H
#define FT_KERNELS_ATTENTION_MMA_H
#include "kernels/attention_lanes.h"
#include "kernels/attention_padded.h"

/* sum[4] += a[4] b[2], fragments of one warp: 16 x 8 results, over 16 (32-bit: 8) steps. */
void attention_mma(float *sum, const unsigned *a, const unsigned *b);
/* Four 8 x 8 matrices of 16 bits: lane i names row i % 8 of matrix i / 8. */
void attention_matrices(unsigned *four, SHARED void *row);
void attention_matrices_across(unsigned *four, SHARED void *row); /* transposed */

enum { MAX_STEPS = 8 };

ALWAYS Floats scratch(Panel memory, int warp) { return 0; }

ALWAYS void round_all(unsigned *fragment) {
#pragma clang loop unroll(full)
  for (int e = 0; e < 4 && IS_WORD; e++) fragment[e] = attention_round(fragment[e]);
}

/* The left operand's fragments of the warp's rows, for all steps, which stay in registers. */
typedef struct {
  unsigned at[MAX_STEPS][MAX_ROWS / 2][4];
} Kept;

ALWAYS void read_left(unsigned *out, Panel rows, int row, int step, int lane) {
  attention_matrices(out,
                     rows + (row + lane % 16) * pitch() + step * DEPTH + lane / 16 * (DEPTH / 2));
  round_all(out);
}

ALWAYS void keep_rows(Kept *kept, Panel rows, int lane, int warp) {
#pragma clang loop unroll(full)
  for (int step = 0; step < attention_width() / DEPTH && attention_keeps(); step++)
#pragma clang loop unroll(full)
    for (int m = 0; m < attention_micro() / 16; m++)
      read_left(kept->at[step][m], rows, warp * attention_micro() + m * 16, step, lane);
}

/* s[rows][columns] at row tile m and column tile n. */
ALWAYS void add_product(float s[MAX_ROWS][MAX_COLUMNS], int m, int n, const unsigned *left,
                        const unsigned *right) {
  float sum[4] = {s[2 * m][2 * n], s[2 * m][2 * n + 1], s[2 * m + 1][2 * n],
                  s[2 * m + 1][2 * n + 1]};
  attention_mma(sum, left, right);
  s[2 * m][2 * n] = sum[0];
  s[2 * m][2 * n + 1] = sum[1];
  s[2 * m + 1][2 * n] = sum[2];
  s[2 * m + 1][2 * n + 1] = sum[3];
}

ALWAYS void multiply(float s[MAX_ROWS][MAX_COLUMNS], Panel rows, const Kept *kept, Panel columns,
                     int lane, int warp) {
#pragma clang loop unroll(full)
  for (int step = 0; step < attention_width() / DEPTH; step++) {
    unsigned left[MAX_ROWS / 2][4];
#pragma clang loop unroll(full)
    for (int m = 0; m < attention_micro() / 16; m++) {
      if (kept && attention_keeps())
        __builtin_memcpy(left[m], kept->at[step][m], sizeof left[m]);
      else
        read_left(left[m], rows, warp * attention_micro() + m * 16, step, lane);
    }
#pragma clang loop unroll(full)
    for (int n = 0; n < attention_tile() / 8; n += 2) {
      unsigned right[4]; /* of two tiles of columns */
      attention_matrices(right, columns + (n * 8 + lane % 8 + lane / 16 * 8) * pitch() +
                                    step * DEPTH + lane / 8 % 2 * (DEPTH / 2));
      round_all(right);
#pragma clang loop unroll(full)
      for (int m = 0; m < attention_micro() / 16; m++) {
        add_product(s, m, n, left[m], right);
        add_product(s, m, n + 1, left[m], right + 2);
      }
    }
  }
}

ALWAYS void accumulate(float sum[MAX_ROWS][MAX_COLUMNS], float s[MAX_ROWS][MAX_COLUMNS],
                       Panel columns, Floats scratch, int lane) {
#pragma clang loop unroll(full)
  for (int step = 0; step < attention_tile() / DEPTH; step++) {
    unsigned left[MAX_ROWS / 2][4];
#pragma clang loop unroll(full)
    for (int m = 0; m < attention_micro() / 16; m++) turn_left(left[m], s, m, step);
#pragma clang loop unroll(full)
    for (int n = 0; n < attention_width() / 8; n += 2) {
      unsigned right[4];
      if (IS_WORD) {
        Panel at = columns + (step * 8 + lane % 4 * 2) * pitch() + n * 8 + lane / 4;
#pragma clang loop unroll(full)
        for (int e = 0; e < 4; e++) right[e] = at[e % 2 * pitch() + e / 2 * 8];
        round_all(right);
      } else {
        attention_matrices_across(right, columns + (step * 16 + lane % 16) * pitch() + n * 8 +
                                             lane / 16 * 8);
      }
#pragma clang loop unroll(full)
      for (int m = 0; m < attention_micro() / 16; m++) {
        add_product(sum, m, n, left[m], right);
        add_product(sum, m, n + 1, left[m], right + 2);
      }
    }
  }
}
#endif
