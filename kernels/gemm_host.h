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
/* Blocks are of so many numbers of a (rows times depth, as they lie in a copy). */
/* A copied tile of a has so many numbers for each k, of which the rows are the first; and tiles do not begin at multiples of a
 * page: else their rows of one k would compete for few lines of a cache while they are copied. */
enum { GEMM_LEFT_STEP = 16, GEMM_LEFT_STEP_NARROW = 6, GEMM_LEFT_APART = 16 };
enum { GEMM_LEFT = 1 << 17, GEMM_LEFT_NARROW = 1 << 16, GEMM_LEFT_ROWS = 512 };
enum { GEMM_SUM_ROWS = 256, GEMM_SUM_COLUMNS = 512, GEMM_SUM_ROWS_GRADIENT = 512, GEMM_SUM_COLUMNS_GRADIENT = 256, GEMM_SUM_ROWS_NARROW = 192, GEMM_SUM_COLUMNS_NARROW = 768 }; /* at most, where k has several parts */
enum { GEMM_FLAT_ROWS = 384 }; /* gemm_is_flat */
enum { GEMM_PACKED_DEPTH = 1024, GEMM_PACKED_DEPTH_GRADIENT = 256, GEMM_PACKED_DEPTH_NARROW = 384 }; /* narrow: of registers below 64 bytes */
enum { GEMM_PACKED_MOST = 16 << 20 }; /* bytes of a packed b at most */
/* Of a block, at 32 multiply-adds a cycle, since each copies its part of both operands; and of the first few, so that two threads share a
 * product of 64 x 128 x 256. (A thread that has neighbours takes them as one.) */
enum { GEMM_BLOCK_CYCLES = 1 << 18, GEMM_SMALL_CYCLES = 1 << 15, GEMM_SMALL_BLOCKS = 4 };
enum { GEMM_NEAR = 4 };
enum { GEMM_FEW = 4 };         /* so many rows read a matrix where it lies: gemm_is_few */
enum { GEMM_BF16_ROWS = 256 }; /* of a block of bf16: as many tiles as have so many rows */

typedef struct {
  int rows, vectors; /* of a register tile */
  /* 0, and a work item is one tile; or it is a block of so many tiles down and across, and sums are
   * taken `depth` steps of k at a time */
  int64_t depth, down, across;
  int64_t work; /* work items */
  int64_t cycles; /* about, of one product of the batch, in one thread and from near caches */
  bool is_packed; /* b is packed before: gemm_pack_run */
} GemmTile;

/* tile[i * stride + j] = or, with `adds`, += sum over k of a's row i by b's column j.
 * gemm_tile_t12x2 is for 12 rows, 2 vectors of columns, and an a that is stored [k, m] (t) or
 * [m, k] (n), whose rows are a_step apart, or packed (p): [k][16], [k][6] where registers are narrow. b's rows are b_k apart, and of a packed a the tile's width.
 * Meanwhile cache lines come that are wanted soon: one with each k, or of a packed a with each two; where registers are narrow one with
 * each four. First come `count` of them that are `step` bytes apart, then those of the next GemmAhead. The last has k of them at least. */
typedef struct {
  const char *at;
  int64_t step, count; /* bytes; lines: more than 0 */
} GemmAhead;
typedef void GemmTileKernel(const float *a, int64_t a_step, const float *b, int64_t b_k, int64_t k,
                            float *tile, int64_t stride, bool adds, const GemmAhead *ahead);
/* Takes the tile of results at (row, column) of product `batch`: rows by columns, `stride` apart.
 */
typedef void GemmEpilogue(void *const *args, int64_t batch, int64_t row, int64_t column,
                          int64_t rows, int64_t columns, const float *tile, int64_t stride);

/* Ways to multiply bf16 (kernels/gemm_bf16_x86.c, and kernels/attention_pairs.h): GEMM_WIDENED is to widen it to f32 where
 * vdpbf16ps is the slower way. */
