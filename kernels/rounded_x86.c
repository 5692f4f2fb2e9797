/* rounded_x86: c = op(a) op(b) in f32, where b is weights that were rounded: in each group of steps of k, whole
 * numbers of 4 or 8 bits times a scale. They are read as such, an eighth or a quarter of f32's bytes, which is
 * what a product of few rows takes its time for; it is how texts are generated.
 *
 * Of few rows each number is widened to f32 where it is multiplied, and the sum of a group is scaled:
 * u (sum over groups of s (sum of a n / u)). By u, 8 or 128, n / u is at most 1, so that sums are not
 * infinite long before those by weights would be. Of one row, where the processor has vpdpbusd, the sums of pieces are
 * those of whole numbers. Of more rows than few, a panel of n s is made, which is what was
 * rounded, and the tiles of kernels/gemm_x86.c multiply by it; or, of rows of bf16 or of whole numbers, one of n (rounded_bf16.h,
 * rounded_bytes.h). Any split of the items gives the same bits. */
#include "kernels/rounded_host.h"
#include "kernels/tile_x86.h"
#include "kernels/vnni_x86.h"

#define UNROLL _Pragma("clang loop unroll(full)")
enum { ROUNDED_LANES = GEMM_LANES };
typedef int8_t SignedBytes __attribute__((ext_vector_type(16), aligned(1)));

/* ── packing ────────────────────────────────────────────────────────────────────────────────── */
ALWAYS float magnitude(float x) { return __builtin_fabsf(x); }

/* The whole number between low and high that is nearest to x / scale; 0 where that is NaN. */
ALWAYS int32_t number_of(const RoundedProduct *p, float x, float scale) {
  float n = __builtin_rintf(x / scale);
  if (n != n) return 0;
  return n<(float)p->low ? (int32_t)p->low : n>(float) p->high ? (int32_t)p->high : (int32_t)n;
}

/* Is each number of the group, `step` apart, a whole number times this scale, as f32 rounds it? */
static bool is_scale(const RoundedProduct *p, const float *b, int64_t step, float scale) {
  for (int64_t i = 0; i < p->group; i++)
    if (!((float)number_of(p, b[i * step], scale) * scale == b[i * step])) return false;
  return true;
}

/* The next f32 to x, which is neither 0 nor infinite, away from 0 (by 1) or towards it (by -1). */
ALWAYS float neighbour(float x, int32_t by) {
  return __builtin_bit_cast(float, __builtin_bit_cast(int32_t, x) + by);
}

/* A scale with which the group can be packed without loss: the smallest of its numbers is some whole number of
 * scales. There is one, since they were made so; else NaN, so that no result passes for right. */
static float packing_scale(const RoundedProduct *p, const float *b, int64_t step) {
  int64_t most = -p->low > p->high ? -p->low : p->high;
  float least = 0;
  for (int64_t i = 0; i < p->group; i++) {
    float size = magnitude(b[i * step]);
    if (size != size) return size;
    if (size > 0 && (least == 0 || size < least)) least = size;
  }
  if (least == 0) return 0;
  if (is_scale(p, b, step, least)) return least;
  for (int64_t n = 1; n <= most; n++) {
    float scale = least / (float)n;
    for (int32_t by = -1; by <= 1; by++) {
      float near = neighbour(scale, by);
      if (is_scale(p, b, step, near)) return near;
      if (is_scale(p, b, step, -near)) return -near;
    }
  }
  return __builtin_nanf("");
}

static uint8_t *strip_of(const RoundedProduct *p, void *const *args, int64_t number) {
  return (uint8_t *)args[p->arg_packed] + number * rounded_strip_bytes(p);
}
static float *strip_scales(const RoundedProduct *p, uint8_t *strip) {
  return (float *)(strip + rounded_data_bytes(p));
}

/* Column j of a strip: b's numbers are `step` apart. */
static void rounded_pack_column(const RoundedProduct *p, const float *b, int64_t step, int64_t j,
                                uint8_t *strip) {
  int64_t width = rounded_width(p);
  for (int64_t g = 0; g < p->k / p->group; g++) {
    const float *from = b + g * p->group * step;
    uint8_t *to = strip + g * rounded_group_bytes(p) + j * 4;
    float scale = packing_scale(p, from, step);
    strip_scales(p, strip)[g * width + j] = scale;
    for (int64_t i = 0; i < p->group; i++) {
      uint32_t n = (uint32_t)number_of(p, from[i * step], scale);
      uint8_t *byte = to + i / rounded_steps(p) * width * 4 + i % 4;
      if (p->bits == 8)
        *byte = (uint8_t)n;
      else
        *byte |= (uint8_t)((n & 15) << i % 8 / 4 * 4);
    }
  }
}

