/* gemm_x86: c[b] = op(a[b]) op(b[b]) in f32 for the shapes that a training step has. Compiled to
 * machine code when ft is built, once for each x86-64 level whose registers are wide enough, and
 * linked into the artifacts that need it: one copy of the code serves all products. What is
 * particular to one, its epilogue, is called through its GemmProduct. A register tile sums over all
 * of k; then the epilogue has it: bias, activation, casts and stores are its, and reach memory
 * once. The work item is a tile, and a is read where it lies; or, where k is long, a block of tiles
 * that shares copies of both operands. Any split of the items gives the same bits: an element is
 * one sum, in the order of k. */
#include "kernels/gemm_blocks.h"
#include "kernels/panel_x86.h"
#include "kernels/tile_x86.h"

/* ── register tiles ─────────────────────────────────────────────────────────────────────────── */
/* k is at least 1. */
ALWAYS void sum_tile(int rows, int vectors, int64_t a_row, int64_t a_k, const float *restrict a,
                     const float *restrict b, int64_t b_k, int64_t k, float *restrict tile,
                     int64_t stride, bool adds, const char *ahead, int64_t ahead_step) {
  TileSums sum;
  tile_begin(rows, vectors, sum);
  if (adds) tile_resume(rows, vectors, sum, tile, stride);
#pragma clang loop unroll(disable)
  do {
    tile_add(rows, vectors, sum, a, a_row, b);
    __builtin_prefetch(ahead, 0, 2);
    ahead += ahead_step;
    a += a_k;
    b += b_k;
  } while (--k);
  tile_end(rows, vectors, sum, tile, stride);
}

/* Those that gemm_choose can choose; ld drops what an artifact does not use. */
#define TILE(rows, vectors)                                                                        \
  GemmTileKernel gemm_tile_t##rows##x##vectors;                                                    \
  void gemm_tile_t##rows##x##vectors(const float *a, int64_t a_step, const float *b, int64_t b_k,  \
                                     int64_t k, float *tile, int64_t stride, bool adds,            \
                                     const char *ahead, int64_t ahead_step) {                      \
    sum_tile(rows, vectors, 1, a_step, a, b, b_k, k, tile, stride, adds, ahead, ahead_step);       \
  }                                                                                                \
  GemmTileKernel gemm_tile_n##rows##x##vectors;                                                    \
  void gemm_tile_n##rows##x##vectors(const float *a, int64_t a_step, const float *b, int64_t b_k,  \
                                     int64_t k, float *tile, int64_t stride, bool adds,            \
                                     const char *ahead, int64_t ahead_step) {                      \
    sum_tile(rows, vectors, a_step, 1, a, b, b_k, k, tile, stride, adds, ahead, ahead_step);       \
  }
#include "kernels/tiles_x86.h"

/* ── panels of b ────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  int64_t first, depth;           /* steps of k */
  int64_t column, columns, width; /* of b; beyond `columns` come zeros */
} Part;

/* panel[i][width] = op(b)[first + i][column ...] for i < depth. `b` starts at the batch's. */
ALWAYS void pack_as(int type, const GemmProduct *p, const void *b, const Part *part, float *panel) {
  int64_t k = p->k, n = p->n, width = part->width, depth = part->depth;
  int64_t across = p->tb ? k : 1, down = p->tb ? 1 : n; /* in b: to the next column, the next k */
  int64_t whole = part->columns / GEMM_LANES * GEMM_LANES;
  int64_t deep = p->tb ? depth / GEMM_LANES * GEMM_LANES : 0, first = part->first * down;
  for (int64_t j = 0; j < whole; j += GEMM_LANES) {
    int64_t from = first + (part->column + j) * across;
    for (int64_t i = 0; i < deep; i += GEMM_LANES)
      transpose_block(type, b, from + i, k, panel + i * width + j, width);
    for (int64_t i = deep; i < depth; i++) {
      if (!p->tb) {
        *(Lanes *)(panel + i * width + j) = lanes_load_as(type, b, from + i * n);
        continue;
      }
      for (int64_t lane = 0; lane < GEMM_LANES; lane++)
        panel[i * width + j + lane] = lanes_at(type, b, from + lane * k + i);
    }
  }
  for (int64_t i = 0; whole < width && i < depth; i++)
    for (int64_t j = whole; j < width; j++)
      panel[i * width + j] = j < part->columns
                                 ? lanes_at(type, b, first + (part->column + j) * across + i * down)
                                 : 0.0f;
}