enum { GEMM_DPBF16 = 1, GEMM_AMX = 2, GEMM_WIDENED = 4 };
/* Those of GEMM_DPBF16 and GEMM_AMX that the processor has; GEMM_WIDENED: the first is the slower way on it. Tiles of AMX
 * belong to the process from the first call on. */
int gemm_bf16_found(void);
/* The way to take of those that may be used: GEMM_AMX, GEMM_DPBF16, or 0: widened to f32. */
int gemm_bf16_way(int64_t may_use);

/* An argument of so many bytes an element whose lines are prefetched while its tile is summed; 0: none. What is small is in a
 * near cache anyway. */
static inline int64_t gemm_near(int64_t argument, int64_t elements, int64_t bytes) {
  return elements * bytes > 1 << 16 ? argument * 16 + bytes : 0;
}

/* What ftc says of one product; codegen/host_gemm.c writes it field by field in this order. */
typedef struct {
  int64_t batch, m, n, k;
  int64_t ta, tb; /* a is stored [k, m]; b is stored [n, k] */
  int64_t rows, vectors;
  int64_t type;                /* of a and b: OPERAND_... */
  int64_t may_use;             /* GEMM_DPBF16 | GEMM_AMX | …, less what --disable names */
  int64_t in_place;            /* panels of b are read where they lie: see gemm_in_place */
  int64_t depth, down, across; /* of a block: see GemmTile */
  int64_t is_packed;           /* args[0] has op(b) in panels: see gemm_pack_run */
  int64_t arg_a, arg_b, arg_c; /* where in args; arg_c without an epilogue only */
  int64_t near[GEMM_NEAR];     /* arguments that the epilogue reads or writes at the element itself: see gemm_near */
  GemmTileKernel *tile[4];     /* + 1: the rows at the bottom; + 2: the columns at the right */
  GemmEpilogue *epilogue;      /* NULL: the sums are the result */
} GemmProduct;

/* Panels of b that are contiguous, and whose rows do not all start at one address modulo a page, need no packing. */
static inline bool gemm_in_place(int64_t n, int64_t k, bool tb) {
  return !tb && (n % 256 != 0 || k <= 8);
}

/* Then items go along the rows of tiles where the result is what a thread should have whole rows of: a gradient of weights, whose
 * rows the same core updates, and what is larger than b. Else they go down the columns, and a thread reads, or packs, each panel
 * once. */
static inline bool gemm_goes_along(const GemmProduct *p) { return p->in_place && (p->ta || p->m >= p->k); }

/* Cycles of one tile: multiply-adds and loads at two a cycle, no faster than the latency of a chain
 * of sums, plus what a tile costs besides, and where registers are narrow a step of k does: a tile of fewer rows copies more of a
 * and takes more instructions for the same multiply-adds. `split`: registers that hold one vector. */
static inline int64_t gemm_tile_cycles(int64_t rows, int64_t vectors, int64_t k, int split) {
  int64_t multiplies = rows * vectors * split, loads = rows + vectors * split;
  int64_t each = multiplies > loads ? multiplies : loads;
  each = (each > 8 ? each : 8) + (split > 1);
  return each * k / 2 + 24 + 3 * rows * vectors * split;
}

/* Few rows by a matrix that is read once, where it lies (gemm_few_x86.c): narrow ones, and those of f32 that no cache of a core holds and
 * whose columns are contiguous. */
static inline bool gemm_is_few(int64_t m, int64_t n, int64_t k, bool ta, bool tb, int64_t type) {
  if (m > GEMM_FEW || (ta && tb && m > 1)) return false;
  return type != OPERAND_F32 || (tb && n * k >= 1 << 18);
}

/* So many steps of k at least pay for copies of the operands: fewer where many rows share a copy, and the instructions of a narrow tile
 * that finds its operands where they lie are many. */
static inline int64_t gemm_least_depth(int64_t m, bool is_wide) { return is_wide || m < 256 ? 128 : 32; }