void rounded_pack_run(const RoundedProduct *p, void *const *args, int64_t begin, int64_t end) {
  int64_t strips = rounded_strips(p), width = rounded_width(p);
  for (; begin < end; begin++) {
    const float *b = (const float *)args[p->arg_b] + begin / strips * p->k * p->n;
    int64_t first = begin % strips * width, columns = p->n - first < width ? p->n - first : width;
    uint8_t *strip = strip_of(p, args, begin);
    for (int64_t i = 0; i < rounded_data_bytes(p); i++) strip[i] = 0;
    for (int64_t i = rounded_data_bytes(p); columns < width && i < rounded_strip_bytes(p); i++) strip[i] = 0;
    for (int64_t j = 0; j < columns; j++)
      rounded_pack_column(p, b + (first + j) * (p->tb ? p->k : 1), p->tb ? 1 : p->n, j, strip);
  }
}

/* ── unpacking ──────────────────────────────────────────────────────────────────────────────── */
/* `bits` is a constant wherever these are inlined. */
ALWAYS float rounded_unit(int bits) { return bits == 8 ? 128.0f : 8.0f; }

/* What numbers are divided by as they are widened: those that are looked up are, since it costs nothing. */
#if defined __AVX512F__
ALWAYS float widened_unit(int bits) { return bits == 8 ? 1.0f : rounded_unit(bits); }
#else
ALWAYS float widened_unit(int bits) { return (void)bits, 1.0f; }
#endif

/* A vector of columns at step i of the words. */
ALWAYS Lanes number_at(int bits, WordLanes word, int i) {
  if (bits == 8) return __builtin_convertvector((IntLanes)(word << (24 - 8 * i)) >> 24, Lanes);
  int bit = 8 * (i % 4) + i / 4 * 4;
#if defined __AVX512F__
  const Lanes number = {0,  0.125f,  0.25f,  0.375f,  0.5f,  0.625f,  0.75f,  0.875f,
                        -1, -0.875f, -0.75f, -0.625f, -0.5f, -0.375f, -0.25f, -0.125f};
  return (Lanes)_mm512_permutexvar_ps((__m512i)(word >> bit), (__m512)number); /* by the low 4 bits */
#else
  return __builtin_convertvector((IntLanes)(word << (28 - bit)) >> 28, Lanes);
#endif
}
/* Of 8 bits the same times 2^24, each byte the highest of a word, which takes an instruction less. */
#if defined __AVX2__
#define PLACE(w) 64, 64, 64, 4 * w
#define PLACES(i)                                                                                                                  \
  __builtin_shufflevector((Bytes)word, (Bytes)0, PLACE(0) + i, PLACE(1) + i, PLACE(2) + i, PLACE(3) + i, PLACE(4) + i, PLACE(5) + i, \
                          PLACE(6) + i, PLACE(7) + i, PLACE(8) + i, PLACE(9) + i, PLACE(10) + i, PLACE(11) + i, PLACE(12) + i,       \
                          PLACE(13) + i, PLACE(14) + i, PLACE(15) + i)
ALWAYS Lanes highest_at(WordLanes word, int i) {
  typedef uint8_t Bytes __attribute__((ext_vector_type(64)));
  Bytes highest = i == 0 ? PLACES(0) : i == 1 ? PLACES(1) : i == 2 ? PLACES(2) : PLACES(3);
  return __builtin_convertvector((IntLanes)highest, Lanes);
}
#else
ALWAYS Lanes highest_at(WordLanes word, int i) { return number_at(8, word, i) * 0x1p24f; }
#endif
ALWAYS WordLanes words_at(const uint8_t *from) { return *(const LooseWords *)from; }

/* ── few rows ───────────────────────────────────────────────────────────────────────────────── */
/* tile[r * stride + j] of `rows` rows of a by `vectors` vectors of a strip, from its column `column` on. Even and odd
 * steps of one row have sums of their own: a chain of sums is no faster than its latency. */
