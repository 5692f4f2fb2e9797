/* grouped_x86: convolutions of f32 images [n, h, w, c] whose channels may be in groups, of one channel or more (grouped_host.h). Sixteen
 * channels of the result are a vector, whatever the size of groups. What they see of an image is copied first, with its padding: of each
 * pixel and each input channel of a group a vector of the numbers that the sixteen multiply. So every tap is a vector of weights
 * times a vector of the copy, for as many pixels as there are registers. An element is one sum, in the order of kh, kw, c: any split of
 * the items gives the same bits. */
#include "kernels/grouped_host.h"
#include "kernels/lanes_x86.h"
#include "kernels/tile_x86.h"

/* ── weights ────────────────────────────────────────────────────────────────────────────────── */
static float *weights_of_block(const GroupedConv *p, void *const *args, int64_t block) {
  return (float *)args[p->arg_packed] + block * grouped_depth(p) * GROUPED_LANES;
}
static int64_t block_columns(const GroupedConv *p, int64_t block) {
  int64_t left = p->outs - block * GROUPED_LANES;
  return left < GROUPED_LANES ? left : GROUPED_LANES;
}

void grouped_pack_run(const GroupedConv *p, void *const *args, int64_t begin, int64_t end) {
  int64_t depth = grouped_depth(p);
  for (; begin < end; begin++) {
    const float *w = (const float *)args[p->arg_w] + begin * GROUPED_LANES * depth;
    int64_t columns = block_columns(p, begin);
    float *to = weights_of_block(p, args, begin);
    for (int64_t k = 0; k < depth; k++)
      for (int64_t j = 0; j < GROUPED_LANES; j++) *to++ = j < columns ? w[j * depth + k] : 0.0f;
  }
}

/* ── images ─────────────────────────────────────────────────────────────────────────────────── */
/* What a block of channels sees: in each pixel the numbers from[at[j] + c] of its channel j, c of ins. */
typedef struct {
  int64_t at[GROUPED_LANES], count;
  bool is_run, is_one; /* neighbours; all the same */
} BlockChannels;

static BlockChannels channels_of_block(const GroupedConv *p, int64_t block) {
  int64_t first = block * GROUPED_LANES;
  BlockChannels out = {.count = block_columns(p, block)};
  for (int64_t j = 0; j < out.count; j++) out.at[j] = (first + j) / p->each * p->ins;
  out.is_run = p->ins == 1 && p->each == 1 && out.count == GROUPED_LANES;
  out.is_one = out.at[0] == out.at[out.count - 1];
  return out;
}

ALWAYS void copy_pixel(const GroupedConv *p, const BlockChannels *c, const float *from, float *to) {
  if (c->is_run) {
    lanes_store(to, lanes_load(from + c->at[0]));
    return;
  }
  for (int64_t i = 0; i < p->ins; i++, to += GROUPED_LANES) {
    if (c->is_one) {
      lanes_store(to, (Lanes)from[c->at[0] + i]);
      continue;
    }
    for (int64_t j = 0; j < GROUPED_LANES; j++) to[j] = j < c->count ? from[c->at[j] + i] : 0.0f;
  }
}
static void clear_pixels(const GroupedConv *p, float *to, int64_t count) {
  for (int64_t i = 0; i < count * p->ins; i++) lanes_store(to + i * GROUPED_LANES, (Lanes)0.0f);
}

/* Rows [top, top + rows) and columns [left, left + columns) of an image, some of which are padding. */
static void copy_seen(const GroupedConv *p, const BlockChannels *c, const float *image, int64_t top, int64_t left, int64_t rows,
                      int64_t columns, float *room) {
  int64_t pixel = p->ins * GROUPED_LANES, from = left < 0 ? -left : 0;
  int64_t to = p->width - left < columns ? p->width - left : columns;
  from = from < columns ? from : columns;
  to = to > from ? to : from;
  for (int64_t i = 0; i < rows; i++, room += grouped_line(p)) {
    if (top + i < 0 || top + i >= p->height) {
      clear_pixels(p, room, columns);
      continue;
    }
    const float *line = image + ((top + i) * p->width + left) * p->channels;
    clear_pixels(p, room, from);
    for (int64_t x = from; x < to; x++) copy_pixel(p, c, line + x * p->channels, room + x * pixel);
    clear_pixels(p, room + to * pixel, columns - to);
  }
}

/* ── sums ───────────────────────────────────────────────────────────────────────────────────── */
#if defined __AVX512F__
enum { TILE_PIXELS = 8 };
#elif defined __AVX2__
enum { TILE_PIXELS = 4 };
#else
enum { TILE_PIXELS = 2 };
#endif

