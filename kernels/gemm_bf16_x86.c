/* gemm_bf16_x86: products of bf16 by the instructions that multiply pairs of them and add to sums of f32:
 * tdpbf16ps (AMX) on 16 by 16 sums, or else vdpbf16ps (AVX512-BF16) on AMD's processors. On Intel's the
 * latter does half of what multiply-adds of f32 do. cpuid tells which there is when the program runs; without
 * either, gemm_x86.c widens the operands to f32.
 *
 * Operands are packed to words that hold two neighbours of k: left[row][word] and right[word][column].
 * Both instructions (Intel SDM, volume 2) round each sum to the nearest f32, and take subnormal operands and
 * sums, below 2^-126, for zeros. An element is one sum whose order depends on k only: any split of the items
 * gives the same bits. */
#include "kernels/gemm_blocks.h"
#include "kernels/panel_x86.h"
#if defined __AVX512BW__
#include <cpuid.h>
#include <immintrin.h>
#include <stddef.h>

#define AMX __attribute__((target("amx-tile,amx-bf16")))
#define DPBF16 __attribute__((target("avx512bf16")))
enum {
  PAIR_STEP = 16,             /* words that tdpbf16ps takes: zeros pad k to a multiple of them */
  PAIR_WORDS = 16 * PAIR_STEP, /* of a part of k */
  PAIR_PITCH = PAIR_WORDS + 16, /* of a packed row of a: not all rows in one set of a cache */
  PAIR_ROWS = GEMM_BF16_ROWS + 16 /* a block's, and what a tile has beyond them */
};
typedef struct {
  _Alignas(64) uint32_t left[PAIR_ROWS][PAIR_PITCH];
  _Alignas(64) uint32_t right[PAIR_WORDS * GEMM_MAX_VECTORS * GEMM_LANES]; /* of one strip */
  _Alignas(64) float sums[PAIR_ROWS * GEMM_BLOCK_COLUMNS]; /* of each strip [rows][its width] */
} PairRoom;
_Static_assert((int)PAIR_STEP == (int)GEMM_LANES, "a step of k is a vector");

/* ── packing ────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  int64_t first, depth; /* steps of k */
  int64_t words;        /* ⌈depth / 2⌉, padded */
} PairPart;

typedef uint16_t Halves __attribute__((ext_vector_type(32)));
ALWAYS Halves halves_load(const uint16_t *from) {
  Halves halves;
  __builtin_memcpy(&halves, from, sizeof halves);
  return halves;
}
ALWAYS Lanes pairs_load(const uint16_t *from) {
  Lanes words;
  __builtin_memcpy(&words, from, sizeof words);
  return words;
}

/* to[i] = the pair i of a run of `depth` neighbours, zeros behind. */
ALWAYS void copy_pairs(const uint16_t *from, int64_t depth, int64_t words, uint32_t *to) {
  int64_t whole = depth / (2 * GEMM_LANES) * GEMM_LANES;
  for (int64_t i = 0; i < whole; i += GEMM_LANES) *(Lanes *)(to + i) = pairs_load(from + 2 * i);
  for (int64_t i = whole; i < words; i++)
    to[i] = (2 * i < depth ? from[2 * i] : 0u) |
            (2 * i + 1 < depth ? (uint32_t)from[2 * i + 1] << 16 : 0u);
}

/* to[j] = (even[j], odd[j]) for j < count, zeros up to `width`. odd is NULL: zeros. Meanwhile what lies
 * `ahead` elements behind comes into the cache. */
ALWAYS void interleave(const uint16_t *even, const uint16_t *odd, int64_t ahead, int64_t count,
                       int64_t width, uint32_t *to) {
  int64_t j = 0;
  for (; odd && j + 2 * GEMM_LANES <= count; j += 2 * GEMM_LANES) {
    Halves low = halves_load(even + j), high = halves_load(odd + j);
    __builtin_prefetch(even + j + ahead);
    __builtin_prefetch(odd + j + ahead);
    *(Halves *)(to + j) =
        CHOOSE(low, high, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10,
               42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47);
    *(Halves *)(to + j + GEMM_LANES) =
        CHOOSE(low, high, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56,
               25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63);
  }
  for (; odd && j + GEMM_LANES <= count; j += GEMM_LANES)
    *(Words *)(to + j) = __builtin_convertvector(*(const NarrowLanes *)(even + j), Words) |
                         __builtin_convertvector(*(const NarrowLanes *)(odd + j), Words) << 16;
  for (; j < width; j++) to[j] = j < count ? even[j] | (odd ? (uint32_t)odd[j] << 16 : 0u) : 0u;
}