ALWAYS void few_sums(int bits, bool is_highest, int rows, int vectors, const RoundedProduct *p, const float *a,
                     uint8_t *strip, int64_t column, float *tile, int64_t stride) {
  int64_t width = rounded_width(p), groups = p->k / p->group;
  int64_t a_row = p->ta ? 1 : p->k, a_k = p->ta ? p->m : 1;
  const int steps = 32 / bits;
  const float *scales = strip_scales(p, strip) + column;
  const uint8_t *from = strip + column * 4;
  Lanes total[ROUNDED_FEW][GEMM_MAX_VECTORS];
  const float part = (is_highest ? 0x1p-24f : widened_unit(bits)) / rounded_unit(bits);
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int j = 0; j < vectors; j++) total[r][j] =
      (Lanes)0.0f;
  for (int64_t g = 0; g < groups; g++) {
    Lanes sum[ROUNDED_FEW][GEMM_MAX_VECTORS][2];
    int64_t left = p->group;
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int j = 0; j < vectors; j++) sum[r][j][0] =
        sum[r][j][1] = (Lanes)0.0f;
#pragma clang loop unroll(disable)
    for (; left >= steps; left -= steps, from += width * 4) {
      UNROLL for (int j = 0; j < vectors; j++) {
        WordLanes word = words_at(from + j * ROUNDED_LANES * 4);
        UNROLL for (int i = 0; i < steps; i++) {
          Lanes right = is_highest ? highest_at(word, i) : number_at(bits, word, i);
          UNROLL for (int r = 0; r < rows; r++) sum[r][j][rows == 1 ? i % 2 : 0] +=
              (Lanes)(a[r * a_row + i * a_k] * part) * right;
        }
      }
      a += steps * a_k;
    }
    if (left) {
      UNROLL for (int j = 0; j < vectors; j++) {
        WordLanes word = words_at(from + j * ROUNDED_LANES * 4);
        UNROLL for (int i = 0; i < steps - 1; i++) {
          if (i >= left) continue;
          Lanes right = is_highest ? highest_at(word, i) : number_at(bits, word, i);
          UNROLL for (int r = 0; r < rows; r++) sum[r][j][0] += (Lanes)(a[r * a_row + i * a_k] * part) * right;
        }
      }
      a += left * a_k;
      from += width * 4;
    }
    UNROLL for (int j = 0; j < vectors; j++) {
      Lanes scale = lanes_load(scales + g * width + j * ROUNDED_LANES);
      UNROLL for (int r = 0; r < rows; r++) total[r][j] += (sum[r][j][0] + sum[r][j][1]) * scale;
    }
  }
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int j = 0; j < vectors; j++)
      lanes_store(tile + r * stride + column + j * ROUNDED_LANES, total[r][j] * rounded_unit(bits));
}

/* The first `stride` columns of a strip, as many vectors at a time as there are registers for. */
ALWAYS void few_rows(int bits, bool is_highest, int rows, const RoundedProduct *p, const float *a, uint8_t *strip,
                     float *tile, int64_t stride) {
#if defined __AVX512F__
  const int most = rows <= 2 ? 4 : 2;
#else
  const int most = rows == 1 ? 2 : 1;
#endif
  int64_t column = 0;
  for (; column + most * ROUNDED_LANES <= stride; column += most * ROUNDED_LANES)
    few_sums(bits, is_highest, rows, most, p, a, strip, column, tile, stride);
  for (; column < stride; column += ROUNDED_LANES)
    few_sums(bits, is_highest, rows, 1, p, a, strip, column, tile, stride);
}

typedef void FewRows(const RoundedProduct *p, const float *a, uint8_t *strip, float *tile,
                     int64_t stride);
#define FEW_ROWS(bits, rows)                                                                       \
  static void few_rows_##bits##x##rows(const RoundedProduct *p, const float *a, uint8_t *strip,    \
                                       float *tile, int64_t stride) {                              \
    few_rows(bits, false, rows, p, a, strip, tile, stride);                                               \
  }
