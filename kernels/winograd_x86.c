/* winograd_x86: convolutions of f32 images by 3 x 3 weights, and their gradients, by Winograd's minimal filtering
 * (winograd_host.h). A work item transforms a few rows of tiles: to each place in a tile belongs a matrix, tiles by
 * channels, which is multiplied by the place's transformed weights with the register tiles of gemm_x86.c; the sums of a strip of
 * channels are transformed back while they are in a cache. An element is computed from its own tile in one order: any split of the
 * items gives the same bits. */
#include "kernels/winograd_transforms.h"
#include "kernels/panel_x86.h"
#include "kernels/tile_x86.h"
#include <stddef.h>

/* A tile in one dimension. */
enum { MOST_SIDE = 4, MOST_SIZE = MOST_SIDE + 2, MOST_PLACES = MOST_SIZE * MOST_SIZE };
/* What is made for either side of tiles. */
#define BY_SIDE(make, p, ...) ((p)->side == 2 ? make(2, __VA_ARGS__) : make(4, __VA_ARGS__))

/* ── weights ────────────────────────────────────────────────────────────────────────────────── */
/* The places of 3 x 3 weights, whose vectors are `step` floats apart; of windows that are turned round, or not. */
ALWAYS void weights_at(int side, const float *w, int64_t step, int turned, Lanes *place) {
  Lanes half[3][MOST_SIZE];
#pragma clang loop unroll(full)
  for (int x = 0; x < 3; x++) {
    int from = turned ? 8 - x : x, down = turned ? -3 : 3;
    turn_weights(side, lanes_load(w + from * step), lanes_load(w + (from + down) * step), lanes_load(w + (from + 2 * down) * step), half[x]);
  }
#pragma clang loop unroll(full)
  for (int y = 0; y < side + 2; y++) turn_weights(side, half[0][y], half[1][y], half[2][y], place + (side + 2) * y);
}

/* Where the rows of a vector of outs begin in their strip's matrix of place 0, and *width, the strip's. */
static float *packed_at(const WinogradProduct *p, void *const *args, int64_t vector, int64_t *width) {
  int64_t most = p->vectors, strip = vector / most, left = p->outs / GEMM_LANES - strip * most;
  *width = (left < most ? left : most) * GEMM_LANES;
  return (float *)args[p->arg_packed] + strip * most * GEMM_LANES * winograd_places(p) * p->channels + vector % most * GEMM_LANES;
}

ALWAYS void pack_turned(int side, const WinogradProduct *p, const float *w, float *to, int64_t width) {
  for (int64_t c = 0; c < p->channels; c++, w += 9 * p->outs, to += width) {
    Lanes place[MOST_PLACES];
    weights_at(side, w, p->outs, 1, place);
    for (int i = 0; i < (side + 2) * (side + 2); i++) lanes_store(to + i * p->channels * width, place[i]);
  }
}

/* Rows of w are the result's channels: 16 of them are turned, 16 channels at a time. */
ALWAYS void pack_rows(int side, const WinogradProduct *p, const float *w, float *to, int64_t width) {
  Lanes turned[MOST_PLACES][GEMM_LANES];
  for (int64_t c = 0; c < p->channels; c += GEMM_LANES, to += GEMM_LANES * width) {
    for (int64_t row = 0; row < GEMM_LANES; row++) {
      Lanes place[MOST_PLACES];
      weights_at(side, w + row * 9 * p->channels + c, p->channels, 0, place);
      for (int i = 0; i < (side + 2) * (side + 2); i++) turned[i][row] = place[i];
    }
    for (int i = 0; i < (side + 2) * (side + 2); i++) transpose_rows(turned[i], to + i * p->channels * width, width);
  }
}

void winograd_pack_run(const WinogradProduct *p, void *const *args, int64_t begin, int64_t end) {
  const float *w = (const float *)args[p->arg_w];
  for (; begin < end; begin++) {
    int64_t width, first = begin * GEMM_LANES;
    float *to = packed_at(p, args, begin, &width);
    const float *rows = w + first * 9 * p->channels;
    if (p->is_turned)
      BY_SIDE(pack_turned, p, p, w + first, to, width);
    else
      BY_SIDE(pack_rows, p, p, rows, to, width);
  }
}

