/* attention_fma: the products of attention_ptx.h in f32 as it is. A warp's 32 lanes are 4 x 8; a
 * lane has every fourth of the warp's rows and every eighth column, and four features side by side
 * out of every 32. Panels are read as float4 without bank conflicts. Weights go to the following
 * product through a scratch of their warp's own. */
#ifndef FT_KERNELS_ATTENTION_FMA_H
#define FT_KERNELS_ATTENTION_FMA_H
#include "kernels/attention_padded.h"

enum { ROW_LANES = 8, SCRATCH_PAD = 8 };
typedef int Kept;

ALWAYS int rows_each(void) { return attention_micro() / 4; }
ALWAYS int columns_each(void) { return attention_tile() / 8; }
ALWAYS int features_each(void) { return attention_width() / 8; }
ALWAYS int own_row(int lane, int i) { return lane / 8 + i * 4; }
ALWAYS int own_column(int lane, int j) { return lane % 8 + j * 8; }
ALWAYS int own_feature(int lane, int j) { return j / 4 * 32 + lane % 8 * 4 + j % 4; }
ALWAYS void keep_rows(Kept *kept, Panel rows, int lane, int warp) {}

ALWAYS void round_weights(float s[MAX_ROWS][MAX_COLUMNS]) {}

ALWAYS int scratch_pitch(void) { return attention_tile() + SCRATCH_PAD; }
ALWAYS Floats scratch(Panel memory, int warp) {
  return statistics(memory, 2) + warp * attention_micro() * scratch_pitch();
}

ALWAYS void multiply(float s[MAX_ROWS][MAX_COLUMNS], Panel rows, const Kept *kept, Panel columns,
                     int lane, int warp) {
  rows += (warp * attention_micro() + own_row(lane, 0)) * pitch();
  columns += own_column(lane, 0) * pitch();
#pragma clang loop unroll_count(2)
  for (int d = 0; d < attention_width(); d += 4) {
    Four left[MAX_ROWS];
#pragma clang loop unroll(full)
    for (int i = 0; i < rows_each(); i++) left[i] = *(SHARED Four *)(rows + i * 4 * pitch() + d);
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j++) {
      Four right = *(SHARED Four *)(columns + j * 8 * pitch() + d);
#pragma clang loop unroll(full)
      for (int i = 0; i < rows_each(); i++)
#pragma clang loop unroll(full)
        for (int e = 0; e < 4; e++) s[i][j] += left[i][e] * right[e];
    }
  }
}

ALWAYS void accumulate(float sum[MAX_ROWS][MAX_COLUMNS], float s[MAX_ROWS][MAX_COLUMNS],
                       Panel columns, Floats scratch, int lane) {
  __nvvm_bar_warp_sync(0xffffffffu); /* the scratch has been read */
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j++)
      scratch[own_row(lane, i) * scratch_pitch() + own_column(lane, j)] = s[i][j];
  __nvvm_bar_warp_sync(0xffffffffu);
  scratch += own_row(lane, 0) * scratch_pitch();
  columns += own_feature(lane, 0);
#pragma clang loop unroll(disable)
  for (int k = 0; k < attention_tile(); k += 4) {
    Four left[MAX_ROWS];
#pragma clang loop unroll(full)
    for (int i = 0; i < rows_each(); i++)
      left[i] = *(SHARED Four *)(scratch + i * 4 * scratch_pitch() + k);
#pragma clang loop unroll(full)
    for (int e = 0; e < 4; e++)
#pragma clang loop unroll(full)
      for (int j = 0; j < features_each(); j += 4) {
        Four right = *(SHARED Four *)(columns + (k + e) * pitch() + j / 4 * 32);
#pragma clang loop unroll(full)
        for (int i = 0; i < rows_each(); i++)
#pragma clang loop unroll(full)
          for (int f = 0; f < 4; f++) sum[i][j + f] += left[i][e] * right[f];
      }
  }
}
#endif
