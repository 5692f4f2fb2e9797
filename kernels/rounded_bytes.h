/* rounded_bytes: the part of rounded_x86.c for rows whose numbers are whole, of -128 to 127 or 0 to 255, on processors that multiply bytes: by vpdpbusd, or
 * weights of 4 bits by vpmaddubsw, whose products add up to 16 bits (Intel SDM, volume 2):
 *
 *   sum over groups of s (sum of n_a n)
 *
 * The sum within a group, or within BYTES_DEPTH steps of a longer one, is exact. n_a is made unsigned by an offset, and the sums of n
 * that this adds are taken off first. Blocks of rows with other numbers, or NaN, are computed in f32. */
#include "kernels/vnni_x86.h"
#if defined __AVX2__
enum {
  BYTES_DEPTH = 256,                  /* steps of k of a panel */
  BYTES_WORDS = BYTES_DEPTH / 4,      /* of a row of it; each has the numbers of four steps */
  BYTES_WIDTH = GEMM_MAX_VECTORS * GEMM_LANES,
  SHORT_WORDS = 8                     /* of two products of 255 by 8 each are less than 2^15 */
};

/* Each 16 bits: the sum of two products of unsigned bytes of a by signed ones of b. */
ALWAYS WordLanes short_pairs(WordLanes a, WordLanes b) {
#if defined __AVX512BW__
  return (WordLanes)_mm512_maddubs_epi16((__m512i)a, (__m512i)b);
#else
  return both_halves(_mm256_maddubs_epi16(LOW_HALF(a), LOW_HALF(b)), _mm256_maddubs_epi16(HIGH_HALF(a), HIGH_HALF(b)));
#endif
}
ALWAYS WordLanes short_add(WordLanes a, WordLanes b) {
  typedef uint16_t ShortWords __attribute__((ext_vector_type(32)));
  return (WordLanes)((ShortWords)a + (ShortWords)b);
}
/* The sums of both halves of each word. */
ALWAYS IntLanes words_of_shorts(WordLanes x) { return ((IntLanes)(x << 16) >> 16) + ((IntLanes)x >> 16); }

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
ALWAYS bool bytes_line(const float *a, int64_t count, int32_t offset, uint8_t *to) {
  typedef uint8_t Bytes __attribute__((ext_vector_type(16), aligned(1)));
  const Bounds bounds = {(Lanes)(float)-offset, (Lanes)(float)(255 - offset)};
  IntLanes bad = (IntLanes)0;
  for (int64_t i = 0; i < count; i += LANES)
    *(Bytes *)(to + i) = __builtin_convertvector(lanes_whole(lanes_some(a + i, 1, count - i), bounds, &bad) + offset, Bytes);
  return !lanes_any(bad);
}

typedef WordLanes WordSums[GEMM_MAX_ROWS][GEMM_MAX_VECTORS];

/* Rows of bytes, `pitch` words apart. */
typedef struct {
  const uint32_t *at;
  int64_t pitch, rows;
} BytesRows;

/* These by a strip, whose last vectors may be missing. */
typedef void BytesStrip(const RoundedProduct *p, uint8_t *strip, const BytesSteps *s, const BytesRows *rows, BytesRoom *room);
#define BYTES(name) vnni_##name
#define BYTES_TARGET VNNI
#define BYTES_ADD(sum, a, b) vnni_add(sum, a, b)
#define BYTES_MOST BYTES_WORDS
#define BYTES_BEGIN(sum) (sum)
#define BYTES_END(sum, own) (own)
#include "kernels/bytes_strip.h"
#define BYTES(name) short_##name
#define BYTES_TARGET
#define BYTES_ADD(sum, a, b) short_add(sum, short_pairs(a, b))
#define BYTES_MOST SHORT_WORDS
#define BYTES_BEGIN(sum) ((WordLanes)0)
#define BYTES_END(sum, own) ((sum) + (WordLanes)words_of_shorts(own))
#include "kernels/bytes_strip.h"
_Static_assert(GEMM_MAX_VECTORS == 4 && ROUNDED_BLOCK % 24 == 0 && ROUNDED_SPARE >= 7, "as many kinds, and whole tiles");
static bool bytes_by_vnni(const RoundedProduct *p) { return p->may_be_vnni && has_vnni(); }
static bool rounded_by_bytes(const RoundedProduct *p) { return rounded_packs_rows(p) && (p->bits == 4 || bytes_by_vnni(p)); }

/* By row of all batches: has it other numbers? */
static int32_t *bytes_faults(const RoundedProduct *p, void *const *args) { return (int32_t *)((char *)args[p->arg_rows] + rounded_row_faults(p)); }

static void rounded_item_bytes(const RoundedProduct *p, void *const *args, const RoundedItem *item, const BytesRows *rows, BytesRoom *room) {
  uint8_t *strip = strip_of(p, args, item->batch * rounded_strips(p) + item->strip);
  int64_t word = 0;
  for (int64_t first = 0; first < p->k;) {
    BytesSteps s = bytes_steps(p, first, word);
    (bytes_by_vnni(p) ? vnni_strips : short_strips)[item->stride / LANES - 1](p, strip, &s, rows, room);
    first += s.count * s.parts;
    word += s.words * s.parts;
  }
  rounded_finish(p, args, item, room->sums);
}

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
    for (int64_t run = 0; run < runs; run++) is_whole &= bytes_line(a + run * count, count, rounded_offset(p), (uint8_t *)(to + run * each));
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