static void pack(const GemmProduct *p, const void *b, const Part *part, float *panel) {
  if (p->type == OPERAND_F32)
    pack_as(OPERAND_F32, p, b, part, panel);
  else if (p->type == OPERAND_BF16)
    pack_as(OPERAND_BF16, p, b, part, panel);
  else
    pack_as(OPERAND_F16, p, b, part, panel);
}

/* ── the product ────────────────────────────────────────────────────────────────────────────── */
/* Tiles [first, end) of one column of tiles of one product. */
static void column_of_tiles(const GemmProduct *p, void *const *args, int64_t batch, int64_t strip,
                            int64_t first, int64_t end, float *panel) {
  _Alignas(64) float tile[GEMM_MAX_ROWS * GEMM_MAX_VECTORS * GEMM_LANES];
  int64_t m = p->m, n = p->n, k = p->k, rows = p->rows, column = strip * p->vectors * GEMM_LANES;
  bool is_right = n - column < p->vectors * GEMM_LANES;
  int64_t columns = is_right ? n - column : p->vectors * GEMM_LANES;
  int64_t width = (columns + GEMM_LANES - 1) / GEMM_LANES * GEMM_LANES, b_k = n;
  const float *a = (const float *)args[p->arg_a] + batch * m * k;
  const float *b = (const float *)args[p->arg_b] + batch * k * n, *right = b + column;
  float *c = p->epilogue ? tile : (float *)args[p->arg_c] + batch * m * n + column;
  if (!p->in_place || columns < width) {
    pack(p, b, &(Part){0, k, column, columns, width}, panel);
    right = panel;
    b_k = width;
  }
  bool is_direct = !p->epilogue && columns == width; /* the tile goes where it belongs */
  for (int64_t i = first; i < end; i++) {
    int64_t row = i * rows;
    bool is_bottom = m - row < rows;
    p->tile[is_bottom + 2 * is_right](a + row * (p->ta ? 1 : k), p->ta ? m : k, right, b_k, k,
                                      is_direct ? c + row * n : tile, is_direct ? n : width, false,
                                      (const char *)right, 0);
    if (!is_direct)
      gemm_x86_finish(p, args, batch, row, is_bottom ? m - row : rows, column, columns, tile, width);
  }
}

/* ── blocks of tiles ────────────────────────────────────────────────────────────────────────── */
typedef struct {
  _Alignas(
      64) float left[GEMM_BLOCK_TILES][GEMM_BLOCK_DEPTH][GEMM_LANES]; /* of a, if it is [k, m] */
  _Alignas(64) float right[GEMM_BLOCK_DEPTH * GEMM_BLOCK_COLUMNS];    /* a panel for each strip */
  _Alignas(64) float sums[GEMM_BLOCK_TILES * GEMM_MAX_ROWS * GEMM_BLOCK_COLUMNS];
} BlockRoom;
_Static_assert(GEMM_MAX_ROWS <= (int)GEMM_LANES, "a row of `left` holds what a tile reads");
enum {
  AHEAD = 8
}; /* rows of an operand that are prefetched: hardware does not see the pattern */

/* Packs a: left[tile] is what the tile's kernel reads. If a is [k, m] that is [depth][16], and all
 * tiles are packed row by row, since rows are far apart; else it is [rows][depth]. is_end: this is
 * the last batch of a, behind which nothing may be read. */