FEW_ROWS(4, 1)
FEW_ROWS(4, 2)
FEW_ROWS(4, 3)
FEW_ROWS(4, 4)
FEW_ROWS(8, 1)
FEW_ROWS(8, 2)
FEW_ROWS(8, 3)
FEW_ROWS(8, 4)
static FewRows *const few_rows_of[2][ROUNDED_FEW] = {
    {few_rows_4x1, few_rows_4x2, few_rows_4x3, few_rows_4x4},
    {few_rows_8x1, few_rows_8x2, few_rows_8x3, few_rows_8x4}};

/* One row by 8 bits, unless it has numbers that would lose bits as they are divided by 2^31. */
static void few_rows_highest(const RoundedProduct *p, const float *a, uint8_t *strip, float *tile, int64_t stride) {
  few_rows(8, true, 1, p, a, strip, tile, stride);
}
static bool has_small(const float *a, int64_t count) {
  IntLanes any = (IntLanes)0;
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    Lanes x = lanes_load(a + i);
    any |= (x != 0) & (x > -0x1p-90f) & (x < 0x1p-90f);
  }
  bool is = lanes_any(any);
  for (; i < count; i++) is |= a[i] != 0 && magnitude(a[i]) < 0x1p-90f;
  return is;
}

/* ── one row of whole numbers ───────────────────────────────────────────────────────────────── */
/* vpdpbusd multiplies four numbers for each sum, so that a row of few products takes no longer than its weights' bytes. So in each
 * piece of the sum, ROUNDED_PIECE steps of one group at most, a is taken for whole numbers of 31 bits times a power of two, each
 * within 2^-31 of the piece's largest a, and these are the sum of four digits of 8 bits, each times 2^24, 2^16, 2^8 and 1:
 *
 *   sum of a n  =  unit (sum of d0 n + 2^-8 (sum of d1 n + 2^-8 (sum of d2 n + 2^-8 sum of d3 n)))
 *
 * The sums of digits are exact. n is made unsigned by an offset, and what that adds is taken off first. */
enum { DIGITS = 4, WHOLE_WORDS = ROUNDED_ROW / 2 }; /* pieces of 9 steps take 4 words, by 4 bits */
typedef struct {
  _Alignas(64) uint32_t digit[DIGITS][WHOLE_WORDS + 2 * GEMM_LANES]; /* words of four steps; pieces begin at whole rows of weights */
  int32_t begin[ROUNDED_ROW / 8][DIGITS];
  float unit[ROUNDED_ROW / 8];
} WholeRow;

static int64_t pieces_of_group(const RoundedProduct *p) { return (p->group + ROUNDED_PIECE - 1) / ROUNDED_PIECE; }

/* Of the piece's largest |a|; false: there is none, a is infinite or NaN. */
static bool piece_unit(const float *a, int64_t count, float *unit, float inverse[2]) {
  uint32_t most = 0;
  for (int64_t i = 0; i < count; i++) {
    uint32_t size = __builtin_bit_cast(uint32_t, a[i]) & 0x7fffffff;
    most = size > most ? size : most;
  }
  int32_t exponent = (int32_t)(most >> 23) - 126; /* |a| < 2^exponent */
  if (exponent > 128) return false;
  if (exponent < -119) exponent = -119; /* what is smaller is all in 30 bits, too */
  *unit = __builtin_bit_cast(float, (uint32_t)(exponent - 6 + 127) << 23); /* 24 bits above 2^(exponent - 30), … */
  inverse[0] = __builtin_bit_cast(float, (uint32_t)(15 - exponent / 2 + 127) << 23); /* … of which this is the inverse */
  inverse[1] = __builtin_bit_cast(float, (uint32_t)(15 - exponent + exponent / 2 + 127) << 23);
  return true;
}

/* The piece's digits from word `at` on, zeros behind them up to a vector, and the sums that it begins with. */
static void make_digits(const float *a, int64_t count, const float inverse[2], int32_t offset, int64_t at, int32_t begin[DIGITS],
                        WholeRow *out) {
  IntLanes total[DIGITS];
  for (int d = 0; d < DIGITS; d++) total[d] = (IntLanes)0;
  for (int64_t i = 0; i < count; i += LANES) {
    Lanes value = lanes_some(a + i, 1, count - i);
    IntLanes whole = __builtin_convertvector(__builtin_elementwise_rint(value * inverse[0] * inverse[1]), IntLanes);
    UNROLL for (int d = DIGITS - 1; d >= 0; d--) {
      IntLanes digit = d ? whole << 24 >> 24 : whole;
      *(SignedBytes *)((int8_t *)(out->digit[d] + at) + i) = __builtin_convertvector(digit, SignedBytes);
      total[d] += digit;
      whole = (whole - digit) >> 8;
    }
  }
  for (int d = 0; d < DIGITS; d++) begin[d] = -offset * lanes_total(total[d]);
}

