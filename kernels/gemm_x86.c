/* gemm_x86: c[b] = op(a[b]) op(b[b]) in f32 for the shapes that a training step has. Compiled to
 * machine code when ft is built, once for each x86-64 level whose registers are wide enough, and
 * linked into the artifacts that need it: one copy of the code serves all products. What is
 * particular to one, its epilogue, is called through its GemmProduct. A register tile sums over all
 * of k; then the epilogue has it: bias, activation, casts and stores are its, and reach memory
 * once.
 *
 * Small products: the work item is a tile, a is read where it lies, and b too or from a panel. Large ones
 * (gemm_is_deep): the item is a block of tiles, with a packed for it. b is packed strip by strip beside
 * it, or, where many rows multiply by it, before, once for all threads (gemm_pack_run). The order of loops and copies is that of
 * Goto and van de Geijn: Anatomy of high-performance matrix multiplication, TOMS 34(3), 2008.
 * Any split of the items gives the same bits: an element is one sum, in the order of k. */
#include "kernels/gemm_blocks.h"
#include "kernels/panel_x86.h"
#include "kernels/tile_x86.h"

/* What depends on how wide registers are. UNROLL: as TILE_STEPS, of a packed a. */
#ifdef __AVX512F__
enum { LEFT_STEP = GEMM_LEFT_STEP, MOST_ROWS = GEMM_MAX_ROWS, TURNED = 16, UNROLL = 2 };
enum { GOES_AHEAD = false, GOES_RIGHT = 0 }; /* sums_ahead, goes_right */
#define UNKNOWN(pointer) __asm__("" : "+r"(pointer))
#else
enum { LEFT_STEP = GEMM_LEFT_STEP_NARROW, MOST_ROWS = 6, TURNED = 8, UNROLL = 4 };
enum { GOES_AHEAD = true, GOES_RIGHT = 256 };
#define UNKNOWN(pointer) (void)(pointer)
#endif

/* ── register tiles ─────────────────────────────────────────────────────────────────────────── */
/* Does `body` so many times, each with a line of `ahead`. */
#define WITH_LINES(times, ahead, body)                                                             \
  for (int64_t left = times; left > 0; ahead++) {                                                  \
    const char *line = ahead->at;                                                                  \
    int64_t count = ahead->count < left ? ahead->count : left;                                     \
    left -= count;                                                                                 \
    _Pragma("clang loop unroll(disable)") do {                                                     \
      body __builtin_prefetch(line);                                                               \
      line += ahead->step;                                                                         \
    } while (--count);                                                                             \
  }
ALWAYS void sum_tile(int rows, int vectors, int64_t a_row, int64_t a_k, const float *restrict a,
                     const float *restrict b, int64_t b_k, int64_t k, float *restrict tile,
                     int64_t stride, bool adds, const GemmAhead *ahead) {
  TileSums sum;
  tile_begin(rows, vectors, sum);
#pragma clang loop unroll(disable)
  for (; k % TILE_STEPS; k--, a += a_k, b += b_k) tile_add(rows, vectors, sum, a, a_row, b);
  WITH_LINES(k / TILE_STEPS, ahead, _Pragma("clang loop unroll(full)") for (int i = 0; i < TILE_STEPS; i++, a += a_k, b += b_k)
                 tile_add(rows, vectors, sum, a, a_row, b);)
  tile_end(rows, vectors, sum, tile, stride, adds);
}

/* The same of a packed a, [k][LEFT_STEP]. A processor that shares its core with another program is short of instructions rather
 * than of multiply-adds; so most elements of a are memory operands of the multiply-adds, which takes none to load them. The
 * compiler would load each once for all vectors; it does not know that both pointers are the same, nor that they keep step, as
 * an address of two registers would be an instruction again. All of them as memory operands would be more than two loads
 * a cycle, which is what AMD's processors do. */
