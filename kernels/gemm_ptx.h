/* gemm_ptx: the body of kernels/gemm_ptx.c (REAL float) and gemm64_ptx.c (REAL double): matrix
 * products and convolutions as implicit matrix products on the ordinary arithmetic units,
 * specialised by ftc, which defines the constants and callbacks of kernels/gemm_operand.h and those
 * below. The algorithm is the usual blocked one (Volkov and Demmel 2008; Kerr et al., CUTLASS,
 * 2017).
 *
 * A block makes a tile of tile_m x tile_n results. Panels of `steps` of k go through shared memory,
 * `stages` of them, loaded by cp.async while earlier ones are multiplied; an operand that is
 * computed or converted goes through registers instead. A panel lies as the operand does in memory:
 * `deep` [tile][steps + 4], else flat [steps][tile]; both are read 16 bytes at a time without bank
 * conflicts. The threads form `slices`: each slice sums its own steps of every panel for the whole
 * tile, and each of its threads keeps micro_m x micro_n results in registers; so a small tile keeps
 * a whole block busy. The slices' sums are added in shared memory, in order. With splits, several
 * blocks share k too and leave their sums in the workspace, and gemm_combine adds those in order.
 * There are no atomics, so the bits never depend on timing. */
#include "kernels/gemm_operand.h"

#define ELEMENT REAL
#define SUM_PAD 4
#include "kernels/gemm_panel.h"

enum { MAX_MICRO = 8 };
typedef struct {
  REAL at[MAX_MICRO][MAX_MICRO];
} Total;
#include "kernels/gemm_loop.h"

/* The rows of a deep panel are 16 bytes apart. */
ALWAYS int pitch(int tile, int deep) {
  return deep ? gemm_steps() + 16 / (int)sizeof(ELEMENT) : tile;
}
ALWAYS int panel_size(int tile, int deep) {
  return (deep ? tile : gemm_steps()) * pitch(tile, deep);
}
ALWAYS int panel_place(int tile, int deep, int along, int k) {
  return deep ? along * pitch(tile, deep) + k : k * pitch(tile, deep) + along;
}

ALWAYS int threads(void) {
  return gemm_slices() * (gemm_tile_m() / gemm_micro_m()) * (gemm_tile_n() / gemm_micro_n());
}

/* ── a thread's part of the tile ─────────────────────────────────────────────────────────────── */

/* Place along the tile of micro i of a lane: neighbours where the panel has neighbours there. */
ALWAYS int spread(int lane, int lanes, int i, int deep, int micro) {
  if (deep) return lane + i * lanes;
  int run = micro % 4 ? 2 : 4;
  return lane * run + i % run + i / run * (run * lanes);
}
ALWAYS int spread_row(int lane, int i) {
  return spread(lane, gemm_tile_m() / gemm_micro_m(), i, gemm_a_deep(), gemm_micro_m());
}
ALWAYS int spread_column(int lane, int j) {
  return spread(lane, gemm_tile_n() / gemm_micro_n(), j, gemm_b_deep(), gemm_micro_n());
}

/* A warp covers 4 x 8 lanes of the tile where it can: then a load of shared memory fetches most. */
ALWAYS void lane_of(int thread, int *row, int *column) {
  int rows = gemm_tile_m() / gemm_micro_m(), columns = gemm_tile_n() / gemm_micro_n();
  int t = thread % (rows * columns);
  if (columns % 8 || rows % 4) {
    *row = t / columns;
    *column = t % columns;
    return;
  }
  int warp = t / 32, across = columns / 8;
  *row = t % 32 / 8 + warp / across * 4;
  *column = t % 8 + warp % across * 8;
}

/* Four steps of k of a deep panel for micro i. */
ALWAYS void read_deep(Panel panel, int place, REAL *four) {
  Four all = *(SHARED Four *)(panel + place);
#pragma clang loop unroll(full)
  for (int s = 0; s < 4; s++) four[s] = all[s];
}
/* All micros at one step of k of a flat panel. */
ALWAYS void read_flat(Panel panel, int lane, int lanes, int micro, REAL *values) {
  if (micro % 4) {
    Two both = *(SHARED Two *)(panel + spread(lane, lanes, 0, 0, micro));
    values[0] = both[0];
    values[1] = both[1];
    return;
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < micro; i += 4) read_deep(panel, spread(lane, lanes, i, 0, micro), values + i);
}

