/* rounded_x86: c = op(a) op(b) in f32, where b is weights that were rounded: in each group of steps of k, whole
 * numbers of 4 or 8 bits times a scale. They are read as such, an eighth or a quarter of f32's bytes, which is
 * what a product of few rows takes its time for; it is how texts are generated.
 *
 * Of few rows each number is widened to f32 where it is multiplied, and the sum of a group is scaled:
 * u (sum over groups of s (sum of a n / u)). By u, 8 or 128, n / u is at most 1, so that sums are not
 * infinite long before those by weights would be. Of more rows, a panel of n s is made, which is what was
 * rounded, and the tiles of kernels/gemm_x86.c multiply by it. Any split of the items gives the same bits. */
#include "kernels/lanes_x86.h"
#include "kernels/rounded_host.h"
#include "kernels/tile_x86.h"
#if defined __AVX512F__
#include <immintrin.h>
#endif

#define UNROLL _Pragma("clang loop unroll(full)")
enum { ROUNDED_LANES = GEMM_LANES };
typedef int8_t SignedBytes __attribute__((ext_vector_type(16), aligned(1)));
typedef uint8_t PlainBytes __attribute__((ext_vector_type(16), aligned(1)));

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
    uint8_t *to = strip + g * rounded_group_bytes(p) + j;
    float scale = packing_scale(p, from, step);
    strip_scales(p, strip)[g * width + j] = scale;
    for (int64_t i = 0; i < p->group; i++) {
      uint32_t n = (uint32_t)number_of(p, from[i * step], scale);
      if (p->bits == 8)
        to[i * width] = (uint8_t)n;
      else if (i % 2)
        to[i / 2 * width] |= (uint8_t)((n & 15) << 4);
      else
        to[i / 2 * width] = (uint8_t)(n & 15);
    }
  }
}

void rounded_pack_run(const RoundedProduct *p, void *const *args, int64_t begin, int64_t end) {
  int64_t strips = rounded_strips(p), width = rounded_width(p);
  for (; begin < end; begin++) {
    const float *b = (const float *)args[p->arg_b] + begin / strips * p->k * p->n;
    int64_t first = begin % strips * width, columns = p->n - first < width ? p->n - first : width;
    uint8_t *strip = strip_of(p, args, begin);
    for (int64_t i = 0; columns < width && i < rounded_strip_bytes(p); i++) strip[i] = 0;
    for (int64_t j = 0; j < columns; j++)
      rounded_pack_column(p, b + (first + j) * (p->tb ? p->k : 1), p->tb ? 1 : p->n, j, strip);
  }
}

/* ── unpacking ──────────────────────────────────────────────────────────────────────────────── */
/* `bits` is a constant wherever these are inlined. */
ALWAYS float rounded_unit(int bits) { return bits == 8 ? 128.0f : 8.0f; }

/* What numbers are divided by as they are widened: those of 8 bits are not, which would take longer than to divide
 * the other operand. */
ALWAYS float widened_unit(int bits) { return bits == 8 ? 1.0f : rounded_unit(bits); }

ALWAYS Lanes widened_bytes(const uint8_t *from) {
  return __builtin_convertvector(*(const SignedBytes *)from, Lanes);
}

/* A vector of columns at two steps of k: of 4 bits, a row has both; of 8 bits, the rows are `width` apart. */
ALWAYS void two_steps(int bits, const uint8_t *from, int64_t width, Lanes out[2]) {
  if (bits == 8) {
    out[0] = widened_bytes(from);
    out[1] = widened_bytes(from + width);
    return;
  }
  Words both = __builtin_convertvector(*(const PlainBytes *)from, Words);
#if defined __AVX512F__
  const Lanes number = {0,  0.125f,  0.25f,  0.375f,  0.5f,  0.625f,  0.75f,  0.875f,
                        -1, -0.875f, -0.75f, -0.625f, -0.5f, -0.375f, -0.25f, -0.125f};
  out[0] = (Lanes)_mm512_permutexvar_ps((__m512i)both, (__m512)number); /* by the low 4 bits */
  out[1] = (Lanes)_mm512_permutexvar_ps((__m512i)(both >> 4), (__m512)number);
#else
  const float highest = 0x1p-31f; /* of four bits, the highest of a word */
  out[0] = __builtin_convertvector((IntLanes)(both << 28), Lanes) * highest;
  out[1] = __builtin_convertvector((IntLanes)(both >> 4 << 28), Lanes) * highest;
#endif
}
/* The last step of a group of an odd number of them. */
ALWAYS Lanes one_step(int bits, const uint8_t *from) {
  if (bits == 8) return widened_bytes(from);
  Lanes both[2];
  two_steps(4, from, 0, both);
  return both[0];
}

/* ── few rows ───────────────────────────────────────────────────────────────────────────────── */
/* tile[r * stride + j] of `rows` rows of a by `vectors` vectors of a strip, from its column `column` on. Even and odd
 * steps of one row have sums of their own: a chain of sums is no faster than its latency. */