/* ── pixels ─────────────────────────────────────────────────────────────────────────────────── */
/* Rows of tiles [line, line + lines), counted through all images, and of each row tiles [x, x + across). */
typedef struct {
  int64_t line, lines, x, across;
} Region;

/* An image's rows that a row of tiles sees; NULL: outside. */
typedef struct {
  const float *row[MOST_SIZE];
  int64_t width, channels; /* floats from one pixel to the next */
  bool is_whole;           /* no row is outside */
} Seen;

/* `rows` rows of one of the images, from `first` on. */
ALWAYS Seen rows_seen(const float *images, int64_t image, int64_t height, int64_t width, int64_t channels, int64_t first, int rows) {
  Seen s = {.width = width, .channels = channels, .is_whole = first >= 0 && first + rows <= height};
  for (int i = 0; i < rows; i++) {
    bool is_inside = first + i >= 0 && first + i < height;
    s.row[i] = is_inside ? images + (image * height + first + i) * width * channels : NULL;
  }
  return s;
}

/* The pixels of `rows` rows from `first` on, which the next row of tiles sees, come meanwhile: a vector of channels at a time, hardware
 * does not see the pattern. */
ALWAYS void pixels_ahead(const float *images, int64_t height, int64_t width, int64_t channels, int64_t image, int64_t first, int64_t rows) {
  if (first < 0 || first + rows > height) return;
  const char *at = (const char *)(images + (image * height + first) * width * channels);
  for (int64_t i = 0; i < rows * width * channels * 4; i += 64) __builtin_prefetch(at + i);
}

/* Transforms of two dimensions go through memory: few registers hold a tile. What is transformed in one dimension at a time: */
enum { NEAR_TILES = 8, NEAR_COLUMNS = NEAR_TILES * MOST_SIDE + 2 };

/* A column of `rows` pixels; zeros: outside. */
ALWAYS void load_column(int rows, const Seen *s, bool is_whole, int64_t x, int64_t channel, Vector *out) {
  bool is_inside = x >= 0 && x < s->width;
#pragma clang loop unroll(full)
  for (int i = 0; i < rows; i++)
    out[i] = is_inside && (is_whole || s->row[i]) ? vector_load(s->row[i] + x * s->channels + channel) : (Vector)0.0f;
}

/* `count` columns of pixels from x on. */
ALWAYS void turn_columns(int side, const Seen *s, bool is_whole, int64_t x, int64_t count, int64_t channel, Vector (*out)[MOST_SIZE]) {
#pragma clang loop unroll(disable)
  for (int64_t i = 0; i < count; i++) {
    Vector d[MOST_SIZE];
    load_column(side + 2, s, is_whole, x + i, channel, d);
    turn_pixels(side, d, out[i]);
  }
}

/* A row of tiles, of a vector of channels: to[place * pitch + tile * step]. Neighbours share two columns of pixels. */
ALWAYS void transform_row(int side, const Seen *s, int64_t x, int64_t across, int64_t channel, float *to, int64_t pitch, int64_t step) {
  int size = side + 2;
  for (; across > 0; across -= NEAR_TILES, x += NEAR_TILES * side) {
    Vector column[NEAR_COLUMNS][MOST_SIZE];
    int64_t tiles = across < NEAR_TILES ? across : NEAR_TILES;
    if (s->is_whole)
      turn_columns(side, s, true, x, tiles * side + 2, channel, column);
    else
      turn_columns(side, s, false, x, tiles * side + 2, channel, column);
    for (int64_t tile = 0; tile < tiles; tile++, to += step) {
      float *at = to;
#pragma clang loop unroll(disable)
      for (int i = 0; i < size; i++, at += size * pitch) {
        Vector d[MOST_SIZE], v[MOST_SIZE];
#pragma clang loop unroll(full)
        for (int j = 0; j < size; j++) d[j] = column[tile * side + j][i];
        turn_pixels(side, d, v);
#pragma clang loop unroll(full)
        for (int j = 0; j < size; j++) vector_store(at + j * pitch, v[j]);
      }
    }
  }
}

