/* conv_x86: convolutions of f32 images [n, h, w, c], and gradients of images (conv_host.h). A row of
 * windows is kernel_width * channels neighbours for each row of the kernel, so a row of results is a
 * product: pixels, stride_width * channels apart, by packed weights. Rows that need padding are copied
 * with it first. An element is one sum, in the order of kh, kw, c: any split of the items gives the same
 * bits. */
#include "kernels/conv_host.h"
#include "kernels/lanes_x86.h"
#include "kernels/panel_x86.h"
#include "kernels/tile_x86.h"

/* ── register tiles ─────────────────────────────────────────────────────────────────────────── */
/* segments and depth are at least 1. */
ALWAYS void window_tile(int rows, int vectors, const float *restrict a, int64_t a_row,
                        int64_t segment, int64_t segments, const float *restrict b, int64_t depth,
                        float *restrict tile, int64_t stride) {
  TileSums sum;
  tile_begin(rows, vectors, sum);
#pragma clang loop unroll(disable)
  do {
    const float *from = a;
    int64_t k = depth;
#pragma clang loop unroll(disable)
    for (; k % TILE_STEPS; k--, from++, b += vectors * GEMM_LANES) tile_add(rows, vectors, sum, from, a_row, b);
#pragma clang loop unroll(disable)
    for (; k; k -= TILE_STEPS)
#pragma clang loop unroll(full)
      for (int i = 0; i < TILE_STEPS; i++, from++, b += vectors * GEMM_LANES) tile_add(rows, vectors, sum, from, a_row, b);
    a += segment;
  } while (--segments);
  tile_end(rows, vectors, sum, tile, stride, false);
}

/* Those that gemm_choose can choose; ld drops what an artifact does not use. */
#define TILE(rows, vectors)                                                                        \
  ConvTileKernel conv_tile_##rows##x##vectors;                                                     \
  void conv_tile_##rows##x##vectors(const float *a, int64_t a_row, int64_t segment,                \
                                    int64_t segments, const float *b, int64_t k, float *tile,      \
                                    int64_t stride) {                                              \
    window_tile(rows, vectors, a, a_row, segment, segments, b, k, tile, stride);                   \
  }
#include "kernels/tiles_x86.h"

/* ── weights ────────────────────────────────────────────────────────────────────────────────── */
/* panel[k][j] = w[first + j][k]: rows of w are the result's channels. */
static void pack_rows(const ConvProduct *p, const float *w, int64_t first, int64_t count,
                      int64_t width, float *panel) {
  int64_t depth = conv_depth(p), whole = count / GEMM_LANES * GEMM_LANES;
  int64_t deep = depth / GEMM_LANES * GEMM_LANES;
  for (int64_t j = 0; j < whole; j += GEMM_LANES)
    for (int64_t k = 0; k < deep; k += GEMM_LANES)
      transpose_block(OPERAND_F32, w, (first + j) * depth + k, depth, panel + k * width + j, width);
  for (int64_t k = 0; k < depth; k++)
    for (int64_t j = k < deep ? whole : 0; j < width; j++)
      panel[k * width + j] = j < count ? w[(first + j) * depth + k] : 0.0f;
}

/* A gradient: panel[kh][kw][c][j] = w[c][last - kh][last - kw][first + j]. */
static void pack_turned(const ConvProduct *p, const float *w, int64_t first, int64_t count,
                        int64_t width, float *panel) {
  int64_t window = p->kernel_height * p->kernel_width;
  for (int64_t tap = 0; tap < window; tap++)
    for (int64_t c = 0; c < p->channels; c++, panel += width) {
      const float *from = w + (c * window + window - 1 - tap) * p->outs + first;
      int64_t j = 0;
      for (; j + GEMM_LANES <= count; j += GEMM_LANES) lanes_store(panel + j, lanes_load(from + j));
      for (; j < width; j++) panel[j] = j < count ? from[j] : 0.0f;
    }
}

static int64_t conv_strip_width(const ConvProduct *p, int64_t strip) {
  int64_t most = p->vectors * GEMM_LANES, left = p->outs - strip * most;
  return left >= most ? most : (left + GEMM_LANES - 1) / GEMM_LANES * GEMM_LANES;
}
static float *conv_panel(const ConvProduct *p, void *const *args, int64_t strip) {
  return (float *)args[p->arg_packed] + strip * conv_depth(p) * p->vectors * GEMM_LANES;
}