ALWAYS void add_packed(int rows, int vectors, TileSums sum, const float *restrict a, const float *restrict twin,
                       const float *restrict b) {
  Lanes right[GEMM_MAX_VECTORS];
  tile_right(vectors, b, right);
#pragma clang loop unroll(full)
  for (int i = 0; i < rows; i++) {
    Lanes first = (Lanes)a[i], other = (Lanes)(i % 3 == 1 ? a : twin)[i];
#pragma clang loop unroll(full)
    for (int j = 0; j < vectors; j++) sum[i][j] += (j == 0 ? first : other) * right[j];
  }
}
ALWAYS void sum_packed(int rows, int vectors, const float *restrict a, const float *restrict b, int64_t k,
                       float *restrict tile, int64_t stride, bool adds, const GemmAhead *ahead) {
  TileSums sum;
  tile_begin(rows, vectors, sum);
  const float *twin = a;
  for (; k % UNROLL; k--) {
    add_packed(rows, vectors, sum, a, a, b);
    a += LEFT_STEP, twin += LEFT_STEP, b += vectors * GEMM_LANES;
  }
  WITH_LINES(k / UNROLL, ahead, UNKNOWN(a); UNKNOWN(twin); UNKNOWN(b); _Pragma("clang loop unroll(full)") for (int i = 0; i < UNROLL; i++)
                 add_packed(rows, vectors, sum, a + i * LEFT_STEP, twin + i * LEFT_STEP, b + i * vectors * GEMM_LANES);
             a += UNROLL * LEFT_STEP; twin += UNROLL * LEFT_STEP; b += UNROLL * vectors * GEMM_LANES;)
  tile_end(rows, vectors, sum, tile, stride, adds);
}

/* Those that gemm_choose can choose; ld drops what an artifact does not use. */
#define TILE(rows, vectors)                                                                        \
  GemmTileKernel gemm_tile_t##rows##x##vectors;                                                    \
  void gemm_tile_t##rows##x##vectors(const float *a, int64_t a_step, const float *b, int64_t b_k,  \
                                     int64_t k, float *tile, int64_t stride, bool adds,            \
                                     const GemmAhead *ahead) {                                     \
    sum_tile(rows, vectors, 1, a_step, a, b, b_k, k, tile, stride, adds, ahead);                   \
  }                                                                                                \
  GemmTileKernel gemm_tile_n##rows##x##vectors;                                                    \
  void gemm_tile_n##rows##x##vectors(const float *a, int64_t a_step, const float *b, int64_t b_k,  \
                                     int64_t k, float *tile, int64_t stride, bool adds,            \
                                     const GemmAhead *ahead) {                                     \
    sum_tile(rows, vectors, a_step, 1, a, b, b_k, k, tile, stride, adds, ahead);                   \
  }                                                                                                \
  GemmTileKernel gemm_tile_p##rows##x##vectors;                                                    \
  void gemm_tile_p##rows##x##vectors(const float *a, int64_t a_step, const float *b, int64_t b_k,  \
                                     int64_t k, float *tile, int64_t stride, bool adds,            \
                                     const GemmAhead *ahead) {                                     \
    (void)a_step, (void)b_k;                                                                       \
    sum_packed(rows, vectors, a, b, k, tile, stride, adds, ahead);                                 \
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
  if (whole == width) return;
  int64_t from = first + (part->column + whole) * across, some = part->columns - whole;
  for (int64_t i = 0; i < deep; i += GEMM_LANES) { /* a vector of columns that ends with zeros */
    Lanes row[GEMM_LANES] = {0};
    for (int64_t j = 0; j < some; j++) row[j] = lanes_load_as(type, b, from + j * k + i);
    transpose_rows(row, panel + i * width + whole, width);
  }
  for (int64_t i = deep; i < depth; i++)
    for (int64_t j = 0; j < GEMM_LANES; j++)
      panel[i * width + whole + j] = j < some ? lanes_at(type, b, from + j * across + i * down) : 0.0f;
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
/* Of b read where it lies, the first tiles of a strip fetch the lines of the rows of the next one, whose distance is too large
 * for hardware to see a pattern: each of them so many of one column of lines. Adds to ahead[count...], and returns the new count.
 * `left`: columns from this strip on. */
ALWAYS int next_panel(const GemmProduct *p, const float *right, int64_t left, int64_t tile, GemmAhead *ahead, int count) {
  int64_t width = p->vectors * GEMM_LANES, share = TILE_STEPS == 1 ? p->k : p->k / (2 * TILE_STEPS) + 1, parts = (p->k + share - 1) / share;
  int64_t row = tile % parts * share;
  if (tile >= p->vectors * parts || left < 2 * width) return count;
  const float *from = right + width + tile / parts * GEMM_LANES + row * p->n;
  ahead[count++] = (GemmAhead){(const char *)from, p->n * 4, p->k - row < share ? p->k - row : share};
  return count;
}

/* Tiles [first, end) of one column of tiles of one product. */
static void column_of_tiles(const GemmProduct *p, void *const *args, int64_t batch, int64_t strip,
                            int64_t first, int64_t end, float *panel) {
  _Alignas(64) float tile[GEMM_MAX_ROWS * GEMM_MAX_VECTORS * GEMM_LANES];
  int64_t m = p->m, n = p->n, k = p->k, rows = p->rows, column = strip * p->vectors * GEMM_LANES;
  bool is_right = n - column < p->vectors * GEMM_LANES;
  int64_t columns = is_right ? n - column : p->vectors * GEMM_LANES;
  int64_t width = gemm_width(columns), b_k = n;
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
    GemmAhead ahead[GEMM_MOST_AHEAD];
    int count = gemm_ahead(p, args, batch, row, is_bottom ? m - row : rows, column, columns, ahead);
    count = next_panel(p, right, right == b + column ? n - column : 0, i - first, ahead, count);
    ahead[count] = (GemmAhead){(const char *)right, 0, k};
    p->tile[is_bottom + 2 * is_right](a + row * (p->ta ? 1 : k), p->ta ? m : k, right, b_k, k,
                                      is_direct ? c + row * n : tile, is_direct ? n : width, false, ahead);
    if (!is_direct)
      gemm_x86_finish(p, args, batch, row, is_bottom ? m - row : rows, column, columns, tile, width);
  }
}