ALWAYS void pack_left_as(int type, const GemmProduct *p, const void *a, bool is_end, int64_t first,
                         int64_t depth, const Block *block, BlockRoom *room) {
  int64_t m = p->m, rows = p->rows;
  for (int64_t k = 0; k < depth && p->ta; k++) {
    int64_t from = (first + k) * m, ahead = from + (k + AHEAD < depth ? AHEAD * m : 0);
    bool is_last = is_end && first + k + 1 == p->k; /* nothing behind it may be read */
    for (int64_t i = block->tile_row; i < block->last_row; i++) {
      float *to = room->left[i - block->tile_row][k];
      int64_t row = i * rows;
      __builtin_prefetch(operand_address(p, a, ahead + row));
      if (m - row >= GEMM_LANES || !is_last)
        *(Lanes *)to = lanes_load_as(type, a, from + row);
      else
        for (int64_t j = row; j < m; j++) to[j - row] = lanes_at(type, a, from + j);
    }
  }
  int64_t begin = block->tile_row * rows;
  int64_t end = block->last_row * rows < m ? block->last_row * rows : m;
  for (int64_t row = begin; row < end && !p->ta; row++) {
    float *to = room->left[(row - begin) / rows][0] + (row - begin) % rows * depth;
    int64_t from = row * p->k + first, k = 0;
    for (; k + GEMM_LANES <= depth; k += GEMM_LANES)
      *(LooseLanes *)(to + k) = lanes_load_as(type, a, from + k);
    for (; k < depth; k++) to[k] = lanes_at(type, a, from + k);
  }
}

static void pack_left(const GemmProduct *p, const void *a, bool is_end, int64_t first,
                      int64_t depth, const Block *block, BlockRoom *room) {
  if (p->type == OPERAND_F32)
    pack_left_as(OPERAND_F32, p, a, is_end, first, depth, block, room);
  else if (p->type == OPERAND_BF16)
    pack_left_as(OPERAND_BF16, p, a, is_end, first, depth, block, room);
  else
    pack_left_as(OPERAND_F16, p, a, is_end, first, depth, block, room);
}

/* Panels of b for all strips: each is [depth][width of the strip]. Those that are whole and lie in
 * rows of b are copied row by row. */
ALWAYS void pack_right_as(int type, const GemmProduct *p, const void *b, int64_t first,
                          int64_t depth, const Block *block, BlockRoom *room) {
  int64_t most = p->vectors * GEMM_LANES, n = p->n;
  int64_t whole = p->tb ? block->strip : n / most;
  if (whole > block->last_strip) whole = block->last_strip;
  for (int64_t k = 0; k < depth && block->strip < whole; k++) {
    int64_t from = (first + k) * n, ahead = from + (k + AHEAD < depth ? AHEAD * n : 0);
    float *to = room->right + k * most;
    for (int64_t j = block->strip; j < whole; j++, to += depth * most)
      for (int64_t at = 0; at < most; at += GEMM_LANES) {
        __builtin_prefetch(operand_address(p, b, ahead + j * most + at));
        *(Lanes *)(to + at) = lanes_load_as(type, b, from + j * most + at);
      }
  }
  for (int64_t j = whole; j < block->last_strip; j++) {
    int64_t column = j * most, columns = n - column < most ? n - column : most;
    int64_t width = (columns + GEMM_LANES - 1) / GEMM_LANES * GEMM_LANES;
    pack_as(type, p, b, &(Part){first, depth, column, columns, width},
            room->right + (j - block->strip) * depth * most);
  }
}

static void pack_right(const GemmProduct *p, const void *b, int64_t first, int64_t depth,
                       const Block *block, BlockRoom *room) {
  if (p->type == OPERAND_F32)
    pack_right_as(OPERAND_F32, p, b, first, depth, block, room);
  else if (p->type == OPERAND_BF16)
    pack_right_as(OPERAND_BF16, p, b, first, depth, block, room);
  else
    pack_right_as(OPERAND_F16, p, b, first, depth, block, room);
}

/* The cache lines of both operands that the block's next `depth` steps of k need. Each tile of the
 * current steps prefetches one column of them, so that packing finds them in the cache. */
typedef struct {
  const char *at;
  int64_t step; /* bytes */
} Ahead;

static Ahead line_ahead(const GemmProduct *p, const void *a, const void *b, int64_t next,
                        const Block *block, int64_t number) {
  int64_t from = block->tile_row * p->rows, to = block->last_row * p->rows;
  int64_t size = p->type == OPERAND_F32 ? 4 : 2, line = 64 / size;
  if (p->ta && next < p->k) {
    int64_t lines = ((to < p->m ? to : p->m) - from + line - 1) / line;
    if (number < lines)
      return (Ahead){operand_address(p, a, next * p->m + from + number * line), p->m * size};
    number -= lines;
  }
  int64_t most = p->vectors * GEMM_LANES, column = block->strip * most + number * line;
  if (p->tb || next >= p->k || column >= p->n || column >= block->last_strip * most)
    return (Ahead){b, 0};
  return (Ahead){operand_address(p, b, next * p->n + column), p->n * size};
}

