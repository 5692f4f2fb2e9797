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

/* The next block of a thread's items [*begin, end), which it takes: neighbours with the same rows are one, so that it copies these
 * once, while it has `most` strips at most. */
static __attribute__((noinline)) Block gemm_next_block(const GemmProduct *p, int64_t *begin, int64_t end, int64_t most) {
  Block block = gemm_block(p, (*begin)++);
  for (; *begin < end; ++*begin) {
    Block next = gemm_block(p, *begin);
    bool is_near = next.batch == block.batch && next.tile_row == block.tile_row;
    if (!is_near || next.last_strip - block.strip > most) break;
    block.last_strip = next.last_strip;
  }
  return block;
}

/* The lines of what the epilogue of a tile reads and writes, which is seldom in a near cache: the processor waits for few of
 * them at once, so that they come while the tile is summed. Their number in ahead[]; a tile's sums and two more fit behind them. */
enum { GEMM_MOST_AHEAD = (GEMM_NEAR + 1) * GEMM_MAX_VECTORS + 2 };
ALWAYS int gemm_ahead(const GemmProduct *p, void *const *args, int64_t batch, int64_t row, int64_t rows, int64_t column,
                      int64_t columns, GemmAhead *ahead) {
  int count = 0;
  for (int i = 0; i < GEMM_NEAR && p->near[i]; i++) {
    int64_t bytes = p->near[i] % 16;
    const char *at = (const char *)args[p->near[i] / 16] + ((batch * p->m + row) * p->n + column) * bytes;
    for (int64_t j = 0; j < columns * bytes; j += 64) ahead[count++] = (GemmAhead){at + j, p->n * bytes, rows};
  }
  return count;
}

/* What becomes of `rows` rows of sums at (row, column), `width` apart. */
ALWAYS void gemm_x86_finish(const GemmProduct *p, void *const *args, int64_t batch, int64_t row,
                            int64_t rows, int64_t column, int64_t columns, const float *tile,
                            int64_t width) {
  if (p->epilogue) {
    p->epilogue(args + p->is_packed, batch, row, column, rows, columns, tile, width);
    return;
  }
  float *c = (float *)args[p->arg_c] + (batch * p->m + row) * p->n + column;
  tile_copy(c, p->n, tile, width, rows, columns);
}
#endif
