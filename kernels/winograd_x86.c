/* winograd_x86: convolutions of f32 images by 3 x 3 weights, and their gradients, by Winograd's minimal filtering
 * (winograd_host.h). A work item transforms a few rows of tiles: to each of the 16 places in a tile belongs a matrix, tiles by
 * channels, which is multiplied by the place's transformed weights with the register tiles of gemm_x86.c; the sums of a strip of
 * channels are transformed back while they are in a cache. An element is computed from its own tile in one order: any split of the
 * items gives the same bits. */
#include "kernels/winograd_host.h"
#include "kernels/panel_x86.h"
#include "kernels/tile_x86.h"
#include <stddef.h>

/* The transforms keep 16 vectors, and are of what a register has. */
#ifdef __AVX512F__
enum { WIDE = 16 };
#else
enum { WIDE = 8 };
#endif
typedef float Vector __attribute__((ext_vector_type(WIDE)));
typedef float LooseVector __attribute__((ext_vector_type(WIDE), aligned(4)));
ALWAYS Vector vector_load(const float *from) { return *(const LooseVector *)from; }
ALWAYS void vector_store(float *to, Vector value) { *(LooseVector *)to = value; }

/* ── transforms ─────────────────────────────────────────────────────────────────────────────── */
/* B' d, of four numbers. */
ALWAYS void turn_pixels(const Vector d[4], Vector out[4]) {
  out[0] = d[0] - d[2];
  out[1] = d[1] + d[2];
  out[2] = d[2] - d[1];
  out[3] = d[1] - d[3];
}
/* A y, of two. */
ALWAYS void turn_slopes(const Vector y[2], Vector out[4]) {
  out[0] = y[0];
  out[1] = y[0] + y[1];
  out[2] = y[0] - y[1];
  out[3] = -y[1];
}
/* A' m, of four. */
ALWAYS void turn_sums(const Vector m[4], Vector out[2]) {
  out[0] = m[0] + m[1] + m[2];
  out[1] = m[1] - m[2] - m[3];
}
/* G g, of three. */
ALWAYS void turn_weights(Lanes a, Lanes b, Lanes c, Lanes out[4]) {
  Lanes half = (a + c) * 0.5f, middle = b * 0.5f;
  out[0] = a;
  out[1] = half + middle;
  out[2] = half - middle;
  out[3] = c;
}
/* G' u, of four. */
ALWAYS void turn_back(const Vector u[4], Vector out[3]) {
  Vector sum = (u[1] + u[2]) * 0.5f;
  out[0] = u[0] + sum;
  out[1] = (u[1] - u[2]) * 0.5f;
  out[2] = sum + u[3];
}

/* ── weights ────────────────────────────────────────────────────────────────────────────────── */
/* The 16 places of 3 x 3 weights, whose vectors are `step` floats apart; of windows that are turned round, or not. */
ALWAYS void weights_at(const float *w, int64_t step, int turned, Lanes place[16]) {
  Lanes half[3][4];
#pragma clang loop unroll(full)
  for (int x = 0; x < 3; x++) {
    int from = turned ? 8 - x : x, down = turned ? -3 : 3;
    turn_weights(lanes_load(w + from * step), lanes_load(w + (from + down) * step), lanes_load(w + (from + 2 * down) * step), half[x]);
  }
#pragma clang loop unroll(full)
  for (int y = 0; y < 4; y++) turn_weights(half[0][y], half[1][y], half[2][y], place + 4 * y);
}

/* Where the rows of a vector of outs begin in their strip's matrix of place 0, and *width, the strip's. */
static float *packed_at(const WinogradProduct *p, void *const *args, int64_t vector, int64_t *width) {
  int64_t most = p->vectors, strip = vector / most, left = p->outs / GEMM_LANES - strip * most;
  *width = (left < most ? left : most) * GEMM_LANES;
  return (float *)args[p->arg_packed] + strip * most * GEMM_LANES * WINOGRAD_PLACES * p->channels + vector % most * GEMM_LANES;
}

static void winograd_pack_turned(const WinogradProduct *p, const float *w, float *to, int64_t width) {
  for (int64_t c = 0; c < p->channels; c++, w += 9 * p->outs, to += width) {
    Lanes place[16];
    weights_at(w, p->outs, 1, place);
    for (int i = 0; i < 16; i++) lanes_store(to + i * p->channels * width, place[i]);
  }
}