/* Tiles share copies of a block of both operands where copying pays: of a gradient of weights, which sums over many samples and
 * whose a has its columns far apart in memory, so that they would compete for few sets of a cache; of many rows; of fewer where
 * sums are long and registers 64 bytes wide. They also do where operands are narrower than f32 and have to be widened. */
static inline bool gemm_is_deep(int64_t m, int64_t n, int64_t k, bool ta, int64_t type, bool is_wide) {
  if (type != OPERAND_F32 || k * GEMM_LANES > GEMM_MAX_PANEL) return true;
  if (k < gemm_least_depth(m, is_wide) || n < 32) return false;
  return ta ? m >= 48 : m >= 128 || (is_wide && m >= 48 && k >= 2048);
}

/* A gradient of few rows by many columns: a block has all rows, so that no two of them copy the same part of b. */
static inline bool gemm_is_flat(int64_t m, int64_t n, int64_t k, bool ta, int64_t type) {
  return type == OPERAND_F32 && ta && m <= GEMM_FLAT_ROWS && n >= 2 * m && n >= 256 && k > GEMM_PACKED_DEPTH_GRADIENT;
}

/* Of many rows a matrix is packed once, for all threads, before they multiply, unless the copy would be large. Copying an
 * element takes a fraction of what it takes to multiply it with so many rows. */
static inline bool gemm_is_packed(int64_t batch, int64_t m, int64_t n, int64_t k, bool ta, int64_t type, bool is_wide) {
  bool is_worth = m >= 256 && n >= 32 && k >= gemm_least_depth(m, is_wide) && !gemm_is_flat(m, n, k, ta, type);
  return is_worth && batch * (n + GEMM_LANES) * k * 4 <= GEMM_PACKED_MOST;
}

/* Columns, and zeros up to a vector. */
static inline int64_t gemm_width(int64_t columns) { return (columns + GEMM_LANES - 1) / GEMM_LANES * GEMM_LANES; }

/* Parts of `most` tiles at most, as equal as can be. */
static inline int64_t gemm_part(int64_t tiles, int64_t most) {
  int64_t parts = (tiles + most - 1) / most;
  return (tiles + parts - 1) / parts;
}

/* Chooses the blocks of a deep product: large enough to be worth copying, and several of them
 * if that is possible, for the threads to share. Where all blocks read one copy of b, rows are cut rather than columns, as each
 * block copies its rows of a; where a block has all rows and packs b by itself, columns are. */
typedef enum { GEMM_CUT_LONGER, GEMM_CUT_ROWS, GEMM_CUT_COLUMNS } GemmCut;
static inline void gemm_choose_blocks(GemmTile *tile, int64_t batch, int64_t m, int64_t n, int64_t depth,
                                      int64_t k, int64_t most_tiles, int64_t most_columns, GemmCut cut) {
  int64_t cycles = batch * m * n / 32 * k, few = cycles / GEMM_BLOCK_CYCLES, enough = cut == GEMM_CUT_ROWS ? 16 : 8;
  int64_t small = cycles / GEMM_SMALL_CYCLES < GEMM_SMALL_BLOCKS ? cycles / GEMM_SMALL_CYCLES : GEMM_SMALL_BLOCKS;
  few = few > enough ? enough : few < small ? small : few;
  int64_t width = tile->vectors * GEMM_LANES, parts = (k + depth - 1) / depth;
  int64_t down = (m + tile->rows - 1) / tile->rows, across = (n + width - 1) / width;
  tile->depth = (k + parts - 1) / parts;
  tile->down = gemm_part(down, most_tiles);
  tile->across = gemm_part(across, most_columns / width);
  for (;;) {
    tile->work = batch * ((down + tile->down - 1) / tile->down) *
                 ((across + tile->across - 1) / tile->across);
    if (tile->work >= few || (tile->down <= 3 && tile->across == 1)) return;
    bool is_wider = tile->across * width >= tile->down * tile->rows;
    if (tile->across > 1 && (cut == GEMM_CUT_ROWS ? tile->down <= 8 : cut == GEMM_CUT_COLUMNS || is_wider))
      tile->across = (tile->across + 1) / 2;
    else if (tile->down > 3)
      tile->down = (tile->down + 1) / 2;
    else
      tile->across = (tile->across + 1) / 2;
  }
}