/* Sums of neighbours in a row of results, the first of which sees what begins at a; step: floats from one to the next. */
ALWAYS void sum_pixels(const GroupedConv *p, int pixels, int64_t step, const float *restrict a, const float *restrict w,
                       float *restrict tile) {
  int64_t line = p->dilation_height * grouped_line(p), across = p->dilation_width * p->ins * GROUPED_LANES;
  Lanes sum[TILE_PIXELS];
#pragma clang loop unroll(full)
  for (int i = 0; i < pixels; i++) sum[i] = (Lanes)0.0f;
  for (int64_t y = 0; y < p->kernel_height; y++)
    for (int64_t x = 0; x < p->kernel_width; x++) {
      const float *from = a + y * line + x * across;
      for (int64_t c = 0; c < p->ins; c++, from += GROUPED_LANES, w += GROUPED_LANES) {
        Lanes right = lanes_load(w);
#pragma clang loop unroll(full)
        for (int i = 0; i < pixels; i++) sum[i] += lanes_load(from + i * step) * right;
      }
    }
#pragma clang loop unroll(full)
  for (int i = 0; i < pixels; i++) lanes_store(tile + i * GROUPED_LANES, sum[i]);
}

#define PIXELS(count)                                                                                                        \
  case count:                                                                                                                \
    if (step == GROUPED_LANES)                                                                                               \
      sum_pixels(p, count, GROUPED_LANES, a, w, tile);                                                                       \
    else                                                                                                                     \
      sum_pixels(p, count, step, a, w, tile);                                                                                \
    return;
static void sum_some(const GroupedConv *p, int64_t count, const float *a, const float *w, float *tile) {
  int64_t step = p->stride_width * p->ins * GROUPED_LANES;
  switch (count) {
    PIXELS(1)
    PIXELS(2)
#if defined __AVX2__
    PIXELS(3)
    PIXELS(4)
#endif
#if defined __AVX512F__
    PIXELS(5)
    PIXELS(6)
    PIXELS(7)
    PIXELS(8)
#endif
  }
}

/* ── work items ─────────────────────────────────────────────────────────────────────────────── */
#ifdef FT_PORTABLE
enum { ROOM = GROUPED_PORTABLE_ROOM };
#else
enum { ROOM = GROUPED_ROOM };
#endif

/* `count` neighbours in a row of results, the first of which is at (line, x): line counts those of all images. */
static void grouped_row(const GroupedConv *p, void *const *args, const float *a, int64_t block, int64_t line, int64_t x, int64_t count) {
  _Alignas(64) float tile[GROUPED_MOST_PIXELS * GROUPED_LANES];
  int64_t first = block * GROUPED_LANES, columns = block_columns(p, block);
  int64_t tiles = (count + TILE_PIXELS - 1) / TILE_PIXELS, pixel = p->stride_width * p->ins * GROUPED_LANES;
  const float *w = weights_of_block(p, args, block);
  for (int64_t i = 0, done = 0; i < tiles; i++) {
    int64_t now = (count - done + tiles - i - 1) / (tiles - i);
    sum_some(p, now, a + done * pixel, w, tile + done * GROUPED_LANES);
    done += now;
  }
  if (p->epilogue)
    p->epilogue(args + 1, line, x, first, count, columns, tile, GROUPED_LANES);
  else
    tile_copy((float *)args[p->arg_y] + (line * p->out_width + x) * p->outs + first, p->outs, tile, GROUPED_LANES, count, columns);
}

void grouped_run(const GroupedConv *p, void *const *args, int64_t begin, int64_t end) {
  _Alignas(64) float room[ROOM];
  int64_t down = grouped_parts_down(p), across = grouped_parts_across(p), line = grouped_line(p);
  for (; begin < end; begin++) {
    int64_t image = begin / (across * down), y = begin / across % down * p->lines, x = begin % across * p->pixels;
    int64_t lines = p->out_height - y < p->lines ? p->out_height - y : p->lines;
    int64_t count = p->out_width - x < p->pixels ? p->out_width - x : p->pixels;
    const float *from = (const float *)args[p->arg_x] + image * p->height * p->width * p->channels;
    for (int64_t block = 0; block < grouped_blocks(p); block++) {
      BlockChannels channels = channels_of_block(p, block);
      copy_seen(p, &channels, from, y * p->stride_height - p->pad_top, x * p->stride_width - p->pad_left,
                grouped_rows_seen(p, lines), grouped_columns_seen(p, count), room);
      for (int64_t i = 0; i < lines; i++)
        grouped_row(p, args, room + i * p->stride_height * line, block, image * p->out_height + y + i, x, count);
    }
  }
}
