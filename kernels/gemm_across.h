/* gemm_across: what kernels share whose weights, the product's second operand, are packed in the order of fragments, with b's columns as
 * the tensor cores' 16 rows and a's rows as their 8 columns, so that a product of one to eight rows takes one instruction for 16 columns.
 * Included behind gemm_operand.h, with REAL float. A block's warps share tile_n columns, as gemm_warps_across() of them; the others share the steps of
 * k, as gemm_slices(), whose sums meet in shared memory in order, or the rows. */
#ifndef FT_KERNELS_GEMM_ACROSS_H
#define FT_KERNELS_GEMM_ACROSS_H

int gemm_row_tiles(void), gemm_column_tiles(void); /* of a warp: 8 rows of a, 16 columns of b each */
int gemm_warps_across(void), gemm_slices(void);
int gemm_tile_m(void), gemm_tile_n(void);
int gemm_blocks(void); /* of packed steps of k */

enum {
  LANES = 32,
  COLUMNS = 16, /* of a tile */
  ROWS = 8,     /* of an instruction */
  MOST_ROWS = 4, /* tiles of a warp */
  MOST_COLUMNS = 4,
  THREADS = 256, /* of a block */
  SUMS_PAD = 4   /* pairs of rows lie in different banks */
};
typedef unsigned Words __attribute__((vector_size(16), aligned(16)));

ALWAYS int tiles(void) { return (gemm_n() + COLUMNS - 1) / COLUMNS; }

typedef struct {
  float at[MOST_ROWS][MOST_COLUMNS][4];
} Total;

/* Lane 4 g + t has of rows 2t and 2t + 1 columns g and g + 8. */
ALWAYS void stage_sums(SHARED float *memory, int thread, int column0, int row0, const Total *total, float factor) {
  int lane = thread % LANES, pitch = gemm_tile_n() + SUMS_PAD;
#pragma clang loop unroll(full)
  for (int r = 0; r < gemm_row_tiles(); r++)
#pragma clang loop unroll(full)
    for (int c = 0; c < gemm_column_tiles(); c++)
#pragma clang loop unroll(full)
      for (int e = 0; e < 4; e++)
        memory[(row0 + r * ROWS + lane % 4 * 2 + e % 2) * pitch + column0 + c * COLUMNS + e / 2 * ROWS +
               lane / 4] = total->at[r][c][e] * factor;
}

ALWAYS void store_sums(void *const *args, SHARED float *memory, const Where *w) {
  int pitch = gemm_tile_n() + SUMS_PAD, across = gemm_tile_n() / 4;
  Columns none;
#pragma clang loop unroll(disable)
  for (int at = w->thread; at < gemm_tile_m() * across; at += THREADS) {
    int row = at / across, column = at % across * 4;
    if (w->row0 + row >= gemm_m() || w->column0 + column >= gemm_n()) continue;
    Four total = {0, 0, 0, 0};
#pragma clang loop unroll(full)
    for (int slice = 0; slice < gemm_slices(); slice++)
      total += *(SHARED Four *)(memory + (slice * gemm_tile_m() + row) * pitch + column);
    finish_group(args, w, w->row0 + row, w->column0 + column, total, &none);
  }
}
#endif
