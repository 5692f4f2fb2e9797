/* integer_x86: c = op(a) op(b), or a convolution of NHWC images a by OHWI weights b, where a and b
 * hold whole numbers of at most 8 bits, in f32. They are packed to 8 bits, multiplied, and added up
 * in 32 bits, which is exact; each sum is rounded to f32 once. So any split of the items, and any
 * of the instructions, gives the same bits.
 *
 * vpdpbusd adds four products of an unsigned and a signed byte. a is made unsigned and b signed by
 * an offset each; what these add is taken off the sums, which wrap around and are right in the end.
 * Processors without it use 16 bits and vpmaddwd, which need no offset; vpmaddubsw would saturate.
 *
 * A row of a, or a strip of b, with a number that is not whole or out of range (NaN; values that were
 * not rounded, because no range of them was known) is computed in f32: results are those of the
 * product of what is there, whatever it is. */
#include "kernels/integer_tiles.h"

/* ── packing ────────────────────────────────────────────────────────────────────────────────── */
static int64_t offset_of_a(const IntegerProduct *p) { return p->low_a < 0 ? 128 : 0; }
static int64_t offset_of_b(const IntegerProduct *p) { return p->high_b > 127 ? 128 : 0; }
/* Words of packed b for so many steps of k, and the bytes of as many of a. */
static int64_t words_of(int64_t length) { return (length + 3) / 4; }
static int64_t word_bytes(bool is_vnni) { return is_vnni ? 4 : 8; }

/* A segment of a column of b, into its place in the strip: words `apart` from each other. */
static void pack_column(const IntegerProduct *p, const float *b, uint32_t *to, int64_t apart,
                        int32_t *total, IntLanes *bad) {
  Bounds bounds = {(Lanes)(float)p->low_b, (Lanes)(float)p->high_b};
  int32_t offset = (int32_t)offset_of_b(p);
  IntLanes sum = (IntLanes)0;
  for (int64_t k = 0; k < p->length; k += LANES) {
    int64_t count = p->length - k < LANES ? p->length - k : LANES;
    IntLanes whole = lanes_whole(lanes_some(b + k, 1, count), bounds, bad) - offset;
    for (int64_t i = count; i < LANES; i++) whole[i] = 0;
    sum += whole;
    for (int64_t i = 0; i < count; i += 4)
      to[(k + i) / 4 * apart] = (uint32_t)(whole[i] & 0xff) | (uint32_t)(whole[i + 1] & 0xff) << 8 |
                                (uint32_t)(whole[i + 2] & 0xff) << 16 | (uint32_t)whole[i + 3] << 24;
  }
  *total += lanes_total(sum);
}

/* A vector of columns of a b whose rows are neighbours in n. */
static void pack_columns(const IntegerProduct *p, const float *b, int64_t columns, uint32_t *to,
                         int64_t apart, int32_t *total, IntLanes *bad) {
  Bounds bounds = {(Lanes)(float)p->low_b, (Lanes)(float)p->high_b};
  int32_t offset = (int32_t)offset_of_b(p);
  IntLanes sum = (IntLanes)0;
  for (int64_t k = 0; k < p->k; k += 4) {
    WordLanes word = (WordLanes)0u;
    for (int i = 0; i < 4 && k + i < p->k; i++) {
      IntLanes bad_here = (IntLanes)0, whole;
      whole = lanes_whole(lanes_some(b + (k + i) * p->n, 1, columns), bounds, &bad_here) - offset;
      for (int64_t lane = columns; lane < LANES; lane++) whole[lane] = 0, bad_here[lane] = 0;
      *bad |= bad_here;
      sum += whole;
      word |= ((WordLanes)whole & 0xffu) << (8 * i);
    }
    *(LooseWords *)(to + k / 4 * apart) = word;
  }
  for (int lane = 0; lane < LANES; lane++) total[lane] = sum[lane];
}

