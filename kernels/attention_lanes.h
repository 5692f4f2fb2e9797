/* attention_lanes: which elements of a tile a lane has where tensor cores multiply, by mma.sync or
 * by wgmma. A warp's sums of 16 x 8 are laid out so that two of them side by side are the left
 * operand for 16 steps of a following product: weights never leave their registers. In tf32 one
 * tile of sums is a left operand, if both operands take the steps in the order 0 2 4 6 1 3 5 7. */
#ifndef FT_KERNELS_ATTENTION_LANES_H
#define FT_KERNELS_ATTENTION_LANES_H
#include "kernels/attention_panel.h"

unsigned attention_round(unsigned element); /* 32-bit: f32 to tf32 */

enum { ROW_LANES = 4, DEPTH = IS_WORD ? 8 : 16 };

ALWAYS int rows_each(void) { return attention_micro() / 8; }
ALWAYS int columns_each(void) { return attention_tile() / 4; }
ALWAYS int features_each(void) { return (attention_features() + 15) / 16 * 4; }
ALWAYS int own_row(int lane, int i) { return lane / 4 + i * 8; }
ALWAYS int own_column(int lane, int j) { return j / 2 * 8 + lane % 4 * 2 + j % 2; }
ALWAYS int own_feature(int lane, int j) { return own_column(lane, j); }

/* The weights of step `step` as a left operand. */
ALWAYS void turn_left(unsigned *out, float s[MAX_ROWS][MAX_COLUMNS], int m, int step) {
#pragma clang loop unroll(full)
  for (int e = 0; e < 4; e++) {
    const float *row = s[2 * m + e % 2];
    if (IS_WORD)
      out[e] = attention_round(__builtin_bit_cast(unsigned, row[2 * step + e / 2]));
    else
      out[e] = attention_pair(row[4 * step + e / 2 * 2], row[4 * step + e / 2 * 2 + 1]);
  }
}

/* The inverse of turn_left for 16 bits: LLVM sees that the pairs are the same. */
ALWAYS void round_weights(float s[MAX_ROWS][MAX_COLUMNS]) {
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each() && !IS_WORD; i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j += 2) {
      unsigned pair = attention_pair(s[i][j], s[i][j + 1]);
      s[i][j] = attention_number(pair & 0xffff);
      s[i][j + 1] = attention_number(pair >> 16);
    }
}
#endif
