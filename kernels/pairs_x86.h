/* pairs_x86: products of bf16 by the instructions that multiply pairs of them and add to sums of f32 (Intel SDM, volume 2):
 * TDPBF16PS, of the tiles of AMX, and VDPBF16PS. A word holds two neighbours of k. Whoever calls these has asked gemm_bf16_way
 * (gemm_host.h), and stands between amx_begin and amx_end where it is AMX. */
#ifndef FT_KERNELS_PAIRS_X86_H
#define FT_KERNELS_PAIRS_X86_H
#include "kernels/lanes_x86.h"
#include "kernels/tile_x86.h"
#if defined __AVX512BW__
#include <immintrin.h>
#include <stdbool.h>

#define AMX __attribute__((target("amx-tile,amx-bf16")))
#define DPBF16 __attribute__((target("avx512bf16")))
enum { AMX_WORDS = 16 }; /* that an instruction takes: words of a product are a multiple of them */

/* sums[row][column] = or += left[row][word] right[word][column]. */
typedef struct {
  const uint32_t *left; /* rows `pitch` apart */
  int64_t pitch;
  const uint32_t *right; /* [word][width] */
  int64_t rows, width, words;
  float *sums; /* [rows][width], or as a function is told */
  bool adds;
} PairStrip;

/* Lines that come meanwhile, `rows` rows of one or two. */
typedef struct {
  const char *at;
  int64_t pitch, rows, bytes;
} PairAhead;

/* 16 or 32 rows by 16 or 32 columns of sums, which are `across` apart. */
ALWAYS AMX void amx_tile(bool is_tall, bool is_wide, const PairStrip *s, int64_t row, float *sums,
                         int64_t across, PairAhead ahead) {
  int64_t pitch = s->pitch * 4, width = s->width * 4, down = across * 4;
  const uint32_t *left = s->left + row * s->pitch, *right = s->right;
  float *below = sums + 16 * across;
  _tile_zero(0);
  if (is_wide) _tile_zero(1);
  if (is_tall) _tile_zero(2);
  if (is_tall && is_wide) _tile_zero(3);
  if (s->adds) {
    _tile_loadd(0, sums, down);
    if (is_wide) _tile_loadd(1, sums + 16, down);
    if (is_tall) _tile_loadd(2, below, down);
    if (is_tall && is_wide) _tile_loadd(3, below + 16, down);
  }
  int64_t each = ahead.rows ? (ahead.rows * AMX_WORDS + s->words - 1) / s->words : 0; /* in a step */
  for (int64_t w = 0; w < s->words; w += AMX_WORDS) {
    _tile_loadd(4, left + w, pitch);
    _tile_loadd(6, right + w * s->width, width);
    _tile_dpbf16ps(0, 4, 6);
    if (is_wide) {
      _tile_loadd(7, right + w * s->width + 16, width);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (is_tall) {
      _tile_loadd(5, left + 16 * s->pitch + w, pitch);
      _tile_dpbf16ps(2, 5, 6);
    }
    if (is_tall && is_wide) _tile_dpbf16ps(3, 5, 7);
    for (int64_t i = 0; i < each && ahead.rows > 0; i++, ahead.rows--, ahead.at += ahead.pitch)
      for (int64_t j = 0; j < ahead.bytes; j += 64) __builtin_prefetch(ahead.at + j);
  }
  _tile_stored(0, sums, down);
  if (is_wide) _tile_stored(1, sums + 16, down);
  if (is_tall) _tile_stored(2, below, down);
  if (is_tall && is_wide) _tile_stored(3, below + 16, down);
}

ALWAYS AMX void amx_at(const PairStrip *s, int64_t row, float *sums, int64_t across, PairAhead ahead) {
  bool is_tall = s->rows - row > 16, is_wide = s->width > 16;
  if (is_tall && is_wide)
    amx_tile(true, true, s, row, sums, across, ahead);
  else if (is_tall)
    amx_tile(true, false, s, row, sums, across, ahead);
  else if (is_wide)
    amx_tile(false, true, s, row, sums, across, ahead);
  else
    amx_tile(false, false, s, row, sums, across, ahead);
}

/* The tiles of this thread: 16 rows of 64 bytes each. */
ALWAYS AMX void amx_begin(void) {
  struct {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } tiles = {.palette = 1};
  for (int i = 0; i < 8; i++) tiles.row_bytes[i] = 64, tiles.rows[i] = 16;
  _tile_loadconfig(&tiles);
}
ALWAYS AMX void amx_end(void) { _tile_release(); }

/* One step: the words left[i * pitch], and the vectors at right. */
ALWAYS DPBF16 void dpbf16_add(int rows, int vectors, TileSums sum, const uint32_t *left, int64_t pitch, const uint32_t *right) {
  __m512bh by[GEMM_MAX_VECTORS];
#pragma clang loop unroll(full)
  for (int j = 0; j < vectors; j++) by[j] = (__m512bh)_mm512_load_si512(right + j * LANES);
#pragma clang loop unroll(full)
  for (int i = 0; i < rows; i++) {
    __m512bh word = (__m512bh)_mm512_set1_epi32((int)left[i * pitch]);
#pragma clang loop unroll(full)
    for (int j = 0; j < vectors; j++) sum[i][j] = (Lanes)_mm512_dpbf16_ps((__m512)sum[i][j], word, by[j]);
  }
}

/* Sums of `rows` rows and of `vectors` vectors of columns from `column` on; the sums' rows are `across` apart. */
ALWAYS DPBF16 void dpbf16_tile(int rows, int vectors, const PairStrip *s, int64_t row, int64_t column, int64_t across) {
  TileSums sum;
  int64_t words = s->words;
  const uint32_t *left = s->left + row * s->pitch, *right = s->right + column;
  float *sums = s->sums + row * across + column;
  tile_begin(rows, vectors, sum);
#pragma clang loop unroll(disable)
  do {
    dpbf16_add(rows, vectors, sum, left, s->pitch, right);
    left++;
    right += s->width;
  } while (--words);
  tile_end(rows, vectors, sum, sums, across, s->adds);
}

/* All rows of `vectors` vectors of columns, and as many beyond them as a multiple of four has: the last tile is not much smaller
 * than the others, whose sums are enough to keep a processor busy. */
ALWAYS DPBF16 void dpbf16_rows(int vectors, const PairStrip *s, int64_t column, int64_t across) {
  for (int64_t row = 0, rest; (rest = s->rows - row) > 0;)
    if (rest > 16 || (rest > 8 && rest <= 12)) {
      dpbf16_tile(12, vectors, s, row, column, across);
      row += 12;
    } else if (rest > 4) {
      dpbf16_tile(8, vectors, s, row, column, across);
      row += 8;
    } else {
      dpbf16_tile(4, vectors, s, row, column, across);
      row += 4;
    }
}
#endif
#endif