static void gemm_run_block(const GemmProduct *p, void *const *args, const Block *block,
                           BlockRoom *room) {
  int64_t batch = block->batch, m = p->m, n = p->n, k = p->k, rows = p->rows, most = p->vectors * GEMM_LANES;
  const void *a = operand_address(p, args[p->arg_a], batch * m * k);
  const void *b = operand_address(p, args[p->arg_b], batch * k * n);
  bool is_copied = p->ta || p->type != OPERAND_F32;
  for (int64_t first = 0; first < k; first += p->depth) {
    int64_t depth = k - first < p->depth ? k - first : p->depth, number = 0;
    if (is_copied) pack_left(p, a, batch + 1 == p->batch, first, depth, block, room);
    pack_right(p, b, first, depth, block, room);
    for (int64_t j = block->strip; j < block->last_strip; j++) {
      int64_t column = j * most, columns = n - column < most ? n - column : most;
      int64_t width = (columns + GEMM_LANES - 1) / GEMM_LANES * GEMM_LANES;
      const float *right = room->right + (j - block->strip) * depth * most;
      for (int64_t i = block->tile_row; i < block->last_row; i++) {
        int64_t row = i * rows, at = (j - block->strip) * GEMM_BLOCK_TILES + i - block->tile_row;
        float *sums = room->sums + at * rows * most;
        const float *left =
            is_copied ? room->left[i - block->tile_row][0] : (const float *)a + row * k + first;
        Ahead ahead = line_ahead(p, a, b, first + depth, block, number++);
        p->tile[(m - row < rows) + 2 * (columns < most)](left,
                                                         p->ta       ? (int64_t)GEMM_LANES
                                                         : is_copied ? depth
                                                                     : k,
                                                         right, width, depth, sums, width,
                                                         first > 0, ahead.at, ahead.step);
        if (first + depth == k)
          gemm_x86_finish(p, args, batch, row, m - row < rows ? m - row : rows, column, columns, sums,
                          width);
      }
    }
  }
}

static __attribute__((noinline)) void run_blocks(const GemmProduct *p, void *const *args,
                                                 int64_t begin, int64_t end) {
  BlockRoom room;
  for (; begin < end; begin++) {
    Block all = gemm_block(p, begin), block = all;
    for (; block.tile_row < all.last_row; block.tile_row = block.last_row) {
      int64_t last = block.tile_row + GEMM_BLOCK_TILES;
      block.last_row = last < all.last_row ? last : all.last_row;
      gemm_run_block(p, args, &block, &room);
    }
  }
}

static __attribute__((noinline)) void run_tiles(const GemmProduct *p, void *const *args,
                                                int64_t begin, int64_t end) {
  _Alignas(64) float panel[GEMM_MAX_PANEL];
  int64_t width = p->vectors * GEMM_LANES;
  int64_t down = (p->m + p->rows - 1) / p->rows, across = (p->n + width - 1) / width;
  while (begin < end) {
    int64_t batch = begin / (down * across), at = begin % (down * across);
    int64_t left = down * across - at < end - begin ? down * across - at : end - begin;
    /* the tiles [first, last) of the strips [strip, strip_end) */
    int64_t first, last, strip, strip_end;
    if (!p->in_place) {
      strip = at / down, strip_end = strip + 1;
      first = at % down, last = first + left < down ? first + left : down;
    } else {
      first = at / across, strip = at % across;
      bool is_whole = strip == 0 && left >= across; /* rows of tiles */
      last = is_whole ? first + left / across : first + 1;
      strip_end = is_whole || strip + left > across ? across : strip + left;
    }
    begin += (last - first) * (strip_end - strip);
    for (; strip < strip_end; strip++) column_of_tiles(p, args, batch, strip, first, last, panel);
  }
}

void gemm_run(const GemmProduct *p, void *const *args, int64_t begin, int64_t end) {
  if (gemm_few_run(p, args, begin, end)) return;
  if (p->type == OPERAND_BF16 && gemm_bf16_run(p, args, begin, end)) return;
  if (p->depth)
    run_blocks(p, args, begin, end);
  else
    run_tiles(p, args, begin, end);
}