/* ── blocks of tiles ────────────────────────────────────────────────────────────────────────── */
#ifdef __AVX512F__
enum { LEFT_ROOM = GEMM_LEFT, RIGHT_ROOM = 1 << 16, SUMS_ROOM = GEMM_SUM_ROWS * GEMM_SUM_COLUMNS };
_Static_assert(GEMM_PACKED_DEPTH * GEMM_MAX_VECTORS * GEMM_LANES <= (int)RIGHT_ROOM, "there is room for a strip");
#else
enum { LEFT_ROOM = GEMM_LEFT_NARROW, RIGHT_ROOM = 1 << 15, SUMS_ROOM = GEMM_SUM_ROWS_NARROW * GEMM_SUM_COLUMNS_NARROW };
_Static_assert(GEMM_PACKED_DEPTH_NARROW * GEMM_MAX_VECTORS * GEMM_LANES <= (int)RIGHT_ROOM, "there is room for a strip");
#endif
typedef struct {
  _Alignas(64) float left[LEFT_ROOM];   /* of a: each tile [depth][LEFT_STEP], left_pitch behind that before */
  _Alignas(64) float right[RIGHT_ROOM]; /* of b, if it is not packed before: each strip [depth][its width] */
  _Alignas(64) float sums[SUMS_ROOM];   /* where k has parts: each tile [rows][its width] */
} BlockRoom;
_Static_assert((int)MOST_ROWS <= (int)LEFT_STEP, "a copy has what a tile reads");
ALWAYS int64_t left_pitch(int64_t depth) { return depth * LEFT_STEP + GEMM_LEFT_APART; }
enum { AHEAD = 8 }; /* rows of an operand that are prefetched: hardware does not see the pattern */

ALWAYS void left_store(float *to, Lanes value) {
#ifdef __AVX512F__
  *(Lanes *)to = value;
#else
  *(HalfLanes *)to = FIRST_HALF(value);
#endif
}

/* Columns [row, row + LEFT_STEP) of a [k, m]; where a step is narrower than what is stored, what is too much the next step stores
 * over. All tiles are packed row by row, since rows are far apart. is_end: this is the last
 * batch of a, behind which nothing may be read. */