static uint8_t *strip_at(const IntegerProduct *p, void *const *args, int64_t number) {
  return (uint8_t *)args[p->arg_packed] + number * integer_strip_bytes(p);
}
static int32_t *column_totals(const IntegerProduct *p, uint8_t *strip) {
  return (int32_t *)(strip + integer_data_bytes(p));
}
static float *column_faults(const IntegerProduct *p, uint8_t *strip) {
  return (float *)(column_totals(p, strip) + p->vectors * INTEGER_LANES);
}
static int32_t *strip_is_bad(const IntegerProduct *p, uint8_t *strip) {
  return (int32_t *)(column_faults(p, strip) + p->vectors * INTEGER_LANES);
}

/* A column with a bad number, or the whole strip. */
static void note_fault(const IntegerProduct *p, uint8_t *strip, int64_t column, bool is_bad) {
  if (is_bad && p->is_sure) column_faults(p, strip)[column] = __builtin_nanf("");
  if (is_bad && !p->is_sure) *strip_is_bad(p, strip) = true;
}

static void pack_strip(const IntegerProduct *p, const float *b, int64_t columns, uint8_t *strip) {
  uint32_t *to = (uint32_t *)strip;
  int32_t *total = column_totals(p, strip);
  int64_t width = p->vectors * INTEGER_LANES;
  for (int64_t i = integer_data_bytes(p) / 4; columns < width && i-- > 0;) to[i] = 0;
  for (int64_t j = 0; j < width; j++) total[j] = 0, column_faults(p, strip)[j] = 0;
  *strip_is_bad(p, strip) = false;
  for (int64_t j = 0; p->tb && j < columns; j++) {
    IntLanes bad = (IntLanes)0;
    for (int64_t s = 0; s < p->segments; s++)
      pack_column(p, b + j * p->k + s * p->length, to + s * words_of(p->length) * width + j, width,
                  total + j, &bad);
    note_fault(p, strip, j, lanes_any(bad));
  }
  for (int64_t j = 0; !p->tb && j < columns; j += INTEGER_LANES) {
    IntLanes bad = (IntLanes)0;
    pack_columns(p, b + j, columns - j < INTEGER_LANES ? columns - j : INTEGER_LANES, to + j, width,
                 total + j, &bad);
    for (int64_t i = 0; i < INTEGER_LANES; i++) note_fault(p, strip, j + i, bad[i] != 0);
  }
}

void integer_pack_run(const IntegerProduct *p, void *const *args, int64_t begin, int64_t end) {
  int64_t strips = integer_strips(p), width = p->vectors * INTEGER_LANES;
  for (; begin < end; begin++) {
    const float *b = (const float *)args[p->arg_b] + begin / strips * p->k * p->n;
    int64_t first = begin % strips * width, columns = p->n - first < width ? p->n - first : width;
    pack_strip(p, b + first * (p->tb ? p->k : 1), columns, strip_at(p, args, begin));
  }
}

/* Rows of a that a work item has packed. */
typedef struct {
  _Alignas(64) uint8_t data[INTEGER_ROOM + 64]; /* a vector more than the last row's */
  int32_t total[INTEGER_BLOCK];
  bool is_bad[INTEGER_MOST_HEIGHT];
  _Alignas(64) uint32_t sums[INTEGER_MOST_POOL * INTEGER_SHARE * INTEGER_WIDTH];
  _Alignas(64) float tile[INTEGER_SHARE * INTEGER_WIDTH];
} RowRoom;

typedef uint8_t ByteLanes __attribute__((ext_vector_type(16), aligned(1)));
typedef uint16_t ShortLanes __attribute__((ext_vector_type(16), aligned(1)));

