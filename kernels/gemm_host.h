/* gemm_host: how kernels/gemm_x86.c cuts a product into tiles: for ftc, which chooses the tile and
 * writes a GemmProduct into the artifact, and for the kernel itself. A vector here is always 16
 * floats; on narrower machines LLVM makes it of several registers, and the tile has fewer of them.
 */
#ifndef FT_KERNELS_GEMM_HOST_H
#define FT_KERNELS_GEMM_HOST_H
#include "kernels/operand_host.h"
#include <stdbool.h>

enum { GEMM_LANES = 16, GEMM_MAX_ROWS = 14, GEMM_MAX_VECTORS = 4, GEMM_MAX_PANEL = 1 << 16 };
enum { GEMM_BLOCK_DEPTH = 224, GEMM_BLOCK_TILES = 8, GEMM_BLOCK_COLUMNS = 256 };
enum { GEMM_FEW = 4 };         /* so many rows read a matrix where it lies: gemm_is_few */
enum { GEMM_BF16_ROWS = 256 }; /* of a block of bf16: as many tiles as have so many rows */

typedef struct {
  int rows, vectors; /* of a register tile */
  /* 0, and a work item is one tile; or it is a block of so many tiles down and across, and sums are
   * taken `depth` steps of k at a time */
  int64_t depth, down, across;
  int64_t work; /* work items */
} GemmTile;

/* tile[i * stride + j] = or, with `adds`, += sum over k of a's row i by b's column j.
 * gemm_tile_t12x2 is for 12 rows, 2 vectors of columns, and an a that is stored [k, m] (t) or
 * [m, k] (n), whose rows are a_step apart; b's rows are b_k apart. Meanwhile a line at `ahead` and
 * each ahead_step bytes behind it, one for each k, comes into the cache. */
typedef void GemmTileKernel(const float *a, int64_t a_step, const float *b, int64_t b_k, int64_t k,
                            float *tile, int64_t stride, bool adds, const char *ahead,
                            int64_t ahead_step);
/* Takes the tile of results at (row, column) of product `batch`: rows by columns, `stride` apart.
 */
typedef void GemmEpilogue(void *const *args, int64_t batch, int64_t row, int64_t column,
                          int64_t rows, int64_t columns, const float *tile, int64_t stride);

/* Ways to multiply bf16 (kernels/gemm_bf16_x86.c): GEMM_WIDENED is to widen it to f32 where vdpbf16ps is
 * the slower way. */
enum { GEMM_DPBF16 = 1, GEMM_AMX = 2, GEMM_WIDENED = 4 };

/* What ftc says of one product; codegen/host_gemm.c writes it field by field in this order. */
typedef struct {
  int64_t batch, m, n, k;
  int64_t ta, tb; /* a is stored [k, m]; b is stored [n, k] */
  int64_t rows, vectors;
  int64_t type;                /* of a and b: OPERAND_... */
  int64_t may_use;             /* GEMM_DPBF16 | GEMM_AMX | …, less what --disable names */
  int64_t in_place;            /* panels of b are read where they lie: see gemm_in_place */
  int64_t depth, down, across; /* of a block: see GemmTile */
  int64_t arg_a, arg_b, arg_c; /* where in args; arg_c without an epilogue only */
  GemmTileKernel *tile[4];     /* + 1: the rows at the bottom; + 2: the columns at the right */
  GemmEpilogue *epilogue;      /* NULL: the sums are the result */
} GemmProduct;

/* Panels of b that are contiguous, and whose rows do not all start at one address modulo a page,
 * need no packing. Then items go along the rows of tiles, so that a thread has whole rows of the
 * result: a gradient's rows are then in the cache of the core that updates the same rows. Else
 * items go down the columns, and a thread packs each panel once. */
static inline bool gemm_in_place(int64_t n, int64_t k, bool tb) {
  return !tb && (n % 256 != 0 || k <= 8);
}

/* Cycles of one tile: multiply-adds and loads at two a cycle, no faster than the latency of a chain
 * of sums, plus what a tile costs besides. `split`: registers that hold one vector. */
static inline int64_t gemm_tile_cycles(int64_t rows, int64_t vectors, int64_t k, int split) {
  int64_t multiplies = rows * vectors * split, loads = rows + vectors * split;
  int64_t each = multiplies > loads ? multiplies : loads;
  each = each > 8 ? each : 8;
  return each * k / 2 + 24 + 3 * rows * vectors * split;
}

/* Few rows by a matrix that is read once, where it lies (gemm_few_x86.c): narrow ones, and those of f32 that no cache of a core holds and
 * whose columns are contiguous. */
static inline bool gemm_is_few(int64_t m, int64_t n, int64_t k, bool ta, bool tb, int64_t type) {
  if (m > GEMM_FEW || (ta && tb && m > 1)) return false;
  return type != OPERAND_F32 || (tb && n * k >= 1 << 18);
}

/* A gradient of weights sums over many samples, and a's columns are far apart in memory, so that
 * they would compete for few sets of a cache. Therefore tiles share copies of a block of both
 * operands. They also do where operands are narrower than f32 and have to be widened. */