ALWAYS void pack_left_rows(int type, const GemmProduct *p, const void *a, bool is_end, int64_t first,
                           int64_t depth, const Block *block, float *left) {
  enum { SOME = 4 }; /* rows at a time: lines of the copy that are neighbours */
  int64_t m = p->m, rows = p->rows, tile_row = block->tile_row, last_row = block->last_row, pitch = left_pitch(depth);
  int64_t most = is_end ? (p->k - first) * m - GEMM_LANES : INT64_MAX; /* from where elements can be read without reading behind a */
  const char *start = operand_address(p, a, first * m);
  for (int64_t k = 0, some; k < depth; k += some) {
    some = depth - k < SOME ? 1 : SOME;
    int64_t last = (k + some - 1) * m, ahead = k + SOME + AHEAD < depth ? AHEAD * m : 0, row = tile_row * rows;
    float *to = left + k * LEFT_STEP;
    for (int64_t i = tile_row; i < last_row; i++, to += pitch, row += rows) {
      int64_t from = k * m + row;
      if (some == SOME && last + row <= most) {
#pragma clang loop unroll(full)
        for (int r = 0; r < SOME; r++, from += m) {
          __builtin_prefetch(start + (from + ahead) * operand_bytes(type));
          left_store(to + r * LEFT_STEP, lanes_load_as(type, start, from));
        }
        continue;
      }
      for (int64_t r = 0; r < some; r++, from += m)
        if (from <= most)
          left_store(to + r * LEFT_STEP, lanes_load_as(type, start, from));
        else
          for (int64_t j = 0; row + j < m && j < LEFT_STEP; j++) to[r * LEFT_STEP + j] = lanes_at(type, start, from + j);
    }
  }
}

/* LEFT_STEP rows of an a [m, k] for each tile, turned; where there are fewer, the last one again. */
ALWAYS void pack_left_turned(int type, const GemmProduct *p, const void *a, int64_t first, int64_t depth,
                             const Block *block, float *left) {
  for (int64_t i = block->tile_row; i < block->last_row; i++, left += left_pitch(depth)) {
    int64_t from[TURNED], k = 0;
    for (int64_t r = 0; r < TURNED; r++) {
      int64_t row = i * p->rows + r < p->m ? i * p->rows + r : p->m - 1;
      from[r] = row * p->k + first;
    }
    for (; k + GEMM_LANES <= depth; k += GEMM_LANES) {
      Lanes row[TURNED];
#pragma clang loop unroll(full)
      for (int r = 0; r < TURNED; r++) row[r] = lanes_load_as(type, a, from[r] + k);
#ifdef __AVX512F__
      transpose_rows(row, left + k * LEFT_STEP, LEFT_STEP);
#else
      transpose_eight(row, left + k * LEFT_STEP, LEFT_STEP);
#endif
    }
    for (; k < depth; k++)
      for (int r = 0; r < LEFT_STEP; r++) left[k * LEFT_STEP + r] = lanes_at(type, a, from[r] + k);
  }
}

ALWAYS void pack_left_as(int type, const GemmProduct *p, const void *a, int64_t first, int64_t depth,
                         const Block *block, float *left) {
  a = operand_address(p, a, block->batch * p->m * p->k);
  if (p->ta)
    pack_left_rows(type, p, a, block->batch + 1 == p->batch, first, depth, block, left);
  else
    pack_left_turned(type, p, a, first, depth, block, left);
}

/* Panels of b for strips [strip, last), one behind the other. Those that are whole and lie in
 * rows of b are copied row by row. */
ALWAYS void pack_right_as(int type, const GemmProduct *p, const void *b, int64_t first, int64_t depth,
                          int64_t strip, int64_t last, float *right) {
  int64_t most = p->vectors * GEMM_LANES, n = p->n;
  int64_t whole = p->tb ? strip : n / most;
  if (whole > last) whole = last;
  for (int64_t k = 0; k < depth && strip < whole; k++) {
    int64_t from = (first + k) * n, ahead = from + (k + AHEAD < depth ? AHEAD * n : 0);
    float *to = right + k * most;
    for (int64_t j = strip; j < whole; j++, to += depth * most)
      for (int64_t at = 0; at < most; at += GEMM_LANES) {
        __builtin_prefetch(operand_address(p, b, ahead + j * most + at));
        *(Lanes *)(to + at) = lanes_load_as(type, b, from + j * most + at);
      }
  }
  for (int64_t j = whole > strip ? whole : strip; j < last; j++) {
    int64_t column = j * most, columns = n - column < most ? n - column : most;
    pack_as(type, p, b, &(Part){first, depth, column, columns, gemm_width(columns)}, right + (j - strip) * depth * most);
  }
}

