/* rounded_bf16: the part of rounded_x86.c for rows whose numbers are bf16, on processors that multiply pairs of these
 * (vdpbf16ps, Intel SDM volume 2). A panel has the whole numbers themselves, as n / u, which bf16 holds exactly, and the sum of each group is
 * scaled in f32: so weights are rounded no further than where rows are f32. */
#include "kernels/pairs_x86.h"
#if defined __AVX512BW__
enum { BF16_DEPTH = 128, BF16_WORDS = BF16_DEPTH / 2 };

typedef struct {
  _Alignas(64) uint32_t left[ROUNDED_BLOCK * BF16_WORDS];
  _Alignas(64) uint32_t right[BF16_WORDS * GEMM_MAX_VECTORS * GEMM_LANES];
  _Alignas(64) float sums[ROUNDED_BLOCK * GEMM_MAX_VECTORS * GEMM_LANES];
} Bf16Room;

/* Some steps of a strip: parts of equal length, each with a scale for each column. */
typedef struct {
  const uint32_t *right; /* [parts][words][width] */
  const float *scales;   /* [parts][width] */
  int64_t width, words, parts;
} Bf16Panel;

/* Do the rows go this way? */
static bool rounded_by_bf16(const RoundedProduct *p) {
  return p->first == FIRST_BF16 && !p->ta && p->group % 2 == 0 && gemm_bf16_way(p->may_use & ~(int64_t)GEMM_AMX) == GEMM_DPBF16;
}

/* `count` steps of one group, two of them a word. */
ALWAYS void bf16_group(int bits, int64_t width, const uint8_t *from, int64_t count, uint32_t *to) {
  const int steps = 32 / bits;
  const float part = widened_unit(bits) / rounded_unit(bits);
  for (; count > 0; count -= steps, from += width * 4, to += steps / 2 * width)
    for (int64_t j = 0; j < width; j += LANES) {
      WordLanes word = words_at(from + j * 4);
      UNROLL for (int i = 0; i < steps; i += 2) {
        if (i >= count) continue;
        WordLanes even = (WordLanes)(number_at(bits, word, i) * part), odd = (WordLanes)(number_at(bits, word, i + 1) * part);
        *(WordLanes *)(to + i / 2 * width + j) = even >> 16 | (odd & 0xffff0000u);
      }
    }
}

/* The steps from `first` on: whole groups, or what there is room for of one. */
static Bf16Panel bf16_panel(const RoundedProduct *p, uint8_t *strip, int64_t first, uint32_t *to) {
  int64_t width = rounded_width(p), g = first / p->group, at = first % p->group, left = p->group - at;
  int64_t count = left < BF16_DEPTH ? left : BF16_DEPTH, parts = 1;
  if (p->group <= BF16_DEPTH) {
    parts = (p->k - first) / p->group;
    parts = parts < BF16_DEPTH / p->group ? parts : BF16_DEPTH / p->group;
  }
  const uint8_t *from = strip + g * rounded_group_bytes(p) + at / rounded_steps(p) * width * 4;
  for (int64_t i = 0; i < parts; i++, from += rounded_group_bytes(p))
    if (p->bits == 4)
      bf16_group(4, width, from, count, to + i * count / 2 * width);
    else
      bf16_group(8, width, from, count, to + i * count / 2 * width);
  return (Bf16Panel){to, strip_scales(p, strip) + g * width, width, count / 2, parts};
}

/* to[rows][BF16_WORDS]: `count` steps of rows of a, `pitch` apart, which bf16 holds exactly. */
static DPBF16 __attribute__((noinline)) void bf16_left(const float *a, int64_t pitch, int64_t rows, int64_t count, uint32_t *to) {
  for (; rows > 0; rows--, a += pitch, to += BF16_WORDS) {
    int64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
      __m512bh pairs = _mm512_cvtne2ps_pbh((__m512)lanes_load(a + i + LANES), (__m512)lanes_load(a + i));
      __builtin_memcpy(to + i / 2, &pairs, sizeof pairs);
    }
    for (; i < count; i += 2) to[i / 2] = __builtin_bit_cast(uint32_t, a[i]) >> 16 | (__builtin_bit_cast(uint32_t, a[i + 1]) & 0xffff0000u);
  }
}