/* Rows of w are the result's channels: 16 of them are turned, 16 channels at a time. */
static void winograd_pack_rows(const WinogradProduct *p, const float *w, float *to, int64_t width) {
  Lanes turned[16][GEMM_LANES];
  for (int64_t c = 0; c < p->channels; c += GEMM_LANES, to += GEMM_LANES * width) {
    for (int64_t row = 0; row < GEMM_LANES; row++) {
      Lanes place[16];
      weights_at(w + row * 9 * p->channels + c, p->channels, 0, place);
      for (int i = 0; i < 16; i++) turned[i][row] = place[i];
    }
    for (int i = 0; i < 16; i++) transpose_rows(turned[i], to + i * p->channels * width, width);
  }
}

void winograd_pack_run(const WinogradProduct *p, void *const *args, int64_t begin, int64_t end) {
  const float *w = (const float *)args[p->arg_w];
  for (; begin < end; begin++) {
    int64_t width, first = begin * GEMM_LANES;
    float *to = packed_at(p, args, begin, &width);
    if (p->is_turned)
      winograd_pack_turned(p, w + first, to, width);
    else
      winograd_pack_rows(p, w + first * 9 * p->channels, to, width);
  }
}

/* ── pixels ─────────────────────────────────────────────────────────────────────────────────── */
/* Rows of tiles [line, line + lines), counted through all images, and of each row tiles [x, x + across). */
typedef struct {
  int64_t line, lines, x, across;
} Region;

/* An image's rows that a row of tiles sees; NULL: outside. */
typedef struct {
  const float *row[4];
  int64_t width, channels; /* floats from one pixel to the next */
} Seen;

ALWAYS Vector pixel_at(const Seen *s, int row, int64_t x, int64_t channel) {
  if (!s->row[row] || x < 0 || x >= s->width) return (Vector)0.0f;
  return vector_load(s->row[row] + x * s->channels + channel);
}

/* `rows` rows of one of the images, from `first` on. */
ALWAYS Seen rows_seen(const float *images, int64_t image, int64_t height, int64_t width, int64_t channels, int64_t first, int rows) {
  Seen s = {.width = width, .channels = channels};
  for (int i = 0; i < rows; i++) {
    bool is_inside = first + i >= 0 && first + i < height;
    s.row[i] = is_inside ? images + (image * height + first + i) * width * channels : NULL;
  }
  return s;
}

/* The pixels of two rows from `first` on, which the next row of tiles sees, come meanwhile: a vector of channels at a time, hardware
 * does not see the pattern. */
ALWAYS void pixels_ahead(const float *images, int64_t height, int64_t width, int64_t channels, int64_t image, int64_t first) {
  if (first < 0 || first + 2 > height) return;
  const char *at = (const char *)(images + (image * height + first) * width * channels);
  for (int64_t i = 0; i < 2 * width * channels * 4; i += 64) __builtin_prefetch(at + i);
}

/* A row of tiles, of a vector of channels: to[place * pitch + tile * step]. Neighbours share two columns of pixels. */
ALWAYS void transform_row(const Seen *s, int64_t x, int64_t across, int64_t channel, float *to, int64_t pitch, int64_t step) {
  Vector column[4][4];
#define COLUMN(j, at)                                                                              \
  do {                                                                                             \
    Vector d[4];                                                                                   \
    for (int i = 0; i < 4; i++) d[i] = pixel_at(s, i, at, channel);                                \
    turn_pixels(d, column[j]);                                                                     \
  } while (0)
  COLUMN(0, x);
  COLUMN(1, x + 1);
#pragma clang loop unroll(disable)
  for (; across > 0; across--, x += 2, to += step) {
    COLUMN(2, x + 2);
    COLUMN(3, x + 3);
#pragma clang loop unroll(full)
    for (int i = 0; i < 4; i++) {
      Vector d[4] = {column[0][i], column[1][i], column[2][i], column[3][i]}, v[4];
      turn_pixels(d, v);
#pragma clang loop unroll(full)
      for (int j = 0; j < 4; j++) vector_store(to + (4 * i + j) * pitch, v[j]);
      column[0][i] = column[2][i];
      column[1][i] = column[3][i];
    }
  }
#undef COLUMN
}