ALWAYS void clear(Total *sum) {
#pragma clang loop unroll(full)
  for (int i = 0; i < gemm_micro_m(); i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < gemm_micro_n(); j++) sum->at[i][j] = 0;
}

/* Four steps of k of two deep panels: the numbers of all rows are in registers, and those of one
 * column at a time, since there are no registers for those of all columns. */
ALWAYS void multiply_deep(REAL left[MAX_MICRO][4], Panel b, int column, int k, Total *sum) {
#pragma clang loop unroll(full)
  for (int j = 0; j < gemm_micro_n(); j++) {
    REAL right[4];
    read_deep(b, spread_column(column, j) * pitch(gemm_tile_n(), 1) + k, right);
#pragma clang loop unroll(full)
    for (int s = 0; s < 4; s++)
#pragma clang loop unroll(full)
      for (int i = 0; i < gemm_micro_m(); i++) sum->at[i][j] += left[i][s] * right[s];
  }
}

/* sum += a panel's part: deep operands are read four steps ahead, flat ones step by step. */
ALWAYS void multiply(Panel a, Panel b, int thread, Total *sum) {
  int slice = thread / (threads() / gemm_slices()), row, column;
  lane_of(thread, &row, &column);
  int micro_m = gemm_micro_m(), micro_n = gemm_micro_n(), depth = gemm_steps() / gemm_slices();
  int rows = gemm_tile_m() / micro_m, columns = gemm_tile_n() / micro_n;
#pragma clang loop unroll(disable)
  for (int g = 0; g < depth / 4; g++) {
    int k = slice * depth + g * 4;
    REAL left[MAX_MICRO][4], right[MAX_MICRO][4];
#pragma clang loop unroll(full)
    for (int i = 0; i < micro_m && gemm_a_deep(); i++)
      read_deep(a, spread_row(row, i) * pitch(gemm_tile_m(), 1) + k, left[i]);
    if (gemm_a_deep() && gemm_b_deep()) {
      multiply_deep(left, b, column, k, sum);
      continue;
    }
#pragma clang loop unroll(full)
    for (int j = 0; j < micro_n && gemm_b_deep(); j++)
      read_deep(b, spread_column(column, j) * pitch(gemm_tile_n(), 1) + k, right[j]);
#pragma clang loop unroll(full)
    for (int s = 0; s < 4; s++) {
      REAL one_a[MAX_MICRO], one_b[MAX_MICRO];
      if (!gemm_a_deep())
        read_flat(a + (k + s) * pitch(gemm_tile_m(), 0), row, rows, micro_m, one_a);
      if (!gemm_b_deep())
        read_flat(b + (k + s) * pitch(gemm_tile_n(), 0), column, columns, micro_n, one_b);
#pragma clang loop unroll(full)
      for (int i = 0; i < micro_m; i++)
#pragma clang loop unroll(full)
        for (int j = 0; j < micro_n; j++)
          sum->at[i][j] +=
              (gemm_a_deep() ? left[i][s] : one_a[i]) * (gemm_b_deep() ? right[j][s] : one_b[j]);
    }
  }
}

/* A part holds some of the micros of every lane; the rows of one micro are contiguous. */
ALWAYS int row_of(int pass, int local) {
  int rows = gemm_tile_m() / gemm_micro_m(), some = gemm_micro_m() / gemm_passes();
  return spread_row(local % rows, pass * some + local / rows);
}

ALWAYS void stage_sums(Sums memory, int thread, int pass, const Total *sum) {
  int micro_m = gemm_micro_m(), micro_n = gemm_micro_n(), rows = gemm_tile_m() / micro_m;
  int height = gemm_tile_m() / gemm_passes(), some = micro_m / gemm_passes();
  int pitch = gemm_tile_n() + SUM_PAD, slice = thread / (threads() / gemm_slices()), row, column;
  lane_of(thread, &row, &column);
#pragma clang loop unroll(full)
  for (int i = 0; i < micro_m; i++) {
    if (i / some != pass) continue;
#pragma clang loop unroll(full)
    for (int j = 0; j < micro_n; j++)
      memory[(slice * height + i % some * rows + row) * pitch + spread_column(column, j)] =
          sum->at[i][j];
  }
}