/* `count` numbers of a, `step` apart, to bytes or 16 bits; to 15 places behind are written, too. */
static void pack_line(const IntegerProduct *p, bool is_vnni, const float *from, int64_t step,
                      int64_t count, uint8_t *to, int32_t *total, bool *is_bad) {
  Bounds bounds = {(Lanes)(float)p->low_a, (Lanes)(float)p->high_a};
  int32_t offset = (int32_t)(is_vnni ? offset_of_a(p) : 0);
  IntLanes bad = (IntLanes)0, sum = (IntLanes)0;
  int64_t k = 0;
  for (; is_vnni && step == 1 && k + LANES <= count; k += LANES) {
    IntLanes whole = lanes_whole(lanes_load(from + k), bounds, &bad) + offset;
    sum += whole;
    *(ByteLanes *)(to + k) = __builtin_convertvector(whole, ByteLanes);
  }
  for (; k < count; k += LANES) {
    int64_t here = count - k < LANES ? count - k : LANES;
    IntLanes whole = lanes_whole(lanes_some(from + k * step, step, here), bounds, &bad) + offset;
    for (int64_t i = here; i < LANES; i++) whole[i] = 0;
    sum += whole;
    if (is_vnni)
      *(ByteLanes *)(to + k) = __builtin_convertvector(whole, ByteLanes);
    else
      *(ShortLanes *)(to + 2 * k) = __builtin_convertvector(whole, ShortLanes);
  }
  *total = lanes_total(sum);
  *is_bad = lanes_any(bad);
}

/* ── what is not made of integers ───────────────────────────────────────────────────────────── */
ALWAYS float float_dot(const float *a, int64_t a_step, const float *b, int64_t b_step,
                       int64_t count) {
  Lanes sums = (Lanes)0.0f;
  float rest = 0;
  int64_t k = 0;
  for (; a_step == 1 && b_step == 1 && k + LANES <= count; k += LANES)
    sums += lanes_load(a + k) * lanes_load(b + k);
  for (; k < count; k++) rest += a[k * a_step] * b[k * b_step];
  return lanes_sum(sums) + rest;
}

/* A place of the result: a row of a product, or a row and column of an image, and n. */
static float float_product(const IntegerProduct *p, void *const *args, int64_t batch, int64_t row,
                           int64_t n) {
  const float *a = (const float *)args[p->arg_a] + batch * p->m * p->k;
  const float *b = (const float *)args[p->arg_b] + batch * p->k * p->n;
  return float_dot(a + (p->ta ? row : row * p->k), p->ta ? p->m : 1, b + (p->tb ? n * p->k : n),
                   p->tb ? 1 : p->n, p->k);
}

/* What of a row of the window at (y, x) of an image's results lies within the image: columns [from, to) of
 * pixels, the first of which is `first` in the window; 0: none of it. */
typedef struct {
  int64_t from, to, first;
} WindowPart;
static const float *window_row(const IntegerProduct *p, void *const *args, int64_t image, int64_t y,
                               int64_t x, int64_t segment, WindowPart *part) {
  const float *a = (const float *)args[p->arg_a] + image * p->height * p->width * p->channels;
  int64_t first = x * p->stride_width - p->pad_left, end = first + p->length / p->channels;
  int64_t line = y * p->stride_height - p->pad_top + segment * p->dilation_height;
  *part = (WindowPart){first < 0 ? 0 : first, end < p->width ? end : p->width, 0};
  part->first = part->from - first;
  if (line < 0 || line >= p->height || part->from >= part->to) return 0;
  return a + (line * p->width + part->from) * p->channels;
}
static float float_conv(const IntegerProduct *p, void *const *args, int64_t image, int64_t y,
                        int64_t x, int64_t n) {
  const float *b = (const float *)args[p->arg_b] + n * p->k;
  float sum = 0;
  for (int64_t s = 0; s < p->segments; s++) {
    WindowPart part;
    const float *a = window_row(p, args, image, y, x, s, &part);
    if (a)
      sum += float_dot(a, 1, b + s * p->length + part.first * p->channels, 1,
                       (part.to - part.from) * p->channels);
  }
  return sum;
}

/* Adds the products of `count` numbers of a with those of b from step k of a segment on, as they are
 * packed, to the results of a strip's columns. */