/* Transforms channels [first, first + count) of a region's tiles: to[place * pitch + tile * count]. */
ALWAYS void transform_pixels(int side, const WinogradProduct *p, const float *x, const Region *r, int64_t first, int64_t count, float *to,
                             int64_t pitch) {
  int64_t down = winograd_down(p);
  for (int64_t line = r->line; line < r->line + r->lines; line++, to += r->across * count) {
    int64_t row = line % down * side - p->pad_top;
    Seen s = rows_seen(x, line / down, p->height, p->width, p->channels, row, side + 2);
    pixels_ahead(x, p->height, p->width, p->channels, line / down, row + side + 2, side);
    for (int64_t c = 0; c < count; c += WIDE)
      transform_row(side, &s, r->x * side - p->pad_left, r->across, first + c, to + c, pitch, count);
  }
}
static void region_pixels(const WinogradProduct *p, const float *x, const Region *r, int64_t first, int64_t count, float *to, int64_t pitch) {
  BY_SIDE(transform_pixels, p, p, x, r, first, count, to, pitch);
}

/* ── results ────────────────────────────────────────────────────────────────────────────────── */
enum { MOST_LINE = MOST_SIDE * WINOGRAD_TILES * GEMM_MAX_VECTORS * GEMM_LANES };

/* A row of tiles of a strip becomes `side` rows of results of `count` pixels, `pitch` floats from one to the next; the first is written last. */
ALWAYS void sums_back(int side, const float *from, int64_t place, int64_t width, int64_t count, float *const *to, int64_t pitch) {
  int size = side + 2;
  for (int64_t x = 0; x < count; x += side, from += width)
    for (int64_t c = 0; c < width; c += WIDE) {
      Vector half[MOST_SIZE][MOST_SIDE];
      const float *at = from + c;
#pragma clang loop unroll(disable)
      for (int i = 0; i < size; i++, at += size * place) {
        Vector m[MOST_SIZE];
#pragma clang loop unroll(full)
        for (int j = 0; j < size; j++) m[j] = vector_load(at + j * place);
        turn_sums(side, m, half[i]);
      }
      int64_t columns = count - x < side ? count - x : side;
#pragma clang loop unroll(disable)
      for (int64_t j = 0; j < columns; j++) {
        Vector m[MOST_SIZE], y[MOST_SIDE];
#pragma clang loop unroll(full)
        for (int i = 0; i < size; i++) m[i] = half[i][j];
        turn_sums(side, m, y);
#pragma clang loop unroll(full)
        for (int i = side - 1; i >= 0; i--) vector_store(to[i] + (x + j) * pitch + c, y[i]);
      }
    }
}

/* The sums of a strip, columns [first, first + width), of a region's tiles. */
ALWAYS void finish_region(int side, const WinogradProduct *p, void *const *args, const Region *r, int64_t first, int64_t width,
                          const float *sums, int64_t place) {
  _Alignas(64) float room[MOST_SIDE][MOST_LINE];
  int64_t down = winograd_down(p), x = r->x * side, count = p->out_width - x < r->across * side ? p->out_width - x : r->across * side;
  for (int64_t line = r->line; line < r->line + r->lines; line++, sums += r->across * width) {
    int64_t y = line % down * side, row = line / down * p->out_height + y, rows = p->out_height - y < side ? p->out_height - y : side;
    float *to[MOST_SIDE];
    for (int i = 0; i < side; i++) {
      int inside = i < rows ? i : 0; /* what is outside goes where the first row will be */
      to[i] = p->epilogue ? room[inside] : (float *)args[p->arg_y] + ((row + inside) * p->out_width + x) * p->outs + first;
    }
    sums_back(side, sums, place, width, count, to, p->epilogue ? width : p->outs);
    for (int i = 0; p->epilogue && i < rows; i++) p->epilogue(args + 1, row + i, x, first, count, width, room[i], width);
  }
}
static void finish_strip(const WinogradProduct *p, void *const *args, const Region *r, int64_t first, int64_t width, const float *sums, int64_t place) {
  BY_SIDE(finish_region, p, p, args, r, first, width, sums, place);
}

