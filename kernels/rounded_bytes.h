/* rounded_bytes: the part of rounded_x86.c for rows whose numbers are whole, of -128 to 127, on processors that multiply bytes (vpdpbusd):
 *
 *   sum over groups of s (sum of n_a n)
 *
 * The sum within a group, or within BYTES_DEPTH steps of a longer one, is exact. n_a is made unsigned by an offset of 128, and the sums of n
 * that this adds are taken off first. Blocks of rows with other numbers, or NaN, are computed in f32. */
#include "kernels/vnni_x86.h"
#if defined __AVX2__
enum {
  BYTES_DEPTH = 256,                  /* steps of k of a panel */
  BYTES_WORDS = BYTES_DEPTH / 4,      /* of a row of it; each has the numbers of four steps */
  BYTES_WIDTH = GEMM_MAX_VECTORS * GEMM_LANES
};

typedef struct {
  _Alignas(64) uint32_t right[BYTES_WORDS * BYTES_WIDTH];
  _Alignas(64) int32_t begin[BYTES_WORDS * BYTES_WIDTH];
  _Alignas(64) float sums[ROUNDED_BLOCK * BYTES_WIDTH];
} BytesRoom;

/* Steps [first, …) of k, in parts of `count` steps and `words` words, each of one group; `word`: the first of them. */
typedef struct {
  int64_t first, word, count, words, parts;
} BytesSteps;

/* The same of a strip. */
typedef struct {
  const uint32_t *right; /* [parts][words][width] */
  const int32_t *begin;  /* [parts][width], what sums begin with */
  const float *scales;   /* [parts][width] */
  int64_t width, words, parts;
} BytesPanel;

/* The steps from `first` on: whole groups, or what there is room for of one. */
static BytesSteps bytes_steps(const RoundedProduct *p, int64_t first, int64_t word) {
  int64_t left = p->group - first % p->group, groups = (p->k - first) / p->group, steps = rounded_steps(p);
  BytesSteps s = {.first = first, .word = word, .count = left < BYTES_DEPTH ? left : BYTES_DEPTH, .parts = 1};
  s.words = (s.count + steps - 1) / steps * (steps / 4);
  if (p->group <= BYTES_DEPTH) s.parts = groups < BYTES_WORDS / s.words ? groups : BYTES_WORDS / s.words;
  return s;
}

/* `count` numbers as bytes, and up to a whole vector what is there already; false: some are no such numbers. */
ALWAYS bool bytes_line(const float *a, int64_t count, uint8_t *to) {
  typedef uint8_t Bytes __attribute__((ext_vector_type(16), aligned(1)));
  IntLanes bad = (IntLanes)0;
  for (int64_t i = 0; i < count; i += LANES) {
    Lanes x = (Lanes)0.0f;
    if (i + LANES <= count)
      x = lanes_load(a + i);
    else
      for (int64_t lane = 0; i + lane < count; lane++) x[lane] = a[i + lane];
    IntLanes is_within = (x >= -128) & (x <= 127);
    IntLanes whole = __builtin_convertvector((Lanes)((IntLanes)x & is_within), IntLanes);
    bad |= ~is_within | (__builtin_convertvector(whole, Lanes) != x);
    *(Bytes *)(to + i) = __builtin_convertvector(whole + 128, Bytes);
  }
  int any = 0;
  for (int lane = 0; lane < LANES; lane++) any |= bad[lane];
  return !any;
}

/* `count` steps of one group of a strip's first vectors. */
ALWAYS VNNI void bytes_part(int bits, int vectors, int64_t width, const uint8_t *from, int64_t count, uint32_t *to, int32_t *begin) {
  typedef int8_t SignedLanes __attribute__((ext_vector_type(64)));
  const WordLanes ones = (WordLanes)0x01010101u, low = (WordLanes)0x0f0f0f0fu, sign = (WordLanes)0x08080808u;
  WordLanes total[GEMM_MAX_VECTORS];
  UNROLL for (int j = 0; j < vectors; j++) total[j] = (WordLanes)0;
  for (; count > 0; count -= 32 / bits, from += width * 4, to += 8 / bits * width)
    UNROLL for (int j = 0; j < vectors; j++) {
      WordLanes word = words_at(from + j * LANES * 4);
      UNROLL for (int half = 0; half < 8 / bits; half++) {
        WordLanes numbers = bits == 8 ? word : (WordLanes)((SignedLanes)((word >> (4 * half) & low) ^ sign) - (SignedLanes)sign);
        total[j] = vnni_add(total[j], ones, numbers);
        *(WordLanes *)(to + half * width + j * LANES) = numbers;
      }
    }
  UNROLL for (int j = 0; j < vectors; j++) *(WordLanes *)(begin + j * LANES) = total[j] * -128u;
}