static __attribute__((noinline)) void pack_left(const GemmProduct *p, const void *a, int64_t first, int64_t depth,
                                                const Block *block, float *left) {
  if (p->type == OPERAND_F32)
    pack_left_as(OPERAND_F32, p, a, first, depth, block, left);
  else if (p->type == OPERAND_BF16)
    pack_left_as(OPERAND_BF16, p, a, first, depth, block, left);
  else
    pack_left_as(OPERAND_F16, p, a, first, depth, block, left);
}
/* b is the batch's. */
static __attribute__((noinline)) void pack_right(const GemmProduct *p, const void *b, int64_t first, int64_t depth,
                                                 int64_t strip, int64_t last, float *right) {
  if (p->type == OPERAND_F32)
    pack_right_as(OPERAND_F32, p, b, first, depth, strip, last, right);
  else if (p->type == OPERAND_BF16)
    pack_right_as(OPERAND_BF16, p, b, first, depth, strip, last, right);
  else
    pack_right_as(OPERAND_F16, p, b, first, depth, strip, last, right);
}

/* Of a packed b the next panel comes into the cache while the tiles of a strip are summed: each has its share. */
ALWAYS GemmAhead panel_ahead(const GemmProduct *p, const float *panel, int64_t depth, int64_t strip, int64_t tile, int64_t tiles) {
  int64_t most = p->vectors * GEMM_LANES, share = (depth * p->vectors + tiles - 1) / tiles;
  if (!p->is_packed || (strip + 2) * most > p->n) return (GemmAhead){0};
  return (GemmAhead){(const char *)(panel + most * depth + tile * share * GEMM_LANES), 64, share};
}

/* Where the sums of tile i of a strip are, and *pitch, how far their rows are apart. is_direct: where the result has them. Without
 * an epilogue only those of the last columns are not, if they are no whole vector: one strip of a block, which has any number. */
ALWAYS float *tile_sums(const GemmProduct *p, void *const *args, const Block *block, int64_t strip, int64_t i, bool is_direct,
                        BlockRoom *room, int64_t *pitch) {
  int64_t rows = p->rows, most = p->vectors * GEMM_LANES, column = strip * most;
  *pitch = is_direct ? p->n : gemm_width(p->n - column < most ? p->n - column : most);
  if (is_direct) return (float *)args[p->arg_c] + (block->batch * p->m + (block->tile_row + i) * rows) * p->n + column;
  int64_t before = p->epilogue ? strip - block->strip : 0; /* strips whose sums wait there, too */
  return room->sums + (before * p->down + i) * rows * most;
}

/* The tile behind this one goes on with its sums, which seldom are in the nearest cache, as soon as it begins: they come while this
 * one is summed. Adds to ahead[count...], and returns the new count. */
ALWAYS int sums_ahead(const GemmProduct *p, void *const *args, const Block *block, int64_t strip, int64_t i, bool is_direct,
                      BlockRoom *room, GemmAhead *ahead, int count) {
  int64_t pitch, most = p->vectors * GEMM_LANES, rows = p->rows;
  if (block->tile_row + ++i == block->last_row) i = 0, strip++;
  if (strip == block->last_strip) return count;
  const float *sums = tile_sums(p, args, block, strip, i, is_direct, room, &pitch);
  int64_t left = p->m - (block->tile_row + i) * rows, columns = p->n - strip * most < most ? p->n - strip * most : most;
  for (int64_t j = 0; j < columns; j += 16) ahead[count++] = (GemmAhead){(const char *)(sums + j), pitch * 4, left < rows ? left : rows};
  return count;
}

/* Share `at` of `all` of the rows [0, rows) of `columns` elements, `pitch` elements apart. */
ALWAYS int rows_ahead(const GemmProduct *p, const char *from, int64_t pitch, int64_t rows, int64_t columns, int64_t at, int64_t all,
                      GemmAhead *ahead, int count) {
  int64_t bytes = operand_bytes(p->type), lines = columns * bytes / 64;
  for (int64_t i = rows * at / all; i < rows * (at + 1) / all && lines > 0 && count < GEMM_MOST_AHEAD - 1; i++)
    ahead[count++] = (GemmAhead){from + i * pitch * bytes, 64, lines};
  return count;
}

/* The rows of both operands that the next part of k will copy here come into a cache, each tile its share: copying by itself waits for
 * them. Adds to ahead[count...], and returns the new count. */