void conv_pack_run(const ConvProduct *p, void *const *args, int64_t begin, int64_t end) {
  const float *w = (const float *)args[p->arg_w];
  for (; begin < end; begin++) {
    int64_t first = begin * p->vectors * GEMM_LANES, width = conv_strip_width(p, begin);
    int64_t count = p->outs - first < width ? p->outs - first : width;
    (p->is_gradient ? pack_turned : pack_rows)(p, w, first, count, width,
                                               conv_panel(p, args, begin));
  }
}

/* ── images ─────────────────────────────────────────────────────────────────────────────────── */
static void conv_clear(float *to, int64_t count) {
  for (int64_t i = 0; i < count; i++) to[i] = 0.0f;
}
static void conv_copy(float *to, const float *from, int64_t count) {
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) lanes_store(to + i, lanes_load(from + i));
  for (; i < count; i++) to[i] = from[i];
}

/* The rows of an image that the results of rows [first, first + lines) see, with zeros around them. */
static void copy_lines(const ConvProduct *p, const float *image, int64_t first, int64_t lines,
                       float *room) {
  int64_t line = conv_line(p), whole = p->width * p->channels, before = p->pad_left * p->channels;
  int64_t seen = line - before < whole ? line - before : whole;
  for (int64_t i = 0; i < conv_seen(p, lines); i++, room += line) {
    int64_t y = first * p->stride_height - p->pad_top + i;
    if (y < 0 || y >= p->height || seen <= 0) {
      conv_clear(room, line);
      continue;
    }
    conv_clear(room, before);
    conv_copy(room + before, image + y * whole, seen);
    conv_clear(room + before + seen, line - before - seen);
  }
}

/* ── results ────────────────────────────────────────────────────────────────────────────────── */
/* A tile of sums: pixels [x, x + count) of row y, channels [first, first + columns). */
static void conv_finish(const ConvProduct *p, void *const *args, int64_t line, int64_t x,
                        int64_t count, int64_t first, int64_t columns, const float *tile,
                        int64_t stride) {
  if (p->epilogue) {
    p->epilogue(args + 1, line, x, first, count, columns, tile, stride);
    return;
  }
  float *y = (float *)args[p->arg_y] + (line * p->out_width + x) * p->outs + first;
  tile_copy(y, p->outs, tile, stride, count, columns);
}

/* A row of results of one strip. a: its first window; line: image * out_height + y. */
static void conv_row(const ConvProduct *p, void *const *args, const float *a, int64_t row,
                     int64_t strip, int64_t line) {
  _Alignas(64) float tile[GEMM_MAX_ROWS * GEMM_MAX_VECTORS * GEMM_LANES];
  int64_t most = p->vectors * GEMM_LANES, first = strip * most, width = conv_strip_width(p, strip);
  int64_t columns = p->outs - first < width ? p->outs - first : width;
  int64_t step = p->stride_width * p->channels, segment = p->dilation_height * row;
  const float *panel = conv_panel(p, args, strip);
  bool is_right = columns < most, is_direct = !p->epilogue && columns == width; /* the tile goes where it belongs */
  for (int64_t x = 0; x < p->out_width; x += p->rows) {
    int64_t count = p->out_width - x < p->rows ? p->out_width - x : p->rows;
    float *to = is_direct ? (float *)args[p->arg_y] + (line * p->out_width + x) * p->outs + first : tile;
    p->tile[(count < p->rows) + 2 * is_right](a + x * step, step, segment, p->kernel_height,
                                                   panel, p->kernel_width * p->channels, to,
                                                   is_direct ? p->outs : width);
    if (!is_direct) conv_finish(p, args, line, x, count, first, columns, tile, width);
  }
}

#ifdef FT_PORTABLE
enum { ROOM = CONV_PORTABLE_ROOM };
#else
enum { ROOM = CONV_ROOM };
#endif

void conv_run(const ConvProduct *p, void *const *args, int64_t begin, int64_t end) {
  _Alignas(64) float room[ROOM];
  int64_t down = (p->out_height + p->lines - 1) / p->lines, strips = conv_strips(p);
  int64_t row = p->in_place ? p->width * p->channels : conv_line(p);
  for (; begin < end; begin++) {
    int64_t image = begin / down, first = begin % down * p->lines;
    int64_t lines = p->out_height - first < p->lines ? p->out_height - first : p->lines;
    const float *a = (const float *)args[p->arg_x] + image * p->height * p->width * p->channels;
    if (p->in_place)
      a += first * p->stride_height * row;
    else
      copy_lines(p, a, first, lines, room);
    if (!p->in_place) a = room;
    for (int64_t strip = 0; strip < strips; strip++)
      for (int64_t i = 0; i < lines; i++)
        conv_row(p, args, a + i * p->stride_height * row, row, strip,
                 image * p->out_height + first + i);
  }
}