/* false: a row that has no such form. */
static bool make_whole_row(const RoundedProduct *p, const float *a, WholeRow *out) {
  int64_t each = pieces_of_group(p), at = 0, piece = 0;
  if (p->k > ROUNDED_ROW) return false;
  for (int64_t g = 0; g < p->k / p->group; g++)
    for (int64_t i = 0; i < each; i++, piece++) {
      int64_t first = i * ROUNDED_PIECE, count = p->group - first < ROUNDED_PIECE ? p->group - first : ROUNDED_PIECE;
      float inverse[2];
      if (!piece_unit(a + g * p->group + first, count, &out->unit[piece], inverse)) return false;
      make_digits(a + g * p->group + first, count, inverse, p->bits == 8 ? 128 : 8, at, out->begin[piece], out);
      at += (count + rounded_steps(p) - 1) / rounded_steps(p) * (rounded_steps(p) / 4);
    }
  return true;
}

/* sum[d][j] += the digits' words at `digit` by the words of `vectors` vectors. */
ALWAYS VNNI void whole_add(int vectors, WordLanes sum[DIGITS][GEMM_MAX_VECTORS], const WordLanes *word, const WholeRow *a,
                           int64_t digit) {
  UNROLL for (int d = 0; d < DIGITS; d++) UNROLL for (int j = 0; j < vectors; j++) sum[d][j] =
      vnni_add(sum[d][j], word[j], (WordLanes)a->digit[d][digit]);
}

ALWAYS VNNI void whole_sums(int bits, int vectors, const RoundedProduct *p, const WholeRow *a, uint8_t *strip, int64_t column,
                            float *tile) {
  int64_t width = rounded_width(p), groups = p->k / p->group, pieces = pieces_of_group(p), piece = 0, digit = 0;
  const float *scales = strip_scales(p, strip) + column;
  const uint8_t *from = strip + column * 4;
  const uint32_t low = 0x0f0f0f0f, sign = bits == 8 ? 0x80808080 : 0x08080808;
  Lanes total[GEMM_MAX_VECTORS];
  UNROLL for (int j = 0; j < vectors; j++) total[j] = (Lanes)0.0f;
  for (int64_t g = 0; g < groups; g++, scales += width)
    for (int64_t i = 0, left = p->group; i < pieces; i++, piece++, left -= ROUNDED_PIECE) {
      WordLanes sum[DIGITS][GEMM_MAX_VECTORS];
      UNROLL for (int d = 0; d < DIGITS; d++) UNROLL for (int j = 0; j < vectors; j++) sum[d][j] =
          (WordLanes)(uint32_t)a->begin[piece][d];
      int64_t rows = ((left < ROUNDED_PIECE ? left : ROUNDED_PIECE) + 32 / bits - 1) / (32 / bits);
#pragma clang loop unroll(disable)
      for (; rows > 0; rows--, from += width * 4) {
        WordLanes word[GEMM_MAX_VECTORS], high[GEMM_MAX_VECTORS];
        UNROLL for (int j = 0; j < vectors; j++) {
          WordLanes both = words_at(from + j * LANES * 4);
          word[j] = (bits == 8 ? both : both & low) ^ sign;
          high[j] = (both >> 4 & low) ^ sign;
        }
        whole_add(vectors, sum, word, a, digit++);
        if (bits == 4) whole_add(vectors, sum, high, a, digit++);
      }
      UNROLL for (int j = 0; j < vectors; j++) {
        Lanes value = __builtin_convertvector((IntLanes)sum[DIGITS - 1][j], Lanes);
        UNROLL for (int d = DIGITS - 2; d >= 0; d--) value =
            value * 0x1p-8f + __builtin_convertvector((IntLanes)sum[d][j], Lanes);
        total[j] += value * (lanes_load(scales + j * LANES) * a->unit[piece]);
      }
    }
  UNROLL for (int j = 0; j < vectors; j++) lanes_store(tile + column + j * LANES, total[j]);
}

