/* integer_tiles: sums of products of packed bytes in registers, by vpdpbusd, by vpmaddwd or in C, for
 * kernels/integer_x86.c. */
#ifndef FT_KERNELS_INTEGER_TILES_H
#define FT_KERNELS_INTEGER_TILES_H
#include "kernels/integer_host.h"
#include "kernels/vnni_x86.h"

/* ── the instructions ───────────────────────────────────────────────────────────────────────── */
/* KIND_add adds to 16 sums the products of the bytes, or of the 16-bit halves, of their words. The first
 * operand has KIND_PARTS words for four steps of k, and KIND_part makes of a word of packed bytes what one
 * of them meets: itself, or the 16-bit halves of its lower or upper two bytes. */
enum { vnni_PARTS = 1, pairs_PARTS = 2 };
#if defined __AVX512BW__
ALWAYS WordLanes pairs_add(WordLanes sum, WordLanes a, WordLanes b) {
  return sum + (WordLanes)_mm512_madd_epi16((__m512i)a, (__m512i)b);
}
#elif defined __AVX2__
ALWAYS WordLanes pairs_add(WordLanes sum, WordLanes a, WordLanes b) {
  return sum + both_halves(_mm256_madd_epi16(LOW_HALF(a), LOW_HALF(b)),
                           _mm256_madd_epi16(HIGH_HALF(a), HIGH_HALF(b)));
}
#else
ALWAYS WordLanes pairs_add(WordLanes sum, WordLanes a, WordLanes b) {
  IntLanes x = (IntLanes)a, y = (IntLanes)b;
  IntLanes low = (x << 16 >> 16) * (y << 16 >> 16), high = (x >> 16) * (y >> 16);
  return sum + (WordLanes)low + (WordLanes)high;
}
#endif
ALWAYS WordLanes vnni_part(WordLanes word, int part) {
  (void)part;
  return word;
}
ALWAYS WordLanes pairs_part(WordLanes word, int part) {
  IntLanes first = (IntLanes)(word << (part ? 8 : 24)) >> 24;
  IntLanes second = (IntLanes)(part ? word : word << 16) >> 24;
  return ((WordLanes)first & 0xffffu) | (WordLanes)second << 16;
}

/* ── register tiles ─────────────────────────────────────────────────────────────────────────── */
/* sums[i][j] of rows of a, `row` bytes apart, by a strip: segments, `segment` bytes apart in a, of
 * `words` words of b each. */
typedef struct {
  int64_t row, segment, segments, words;
} TileWalk;
#define UNROLL _Pragma("clang loop unroll(full)")
/* What becomes of sums while they are in registers: f32, less total << shift of a column, and `rest` of a row of a more (NULL: 0),
 * plus what is added to a column (0, or NaN), at `to`, whose rows are `width` apart. */
typedef struct {
  const uint32_t *total;
  const float *fault;
  const uint32_t *rest;
  float *to;
  int64_t width; /* a multiple of INTEGER_LANES */
  bool has_offset;
} TileFinish;
ALWAYS void finish_tile(int rows, int vectors, WordLanes sum[INTEGER_MOST_ROWS][INTEGER_MOST_VECTORS], const TileFinish *f) {
  UNROLL for (int j = 0; j < vectors; j++) {
    if (j * INTEGER_LANES >= f->width) break;
    WordLanes less = f->has_offset ? *(const LooseWords *)(f->total + j * INTEGER_LANES) << 7u : (WordLanes)0u;
    Lanes fault = lanes_load(f->fault + j * INTEGER_LANES);
    UNROLL for (int i = 0; i < rows; i++) {
      WordLanes whole = sum[i][j] - less;
      if (f->rest) whole += f->rest[i];
      lanes_store(f->to + i * f->width + j * INTEGER_LANES, __builtin_convertvector((IntLanes)whole, Lanes) + fault);
    }
  }
}