ALWAYS void few_sums(int bits, int rows, int vectors, const RoundedProduct *p, const float *a,
                     uint8_t *strip, int64_t column, float *tile, int64_t stride) {
  int64_t width = rounded_width(p), groups = p->k / p->group, pairs = p->group / 2;
  int64_t a_row = p->ta ? 1 : p->k, a_k = p->ta ? p->m : 1, row = bits == 4 ? width : 2 * width;
  const float *scales = strip_scales(p, strip) + column;
  const uint8_t *group = strip + column;
  Lanes total[ROUNDED_FEW][GEMM_MAX_VECTORS];
  const float part = widened_unit(bits) / rounded_unit(bits);
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int j = 0; j < vectors; j++) total[r][j] =
      (Lanes)0.0f;
  for (int64_t g = 0; g < groups; g++) {
    Lanes sum[ROUNDED_FEW][GEMM_MAX_VECTORS][2];
    const uint8_t *from = group;
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int j = 0; j < vectors; j++) sum[r][j][0] =
        sum[r][j][1] = (Lanes)0.0f;
#pragma clang loop unroll(disable)
    for (int64_t i = 0; i < pairs; i++) {
      UNROLL for (int j = 0; j < vectors; j++) {
        Lanes right[2];
        two_steps(bits, from + j * ROUNDED_LANES, width, right);
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int odd = 0; odd < 2; odd++)
            sum[r][j][rows == 1 ? odd : 0] += (Lanes)(a[r * a_row + odd * a_k] * part) * right[odd];
      }
      from += row;
      a += 2 * a_k;
    }
    if (p->group % 2) {
      UNROLL for (int j = 0; j < vectors; j++) {
        Lanes right = one_step(bits, from + j * ROUNDED_LANES);
        UNROLL for (int r = 0; r < rows; r++) sum[r][j][0] += (Lanes)(a[r * a_row] * part) * right;
      }
      a += a_k;
    }
    UNROLL for (int j = 0; j < vectors; j++) {
      Lanes scale = lanes_load(scales + g * width + j * ROUNDED_LANES);
      UNROLL for (int r = 0; r < rows; r++) total[r][j] += (sum[r][j][0] + sum[r][j][1]) * scale;
    }
    group += rounded_group_bytes(p);
  }
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int j = 0; j < vectors; j++)
      lanes_store(tile + r * stride + column + j * ROUNDED_LANES, total[r][j] * rounded_unit(bits));
}

/* The first `stride` columns of a strip, as many vectors at a time as there are registers for. */
ALWAYS void few_rows(int bits, int rows, const RoundedProduct *p, const float *a, uint8_t *strip,
                     float *tile, int64_t stride) {
#if defined __AVX512F__
  const int most = rows <= 2 ? 4 : 2;
#else
  const int most = rows == 1 ? 2 : 1;
#endif
  int64_t column = 0;
  for (; column + most * ROUNDED_LANES <= stride; column += most * ROUNDED_LANES)
    few_sums(bits, rows, most, p, a, strip, column, tile, stride);
  for (; column < stride; column += ROUNDED_LANES)
    few_sums(bits, rows, 1, p, a, strip, column, tile, stride);
}

typedef void FewRows(const RoundedProduct *p, const float *a, uint8_t *strip, float *tile,
                     int64_t stride);
#define FEW_ROWS(bits, rows)                                                                       \
  static void few_rows_##bits##x##rows(const RoundedProduct *p, const float *a, uint8_t *strip,    \
                                       float *tile, int64_t stride) {                              \
    few_rows(bits, rows, p, a, strip, tile, stride);                                               \
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

/* ── panels ─────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  _Alignas(64) float panel[ROUNDED_DEPTH * GEMM_MAX_VECTORS * GEMM_LANES];
  _Alignas(64) float sums[ROUNDED_BLOCK * GEMM_MAX_VECTORS * GEMM_LANES];
} PanelRoom;

/* The weights of steps [first, first + count) of a strip, all of one group; first is even within it. */
ALWAYS void unpack_group(int bits, const RoundedProduct *p, uint8_t *strip, int64_t first,
                         int64_t count, float *panel) {
  int64_t width = rounded_width(p), g = first / p->group, at = first % p->group;
  const float *scales = strip_scales(p, strip) + g * width;
  const uint8_t *from = strip + g * rounded_group_bytes(p) + (bits == 4 ? at / 2 : at) * width;
  for (int64_t i = 0; i < count; i += 2) {
    for (int64_t j = 0; j < width; j += ROUNDED_LANES) {
      Lanes both[2], scale = lanes_load(scales + j);
      if (i + 1 == count) {
        lanes_store(panel + i * width + j, one_step(bits, from + j) * widened_unit(bits) * scale);
        continue;
      }
      two_steps(bits, from + j, width, both);
      lanes_store(panel + i * width + j, both[0] * widened_unit(bits) * scale);
      lanes_store(panel + (i + 1) * width + j, both[1] * widened_unit(bits) * scale);
    }
    from += bits == 4 ? width : 2 * width;
  }
}

/* Returns how many steps from `first` on the panel has: whole groups, or an even number of one's. */
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

void rounded_run(const RoundedProduct *p, void *const *args, int64_t begin, int64_t end) {
  PanelRoom room;
  int64_t strips = rounded_strips(p);
  for (; begin < end; begin++) {
    RoundedItem item = rounded_item(p, begin);
    const float *a =
        (const float *)args[p->arg_a] + item.batch * p->m * p->k + item.row * (p->ta ? 1 : p->k);
    uint8_t *strip = strip_of(p, args, item.batch * strips + item.strip);
    if (p->m > ROUNDED_FEW) {
      rounded_item_panels(p, args, &item, a, strip, &room);
      continue;
    }
    few_rows_of[p->bits == 8][p->m - 1](p, a, strip, room.sums, item.stride);
    rounded_finish(p, args, &item, room.sums);
  }
}