/* Transforms channels [first, first + count) of a region's tiles: to[place * pitch + tile * count]. */
static void transform_pixels(const WinogradProduct *p, const float *x, const Region *r, int64_t first, int64_t count, float *to,
                             int64_t pitch) {
  int64_t down = winograd_down(p);
  for (int64_t line = r->line; line < r->line + r->lines; line++, to += r->across * count) {
    Seen s = rows_seen(x, line / down, p->height, p->width, p->channels, line % down * 2 - p->pad_top, 4);
    pixels_ahead(x, p->height, p->width, p->channels, line / down, line % down * 2 - p->pad_top + 4);
    for (int64_t c = 0; c < count; c += WIDE)
      transform_row(&s, r->x * 2 - p->pad_left, r->across, first + c, to + c, pitch, count);
  }
}

/* ── results ────────────────────────────────────────────────────────────────────────────────── */
enum { MOST_LINE = 2 * WINOGRAD_TILES * GEMM_MAX_VECTORS * GEMM_LANES };

/* A row of tiles of a strip becomes two rows of results of `count` pixels, `pitch` floats from one to the next; to[1] is NULL where
 * it is outside. */
ALWAYS void sums_back(const float *from, int64_t place, int64_t width, int64_t count, float *to[2], int64_t pitch) {
#pragma clang loop unroll(disable)
  for (int64_t x = 0; x < count; x += 2, from += width)
    for (int64_t c = 0; c < width; c += WIDE) {
      Vector half[4][2];
#pragma clang loop unroll(full)
      for (int i = 0; i < 4; i++) {
        Vector m[4];
#pragma clang loop unroll(full)
        for (int j = 0; j < 4; j++) m[j] = vector_load(from + (4 * i + j) * place + c);
        turn_sums(m, half[i]);
      }
#pragma clang loop unroll(full)
      for (int j = 0; j < 2; j++) {
        Vector m[4] = {half[0][j], half[1][j], half[2][j], half[3][j]}, y[2];
        turn_sums(m, y);
        if (x + j >= count) continue;
        vector_store(to[0] + (x + j) * pitch + c, y[0]);
        if (to[1]) vector_store(to[1] + (x + j) * pitch + c, y[1]);
      }
    }
}

/* The sums of a strip, columns [first, first + width), of a region's tiles. */
static void finish_strip(const WinogradProduct *p, void *const *args, const Region *r, int64_t first, int64_t width,
                         const float *sums, int64_t place) {
  _Alignas(64) float room[2][MOST_LINE];
  int64_t down = winograd_down(p), x = r->x * 2, count = p->out_width - x < r->across * 2 ? p->out_width - x : r->across * 2;
  for (int64_t line = r->line; line < r->line + r->lines; line++, sums += r->across * width) {
    int64_t y = line % down * 2, row = line / down * p->out_height + y;
    int rows = y + 1 < p->out_height ? 2 : 1;
    float *to[2] = {room[0], rows > 1 ? room[1] : NULL};
    if (!p->epilogue)
      for (int i = 0; i < rows; i++) to[i] = (float *)args[p->arg_y] + ((row + i) * p->out_width + x) * p->outs + first;
    sums_back(sums, place, width, count, to, p->epilogue ? width : p->outs);
    for (int i = 0; p->epilogue && i < rows; i++) p->epilogue(args + 1, row + i, x, first, count, width, room[i], width);
  }
}

/* sums[place] = left[place] by the packed weights of the strip. Rows behind `tiles`, up to a register tile, are computed, too.
 * Meanwhile the next place's weights come, and of what `soon` has some lines for each register tile. */
static void multiply_strip(const WinogradProduct *p, const float *left, int64_t pitch, int64_t tiles, const float *right, int64_t width,
                           bool is_right, float *sums, int64_t place, GemmAhead *soon) {
  int64_t k = p->channels, share = (k * width / GEMM_LANES * p->rows + tiles - 1) / tiles;
  for (int i = 0; i < WINOGRAD_PLACES; i++, left += pitch, sums += place, right += k * width)
    for (int64_t row = 0; row < tiles; row += p->rows) {
      bool is_bottom = p->tile[1 + 2 * is_right] && row + p->rows > tiles && tiles == p->lines * p->across;
      const char *next = (const char *)(right + k * width) + row / p->rows * share * 64;
      GemmAhead ahead[3] = {*soon, {next, 64, share}, {(const char *)right, 0, k}};
      p->tile[is_bottom + 2 * is_right](left + row * k, k, right, width, k, sums + row * width, width, false, soon->count ? ahead : ahead + 1);
      soon->at += soon->count * 64;
    }
}

