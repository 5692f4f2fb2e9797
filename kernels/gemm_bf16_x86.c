/* gemm_bf16_x86: products of bf16 by the instructions that multiply pairs of them and add to sums of f32:
 * tdpbf16ps (AMX) on 16 by 16 sums, or else vdpbf16ps (AVX512-BF16) on AMD's processors. On Intel's the
 * latter does half of what multiply-adds of f32 do. cpuid tells which there is when the program runs; without
 * either, gemm_x86.c widens the operands to f32.
 *
 * Operands are packed to words that hold two neighbours of k: left[row][word] and right[word][column]; an a [m, k] whose
 * rows are of whole steps has that order where it lies. b is packed before where many rows multiply by it, as in gemm_x86.c.
 * Both instructions (Intel SDM, volume 2) round each sum to the nearest f32, and take subnormal operands and
 * sums, below 2^-126, for zeros. An element is one sum whose order depends on k only: any split of the items
 * gives the same bits. */
#include "kernels/gemm_blocks.h"
#include "kernels/pairs_x86.h"
#include "kernels/panel_x86.h"
#if defined __AVX512BW__
#include <cpuid.h>
#include <immintrin.h>
#include <stddef.h>

enum {
  PAIR_STEP = GEMM_PAIR_DEPTH / 2,     /* words that tdpbf16ps takes: zeros pad k to a multiple of them */
  PAIR_WORDS = GEMM_PACKED_DEPTH / 2,  /* of a part of k */
  PAIR_PITCH = PAIR_WORDS + PAIR_STEP, /* of a packed row of a: not all rows in one set of a cache */
  PAIR_ROWS = GEMM_BF16_ROWS + GEMM_LANES /* a block's, and what a tile has beyond them */
};
typedef struct {
  _Alignas(64) uint32_t left[PAIR_ROWS][PAIR_PITCH];
  _Alignas(64) uint32_t right[PAIR_WORDS * 2 * GEMM_LANES]; /* of one strip */
  _Alignas(64) float sums[PAIR_ROWS * GEMM_SUM_COLUMNS]; /* of each strip [rows][its width], where k has parts */
} PairRoom;
_Static_assert((int)PAIR_STEP == (int)GEMM_LANES, "a step of k is a vector");

/* ── packing ────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  int64_t first, depth; /* steps of k */
  int64_t words;        /* ⌈depth / 2⌉, padded */
} PairPart;

/* Pairs of two rows, even and odd, of the first and of the second half of a vector. */
#define FIRST_PAIRS 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47
#define SECOND_PAIRS 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63
typedef uint16_t Halves __attribute__((ext_vector_type(32)));
ALWAYS Halves halves_load(const uint16_t *from) {
  Halves halves;
  __builtin_memcpy(&halves, from, sizeof halves);
  return halves;
}
/* The first `count` of them, which may be any number, zeros behind; nothing else is read. */
ALWAYS Halves halves_first(const uint16_t *from, int64_t count) {
  __mmask32 mask = count >= 2 * GEMM_LANES ? ~0u : count > 0 ? (1u << count) - 1 : 0u;
  return (Halves)_mm512_maskz_loadu_epi16(mask, from);
}

/* to[i] = the pair i of a run of `depth` neighbours, zeros behind: `words` is a multiple of a vector's. */
ALWAYS void copy_pairs(const uint16_t *from, int64_t depth, int64_t words, uint32_t *to) {
  int64_t whole = depth / (2 * GEMM_LANES) * GEMM_LANES;
  for (int64_t i = 0; i < whole; i += GEMM_LANES) *(Halves *)(to + i) = halves_load(from + 2 * i);
  for (int64_t i = whole; i < words; i += GEMM_LANES) *(Halves *)(to + i) = halves_first(from + 2 * i, depth - 2 * i);
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
    *(Halves *)(to + j) = CHOOSE(low, high, FIRST_PAIRS);
    *(Halves *)(to + j + GEMM_LANES) = CHOOSE(low, high, SECOND_PAIRS);
  }
  for (; j < width; j += GEMM_LANES) { /* a vector of columns, or what there is of it */
    int64_t left = count - j < GEMM_LANES ? count - j : GEMM_LANES;
    Halves low = halves_first(even + j, left), high = halves_first(odd ? odd + j : even, odd ? left : 0);
    *(Halves *)(to + j) = CHOOSE(low, high, FIRST_PAIRS);
  }
}