/* Blocks whose copy of a fills half of a small second-level cache. While k has one part, sums are complete when a tile is, and
 * a block has all columns, so that a is copied once. A gradient's operands are [k, ...]: few steps of k make wide blocks, of
 * which more is read in one go. */
static inline void gemm_choose_deep(GemmTile *tile, int64_t batch, int64_t m, int64_t n, int64_t k, bool ta,
                                    int64_t type, bool is_wide, bool is_packed) {
  int64_t depth = !is_wide ? GEMM_PACKED_DEPTH_NARROW : ta ? GEMM_PACKED_DEPTH_GRADIENT : GEMM_PACKED_DEPTH;
  int64_t left = is_wide ? GEMM_LEFT : GEMM_LEFT_NARROW, step = is_wide ? GEMM_LEFT_STEP : GEMM_LEFT_STEP_NARROW;
  int64_t rows = !is_wide ? GEMM_SUM_ROWS_NARROW : ta ? GEMM_SUM_ROWS_GRADIENT : GEMM_SUM_ROWS;
  int64_t columns = !is_wide ? GEMM_SUM_COLUMNS_NARROW : ta ? GEMM_SUM_COLUMNS_GRADIENT : GEMM_SUM_COLUMNS;
  if (!is_wide && gemm_is_flat(m, n, k, ta, type)) { /* as deep as there is room for all rows */
    int64_t down = (m + tile->rows - 1) / tile->rows, room = (left / down - GEMM_LEFT_APART) / step;
    if (room < depth) depth = room;
    columns = rows * columns / GEMM_FLAT_ROWS, rows = GEMM_FLAT_ROWS;
  }
  int64_t parts = (k + depth - 1) / depth;
  depth = (k + parts - 1) / parts;
  if (parts == 1) rows = GEMM_LEFT_ROWS, columns = gemm_width(n) + GEMM_MAX_VECTORS * GEMM_LANES;
  int64_t tiles = left / (step * depth + GEMM_LEFT_APART), most = rows / tile->rows;
  if (tiles < most) most = tiles;
  bool has_all = !is_packed && (m + tile->rows - 1) / tile->rows <= most; /* a block has all rows */
  bool is_shared = is_packed && (!is_wide || (parts > 1 && !ta));
  GemmCut cut = is_shared ? GEMM_CUT_ROWS : has_all ? GEMM_CUT_COLUMNS : GEMM_CUT_LONGER;
  gemm_choose_blocks(tile, batch, m, n, depth, k, most, columns, cut);
}

/* Those of bf16, which AMX or AVX512-BF16 multiply if the processor has them, else gemm_x86.c does: whole tiles of AMX, and
 * parts of k that are multiples of what it takes in a step. */
enum { GEMM_PAIR_ROWS = 32, GEMM_PAIR_DEPTH = 32 };
static inline void gemm_choose_pairs(GemmTile *tile, int64_t batch, int64_t m, int64_t n, int64_t k) {
  int64_t parts = (k + GEMM_PACKED_DEPTH - 1) / GEMM_PACKED_DEPTH, depth = (k + parts - 1) / parts;
  if (parts > 1) depth = (depth + GEMM_PAIR_DEPTH - 1) / GEMM_PAIR_DEPTH * GEMM_PAIR_DEPTH;
  tile->rows = GEMM_PAIR_ROWS;
  tile->vectors = n > GEMM_LANES ? 2 : 1;
  gemm_choose_blocks(tile, batch, m, n, depth, k, GEMM_BF16_ROWS / GEMM_PAIR_ROWS,
                     parts == 1 ? gemm_width(n) + GEMM_LANES : GEMM_SUM_COLUMNS_GRADIENT, GEMM_CUT_LONGER);
  tile->depth = depth;
  tile->down *= GEMM_PAIR_ROWS / 8;
  tile->rows = 8;
}