static void add_packed(const IntegerProduct *p, const float *a, int64_t a_step, int64_t count,
                       const uint8_t *segment, int64_t k, float *sums) {
  Lanes offset = (Lanes)(float)offset_of_b(p);
  for (int64_t j = 0; j < p->vectors; j++) {
    Lanes sum = lanes_load(sums + j * INTEGER_LANES);
    for (int64_t i = 0; i < count; i++) {
      int64_t word = ((k + i) / 4 * p->vectors + j) * INTEGER_LANES;
      WordLanes packed = *(const LooseWords *)((const uint32_t *)segment + word);
      IntLanes whole = (IntLanes)(packed << (uint32_t)(24 - (k + i) % 4 * 8)) >> 24;
      sum += (Lanes)a[i * a_step] * (__builtin_convertvector(whole, Lanes) + offset);
    }
    *(LooseLanes *)(sums + j * INTEGER_LANES) = sum;
  }
}

/* ── the product ────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  int64_t batch, y; /* y: of an image's results */
  int64_t row, rows, column, columns;
  bool is_vnni;
} TilePlace;

/* A row of results, of columns of a strip, in f32. */
static void float_row(const IntegerProduct *p, void *const *args, const TilePlace *at, int64_t row,
                      const uint8_t *strip, float *to) {
  if (!p->is_sure) {
    for (int64_t j = 0; j < at->columns; j++)
      to[j] = p->is_conv ? float_conv(p, args, at->batch, at->y, row, at->column + j)
                         : float_product(p, args, at->batch, row, at->column + j);
    return;
  }
  float sums[INTEGER_MOST_VECTORS * INTEGER_LANES] = {0};
  if (!p->is_conv)
    add_packed(p,
               (const float *)args[p->arg_a] + at->batch * p->m * p->k + (p->ta ? row : row * p->k),
               p->ta ? p->m : 1, p->k, strip, 0, sums);
  for (int64_t s = 0; s < p->segments && p->is_conv; s++) {
    WindowPart part;
    const float *a = window_row(p, args, at->batch, at->y, row, s, &part);
    const uint8_t *segment = strip + s * words_of(p->length) * p->vectors * INTEGER_LANES * 4;
    if (a)
      add_packed(p, a, 1, (part.to - part.from) * p->channels, segment, part.first * p->channels,
                 sums);
  }
  for (int64_t j = 0; j < at->columns; j++)
    to[j] = sums[j] + column_faults(p, (uint8_t *)(uintptr_t)strip)[j];
}

/* Sums of a convolution's packed numbers, of columns from j on of a strip, become those of the numbers, in f32. */
ALWAYS Lanes finished(uint8_t *strip, const IntegerProduct *p, bool has_offset, int64_t j, WordLanes sum) {
  const uint32_t *total = (const uint32_t *)column_totals(p, strip);
  if (has_offset) sum -= *(const LooseWords *)(total + j) << 7u;
  return __builtin_convertvector((IntLanes)sum, Lanes) +
         lanes_load(column_faults(p, strip) + j);
}
static int64_t tile_width(const TilePlace *at) {
  return (at->columns + INTEGER_LANES - 1) / INTEGER_LANES * INTEGER_LANES;
}

/* The tile's rows that are not sums of integers. A convolution's are good or bad together. */
static void float_rows(const IntegerProduct *p, void *const *args, const TilePlace *at, uint8_t *strip, const bool *is_bad, float *tile) {
  int64_t width = tile_width(at);
  bool is_strip_bad = *strip_is_bad(p, strip);
  for (int64_t r = 0; r < at->rows; r++)
    if (is_bad[p->is_conv ? 0 : r] || is_strip_bad) float_row(p, args, at, at->row + r, strip, tile + r * width);
}

/* What vpdpbusd's offsets have added to the sums of rows, and is not known by column; a convolution's b has no offset. */
static const uint32_t *rests_of(const IntegerProduct *p, bool has_offset, const int32_t *total, int64_t rows, uint32_t *rest) {
  uint32_t a_offset = has_offset ? 128 : 0, b_offset = (uint32_t)offset_of_b(p);
  if (!b_offset) return 0;
  for (int64_t r = 0; r < rows; r++) rest[r] = b_offset * (uint32_t)total[r] - (uint32_t)p->k * a_offset * b_offset;
  return rest;
}