static inline bool gemm_is_deep(int64_t m, int64_t n, int64_t k, bool ta, bool is_narrow) {
  return is_narrow || (ta && k >= 256 && m >= 32 && n >= 32) || k * GEMM_LANES > GEMM_MAX_PANEL;
}

/* Parts of `most` tiles at most, as equal as can be. */
static inline int64_t gemm_part(int64_t tiles, int64_t most) {
  int64_t parts = (tiles + most - 1) / most;
  return (tiles + parts - 1) / parts;
}

/* Chooses the blocks of a deep product: large enough to be worth copying, and at least FEW of them
 * if that is possible, for the threads to share. */
static inline void gemm_choose_blocks(GemmTile *tile, int64_t batch, int64_t m, int64_t n,
                                      int64_t k, int64_t most_tiles) {
  enum { FEW = 8 };
  int64_t width = tile->vectors * GEMM_LANES, parts = (k + GEMM_BLOCK_DEPTH - 1) / GEMM_BLOCK_DEPTH;
  int64_t down = (m + tile->rows - 1) / tile->rows, across = (n + width - 1) / width;
  tile->depth = (k + parts - 1) / parts;
  tile->down = gemm_part(down, most_tiles);
  tile->across = gemm_part(across, GEMM_BLOCK_COLUMNS / width);
  for (;;) {
    tile->work = batch * ((down + tile->down - 1) / tile->down) *
                 ((across + tile->across - 1) / tile->across);
    if (tile->work >= FEW || (tile->down <= 3 && tile->across == 1)) return;
    if (tile->across > 1 && tile->across * width >= tile->down * tile->rows)
      tile->across = (tile->across + 1) / 2;
    else if (tile->down > 3)
      tile->down = (tile->down + 1) / 2;
    else
      tile->across = (tile->across + 1) / 2;
  }
}

/* The best tile for batch products of m x k by k x n, on registers of vector_bytes (16, 32, 64). */
static inline GemmTile gemm_choose(int64_t batch, int64_t m, int64_t n, int64_t k, bool ta,
                                   int64_t type, int vector_bytes) {
  GemmTile best = {0};
  bool is_deep = gemm_is_deep(m, n, k, ta, type != OPERAND_F32);
  int split = vector_bytes >= 64 ? 1 : 64 / vector_bytes, registers = vector_bytes >= 64 ? 29 : 15;
  int64_t least = INT64_MAX;
  for (int vectors = 1; vectors <= GEMM_MAX_VECTORS; vectors++)
    for (int rows = 1; rows <= GEMM_MAX_ROWS; rows++) {
      /* leaves registers free: with all in use, LLVM 19 rotates the sums through copies */
      if (rows * vectors * split + vectors * split + 1 > registers && rows > 1) break;
      int64_t width = vectors * GEMM_LANES;
      if (!is_deep && k * width > GEMM_MAX_PANEL) continue;
      int64_t down = m / rows, across = n / width, bottom = m % rows;
      int64_t right = (n % width + GEMM_LANES - 1) / GEMM_LANES;
      int64_t cycles = down * across * gemm_tile_cycles(rows, vectors, k, split);
      if (bottom) cycles += across * gemm_tile_cycles(bottom, vectors, k, split);
      if (right) cycles += down * gemm_tile_cycles(rows, right, k, split);
      if (bottom && right) cycles += gemm_tile_cycles(bottom, right, k, split);
      if (cycles < least) {
        least = cycles;
        best.rows = rows;
        best.vectors = vectors;
        best.work = batch * (down + !!bottom) * (across + !!right);
      }
    }
  if (is_deep && best.rows)
    gemm_choose_blocks(&best, batch, m, n, k,
                       type == OPERAND_BF16 ? GEMM_BF16_ROWS / best.rows : GEMM_BLOCK_TILES);
  return best;
}

/* The blocks of a product of few rows: of whole lines of b, where registers are wide. */
static inline GemmTile gemm_choose_few(int64_t batch, int64_t m, int64_t n, int64_t k, int vector_bytes) {
  GemmTile tile = {.rows = (int)m, .vectors = vector_bytes >= 64 ? GEMM_MAX_VECTORS : 1};
  int64_t columns = (n + GEMM_LANES - 1) / GEMM_LANES;
  if (tile.vectors > columns) tile.vectors = (int)columns;
  gemm_choose_blocks(&tile, batch, m, n, k, GEMM_BLOCK_TILES);
  return tile;
}

/* Work items [begin, end) of a product: tiles, or blocks of tiles. */
void gemm_run(const GemmProduct *product, void *const *args, int64_t begin, int64_t end);
/* Of few rows and narrow operands, where b lies; false: this is not such a product. */
bool gemm_few_run(const GemmProduct *product, void *const *args, int64_t begin, int64_t end);
/* Of operands of bf16, by the processor's instructions for them; false: it has none. */
bool gemm_bf16_run(const GemmProduct *product, void *const *args, int64_t begin, int64_t end);
#endif
