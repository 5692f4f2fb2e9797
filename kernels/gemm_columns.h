/* gemm_columns: sums of a product's columns, over all rows, of what the epilogue makes of each
 * element. The result is not read again: every thread adds up the rows of its four columns, the
 * lanes and warps that share columns are combined in a fixed order, and each tile leaves its
 * partial sums in the workspace. A small second launch (gemm_column) adds those of all tiles, in a
 * fixed order too. The numbers of a column are plain sums, then three for each pair of moments:
 * some element of the column (the shift), the sum of the differences from it, and the sum of their
 * squares. So nothing cancels, however far the mean is from zero (Chan, Golub, LeVeque 1983). Each
 * tile has a shift of its own. Some of the plain ones are the largest of the column's sizes, |x|, in place of a sum: both
 * begin with 0. */
#ifndef FT_KERNELS_GEMM_COLUMNS_H
#define FT_KERNELS_GEMM_COLUMNS_H

int gemm_column_threads(void); /* of a block of gemm_column */
/* The shifts of columns 4 * group to 4 * group + 3: what the epilogue makes of these elements of a
 * row. */
void gemm_shift4(void *const *args, REAL *columns, int batch, int row, int group, VALUE a, VALUE b,
                 VALUE c, VALUE d);
/* Makes results of a column's numbers, once they cover all rows. */
void gemm_finish_column(void *const *args, const REAL *numbers, int column);

ALWAYS int numbers(void) { return gemm_totals() + 3 * gemm_moments(); }
ALWAYS int is_shift(int number) {
  return number >= gemm_totals() && (number - gemm_totals()) % 3 == 0;
}
ALWAYS int is_maximum(int number) {
  return number >= gemm_totals() - gemm_maxima() && number < gemm_totals();
}
/* Two parts of a number that is no shift. A NaN stays. */
ALWAYS REAL joined_parts(int number, REAL a, REAL b) {
  if (is_maximum(number) && a > b) return a;
  if (is_maximum(number) && b >= a) return b;
  return a + b; /* a sum, or NaN */
}
ALWAYS int row_tiles(void) { return (gemm_m() + gemm_tile_m() - 1) / gemm_tile_m(); }
/* In the workspace: [number][tiles along the rows][columns of all batches]. */
ALWAYS int part_place(int number, int tile, int column) {
  return (number * classes() * row_tiles() + tile) * gemm_batches() * gemm_n() + column;
}

/* Combines the `columns` of all threads to a tile's numbers. `memory` is shared memory that is
 * free, with room for the numbers of all warps. */
ALWAYS void store_columns(void *const *args, Sums memory, const Where *w, Columns *columns) {
  int tile = gemm_tile_n(), groups = tile / 4, lanes = groups < 32 ? groups : 32;
  int warp = w->thread / 32, lane = w->thread % 32, across = groups / lanes;
  int down = threads() / 32 / across; /* warps that share a column */
#pragma clang loop unroll(full)
  for (int i = 0; i < numbers(); i++) {
    Four own;
#pragma clang loop unroll(full)
    for (int e = 0; e < 4; e++) {
      own[e] = columns->at[i][e];
#pragma clang loop unroll(full)
      for (int mask = lanes; mask < 32 && !is_shift(i); mask *= 2)
        own[e] = joined_parts(i, own[e], __nvvm_shfl_sync_bfly_f32(-1, own[e], mask, 31));
    }
    int place = (i * down + warp / across) * tile + (warp % across * lanes + lane) * 4;
    if (lane < lanes) *(SHARED Four *)(memory + place) = own;
  }
  meet();
  int number_of_class = w->batch_split % classes();
  int row_tile = number_of_class * row_tiles() + w->row0 / gemm_tile_m();
#pragma clang loop unroll(disable)
  for (int g = w->thread; g < numbers() * tile; g += threads()) {
    int i = g / tile, column = g % tile;
    if (w->column0 + column >= gemm_n()) continue;
    REAL total = memory[i * down * tile + column];
#pragma clang loop unroll(full)
    for (int d = 1; d < down; d++)
      if (!is_shift(i)) total = joined_parts(i, total, memory[(i * down + d) * tile + column]);
    int place = w->batch * gemm_n() + w->column0 + column;
    gemm_workspace(args)[part_place(i, row_tile, place)] = total;
  }
}

/* ── the second launch ───────────────────────────────────────────────────────────────────────── */

enum { COLUMNS_OF_A_BLOCK = 8 }; /* 32 bytes, a sector of memory */

/* Converts a tile's moments to the first tile's shift. */
ALWAYS void add_moments(const REAL *parts, int first, int tile, REAL shift, REAL *number) {
  int left = gemm_m() - tile * gemm_tile_m();
  REAL rows = (REAL)(left < gemm_tile_m() ? left : gemm_tile_m());
  REAL away = parts[part_place(first, tile, 0)] - shift;
  REAL sum = parts[part_place(first + 1, tile, 0)];
  number[first + 1] += sum + rows * away;
  number[first + 2] += parts[part_place(first + 2, tile, 0)] + away * (sum + sum + rows * away);
}

/* Eight neighbouring columns; each thread has some of the tiles of one. */
__attribute__((always_inline)) void gemm_column(void *const *args, SHARED void *shared, int block,
                                                int thread) {
  int all = gemm_batches() * gemm_n(), tiles = classes() * row_tiles();
  int warp = thread / 32, lane = thread % 32, down = gemm_column_threads() / COLUMNS_OF_A_BLOCK;
  int own = block * COLUMNS_OF_A_BLOCK + thread % COLUMNS_OF_A_BLOCK;
  int column = own < all ? own : all - 1;
  const REAL *parts = gemm_workspace(args) + column;
  Sums memory = (Sums)shared;
  REAL number[MAX_NUMBERS];
#pragma clang loop unroll(full)
  for (int i = 0; i < numbers(); i++) number[i] = is_shift(i) ? parts[part_place(i, 0, 0)] : 0;
#pragma clang loop unroll_count(4)
  for (int tile = thread / COLUMNS_OF_A_BLOCK; tile < tiles; tile += down) {
#pragma clang loop unroll(full)
    for (int i = 0; i < gemm_totals(); i++) number[i] = joined_parts(i, number[i], parts[part_place(i, tile, 0)]);
#pragma clang loop unroll(full)
    for (int i = gemm_totals(); i < numbers(); i += 3)
      add_moments(parts, i, tile, number[i], number);
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < numbers(); i++) {
#pragma clang loop unroll(full)
    for (int mask = COLUMNS_OF_A_BLOCK; mask < 32 && !is_shift(i); mask *= 2)
      number[i] = joined_parts(i, number[i], __nvvm_shfl_sync_bfly_f32(-1, number[i], mask, 31));
    if (lane < COLUMNS_OF_A_BLOCK)
      memory[(warp * numbers() + i) * COLUMNS_OF_A_BLOCK + lane] = number[i];
  }
  __nvvm_bar_sync(0);
  if (thread >= COLUMNS_OF_A_BLOCK || own >= all) return;
#pragma clang loop unroll(disable)
  for (int w = 1; w < gemm_column_threads() / 32; w++)
#pragma clang loop unroll(full)
    for (int i = 0; i < numbers(); i++)
      if (!is_shift(i))
        number[i] = joined_parts(i, number[i], memory[(w * numbers() + i) * COLUMNS_OF_A_BLOCK + lane]);
  gemm_finish_column(args, number, column);
}
#endif