/* The pixels of the next work item, so many lines for each register tile of this one. */
ALWAYS GemmAhead item_ahead(const WinogradProduct *p, const float *x, const Region *r, int64_t tiles) {
  int64_t down = winograd_down(p), line = r->line + r->lines, calls = winograd_strips(p) * WINOGRAD_PLACES * ((tiles + p->rows - 1) / p->rows);
  if (line >= winograd_lines(p) || p->across < winograd_across(p)) return (GemmAhead){0};
  int64_t row = line % down * 2 - p->pad_top, lines = r->lines * 2 * p->width * p->channels / GEMM_LANES;
  row = line / down * p->height + (row < 0 ? 0 : row);
  return (GemmAhead){(const char *)(x + row * p->width * p->channels), 64, (lines + calls - 1) / calls};
}

void winograd_run(const WinogradProduct *p, void *const *args, int64_t begin, int64_t end) {
  _Alignas(64) float left[WINOGRAD_LEFT];
  _Alignas(64) float sums[WINOGRAD_SUMS];
  int64_t chunks = winograd_chunks(p), most = p->vectors * GEMM_LANES, pitch = winograd_pitch(p, p->channels);
  for (; begin < end; begin++) {
    Region r = {begin / chunks * p->lines, p->lines, begin % chunks * p->across, p->across};
    if (r.line + r.lines > winograd_lines(p)) r.lines = winograd_lines(p) - r.line;
    if (r.x + r.across > winograd_across(p)) r.across = winograd_across(p) - r.x;
    int64_t tiles = r.lines * r.across, whole = (tiles + p->rows - 1) / p->rows * p->rows;
    transform_pixels(p, (const float *)args[p->arg_x], &r, 0, p->channels, left, pitch);
    for (int i = 0; i < WINOGRAD_PLACES; i++)
      for (int64_t j = tiles * p->channels; j < whole * p->channels; j += GEMM_LANES) lanes_store(left + i * pitch + j, (Lanes)0.0f);
    const float *right = (const float *)args[p->arg_packed];
    GemmAhead soon = item_ahead(p, (const float *)args[p->arg_x], &r, tiles);
    for (int64_t first = 0; first < p->outs; first += most) {
      int64_t width = p->outs - first < most ? p->outs - first : most, place = winograd_pitch(p, width);
      multiply_strip(p, left, pitch, tiles, right, width, width < most, sums, place, &soon);
      finish_strip(p, args, &r, first, width, sums, place);
      right += WINOGRAD_PLACES * p->channels * width;
    }
  }
}

/* ── gradients of weights ───────────────────────────────────────────────────────────────────── */
/* A row of tiles of the result's gradient, of a vector of channels: to[place * pitch + tile * step]. */
ALWAYS void slopes_row(const Seen *s, int64_t x, int64_t across, int64_t channel, float *to, int64_t pitch, int64_t step) {
#pragma clang loop unroll(disable)
  for (; across > 0; across--, x += 2, to += step) {
    Vector half[2][4];
#pragma clang loop unroll(full)
    for (int j = 0; j < 2; j++) {
      Vector y[2] = {pixel_at(s, 0, x + j, channel), pixel_at(s, 1, x + j, channel)};
      turn_slopes(y, half[j]);
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < 4; i++) {
      Vector y[2] = {half[0][i], half[1][i]}, out[4];
      turn_slopes(y, out);
#pragma clang loop unroll(full)
      for (int j = 0; j < 4; j++) vector_store(to + (4 * i + j) * pitch, out[j]);
    }
  }
}

static void transform_slopes(const WinogradProduct *p, const float *dy, const Region *r, int64_t first, int64_t count, float *to,
                             int64_t pitch) {
  int64_t down = winograd_down(p);
  for (int64_t line = r->line; line < r->line + r->lines; line++, to += r->across * count) {
    Seen s = rows_seen(dy, line / down, p->out_height, p->out_width, p->outs, line % down * 2, 2);
    pixels_ahead(dy, p->out_height, p->out_width, p->outs, line / down, line % down * 2 + 2);
    for (int64_t c = 0; c < count; c += WIDE) slopes_row(&s, r->x * 2, r->across, first + c, to + c, pitch, count);
  }
}