/* Sums of `rows` rows and the first `vectors` vectors of columns, each divided by u. */
ALWAYS DPBF16 void bf16_sums(int rows, int vectors, const Bf16Panel *panel, const uint32_t *left, float *sums, int64_t stride, bool adds) {
  TileSums total;
  const uint32_t *right = panel->right;
  tile_begin(rows, vectors, total);
  for (int64_t part = 0; part < panel->parts; part++) {
    TileSums sum;
    int64_t words = panel->words;
    tile_begin(rows, vectors, sum);
#pragma clang loop unroll(disable)
    do {
      dpbf16_add(rows, vectors, sum, left, BF16_WORDS, right);
      left++;
      right += panel->width;
    } while (--words);
    UNROLL for (int j = 0; j < vectors; j++) {
      Lanes scale = lanes_load(panel->scales + part * panel->width + j * LANES);
      UNROLL for (int i = 0; i < rows; i++) total[i][j] += sum[i][j] * scale;
    }
  }
  tile_end(rows, vectors, total, sums, stride, adds);
}

/* By vectors: as many rows as there are registers for two sums each; they divide ROUNDED_BLOCK. */
#define BF16_SUMS(rows, vectors)                                                                                                      \
  static DPBF16 __attribute__((noinline)) void bf16_sums_##vectors(const Bf16Panel *panel, const uint32_t *left, float *sums,       \
                                                                        int64_t stride, bool adds) {                                     \
    bf16_sums(rows, vectors, panel, left, sums, stride, adds);                                                                            \
  }
BF16_SUMS(8, 1)
BF16_SUMS(6, 2)
BF16_SUMS(4, 3)
BF16_SUMS(3, 4)
_Static_assert(GEMM_MAX_VECTORS == 4, "as many kinds");
typedef void Bf16Sums(const Bf16Panel *panel, const uint32_t *left, float *sums, int64_t stride, bool adds);
static Bf16Sums *const bf16_sums_of[] = {bf16_sums_1, bf16_sums_2, bf16_sums_3, bf16_sums_4};
static const int bf16_tile_rows[] = {8, 6, 4, 3};

static void rounded_item_bf16(const RoundedProduct *p, void *const *args, const RoundedItem *item, const float *a, uint8_t *strip, Bf16Room *room) {
  int kind = (int)(item->stride / LANES) - 1;
  int64_t tile = bf16_tile_rows[kind], whole = (item->rows + tile - 1) / tile * tile, depth;
  const float unit = rounded_unit((int)p->bits);
  for (int64_t i = item->rows * BF16_WORDS; i < whole * BF16_WORDS; i++) room->left[i] = 0;
  for (int64_t first = 0; first < p->k; first += depth) {
    Bf16Panel panel = bf16_panel(p, strip, first, room->right);
    depth = 2 * panel.words * panel.parts;
    bf16_left(a + first, p->k, item->rows, depth, room->left);
    for (int64_t row = 0; row < whole; row += tile)
      bf16_sums_of[kind](&panel, room->left + row * BF16_WORDS, room->sums + row * item->stride, item->stride, first > 0);
  }
  for (int64_t i = 0; i < item->rows * item->stride; i += LANES) lanes_store(room->sums + i, lanes_load(room->sums + i) * unit);
  rounded_finish(p, args, item, room->sums);
}

static __attribute__((noinline)) void rounded_run_bf16(const RoundedProduct *p, void *const *args, int64_t begin, int64_t end) {
  Bf16Room room;
  for (; begin < end; begin++) {
    RoundedItem item = rounded_item(p, begin);
    uint8_t *strip = strip_of(p, args, item.batch * rounded_strips(p) + item.strip);
    rounded_item_bf16(p, args, &item, rounded_left(p, args, &item), strip, &room);
  }
}
#else
static bool rounded_by_bf16(const RoundedProduct *p) {
  (void)p;
  return false;
}
static void rounded_run_bf16(const RoundedProduct *p, void *const *args, int64_t begin, int64_t end) {
  (void)p, (void)args, (void)begin, (void)end;
}
#endif