/* Hands a tile of the product's result, the pooled one where it is pooled, to the epilogue. */
static void give_tile(const IntegerProduct *p, void *const *args, const TilePlace *at,
                      const float *tile) {
  int64_t width = tile_width(at), m = integer_result_width(p);
  int64_t batch = p->is_conv ? at->batch * integer_result_height(p) + at->y : at->batch;
  if (p->epilogue) {
    p->epilogue(args + 1, batch, at->row, at->column, at->rows, at->columns, tile, width);
    return;
  }
  float *c = (float *)args[p->arg_c] + (batch * m + at->row) * p->n + at->column;
  for (int64_t r = 0; r < at->rows; r++)
    for (int64_t j = 0; j < at->columns; j++) c[r * p->n + j] = tile[r * width + j];
}

/* ── pooling ────────────────────────────────────────────────────────────────────────────────── */
/* The places of a convolution's results that one result of the pooling is the largest of. */
typedef struct {
  const uint32_t *sums; /* of the first place */
  int64_t line;         /* from one row of places to the next, in sums */
  const bool *is_bad;   /* by row of places */
} PoolWindow;

/* Packed numbers' sums have the order of the numbers' sums: all of a column are as far from them. */
ALWAYS void pool_sums_of(const IntegerProduct *p, const TilePlace *at, uint8_t *strip,
                         const PoolWindow *window, int64_t height, int64_t across, float *to) {
  int64_t step = p->vectors * INTEGER_LANES;
  bool has_offset = at->is_vnni && offset_of_a(p);
  for (int64_t j = 0; j < tile_width(at); j += INTEGER_LANES) {
    IntLanes most = (IntLanes) * (const LooseWords *)(window->sums + j);
    for (int64_t i = 0; i < height; i++)
      for (int64_t k = 0; k < across; k++) {
        const uint32_t *from = window->sums + i * window->line + k * step + j;
        IntLanes sum = (IntLanes) * (const LooseWords *)from;
        most = sum > most ? sum : most;
      }
    lanes_store(to + j, finished(strip, p, has_offset, j, (WordLanes)most));
  }
}

static void pool_sums(const IntegerProduct *p, const TilePlace *at, uint8_t *strip,
                      const PoolWindow *window, float *to) {
  if (p->pool_height == 2 && p->pool_width == 2)
    pool_sums_of(p, at, strip, window, 2, 2, to);
  else
    pool_sums_of(p, at, strip, window, p->pool_height, p->pool_width, to);
}

/* Where some are not sums of integers; NaN is the largest. x: the column of the result. */
static void pool_floats(const IntegerProduct *p, void *const *args, const TilePlace *at,
                        uint8_t *strip, const PoolWindow *window, int64_t x, float *to) {
  float value[INTEGER_WIDTH];
  bool has_offset = at->is_vnni && offset_of_a(p), is_strip_bad = *strip_is_bad(p, strip);
  for (int64_t i = 0; i < p->pool_height; i++)
    for (int64_t k = 0; k < p->pool_width; k++) {
      const uint32_t *from = window->sums + i * window->line + k * p->vectors * INTEGER_LANES;
      TilePlace place = *at;
      place.y = at->y * p->pool_height + i;
      for (int64_t j = 0; j < tile_width(at); j += INTEGER_LANES)
        lanes_store(value + j,
                    finished(strip, p, has_offset, j, *(const LooseWords *)(from + j)));
      if (window->is_bad[i] || is_strip_bad)
        float_row(p, args, &place, x * p->pool_width + k, strip, value);
      for (int64_t j = 0; j < at->columns; j++)
        if (!(i + k) || value[j] > to[j] || value[j] != value[j]) to[j] = value[j];
    }
}

/* A row of results of a pooling: `lines` are the packed rows of the image that it sees, `bytes` apart;
 * place: its batch and y. */