/* The first `columns` columns of a strip. */
ALWAYS VNNI void whole_row(int bits, const RoundedProduct *p, const WholeRow *a, uint8_t *strip, float *tile, int64_t columns) {
#if defined __AVX512F__
  const int most = 4;
#else
  const int most = 1;
#endif
  int64_t column = 0;
  for (; column + most * LANES <= columns; column += most * LANES) whole_sums(bits, most, p, a, strip, column, tile);
  for (; column < columns; column += LANES) whole_sums(bits, 1, p, a, strip, column, tile);
}
static VNNI __attribute__((noinline)) void whole_row_4(const RoundedProduct *p, const WholeRow *a, uint8_t *strip, float *tile,
                                                       int64_t columns) {
  whole_row(4, p, a, strip, tile, columns);
}
static VNNI __attribute__((noinline)) void whole_row_8(const RoundedProduct *p, const WholeRow *a, uint8_t *strip, float *tile,
                                                       int64_t columns) {
  whole_row(8, p, a, strip, tile, columns);
}

/* ── panels ─────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  _Alignas(64) float panel[ROUNDED_DEPTH * GEMM_MAX_VECTORS * GEMM_LANES];
  _Alignas(64) float sums[ROUNDED_BLOCK * GEMM_MAX_VECTORS * GEMM_LANES];
} PanelRoom;

/* The weights of steps [first, first + count) of a strip, all of one group, in which first is a multiple of ROUNDED_DEPTH. */
ALWAYS void unpack_group(int bits, const RoundedProduct *p, uint8_t *strip, int64_t first,
                         int64_t count, float *panel) {
  const int steps = 32 / bits;
  int64_t width = rounded_width(p), g = first / p->group, at = first % p->group;
  const float *scales = strip_scales(p, strip) + g * width;
  const uint8_t *from = strip + g * rounded_group_bytes(p) + at / steps * width * 4;
  for (; count > 0; count -= steps, from += width * 4, panel += steps * width)
    for (int64_t j = 0; j < width; j += ROUNDED_LANES) {
      WordLanes word = words_at(from + j * 4);
      Lanes scale = lanes_load(scales + j);
      if (count >= steps)
        UNROLL for (int i = 0; i < steps; i++)
          lanes_store(panel + i * width + j, number_at(bits, word, i) * widened_unit(bits) * scale);
      else
        UNROLL for (int i = 0; i < steps - 1; i++)
          if (i < count) lanes_store(panel + i * width + j, number_at(bits, word, i) * widened_unit(bits) * scale);
    }
}

/* Returns how many steps from `first` on the panel has: whole groups, or ROUNDED_DEPTH of one's. */
static int64_t rounded_unpack(const RoundedProduct *p, uint8_t *strip, int64_t first,
                              float *panel) {
  int64_t done = 0;
  do {
    int64_t left = p->group - (first + done) % p->group;
    int64_t count = left < ROUNDED_DEPTH ? left : ROUNDED_DEPTH;
    float *to = panel + done * rounded_width(p);
    if (p->bits == 4)
      unpack_group(4, p, strip, first + done, count, to);
    else
      unpack_group(8, p, strip, first + done, count, to);
    done += count;
  } while (first + done < p->k && done + p->group <= ROUNDED_DEPTH);
  return done;
}

/* ── the product ────────────────────────────────────────────────────────────────────────────── */
/* Rows [row, row + rows) by a strip. */
typedef struct {
  int64_t batch, row, rows, strip, column, columns;
  int64_t stride; /* of a row of sums: `columns`, whole vectors */
} RoundedItem;

static RoundedItem rounded_item(const RoundedProduct *p, int64_t number) {
  int64_t blocks = rounded_blocks(p), strips = rounded_strips(p), width = rounded_width(p);
  int64_t block = rounded_block(p);
  RoundedItem item = {.batch = number / blocks / strips,
                      .row = number % blocks * block,
                      .strip = number / blocks % strips};
  item.rows = p->m - item.row < block ? p->m - item.row : block;
  item.column = item.strip * width;
  item.columns = p->n - item.column < width ? p->n - item.column : width;
  item.stride = (item.columns + ROUNDED_LANES - 1) / ROUNDED_LANES * ROUNDED_LANES;
  return item;
}