/* The best tile for batch products of m x k by k x n, on registers of vector_bytes (16, 32, 64). */
static inline GemmTile gemm_choose(int64_t batch, int64_t m, int64_t n, int64_t k, bool ta,
                                   int64_t type, int vector_bytes) {
  GemmTile best = {0};
  bool is_deep = gemm_is_deep(m, n, k, ta, type, vector_bytes >= 64);
  bool is_packed = is_deep && gemm_is_packed(batch, m, n, k, ta, type, vector_bytes >= 64);
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
  best.cycles = least;
  if (is_deep && best.rows && type == OPERAND_BF16 && vector_bytes >= 64)
    gemm_choose_pairs(&best, batch, m, n, k);
  else if (is_deep && best.rows)
    gemm_choose_deep(&best, batch, m, n, k, ta, type, vector_bytes >= 64, is_packed);
  best.is_packed = is_packed;
  return best;
}

/* The blocks of a product of few rows: of whole lines of b, where registers are wide. */
static inline GemmTile gemm_choose_few(int64_t batch, int64_t m, int64_t n, int64_t k, int vector_bytes) {
  GemmTile tile = {.rows = (int)m, .vectors = vector_bytes >= 64 ? GEMM_MAX_VECTORS : 1};
  int64_t columns = (n + GEMM_LANES - 1) / GEMM_LANES;
  if (tile.vectors > columns) tile.vectors = (int)columns;
  gemm_choose_blocks(&tile, batch, m, n, GEMM_BLOCK_DEPTH, k, GEMM_BLOCK_TILES, GEMM_BLOCK_COLUMNS, GEMM_CUT_LONGER);
  return tile;
}

/* How op(b) is packed: for each product of the batch and each part of k, panels of a strip of columns, [depth][width] in
 * f32, one behind the other; only the last strip is narrower, and ends with zeros up to a vector. Where the strip's panel of
 * the part that begins at `first` is, in floats: */
static inline int64_t gemm_packed_columns(const GemmProduct *p) {
  return gemm_width(p->n);
}
static inline int64_t gemm_panel_at(const GemmProduct *p, int64_t batch, int64_t first, int64_t depth, int64_t strip) {
  return (batch * p->k + first) * gemm_packed_columns(p) + strip * p->vectors * GEMM_LANES * depth;
}
static inline int64_t gemm_packed_bytes(const GemmProduct *p) {
  return p->batch * p->k * gemm_packed_columns(p) * 4;
}
/* Items of the packing: strips where b is [n, k], else rows of b, so many at a time, so that each item reads on. */
enum { GEMM_PACK_ROWS = 32 };
static inline int64_t gemm_pack_items(const GemmProduct *p) {
  int64_t width = p->vectors * GEMM_LANES;
  int64_t parts = (p->k + p->depth - 1) / p->depth, groups = (p->depth + GEMM_PACK_ROWS - 1) / GEMM_PACK_ROWS;
  return p->batch * (p->tb ? (p->n + width - 1) / width : parts * groups);
}

/* Packs items [begin, end) of b: args[0] to args[1]. */
void gemm_pack_run(const GemmProduct *product, void *const *args, int64_t begin, int64_t end);
/* Work items [begin, end) of a product: tiles, or blocks of tiles. */
void gemm_run(const GemmProduct *product, void *const *args, int64_t begin, int64_t end);
/* Of few rows and narrow operands, where b lies; false: this is not such a product. */
bool gemm_few_run(const GemmProduct *product, void *const *args, int64_t begin, int64_t end);
/* Of operands of bf16, by the processor's instructions for them; false: it has none. */
bool gemm_bf16_run(const GemmProduct *product, void *const *args, int64_t begin, int64_t end);
bool gemm_bf16_pack_run(const GemmProduct *product, void *const *args, int64_t begin, int64_t end);
#endif