static void pool_row(const IntegerProduct *p, void *const *args, const uint8_t *lines,
                     int64_t bytes, const TileWalk *walk, int64_t strip, TilePlace place,
                     const bool *is_bad, RowRoom *room) {
  int64_t width = p->vectors * INTEGER_LANES, count = integer_result_width(p);
  int64_t most = INTEGER_SHARE / p->pool_width;
  uint8_t *right = strip_at(p, args, strip);
  bool is_any_bad = *strip_is_bad(p, right);
  for (int64_t i = 0; i < p->pool_height; i++) is_any_bad |= is_bad[i];
  place.column = strip * width;
  place.columns = p->n - place.column < width ? p->n - place.column : width;
  for (int64_t x = 0; x < count; x += place.rows) {
    place.row = x;
    place.rows = count - x < most ? count - x : most;
    PoolWindow window = {room->sums, place.rows * p->pool_width * width, is_bad};
    for (int64_t i = 0; i < p->pool_height; i++)
      integer_sums(p, lines + i * p->stride_height * bytes + x * p->pool_width * walk->row, right,
                   walk, place.rows * p->pool_width, place.is_vnni, room->sums + i * window.line, 0);
    for (int64_t r = 0; r < place.rows; r++) {
      float *to = room->tile + r * tile_width(&place);
      window.sums = room->sums + r * p->pool_width * width;
      if (is_any_bad)
        pool_floats(p, args, &place, right, &window, x + r, to);
      else
        pool_sums(p, &place, right, &window, to);
    }
    give_tile(p, args, &place, room->tile);
  }
}

/* ── work items ─────────────────────────────────────────────────────────────────────────────── */
/* A work item: strips [strip, last) of rows [first, first + rows). */
typedef struct {
  int64_t batch, first, rows, strip, last;
} IntegerItem;

static IntegerItem integer_item(const IntegerProduct *p, int64_t number) {
  int64_t strips = integer_strips(p), all = p->is_conv ? integer_result_height(p) : p->m;
  int64_t across = (strips + p->strips - 1) / p->strips, down = (all + p->rows - 1) / p->rows;
  IntegerItem item = {.batch = number / (across * down),
                      .first = number / across % down * p->rows,
                      .strip = number % across * p->strips};
  item.rows = all - item.first < p->rows ? all - item.first : p->rows;
  item.last = item.strip + p->strips < strips ? item.strip + p->strips : strips;
  return item;
}

/* Rows [0, count) of packed a by a strip; place: that of the first row. */
static void integer_rows(const IntegerProduct *p, void *const *args, const uint8_t *a,
                         const TileWalk *walk, int64_t count, int64_t strip, TilePlace place,
                         const int32_t *total, const bool *is_bad, RowRoom *room) {
  int64_t width = p->vectors * INTEGER_LANES, strips = integer_strips(p), first = place.row;
  uint8_t *right = strip_at(p, args, (p->is_conv ? 0 : place.batch * strips) + strip);
  place.column = strip * width;
  place.columns = p->n - place.column < width ? p->n - place.column : width;
  for (int64_t row = 0; row < count; row += place.rows) {
    place.row = first + row;
    place.rows = count - row < INTEGER_SHARE ? count - row : INTEGER_SHARE;
    int64_t at = p->is_conv ? 0 : row;
    uint32_t rest[INTEGER_SHARE];
    TileFinish finish = {(const uint32_t *)column_totals(p, right), column_faults(p, right), 0, room->tile, tile_width(&place),
                         place.is_vnni && offset_of_a(p)};
    finish.rest = rests_of(p, finish.has_offset, total + at, place.rows, rest);
    integer_sums(p, a + row * walk->row, right, walk, place.rows, place.is_vnni, room->sums, &finish);
    float_rows(p, args, &place, right, is_bad + at, room->tile);
    give_tile(p, args, &place, room->tile);
  }
}