/* sums[place] = left[place] by the packed weights of the strip. Rows behind `tiles`, up to a register tile, are computed, too.
 * Meanwhile the next place's weights come, and of what `soon` has some lines for each register tile. */
static void multiply_strip(const WinogradProduct *p, const float *left, int64_t pitch, int64_t tiles, const float *right, int64_t width,
                           bool is_right, float *sums, int64_t place, GemmAhead *soon) {
  int64_t k = p->channels, share = (k * width / GEMM_LANES * p->rows + tiles - 1) / tiles;
  for (int i = 0; i < winograd_places(p); i++, left += pitch, sums += place, right += k * width)
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
  int64_t down = winograd_down(p), line = r->line + r->lines, calls = winograd_strips(p) * winograd_places(p) * ((tiles + p->rows - 1) / p->rows);
  if (line >= winograd_lines(p) || p->across < winograd_across(p)) return (GemmAhead){0};
  int64_t row = line % down * p->side - p->pad_top, lines = r->lines * p->side * p->width * p->channels / GEMM_LANES;
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
    region_pixels(p, (const float *)args[p->arg_x], &r, 0, p->channels, left, pitch);
    for (int i = 0; i < winograd_places(p); i++)
      for (int64_t j = tiles * p->channels; j < whole * p->channels; j += GEMM_LANES) lanes_store(left + i * pitch + j, (Lanes)0.0f);
    const float *right = (const float *)args[p->arg_packed];
    GemmAhead soon = item_ahead(p, (const float *)args[p->arg_x], &r, tiles);
    for (int64_t first = 0; first < p->outs; first += most) {
      int64_t width = p->outs - first < most ? p->outs - first : most, place = winograd_pitch(p, width);
      multiply_strip(p, left, pitch, tiles, right, width, width < most, sums, place, &soon);
      finish_strip(p, args, &r, first, width, sums, place);
      right += winograd_places(p) * p->channels * width;
    }
  }
}

/* ── gradients of weights ───────────────────────────────────────────────────────────────────── */
/* A row of tiles of the result's gradient, of a vector of channels: to[place * pitch + tile * step]. */
ALWAYS void slopes_row(int side, const Seen *s, int64_t x, int64_t across, int64_t channel, float *to, int64_t pitch, int64_t step) {
  int size = side + 2;
  for (; across > 0; across--, x += side, to += step) {
    Vector half[MOST_SIDE][MOST_SIZE];
#pragma clang loop unroll(disable)
    for (int j = 0; j < side; j++) {
      Vector y[MOST_SIZE];
      load_column(side, s, s->is_whole, x + j, channel, y);
      turn_slopes(side, y, half[j]);
    }
    float *at = to;
#pragma clang loop unroll(disable)
    for (int i = 0; i < size; i++, at += size * pitch) {
      Vector y[MOST_SIDE], out[MOST_SIZE];
#pragma clang loop unroll(full)
      for (int j = 0; j < side; j++) y[j] = half[j][i];
      turn_slopes(side, y, out);
#pragma clang loop unroll(full)
      for (int j = 0; j < size; j++) vector_store(at + j * pitch, out[j]);
    }
  }
}

ALWAYS void transform_slopes(int side, const WinogradProduct *p, const float *dy, const Region *r, int64_t first, int64_t count, float *to,
                             int64_t pitch) {
  int64_t down = winograd_down(p);
  for (int64_t line = r->line; line < r->line + r->lines; line++, to += r->across * count) {
    int64_t row = line % down * side;
    Seen s = rows_seen(dy, line / down, p->out_height, p->out_width, p->outs, row, side);
    pixels_ahead(dy, p->out_height, p->out_width, p->outs, line / down, row + side, side);
    for (int64_t c = 0; c < count; c += WIDE) slopes_row(side, &s, r->x * side, r->across, first + c, to + c, pitch, count);
  }
}
static void region_slopes(const WinogradProduct *p, const float *dy, const Region *r, int64_t first, int64_t count, float *to, int64_t pitch) {
  BY_SIDE(transform_slopes, p, p, dy, r, first, count, to, pitch);
}