/* to[word][width] of `count` columns, `pitch` apart, in each of which k is contiguous. */
ALWAYS void pack_columns(const uint16_t *from, int64_t pitch, int64_t count, int64_t width,
                         const PairPart *part, uint32_t *to) {
  int64_t whole = part->depth / (2 * GEMM_LANES) * GEMM_LANES;
  for (int64_t j = 0; j < width; j += GEMM_LANES)
    for (int64_t i = 0; i < part->words; i += GEMM_LANES) {
      Lanes row[GEMM_LANES];
      bool is_whole = i < whole && j + GEMM_LANES <= count;
      if (is_whole) {
#pragma clang loop unroll(full)
        for (int r = 0; r < GEMM_LANES; r++) row[r] = (Lanes)halves_load(from + (j + r) * pitch + 2 * i);
      } else {
#pragma clang loop unroll(full)
        for (int r = 0; r < GEMM_LANES; r++) {
          bool is_there = j + r < count;
          row[r] = (Lanes)halves_first(is_there ? from + (j + r) * pitch + 2 * i : from, is_there ? part->depth - 2 * i : 0);
        }
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
  enum { SOME = PAIR_WORDS * 2 * GEMM_LANES / GEMM_BF16_ROWS }; /* words of k at a time, of all rows, so as to read on */
  int64_t width = gemm_width(rows);
  for (int64_t first = 0; first < part->words && p->ta; first += SOME) {
    PairPart some = {part->first + 2 * first, part->depth - 2 * first, part->words - first < SOME ? part->words - first : SOME};
    uint32_t *words = room->right; /* [word][width], until a strip is packed there */
    pack_interleaved(a + some.first * p->m + row, p->m, rows, width, &some, words);
    for (int64_t i = 0; i < rows; i += GEMM_LANES)
      for (int64_t w = 0; w < some.words; w += GEMM_LANES)
        transpose_block(OPERAND_F32, words + w * width + i, 0, width, (float *)room->left[i] + first + w, PAIR_PITCH);
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

/* ── blocks ─────────────────────────────────────────────────────────────────────────────────── */
/* A product of the batch, and where it is cut. */
typedef struct {
  const GemmProduct *p;
  void *const *args;
  int64_t batch, row, column, columns;
  int64_t words; /* of k, without the zeros behind them */
  bool is_last;  /* of the parts of k */
} PairPlace;

ALWAYS AMX void amx_strip(const PairPlace *at, const PairStrip *s) {
  const GemmProduct *p = at->p;
  int64_t bytes = p->near[0] % 16;
  for (int64_t row = 0; row < s->rows; row += GEMM_PAIR_ROWS) {
    int64_t rows = s->rows - row < GEMM_PAIR_ROWS ? s->rows - row : GEMM_PAIR_ROWS;
    int64_t place = (at->batch * p->m + at->row + row) * p->n + at->column;
    PairAhead ahead = {NULL, 0, 0, 0};
    if (at->is_last && bytes)
      ahead = (PairAhead){(const char *)at->args[p->near[0] / 16] + place * bytes, p->n * bytes, rows, at->columns * bytes};
    /* it goes where it belongs if it is of whole tiles and nothing else is done with it */
    bool is_direct = !p->epilogue && at->columns == s->width && rows % 16 == 0;
    float *sums = is_direct ? (float *)at->args[p->arg_c] + place : s->sums + row * s->width;
    amx_at(s, row, sums, is_direct ? p->n : s->width, ahead);
    if (at->is_last && !is_direct)
      gemm_x86_finish(p, at->args, at->batch, at->row + row, rows, at->column, at->columns, sums, s->width);
  }
}

/* Sums go where they belong: whole vectors of columns, and whole tiles of rows (dpbf16_rows). */
static bool dpbf16_is_direct(const GemmProduct *p) { return !p->epilogue && p->m % 4 == 0 && p->n % GEMM_LANES == 0; }

ALWAYS DPBF16 void dpbf16_strip(const PairPlace *at, const PairStrip *strip) {
  const GemmProduct *p = at->p;
  PairStrip s = *strip;
  bool is_direct = dpbf16_is_direct(p);
  int64_t across = is_direct ? p->n : s.width;
  if (is_direct) s.sums = (float *)at->args[p->arg_c] + (at->batch * p->m + at->row) * p->n + at->column;
  s.words = at->words;
  if (s.width == GEMM_LANES)
    dpbf16_rows(1, &s, 0, across);
  else
    dpbf16_rows(2, &s, 0, across);
  if (at->is_last && !is_direct)
    gemm_x86_finish(p, at->args, at->batch, at->row, s.rows, at->column, at->columns, s.sums, s.width);
}

typedef void PairRun(const PairPlace *at, const PairStrip *s);

/* Rows of a are read where they lie if they are of whole pairs and whole steps. */
static void pair_left(const GemmProduct *p, const uint16_t *a, int64_t row, const PairPart *part, PairRoom *room,
                    PairStrip *s) {
  bool is_there = !p->ta && p->k % 2 == 0 && part->depth == 2 * part->words && s->rows % 16 == 0 && (uintptr_t)a % 4 == 0;
  s->words = part->words;
  s->pitch = is_there ? p->k / 2 : PAIR_PITCH;
  s->left = is_there ? (const uint32_t *)(a + row * p->k + part->first) : room->left[0];
  if (!is_there) pack_pairs_left(p, a, row, s->rows, part, room);
}

_Static_assert((int)GEMM_PACK_ROWS == (int)GEMM_PAIR_DEPTH, "a group of rows is a step");
static int64_t pair_words(int64_t depth) { return (depth + GEMM_PAIR_DEPTH - 1) / GEMM_PAIR_DEPTH * PAIR_STEP; }

ALWAYS void pair_block(const GemmProduct *p, void *const *args, const Block *block, PairRun *run, PairRoom *room) {
  int64_t m = p->m, n = p->n, k = p->k, most = p->vectors * GEMM_LANES;
  int64_t row = block->tile_row * p->rows, from = block->strip * most;
  const uint16_t *a = (const uint16_t *)args[p->arg_a] + block->batch * m * k;
  const uint16_t *b = (const uint16_t *)args[p->arg_b] + block->batch * k * n;
  PairStrip s = {.rows = block->last_row * p->rows < m ? block->last_row * p->rows - row : m - row};
  for (int64_t first = 0; first < k; first += p->depth) {
    PairPart part = {first, k - first < p->depth ? k - first : p->depth, 0};
    part.words = pair_words(part.depth);
    pair_left(p, a, row, &part, room, &s);
    s.adds = first > 0;
    for (int64_t strip = block->strip; strip < block->last_strip; strip++) {
      int64_t column = strip * most, columns = n - column < most ? n - column : most;
      s.width = gemm_width(columns);
      s.right = p->is_packed ? (const uint32_t *)args[0] + gemm_panel_at(p, block->batch, first, part.depth, strip) : room->right;
      if (!p->is_packed) pack_pairs_right(p, b, column, columns, s.width, &part, room->right);
      bool is_last = first + part.depth >= k;
      bool waits = !is_last || first; /* sums do, for more parts of k; those that have no room here do in the result */
      s.sums = room->sums + (waits && column - from < GEMM_SUM_COLUMNS ? (column - from) * PAIR_ROWS : 0);
      run(&(PairPlace){p, args, block->batch, row, column, columns, (part.depth + 1) / 2, is_last}, &s);
    }
  }
}

/* Of a block: sums that wait for more parts of k need room, unless they wait in the result. */
static int64_t pair_most_strips(const GemmProduct *p, bool is_direct) {
  return p->depth < p->k && !is_direct ? GEMM_SUM_COLUMNS / (p->vectors * GEMM_LANES) : INT64_MAX;
}

static AMX __attribute__((noinline)) void run_amx(const GemmProduct *p, void *const *args,
                                                  int64_t begin, int64_t end) {
  PairRoom room;
  bool is_direct = !p->epilogue && p->m % 16 == 0 && p->n % 16 == 0; /* see amx_strip: then sums wait in the result */
  amx_begin();
  int64_t strips = pair_most_strips(p, is_direct);
  while (begin < end) {
    Block block = gemm_next_block(p, &begin, end, strips);
    pair_block(p, args, &block, amx_strip, &room);
  }
  amx_end();
}

static DPBF16 __attribute__((noinline)) void run_dpbf16(const GemmProduct *p, void *const *args,
                                                        int64_t begin, int64_t end) {
  PairRoom room;
  int64_t strips = pair_most_strips(p, dpbf16_is_direct(p));
  while (begin < end) {
    Block block = gemm_next_block(p, &begin, end, strips);
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

int gemm_bf16_found(void) {
  static _Atomic int known; /* cpuid is slow in a virtual machine */
  enum { IS_KNOWN = 8 };
  int found = known;
  if (!found) known = found = IS_KNOWN | find_bf16();
  return found & ~IS_KNOWN;
}

int gemm_bf16_way(int64_t may_use) {
  int found = gemm_bf16_found() & (int)may_use;
  return found & GEMM_AMX ? GEMM_AMX : found & GEMM_WIDENED ? 0 : found & GEMM_DPBF16;
}
static int bf16_way(const GemmProduct *p) { return p->depth ? gemm_bf16_way(p->may_use) : 0; }

bool gemm_bf16_run(const GemmProduct *p, void *const *args, int64_t begin, int64_t end) {
  int way = bf16_way(p);
  if (way == GEMM_AMX) run_amx(p, args, begin, end);
  if (way == GEMM_DPBF16) run_dpbf16(p, args, begin, end);
  return way;
}

/* ── packing b for all threads ──────────────────────────────────────────────────────────────── */
/* Rows of b, of all its strips. */
static void pack_pair_rows(const GemmProduct *p, const uint16_t *b, int64_t batch, int64_t first, int64_t row, uint32_t *packed) {
  int64_t n = p->n, most = p->vectors * GEMM_LANES, depth = p->k - first < p->depth ? p->k - first : p->depth;
  int64_t end = (row + GEMM_PACK_ROWS) / 2; /* zeros behind the last row, up to a step */
  for (int64_t column = 0; column < n; column += most) {
    int64_t columns = n - column < most ? n - column : most, width = gemm_width(columns);
    uint32_t *panel = packed + gemm_panel_at(p, batch, first, depth, column / most);
    for (int64_t w = row / 2; w < end; w++) {
      int64_t left = depth - 2 * w;
      const uint16_t *even = b + (first + 2 * w) * n + column;
      interleave(even, left > 1 ? even + n : NULL, 2 * most, left > 0 ? columns : 0, width, panel + w * width);
    }
  }
}

bool gemm_bf16_pack_run(const GemmProduct *p, void *const *args, int64_t begin, int64_t end) {
  int64_t n = p->n, k = p->k, most = p->vectors * GEMM_LANES, each = gemm_pack_items(p) / p->batch;
  int64_t groups = (p->depth + GEMM_PACK_ROWS - 1) / GEMM_PACK_ROWS;
  if (!bf16_way(p)) return false;
  for (; begin < end; begin++) {
    int64_t batch = begin / each, at = begin % each, column = at * most;
    const uint16_t *b = (const uint16_t *)args[0] + batch * k * n;
    if (!p->tb) {
      int64_t first = at / groups * p->depth, row = at % groups * GEMM_PACK_ROWS;
      if (first + row < k) pack_pair_rows(p, b, batch, first, row, args[1]);
      continue;
    }
    for (int64_t first = 0; first < k; first += p->depth) {
      PairPart part = {first, k - first < p->depth ? k - first : p->depth, 0};
      int64_t columns = n - column < most ? n - column : most;
      part.words = pair_words(part.depth);
      pack_pairs_right(p, b, column, columns, gemm_width(columns), &part,
                       (uint32_t *)args[1] + gemm_panel_at(p, batch, first, part.depth, at));
    }
  }
  return true;
}
#else
int gemm_bf16_found(void) { return 0; }
int gemm_bf16_way(int64_t may_use) { return (int)(may_use & 0); }
bool gemm_bf16_run(const GemmProduct *p, void *const *args, int64_t begin, int64_t end) {
  (void)p, (void)args, (void)begin, (void)end;
  return false;
}
bool gemm_bf16_pack_run(const GemmProduct *p, void *const *args, int64_t begin, int64_t end) {
  return gemm_bf16_run(p, args, begin, end);
}
#endif