static void integer_run_item(const IntegerProduct *p, void *const *args, int64_t number,
                             RowRoom *room) {
  bool is_vnni = p->may_be_vnni && has_vnni();
  IntegerItem item = integer_item(p, number);
  int64_t words = words_of(p->k);
  TileWalk walk = {.row = words * word_bytes(is_vnni), .segments = 1, .words = words};
  const float *a = (const float *)args[p->arg_a] + item.batch * p->m * p->k;
  for (int64_t r = 0; r < item.rows; r++)
    pack_line(p, is_vnni, a + (item.first + r) * (p->ta ? 1 : p->k), p->ta ? p->m : 1, p->k,
              room->data + r * walk.row, room->total + r, room->is_bad + r);
  for (; item.strip < item.last; item.strip++)
    integer_rows(p, args, room->data, &walk, item.rows, item.strip,
                 (TilePlace){.batch = item.batch, .row = item.first, .is_vnni = is_vnni},
                 room->total, room->is_bad, room);
}

/* The rows of an image that the item's results see, with zeros around them. */
static void pack_image(const IntegerProduct *p, void *const *args, bool is_vnni,
                       const IntegerItem *item, int64_t bytes, RowRoom *room) {
  int64_t lines = integer_conv_height(p, item->rows), size = is_vnni ? 1 : 2;
  int64_t first = item->first * p->pool_height * p->stride_height - p->pad_top;
  int64_t before = p->pad_left * p->channels;
  int64_t seen = bytes / size - before, whole = p->width * p->channels;
  const float *a = (const float *)args[p->arg_a] + item->batch * p->height * whole;
  if (seen > whole) seen = whole;
  for (int64_t i = 0; i < lines; i++) {
    uint8_t *line = room->data + i * bytes, zero = (uint8_t)(is_vnni ? offset_of_a(p) : 0);
    int64_t y = first + i, count = y < 0 || y >= p->height || seen < 0 ? 0 : seen;
    int32_t total;
    room->is_bad[i] = false;
    if (count)
      pack_line(p, is_vnni, a + y * whole, 1, count, line + before * size, &total,
                room->is_bad + i);
    int64_t from = count ? before : bytes / size; /* what was written behind is written again */
    for (int64_t at = 0; at < from * size; at++) line[at] = zero;
    for (int64_t at = (before + count) * size; count && at < bytes; at++) line[at] = zero;
  }
}

static void integer_run_conv(const IntegerProduct *p, void *const *args, int64_t number,
                             RowRoom *room) {
  bool is_vnni = p->may_be_vnni && has_vnni();
  IntegerItem item = integer_item(p, number);
  int64_t size = is_vnni ? 1 : 2, bytes = integer_conv_width(p) / 2 * size;
  TileWalk walk = {.row = p->stride_width * p->channels * size,
                   .segment = p->dilation_height * bytes,
                   .segments = p->segments,
                   .words = words_of(p->length)};
  pack_image(p, args, is_vnni, &item, bytes, room);
  for (; item.strip < item.last; item.strip++)
    for (int64_t r = 0; r < item.rows; r++) {
      int64_t line = r * p->pool_height * p->stride_height;
      bool is_bad[INTEGER_MOST_POOL] = {false};
      for (int64_t i = 0; i < p->pool_height; i++)
        for (int64_t s = 0; s < p->segments; s++)
          is_bad[i] |= room->is_bad[line + i * p->stride_height + s * p->dilation_height];
      TilePlace place = {.batch = item.batch, .y = item.first + r, .is_vnni = is_vnni};
      if (p->pool_height * p->pool_width > 1)
        pool_row(p, args, room->data + line * bytes, bytes, &walk, item.strip, place, is_bad, room);
      else
        integer_rows(p, args, room->data + line * bytes, &walk, p->m, item.strip, place,
                     room->total, is_bad, room);
    }
}

void integer_run(const IntegerProduct *p, void *const *args, int64_t begin, int64_t end) {
  RowRoom room;
  for (; begin < end; begin++)
    if (p->is_conv)
      integer_run_conv(p, args, begin, &room);
    else
      integer_run_item(p, args, begin, &room);
}