/* finish: NULL, and the sums go to `sums` as they are. */
typedef void IntegerTile(const uint8_t *a, const uint8_t *b, const TileWalk *walk, uint32_t *sums, const TileFinish *finish);
#define SUM_TILE(kind, attributes)                                                                 \
  ALWAYS attributes void kind##_tile(int rows, int vectors, const uint8_t *restrict a,             \
                                     const uint8_t *restrict b, const TileWalk *walk,              \
                                     uint32_t *restrict sums, const TileFinish *finish) {          \
    int64_t row = walk->row;                                                                       \
    WordLanes sum[INTEGER_MOST_ROWS][INTEGER_MOST_VECTORS];                                        \
    WordLanes right[INTEGER_MOST_VECTORS][kind##_PARTS];                                           \
    UNROLL for (int i = 0; i < rows; i++)                                                          \
        UNROLL for (int j = 0; j < vectors; j++) sum[i][j] = (WordLanes)0u;                        \
    _Pragma("clang loop unroll(disable)") for (int64_t s = 0; s < walk->segments; s++) {           \
      const uint8_t *from = a + s * walk->segment;                                                 \
      int64_t words = walk->words;                                                                 \
      _Pragma("clang loop unroll(disable)") do {                                                   \
        UNROLL for (int j = 0; j < vectors; j++)                                                   \
            UNROLL for (int part = 0; part < kind##_PARTS; part++) right[j][part] =                \
                kind##_part(*(const WordLanes *)(b + j * 64), part);                               \
        UNROLL for (int i = 0; i < rows; i++)                                                      \
            UNROLL for (int part = 0; part < kind##_PARTS; part++) {                               \
          uint32_t word;                                                                           \
          __builtin_memcpy(&word, from + i * row + part * 4, sizeof word);                         \
          WordLanes left = (WordLanes)word;                                                        \
          UNROLL for (int j = 0; j < vectors; j++) sum[i][j] =                                     \
              kind##_add(sum[i][j], left, right[j][part]);                                         \
        }                                                                                          \
        from += kind##_PARTS * 4;                                                                  \
        b += vectors * 64;                                                                         \
      }                                                                                            \
      while (--words);                                                                             \
    }                                                                                              \
    if (finish) {                                                                                  \
      finish_tile(rows, vectors, sum, finish);                                                     \
      return;                                                                                      \
    }                                                                                              \
    UNROLL for (int i = 0; i < rows; i++)                                                          \
        UNROLL for (int j = 0; j < vectors; j++) *                                                 \
        (LooseWords *)(sums + (i * vectors + j) * INTEGER_LANES) = sum[i][j];                      \
  }
SUM_TILE(vnni, VNNI)
SUM_TILE(pairs, )

#define TILE_OF(kind, attributes, rows, vectors)                                                   \
  static attributes void kind##_tile_##rows##x##vectors(const uint8_t *a, const uint8_t *b,        \
                                                        const TileWalk *walk, uint32_t *sums,      \
                                                        const TileFinish *finish) {                \
    kind##_tile(rows, vectors, a, b, walk, sums, finish);                                                  \
  }
#define BOTH_TILES(rows, vectors)                                                                  \
  TILE_OF(vnni, VNNI, rows, vectors)                                                               \
  TILE_OF(pairs, , rows, vectors)
BOTH_TILES(1, 1)
BOTH_TILES(2, 1)
BOTH_TILES(4, 1)
#if defined __AVX512BW__
BOTH_TILES(12, 1)
BOTH_TILES(1, 2)
BOTH_TILES(2, 2)
BOTH_TILES(4, 2)
BOTH_TILES(12, 2)
BOTH_TILES(1, 4)
BOTH_TILES(2, 4)
BOTH_TILES(3, 4)
BOTH_TILES(4, 4)
BOTH_TILES(5, 4)
BOTH_TILES(6, 4)
#endif

typedef struct {
  int rows, vectors;
  IntegerTile *tile[2]; /* with vpdpbusd, and without */
} TileOf;
#define TILE_ROW(rows, vectors)                                                                    \
  {                                                                                                \
    rows, vectors, { vnni_tile_##rows##x##vectors, pairs_tile_##rows##x##vectors }                 \
  }
/* Those of most rows first. */
static const TileOf integer_tiles[] = {
#if defined __AVX512BW__
    TILE_ROW(12, 1), TILE_ROW(12, 2), TILE_ROW(4, 2), TILE_ROW(2, 2),
    TILE_ROW(1, 2),  TILE_ROW(6, 4),  TILE_ROW(5, 4), TILE_ROW(4, 4),
    TILE_ROW(3, 4),  TILE_ROW(2, 4),  TILE_ROW(1, 4),
#endif
    TILE_ROW(4, 1),  TILE_ROW(2, 1),  TILE_ROW(1, 1)};

static const TileOf *largest_tile(int64_t rows, int64_t vectors) {
  const TileOf *tile = integer_tiles;
  while (tile->vectors != vectors || tile->rows > rows) tile++;
  return tile;
}

/* As few tiles as can be, of equal rows where there are such tiles: few rows leave a processor idle. */
static const TileOf *next_tile(int64_t rows, int64_t vectors) {
  const TileOf *largest = largest_tile(rows, vectors);
  int64_t tiles = (rows + largest->rows - 1) / largest->rows, each = (rows + tiles - 1) / tiles;
  const TileOf *equal = largest_tile(each, vectors);
  return equal->rows == each ? equal : largest;
}

/* Sums of `count` rows of a by a strip, tile after tile. finish: of the first row; NULL: the sums as they are. */
static void integer_sums(const IntegerProduct *p, const uint8_t *a, const uint8_t *strip, const TileWalk *walk, int64_t count,
                         bool is_vnni, uint32_t *sums, const TileFinish *finish) {
  const TileOf *tile;
  for (int64_t row = 0; row < count; row += tile->rows) {
    tile = next_tile(count - row, p->vectors);
    TileFinish here;
    if (finish) {
      here = *finish;
      here.to += row * here.width;
      if (here.rest) here.rest += row;
    }
    tile->tile[!is_vnni](a + row * walk->row, strip, walk, sums + row * p->vectors * INTEGER_LANES, finish ? &here : 0);
  }
}
#endif
