/* gemm_blocks: what the kernels of products that work on blocks of tiles share: which block an item is, and
 * what becomes of its sums. */
#ifndef FT_KERNELS_GEMM_BLOCKS_H
#define FT_KERNELS_GEMM_BLOCKS_H
#include "kernels/gemm_host.h"
#include "kernels/lanes_x86.h"
#include "kernels/tile_x86.h"

ALWAYS const char *operand_address(const GemmProduct *p, const void *x, int64_t at) {
  return (const char *)x + at * operand_bytes(p->type);
}

/* Rows of tiles and strips of columns of one product of the batch: [tile_row, last_row) by [strip,
 * last_strip). */
typedef struct {
  int64_t batch, tile_row, last_row, strip, last_strip;
} Block;

ALWAYS Block gemm_block(const GemmProduct *p, int64_t item) {
  int64_t width = p->vectors * GEMM_LANES;
  int64_t tiles = (p->m + p->rows - 1) / p->rows, strips = (p->n + width - 1) / width;
  int64_t down = (tiles + p->down - 1) / p->down, across = (strips + p->across - 1) / p->across;
  int64_t at = item % (down * across);
  Block block = {.batch = item / (down * across),
                 .tile_row = at / across * p->down,
                 .strip = at % across * p->across};
  block.last_row = block.tile_row + p->down < tiles ? block.tile_row + p->down : tiles;
  block.last_strip = block.strip + p->across < strips ? block.strip + p->across : strips;
  return block;
}

/* What becomes of `rows` rows of sums at (row, column), `width` apart. */
ALWAYS void gemm_x86_finish(const GemmProduct *p, void *const *args, int64_t batch, int64_t row,
                            int64_t rows, int64_t column, int64_t columns, const float *tile,
                            int64_t width) {
  if (p->epilogue) {
    p->epilogue(args, batch, row, column, rows, columns, tile, width);
    return;
  }
  float *c = (float *)args[p->arg_c] + (batch * p->m + row) * p->n + column;
  tile_copy(c, p->n, tile, width, rows, columns);
}
#endif