ALWAYS VNNI BytesPanel bytes_panel(int vectors, const RoundedProduct *p, uint8_t *strip, const BytesSteps *s, BytesRoom *room) {
  int64_t width = rounded_width(p), g = s->first / p->group;
  const uint8_t *from = strip + g * rounded_group_bytes(p) + s->first % p->group / rounded_steps(p) * width * 4;
  for (int64_t i = 0; i < s->parts; i++, from += rounded_group_bytes(p)) {
    uint32_t *to = room->right + i * s->words * width;
    if (p->bits == 4)
      bytes_part(4, vectors, width, from, s->count, to, room->begin + i * width);
    else
      bytes_part(8, vectors, width, from, s->count, to, room->begin + i * width);
  }
  return (BytesPanel){room->right, room->begin, strip_scales(p, strip) + g * width, width, s->words, s->parts};
}

/* Sums of `rows` rows and of `vectors` vectors of columns from `column` on. */
ALWAYS VNNI void bytes_sums(int rows, int vectors, const BytesPanel *panel, int64_t column, const uint32_t *left, int64_t pitch,
                            float *sums, int64_t stride, bool adds) {
  TileSums total;
  const uint32_t *right = panel->right + column;
  tile_begin(rows, vectors, total);
  for (int64_t part = 0; part < panel->parts; part++) {
    WordLanes sum[GEMM_MAX_ROWS][GEMM_MAX_VECTORS];
    int64_t at = part * panel->width + column, words = panel->words;
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++) sum[i][j] = *(const WordLanes *)(panel->begin + at + j * LANES);
#pragma clang loop unroll(disable)
    do {
      WordLanes by[GEMM_MAX_VECTORS];
      UNROLL for (int j = 0; j < vectors; j++) by[j] = *(const WordLanes *)(right + j * LANES);
      UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++) sum[i][j] =
          vnni_add(sum[i][j], (WordLanes)left[i * pitch], by[j]);
      left++;
      right += panel->width;
    } while (--words);
    UNROLL for (int j = 0; j < vectors; j++) {
      Lanes scale = lanes_load(panel->scales + at + j * LANES);
      UNROLL for (int i = 0; i < rows; i++) total[i][j] += __builtin_convertvector((IntLanes)sum[i][j], Lanes) * scale;
    }
  }
  tile_end(rows, vectors, total, sums, stride, adds);
}

/* Rows of bytes, `pitch` words apart. */
typedef struct {
  const uint32_t *at;
  int64_t pitch, rows;
} BytesRows;

/* These by a strip, whose last vectors may be missing: by vectors, as many rows and vectors at once as there are registers for two sums each. */
typedef void BytesStrip(const RoundedProduct *p, uint8_t *strip, const BytesSteps *s, const BytesRows *rows, BytesRoom *room);
#define BYTES_STRIP(rows_at_once, vectors, at_once)                                                                                        \
  static VNNI __attribute__((noinline)) void bytes_strip_##vectors(const RoundedProduct *p, uint8_t *strip, const BytesSteps *s,           \
                                                                   const BytesRows *rows, BytesRoom *room) {                               \
    BytesPanel panel = bytes_panel(vectors, p, strip, s, room);                                                                            \
    const int64_t stride = (vectors) * LANES;                                                                                              \
    for (int64_t row = 0; row < rows->rows; row += (rows_at_once))                                                                         \
      for (int64_t column = 0; column < stride; column += (at_once) * LANES)                                                               \
        bytes_sums(rows_at_once, at_once, &panel, column, rows->at + row * rows->pitch + s->word, rows->pitch,                             \
                   room->sums + row * stride + column, stride, s->first > 0);                                                              \
  }