ALWAYS int operands_ahead(const GemmProduct *p, void *const *args, const Block *block, int64_t next, int64_t depth, int64_t strip,
                          int64_t tile, GemmAhead *ahead, int count) {
  int64_t tiles = block->last_row - block->tile_row, all = tiles * (block->last_strip - block->strip);
  int64_t at = (strip - block->strip) * tiles + tile, rows = p->k - next < depth ? p->k - next : depth, width = p->vectors * GEMM_LANES;
  if (rows <= 0) return count;
  int64_t row = block->tile_row * p->rows, last = block->last_row * p->rows, column = block->strip * width, end = block->last_strip * width;
  if (p->ta)
    count = rows_ahead(p, operand_address(p, args[p->arg_a], (block->batch * p->k + next) * p->m + row), p->m, rows,
                       (last < p->m ? last : p->m) - row, at, all, ahead, count);
  if (!p->tb && !p->is_packed)
    count = rows_ahead(p, operand_address(p, args[p->arg_b], (block->batch * p->k + next) * p->n + column), p->n, rows,
                       (end < p->n ? end : p->n) - column, at, all, ahead, count);
  return count;
}

/* Sums of at most GOES_RIGHT steps are stored often. Then the tiles of a row of tiles follow each other: hardware sees what they store, and
 * what an epilogue reads, as streams, and nothing need be prefetched. Panels of b come from the second cache, and a tile's part of a
 * stays in the first. */
ALWAYS bool goes_right(const GemmProduct *p) { return GOES_RIGHT > 0 && p->k <= GOES_RIGHT; }

/* Steps [first, first + depth) of k of a tile: both operands are packed. */
ALWAYS void run_tile(const GemmProduct *p, void *const *args, const Block *block, int64_t strip, int64_t i, int64_t first, int64_t depth,
                     const float *panel, BlockRoom *room) {
  int64_t m = p->m, n = p->n, rows = p->rows, most = p->vectors * GEMM_LANES, tiles = block->last_row - block->tile_row;
  int64_t column = strip * most, columns = n - column < most ? n - column : most, width = gemm_width(columns);
  bool is_last = first + depth == p->k, is_whole = is_last && first == 0;
  bool is_direct = !p->epilogue && columns == width; /* the tile goes where it belongs */
  int64_t row = (block->tile_row + i) * rows, height = m - row < rows ? m - row : rows;
  float *sums = room->sums;
  int64_t pitch = width;
  if (is_direct || !is_whole) sums = tile_sums(p, args, block, strip, i, is_direct, room, &pitch);
  GemmAhead ahead[GEMM_MOST_AHEAD];
  int count = 0;
  if (!goes_right(p)) {
    if (is_direct ? first == 0 : is_last) count = gemm_ahead(p, args, block->batch, row, height, column, columns, ahead);
    if (GOES_AHEAD && first > 0) count = sums_ahead(p, args, block, strip, i, !p->epilogue, room, ahead, count);
    ahead[count] = panel_ahead(p, panel, depth, strip, i, tiles);
    if (ahead[count].count) count++;
    count = operands_ahead(p, args, block, first + depth, depth, strip, i, ahead, count);
  }
  ahead[count] = (GemmAhead){(const char *)panel, 0, depth};
  p->tile[(height < rows) + 2 * (columns < most)](room->left + i * left_pitch(depth), LEFT_STEP, panel, width, depth,
                                                  sums, pitch, first > 0, ahead);
  if (is_last && !is_direct) gemm_x86_finish(p, args, block->batch, row, height, column, columns, sums, width);
}

static void gemm_run_block(const GemmProduct *p, void *const *args, const Block *block, BlockRoom *room) {
  int64_t most = p->vectors * GEMM_LANES, tiles = block->last_row - block->tile_row;
  const void *b = operand_address(p, args[p->arg_b], block->batch * p->k * p->n);
  for (int64_t first = 0; first < p->k; first += p->depth) {
    int64_t depth = p->k - first < p->depth ? p->k - first : p->depth, panel = depth * most;
    int64_t strips = !p->is_packed ? RIGHT_ROOM / panel : goes_right(p) ? 2 * RIGHT_ROOM / panel : INT64_MAX;
    pack_left(p, args[p->arg_a], first, depth, block, room->left);
    for (int64_t strip = block->strip, last; strip < block->last_strip; strip = last) {
      last = block->last_strip - strip < strips ? block->last_strip : strip + strips;
      if (!p->is_packed) pack_right(p, b, first, depth, strip, last, room->right);
      const float *panels = p->is_packed ? (const float *)args[0] + gemm_panel_at(p, block->batch, first, depth, strip) : room->right;
      bool right = goes_right(p);
      for (int64_t outer = 0, columns = last - strip; outer < (right ? tiles : columns); outer++)
        for (int64_t inner = 0; inner < (right ? columns : tiles); inner++) {
          int64_t i = right ? outer : inner, j = right ? inner : outer;
          run_tile(p, args, block, strip + j, i, first, depth, panels + j * panel, room);
        }
    }
  }
}