/* to[word][width] of `count` columns, `pitch` apart, in each of which k is contiguous. */
ALWAYS void pack_columns(const uint16_t *from, int64_t pitch, int64_t count, int64_t width,
                         const PairPart *part, uint32_t *to) {
  _Alignas(64) uint32_t tail[GEMM_LANES][GEMM_LANES];
  int64_t whole = part->depth / (2 * GEMM_LANES) * GEMM_LANES;
  for (int64_t j = 0; j < width; j += GEMM_LANES)
    for (int64_t i = 0; i < part->words; i += GEMM_LANES) {
      Lanes row[GEMM_LANES];
      bool is_whole = i < whole && j + GEMM_LANES <= count;
      if (is_whole) {
#pragma clang loop unroll(full)
        for (int r = 0; r < GEMM_LANES; r++) row[r] = pairs_load(from + (j + r) * pitch + 2 * i);
      } else {
        int64_t depth = part->depth - 2 * i < 2 * GEMM_LANES ? part->depth - 2 * i : 2 * GEMM_LANES;
        for (int64_t r = 0; r < GEMM_LANES; r++)
          copy_pairs(from + (j + r < count ? j + r : 0) * pitch + 2 * i, j + r < count ? depth : 0,
                     GEMM_LANES, tail[r]);
#pragma clang loop unroll(full)
        for (int r = 0; r < GEMM_LANES; r++) row[r] = *(const Lanes *)tail[r];
      }
      transpose_rows(row, (float *)(to + i * width + j), width);
    }
}

/* to[word][width] of `count` columns that lie side by side in each row of k. */
ALWAYS void pack_interleaved(const uint16_t *from, int64_t pitch, int64_t count, int64_t width,
                             const PairPart *part, uint32_t *to) {
  enum { AHEAD = 8 }; /* rows */
  for (int64_t i = 0; i < part->words; i++) {
    const uint16_t *even = from + 2 * i * pitch;
    int64_t left = part->depth - 2 * i;
    interleave(left > 0 ? even : from, left > 1 ? even + pitch : NULL,
               left > AHEAD + 1 ? AHEAD * pitch : 0, left > 0 ? count : 0, width, to + i * width);
  }
}

/* left[row][word] of `rows` rows of a, from `row` on, and zeros for what a tile has beyond them. */
static void pack_pairs_left(const GemmProduct *p, const uint16_t *a, int64_t row, int64_t rows,
                            const PairPart *part, PairRoom *room) {
  for (int64_t i = 0; i < rows && !p->ta; i++)
    copy_pairs(a + (row + i) * p->k + part->first, part->depth, part->words, room->left[i]);
  enum { WIDE = 2 * GEMM_LANES };
  for (int64_t i = 0; i < rows && p->ta; i += WIDE) {
    int64_t count = rows - i < WIDE ? rows - i : WIDE;
    uint32_t *words = room->right; /* [word][WIDE], until a strip is packed there */
    pack_interleaved(a + part->first * p->m + row + i, p->m, count, WIDE, part, words);
    for (int64_t j = 0; j < count; j += GEMM_LANES)
      for (int64_t w = 0; w < part->words; w += GEMM_LANES)
        transpose_block(OPERAND_F32, words + w * WIDE + j, 0, WIDE, (float *)room->left[i + j] + w,
                        PAIR_PITCH);
  }
  for (int64_t i = rows; i < rows + GEMM_LANES; i++)
    for (int64_t w = 0; w < part->words; w++) room->left[i][w] = 0;
}

/* right[word][width] of the columns of b from `column` on. */
static void pack_pairs_right(const GemmProduct *p, const uint16_t *b, int64_t column,
                             int64_t columns, int64_t width, const PairPart *part, uint32_t *to) {
  if (p->tb)
    pack_columns(b + column * p->k + part->first, p->k, columns, width, part, to);
  else
    pack_interleaved(b + part->first * p->n + column, p->n, columns, width, part, to);
}