/* sums[out][place][channel] = or += slopes by pixels of `tiles` tiles. */
static void add_tiles(const WinogradProduct *p, const float *slopes, const float *pixels, int64_t pitch, int64_t tiles, float *sums,
                      bool adds) {
  int64_t most = p->vectors * GEMM_LANES, outs = p->block_outs, channels = p->block_channels;
  for (int i = 0; i < WINOGRAD_PLACES; i++, slopes += pitch, pixels += pitch, sums += p->channels)
    for (int64_t first = 0; first < channels; first += most)
      for (int64_t row = 0; row < outs; row += p->rows) {
        GemmAhead ahead = {(const char *)pixels, 0, tiles};
        p->tile[(outs - row < p->rows) + 2 * (channels - first < most)](slopes + row, outs, pixels + first, channels, tiles,
                                                                        sums + row * winograd_sums_pitch(p) + first, winograd_sums_pitch(p), adds, &ahead);
      }
}

void winograd_sum_run(const WinogradProduct *p, void *const *args, int64_t begin, int64_t end) {
  enum { ROOM = WINOGRAD_PLACES * (WINOGRAD_TILES * WINOGRAD_BLOCK + WINOGRAD_APART) };
  _Alignas(64) float slopes[ROOM];
  _Alignas(64) float pixels[ROOM];
  int64_t blocks = winograd_blocks(p), wide = p->channels / p->block_channels, lines = winograd_lines(p);
  int64_t pitch = WINOGRAD_TILES * WINOGRAD_BLOCK + WINOGRAD_APART;
  for (; begin < end; begin++) {
    int64_t part = begin / blocks, out = begin % blocks / wide * p->block_outs, channel = begin % wide * p->block_channels;
    int64_t first = part * lines / p->parts, last = (part + 1) * lines / p->parts;
    float *sums = (float *)args[p->arg_packed] + (part * p->outs + out) * winograd_sums_pitch(p) + channel;
    bool adds = false;
    for (int64_t line = first; line < last; line += p->lines)
      for (int64_t x = 0; x < winograd_across(p); x += p->across, adds = true) {
        Region r = {line, last - line < p->lines ? last - line : p->lines, x, p->across};
        if (x + r.across > winograd_across(p)) r.across = winograd_across(p) - x;
        transform_slopes(p, (const float *)args[p->arg_w], &r, out, p->block_outs, slopes, pitch);
        transform_pixels(p, (const float *)args[p->arg_x], &r, channel, p->block_channels, pixels, pitch);
        add_tiles(p, slopes, pixels, pitch, r.lines * r.across, sums, adds);
      }
  }
}

/* w[out][kh][kw][channel] of outs [begin, end). */
void winograd_weights_run(const WinogradProduct *p, void *const *args, int64_t begin, int64_t end) {
  int64_t pitch = winograd_sums_pitch(p);
  for (; begin < end; begin++) {
    float *sums = (float *)args[p->arg_packed] + begin * pitch;
    for (int64_t part = 1; part < p->parts; part++) {
      const float *more = sums + part * p->outs * pitch;
      for (int64_t i = 0; i < WINOGRAD_PLACES * p->channels; i += WIDE) vector_store(sums + i, vector_load(sums + i) + vector_load(more + i));
    }
    for (int64_t c = 0; c < p->channels; c += WIDE) {
      Vector half[4][3];
#pragma clang loop unroll(full)
      for (int i = 0; i < 4; i++) {
        Vector u[4];
#pragma clang loop unroll(full)
        for (int j = 0; j < 4; j++) u[j] = vector_load(sums + (4 * i + j) * p->channels + c);
        turn_back(u, half[i]);
      }
#pragma clang loop unroll(full)
      for (int j = 0; j < 3; j++) {
        Vector u[4] = {half[0][j], half[1][j], half[2][j], half[3][j]}, g[3];
        turn_back(u, g);
#pragma clang loop unroll(full)
        for (int i = 0; i < 3; i++) vector_store((float *)args[p->arg_y] + (begin * 9 + 3 * i + j) * p->channels + c, g[i]);
      }
    }
  }
}