/* sums[out][place][channel] = or += slopes by pixels of `tiles` tiles. */
static void add_tiles(const WinogradProduct *p, const float *slopes, const float *pixels, int64_t pitch, int64_t tiles, float *sums,
                      bool adds) {
  int64_t most = p->vectors * GEMM_LANES, outs = p->block_outs, channels = p->block_channels;
  for (int i = 0; i < winograd_places(p); i++, slopes += pitch, pixels += pitch, sums += p->channels)
    for (int64_t first = 0; first < channels; first += most)
      for (int64_t row = 0; row < outs; row += p->rows) {
        GemmAhead ahead = {(const char *)pixels, 0, tiles};
        p->tile[(outs - row < p->rows) + 2 * (channels - first < most)](slopes + row, outs, pixels + first, channels, tiles,
                                                                        sums + row * winograd_sums_pitch(p) + first, winograd_sums_pitch(p), adds, &ahead);
      }
}

void winograd_sum_run(const WinogradProduct *p, void *const *args, int64_t begin, int64_t end) {
  _Alignas(64) float slopes[WINOGRAD_ROOM];
  _Alignas(64) float pixels[WINOGRAD_ROOM];
  int64_t blocks = winograd_blocks(p), wide = p->channels / p->block_channels, lines = winograd_lines(p), pitch = winograd_weights_pitch(p);
  for (; begin < end; begin++) {
    int64_t part = begin / blocks, out = begin % blocks / wide * p->block_outs, channel = begin % wide * p->block_channels;
    int64_t first = part * lines / p->parts, last = (part + 1) * lines / p->parts;
    float *sums = (float *)args[p->arg_packed] + (part * p->outs + out) * winograd_sums_pitch(p) + channel;
    bool adds = false;
    for (int64_t line = first; line < last; line += p->lines)
      for (int64_t x = 0; x < winograd_across(p); x += p->across, adds = true) {
        Region r = {line, last - line < p->lines ? last - line : p->lines, x, p->across};
        if (x + r.across > winograd_across(p)) r.across = winograd_across(p) - x;
        region_slopes(p, (const float *)args[p->arg_w], &r, out, p->block_outs, slopes, pitch);
        region_pixels(p, (const float *)args[p->arg_x], &r, channel, p->block_channels, pixels, pitch);
        add_tiles(p, slopes, pixels, pitch, r.lines * r.across, sums, adds);
      }
  }
}

/* 3 x 3 weights of a vector of channels: from sums `from_step` apart to gradients `to_step` apart. */
ALWAYS void weights_back(int side, const float *from, int64_t from_step, float *to, int64_t to_step) {
  int size = side + 2;
  Vector half[MOST_SIZE][3];
#pragma clang loop unroll(full)
  for (int i = 0; i < size; i++) {
    Vector u[MOST_SIZE];
#pragma clang loop unroll(full)
    for (int j = 0; j < size; j++) u[j] = vector_load(from + (size * i + j) * from_step);
    turn_back(side, u, half[i]);
  }
#pragma clang loop unroll(full)
  for (int j = 0; j < 3; j++) {
    Vector u[MOST_SIZE], g[3];
#pragma clang loop unroll(full)
    for (int i = 0; i < size; i++) u[i] = half[i][j];
    turn_back(side, u, g);
#pragma clang loop unroll(full)
    for (int i = 0; i < 3; i++) vector_store(to + (3 * i + j) * to_step, g[i]);
  }
}

/* w[out][kh][kw][channel] of outs [begin, end). */
void winograd_weights_run(const WinogradProduct *p, void *const *args, int64_t begin, int64_t end) {
  int64_t pitch = winograd_sums_pitch(p);
  for (; begin < end; begin++) {
    float *sums = (float *)args[p->arg_packed] + begin * pitch, *to = (float *)args[p->arg_y] + begin * 9 * p->channels;
    for (int64_t part = 1; part < p->parts; part++) {
      const float *more = sums + part * p->outs * pitch;
      for (int64_t i = 0; i < winograd_places(p) * p->channels; i += WIDE) vector_store(sums + i, vector_load(sums + i) + vector_load(more + i));
    }
    for (int64_t c = 0; c < p->channels; c += WIDE) BY_SIDE(weights_back, p, sums + c, p->channels, to + c, p->channels);
  }
}