static void rounded_finish(const RoundedProduct *p, void *const *args, const RoundedItem *item,
                           const float *sums) {
  for (int64_t row = 0; row < item->rows; row += p->rows) {
    int64_t rows = item->rows - row < p->rows ? item->rows - row : p->rows;
    const float *tile = sums + row * item->stride;
    if (p->epilogue) {
      p->epilogue(args + 1, item->batch, item->row + row, item->column, rows, item->columns, tile,
                  item->stride);
      continue;
    }
    float *c =
        (float *)args[p->arg_c] + (item->batch * p->m + item->row + row) * p->n + item->column;
    tile_copy(c, p->n, tile, item->stride, rows, item->columns);
  }
}

static void rounded_item_panels(const RoundedProduct *p, void *const *args, const RoundedItem *item,
                                const float *a, uint8_t *strip, PanelRoom *room) {
  int64_t width = rounded_width(p), depth;
  bool is_right = item->columns < width;
  for (int64_t first = 0; first < p->k; first += depth) {
    depth = rounded_unpack(p, strip, first, room->panel);
    for (int64_t row = 0; row < item->rows; row += p->rows) {
      const float *left = a + row * (p->ta ? 1 : p->k) + first * (p->ta ? p->m : 1);
      GemmAhead nothing = {(const char *)room->panel, 0, depth};
      p->tile[(item->rows - row < p->rows) + 2 * is_right](
          left, p->ta ? p->m : p->k, room->panel, width, depth, room->sums + row * item->stride,
          item->stride, first > 0, &nothing);
    }
  }
  rounded_finish(p, args, item, room->sums);
}

static const float *rounded_left(const RoundedProduct *p, void *const *args, const RoundedItem *item) {
  return (const float *)args[p->arg_a] + item->batch * p->m * p->k + item->row * (p->ta ? 1 : p->k);
}

/* The items of one row: it is made whole once for each product of the batch. */
static __attribute__((noinline)) void rounded_run_row(const RoundedProduct *p, void *const *args, int64_t begin, int64_t end) {
  WholeRow row;
  _Alignas(64) float sums[GEMM_MAX_VECTORS * GEMM_LANES];
  bool may_be_whole = p->may_be_vnni && has_vnni(), is_whole = false, is_highest = false;
  for (int64_t at = begin, batch = -1; at < end; at++) {
    RoundedItem item = rounded_item(p, at);
    const float *a = rounded_left(p, args, &item);
    uint8_t *strip = strip_of(p, args, item.batch * rounded_strips(p) + item.strip);
    if (item.batch != batch) {
      is_whole = may_be_whole && make_whole_row(p, a, &row);
      is_highest = p->bits == 8 && !is_whole && !has_small(a, p->k);
    }
    batch = item.batch;
    if (is_highest)
      few_rows_highest(p, a, strip, sums, item.stride);
    else if (!is_whole)
      few_rows_of[p->bits == 8][0](p, a, strip, sums, item.stride);
    else if (p->bits == 4)
      whole_row_4(p, &row, strip, sums, item.stride);
    else
      whole_row_8(p, &row, strip, sums, item.stride);
    rounded_finish(p, args, &item, sums);
  }
}

/* Of any a. */
static __attribute__((noinline)) void rounded_run_any(const RoundedProduct *p, void *const *args, int64_t begin, int64_t end) {
  PanelRoom room;
  for (; begin < end; begin++) {
    RoundedItem item = rounded_item(p, begin);
    const float *a = rounded_left(p, args, &item);
    uint8_t *strip = strip_of(p, args, item.batch * rounded_strips(p) + item.strip);
    if (p->m > ROUNDED_FEW) {
      rounded_item_panels(p, args, &item, a, strip, &room);
      continue;
    }
    few_rows_of[p->bits == 8][p->m - 1](p, a, strip, room.sums, item.stride);
    rounded_finish(p, args, &item, room.sums);
  }
}

#include "kernels/rounded_bf16.h"
#include "kernels/rounded_bytes.h"

void rounded_run(const RoundedProduct *p, void *const *args, int64_t begin, int64_t end) {
  if (p->m == 1)
    rounded_run_row(p, args, begin, end);
  else if (rounded_by_bytes(p))
    rounded_run_bytes(p, args, begin, end);
  else if (p->m > ROUNDED_FEW && rounded_by_bf16(p))
    rounded_run_bf16(p, args, begin, end);
  else
    rounded_run_any(p, args, begin, end);
}