/* ── AMX ────────────────────────────────────────────────────────────────────────────────────── */
/* 16 or 32 rows by 16 or 32 columns of sums. */
ALWAYS AMX void amx_tile(bool is_tall, bool is_wide, const uint32_t *left, const uint32_t *right,
                         int64_t width, int64_t words, float *sums, bool adds) {
  int64_t pitch = PAIR_PITCH * 4, across = width * 4;
  float *below = sums + 16 * width;
  _tile_zero(0);
  if (is_wide) _tile_zero(1);
  if (is_tall) _tile_zero(2);
  if (is_tall && is_wide) _tile_zero(3);
  if (adds) {
    _tile_loadd(0, sums, across);
    if (is_wide) _tile_loadd(1, sums + 16, across);
    if (is_tall) _tile_loadd(2, below, across);
    if (is_tall && is_wide) _tile_loadd(3, below + 16, across);
  }
  for (int64_t w = 0; w < words; w += PAIR_STEP) {
    _tile_loadd(4, left + w, pitch);
    _tile_loadd(6, right + w * width, across);
    _tile_dpbf16ps(0, 4, 6);
    if (is_wide) {
      _tile_loadd(7, right + w * width + 16, across);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (is_tall) {
      _tile_loadd(5, left + 16 * PAIR_PITCH + w, pitch);
      _tile_dpbf16ps(2, 5, 6);
    }
    if (is_tall && is_wide) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, across);
  if (is_wide) _tile_stored(1, sums + 16, across);
  if (is_tall) _tile_stored(2, below, across);
  if (is_tall && is_wide) _tile_stored(3, below + 16, across);
}

ALWAYS AMX void amx_strip(const PairRoom *room, int64_t rows, int64_t width, int64_t words,
                          float *sums, bool adds) {
  for (int64_t j = 0; j < width; j += 32)
    for (int64_t i = 0; i < rows; i += 32) {
      const uint32_t *left = room->left[i], *right = room->right + j;
      float *to = sums + i * width + j;
      bool is_tall = rows - i > 16, is_wide = width - j > 16;
      if (is_tall && is_wide)
        amx_tile(true, true, left, right, width, words, to, adds);
      else if (is_tall)
        amx_tile(true, false, left, right, width, words, to, adds);
      else if (is_wide)
        amx_tile(false, true, left, right, width, words, to, adds);
      else
        amx_tile(false, false, left, right, width, words, to, adds);
    }
}

/* ── AVX512-BF16 ────────────────────────────────────────────────────────────────────────────── */
ALWAYS DPBF16 void dpbf16_tile(int rows, int vectors, const uint32_t *left, const uint32_t *right,
                               int64_t words, float *sums, bool adds) {
  TileSums sum;
  int64_t width = vectors * GEMM_LANES;
  tile_begin(rows, vectors, sum);
  if (adds) tile_resume(rows, vectors, sum, sums, width);
#pragma clang loop unroll(disable)
  do {
    __m512bh by[GEMM_MAX_VECTORS];
#pragma clang loop unroll(full)
    for (int j = 0; j < vectors; j++)
      by[j] = (__m512bh)_mm512_load_si512(right + j * GEMM_LANES);
#pragma clang loop unroll(full)
    for (int i = 0; i < rows; i++) {
      __m512bh word = (__m512bh)_mm512_set1_epi32((int)left[i * PAIR_PITCH]);
#pragma clang loop unroll(full)
      for (int j = 0; j < vectors; j++)
        sum[i][j] = (Lanes)_mm512_dpbf16_ps((__m512)sum[i][j], word, by[j]);
    }
    left++;
    right += width;
  } while (--words);
  tile_end(rows, vectors, sum, sums, width);
}

ALWAYS DPBF16 void dpbf16_rows(int most, int vectors, const PairRoom *room, int64_t rows,
                               int64_t words, float *sums, bool adds) {
  int64_t i = 0, width = vectors * GEMM_LANES;
  for (; i + most <= rows; i += most)
    dpbf16_tile(most, vectors, room->left[i], room->right, words, sums + i * width, adds);
  for (; i < rows; i += 4) /* beyond the rows are zeros */
    dpbf16_tile(4, vectors, room->left[i], room->right, words, sums + i * width, adds);
}

ALWAYS DPBF16 void dpbf16_strip(const PairRoom *room, int64_t rows, int64_t width, int64_t words,
                                float *sums, bool adds) {
  switch (width / GEMM_LANES) {
  case 1: dpbf16_rows(12, 1, room, rows, words, sums, adds); break;
  case 2: dpbf16_rows(12, 2, room, rows, words, sums, adds); break;
  case 3: dpbf16_rows(8, 3, room, rows, words, sums, adds); break;
  default: dpbf16_rows(6, 4, room, rows, words, sums, adds); break;
  }
}

/* ── blocks ─────────────────────────────────────────────────────────────────────────────────── */
typedef void PairStrip(const PairRoom *room, int64_t rows, int64_t width, int64_t words,
                       float *sums, bool adds);

ALWAYS void pair_block(const GemmProduct *p, void *const *args, const Block *block,
                       PairStrip *strip_of, PairRoom *room) {
  int64_t m = p->m, n = p->n, k = p->k, most = p->vectors * GEMM_LANES;
  int64_t row = block->tile_row * p->rows, from = block->strip * most;
  int64_t rows = block->last_row * p->rows < m ? block->last_row * p->rows - row : m - row;
  const uint16_t *a = (const uint16_t *)args[p->arg_a] + block->batch * m * k;
  const uint16_t *b = (const uint16_t *)args[p->arg_b] + block->batch * k * n;
  int64_t parts = (k + 2 * PAIR_WORDS - 1) / (2 * PAIR_WORDS), step = 2 * PAIR_STEP;
  int64_t depth = ((k + parts - 1) / parts + step - 1) / step * step;
  for (int64_t first = 0; first < k; first += depth) {
    PairPart part = {first, k - first < depth ? k - first : depth, 0};
    part.words = (part.depth + step - 1) / step * PAIR_STEP;
    pack_pairs_left(p, a, row, rows, &part, room);
    for (int64_t column = from; column < block->last_strip * most && column < n; column += most) {
      int64_t columns = n - column < most ? n - column : most;
      int64_t width = (columns + GEMM_LANES - 1) / GEMM_LANES * GEMM_LANES;
      float *sums = room->sums + (column - from) * PAIR_ROWS;
      pack_pairs_right(p, b, column, columns, width, &part, room->right);
      strip_of(room, rows, width, part.words, sums, first > 0);
      if (first + depth >= k)
        gemm_x86_finish(p, args, block->batch, row, rows, column, columns, sums, width);
    }
  }
}

static AMX __attribute__((noinline)) void run_amx(const GemmProduct *p, void *const *args,
                                                  int64_t begin, int64_t end) {
  struct {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } tiles = {.palette = 1};
  for (int i = 0; i < 8; i++) tiles.row_bytes[i] = 64, tiles.rows[i] = 16;
  PairRoom room;
  _tile_loadconfig(&tiles);
  for (; begin < end; begin++) {
    Block block = gemm_block(p, begin);
    pair_block(p, args, &block, amx_strip, &room);
  }
  _tile_release();
}

static DPBF16 __attribute__((noinline)) void run_dpbf16(const GemmProduct *p, void *const *args,
                                                        int64_t begin, int64_t end) {
  PairRoom room;
  for (; begin < end; begin++) {
    Block block = gemm_block(p, begin);
    pair_block(p, args, &block, dpbf16_strip, &room);
  }
}

/* ── which there is ─────────────────────────────────────────────────────────────────────────── */
/* Linux keeps the tiles of a process that has asked for them (Documentation/arch/x86/xstate.rst). */
static bool ask_for_tiles(void) {
  enum { ARCH_PRCTL = 158, REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
  long result = ARCH_PRCTL;
  __asm__ volatile("syscall"
                   : "+a"(result)
                   : "D"((long)REQUEST_PERMISSION), "S"((long)TILE_DATA)
                   : "rcx", "r11", "memory");
  return result == 0;
}

/* GEMM_DPBF16 | GEMM_AMX as they are there; GEMM_WIDENED: vdpbf16ps is slower than f32. The level has
 * AVX-512, so the system keeps its registers. */
static int find_bf16(void) {
  unsigned a, b, c, d, low, high;
  int found = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx) found |= GEMM_WIDENED;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1)) found |= GEMM_DPBF16;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) || !(d >> 24 & 1)) return found;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low >> 17 & 3) == 3 && ask_for_tiles()) found |= GEMM_AMX; /* their state, and its data */
  return found;
}

bool gemm_bf16_run(const GemmProduct *p, void *const *args, int64_t begin, int64_t end) {
  static _Atomic int known; /* cpuid is slow in a virtual machine */
  enum { IS_KNOWN = 8 };
  int found = known;
  if (!found) known = found = IS_KNOWN | find_bf16();
  found &= (int)p->may_use;
  if (!p->depth) return false;
  if (found & GEMM_AMX)
    run_amx(p, args, begin, end);
  else if ((found & GEMM_DPBF16) && !(found & GEMM_WIDENED))
    run_dpbf16(p, args, begin, end);
  else
    return false;
  return true;
}
#else
bool gemm_bf16_run(const GemmProduct *p, void *const *args, int64_t begin, int64_t end) {
  (void)p, (void)args, (void)begin, (void)end;
  return false;
}
#endif