static __attribute__((noinline)) void run_blocks(const GemmProduct *p, void *const *args,
                                                 int64_t begin, int64_t end) {
  BlockRoom room; /* which sums that wait for more parts of k must fit, unless they wait in the result (tile_sums) */
  bool waits = p->epilogue && p->depth != p->k;
  int64_t strips = waits ? SUMS_ROOM / (p->down * p->rows * p->vectors * GEMM_LANES) : INT64_MAX;
  while (begin < end) {
    Block all = gemm_next_block(p, &begin, end, strips), block = all;
    int64_t most = LEFT_ROOM / left_pitch(p->depth); /* tiles that there is room for: those of bf16 may be more */
    for (; block.tile_row < all.last_row; block.tile_row = block.last_row) {
      block.last_row = all.last_row - block.tile_row < most ? all.last_row : block.tile_row + most;
      gemm_run_block(p, args, &block, &room);
    }
  }
}

/* ── packing b for all threads ──────────────────────────────────────────────────────────────── */
ALWAYS void pack_item_as(int type, const GemmProduct *p, const void *b, float *packed, int64_t item) {
  int64_t n = p->n, k = p->k, most = p->vectors * GEMM_LANES, each = gemm_pack_items(p) / p->batch;
  int64_t batch = item / each, at = item % each;
  b = operand_address(p, b, batch * k * n);
  if (p->tb) { /* strip `at` */
    int64_t columns = n - at * most < most ? n - at * most : most;
    for (int64_t first = 0; first < k; first += p->depth) {
      int64_t depth = k - first < p->depth ? k - first : p->depth;
      Part part = {first, depth, at * most, columns, gemm_width(columns)};
      pack_as(type, p, b, &part, packed + gemm_panel_at(p, batch, first, depth, at));
    }
    return;
  }
  int64_t groups = (p->depth + GEMM_PACK_ROWS - 1) / GEMM_PACK_ROWS; /* of rows, of each part of k */
  int64_t first = at / groups * p->depth, depth = k - first < p->depth ? k - first : p->depth;
  int64_t row = at % groups * GEMM_PACK_ROWS, last = row + GEMM_PACK_ROWS < depth ? row + GEMM_PACK_ROWS : depth;
  for (int64_t i = row; i < last; i++) /* row by row: hardware fetches ahead what is read on and on */
    for (int64_t column = 0; column < n; column += most) {
      int64_t columns = n - column < most ? n - column : most, width = gemm_width(columns), from = (first + i) * n + column, j = 0;
      float *to = packed + gemm_panel_at(p, batch, first, depth, column / most) + i * width;
      for (; j + GEMM_LANES <= columns; j += GEMM_LANES) lanes_store(to + j, lanes_load_as(type, b, from + j));
      for (; j < width; j++) to[j] = j < columns ? lanes_at(type, b, from + j) : 0.0f;
    }
}

static __attribute__((noinline)) void pack_items(const GemmProduct *p, void *const *args, int64_t begin, int64_t end) {
  for (; begin < end; begin++)
    if (p->type == OPERAND_F32)
      pack_item_as(OPERAND_F32, p, args[0], args[1], begin);
    else if (p->type == OPERAND_BF16)
      pack_item_as(OPERAND_BF16, p, args[0], args[1], begin);
    else
      pack_item_as(OPERAND_F16, p, args[0], args[1], begin);
}

void gemm_pack_run(const GemmProduct *p, void *const *args, int64_t begin, int64_t end) {
  if (p->type == OPERAND_BF16 && gemm_bf16_pack_run(p, args, begin, end)) return;
  pack_items(p, args, begin, end);
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
    if (!gemm_goes_along(p)) {
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