#if defined __AVX512BW__
BYTES_STRIP(8, 1, 1)
BYTES_STRIP(6, 2, 2)
BYTES_STRIP(4, 3, 3)
BYTES_STRIP(3, 4, 4)
#else
BYTES_STRIP(3, 1, 1)
BYTES_STRIP(3, 2, 1)
BYTES_STRIP(3, 3, 1)
BYTES_STRIP(3, 4, 1)
#endif
_Static_assert(GEMM_MAX_VECTORS == 4 && ROUNDED_BLOCK % 24 == 0 && ROUNDED_SPARE >= 7, "as many kinds, and whole tiles");
static BytesStrip *const bytes_strip_of[] = {bytes_strip_1, bytes_strip_2, bytes_strip_3, bytes_strip_4};

/* By row of all batches: has it other numbers? */
static int32_t *bytes_faults(const RoundedProduct *p, void *const *args) { return (int32_t *)((char *)args[p->arg_rows] + rounded_row_faults(p)); }

static void rounded_item_bytes(const RoundedProduct *p, void *const *args, const RoundedItem *item, const BytesRows *rows, BytesRoom *room) {
  uint8_t *strip = strip_of(p, args, item->batch * rounded_strips(p) + item->strip);
  int64_t word = 0;
  for (int64_t first = 0; first < p->k;) {
    BytesSteps s = bytes_steps(p, first, word);
    bytes_strip_of[item->stride / LANES - 1](p, strip, &s, rows, room);
    first += s.count * s.parts;
    word += s.words * s.parts;
  }
  rounded_finish(p, args, item, room->sums);
}

static bool rounded_by_bytes(const RoundedProduct *p) { return rounded_packs_rows(p) && p->may_be_vnni && has_vnni(); }

static __attribute__((noinline)) void rounded_run_bytes(const RoundedProduct *p, void *const *args, int64_t begin, int64_t end) {
  BytesRoom room;
  for (; begin < end; begin++) {
    RoundedItem item = rounded_item(p, begin);
    int64_t first = item.batch * p->m + item.row;
    const int32_t *faults = bytes_faults(p, args) + first;
    BytesRows rows = {(const uint32_t *)args[p->arg_rows] + first * rounded_row_words(p), rounded_row_words(p), item.rows};
    int32_t any = 0;
    for (int64_t i = 0; i < item.rows; i++) any |= faults[i];
    if (any)
      rounded_run_any(p, args, begin, begin + 1);
    else
      rounded_item_bytes(p, args, &item, &rows, &room);
  }
}

void rounded_rows_run(const RoundedProduct *p, void *const *args, int64_t begin, int64_t end) {
  int64_t words = rounded_row_words(p), steps = rounded_steps(p), each = (p->group + steps - 1) / steps * (steps / 4);
  bool is_one_run = each * 4 == p->group;
  int64_t runs = is_one_run ? 1 : p->k / p->group, count = is_one_run ? p->k : p->group;
  if (!rounded_by_bytes(p)) return;
  for (; begin < end; begin++) {
    uint32_t *to = (uint32_t *)args[p->arg_rows] + begin * words;
    const float *a = (const float *)args[p->arg_a] + begin * p->k;
    bool is_whole = true;
    for (int64_t run = 0; run < runs; run++) is_whole &= bytes_line(a + run * count, count, (uint8_t *)(to + run * each));
    bytes_faults(p, args)[begin] = !is_whole;
  }
}
#else
static bool rounded_by_bytes(const RoundedProduct *p) {
  (void)p;
  return false;
}
static void rounded_run_bytes(const RoundedProduct *p, void *const *args, int64_t begin, int64_t end) { rounded_run_any(p, args, begin, end); }
void rounded_rows_run(const RoundedProduct *p, void *const *args, int64_t begin, int64_t end) { (void)p, (void)args, (void)begin, (void)end; }
#endif
