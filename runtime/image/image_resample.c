/* image_resample: a separable filter whose width grows with the reduction, as Pillow's: coefficients
 * are computed in f64, made to sum to 1, rounded to 22 bits of fraction, and each of the two passes,
 * across first, rounds to 8 bits. Nearest steps through the box by addition, as Pillow's does. */
#include "runtime/image/image_private.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ── filters ──────────────────────────────────────────────────────────────────────────────── */
static double weight_box(double x) { return x > -0.5 && x <= 0.5; }

static double weight_bilinear(double x) {
  x = fabs(x);
  return x < 1 ? 1 - x : 0;
}

/* Keys 1981 with a = -0.5. */
static double weight_bicubic(double x) {
  const double a = -0.5;
  x = fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double sinc_of(double x) {
  if (x == 0) return 1;
  x *= M_PI;
  return sin(x) / x;
}
static double weight_lanczos(double x) {
  return x >= -3 && x < 3 ? sinc_of(x) * sinc_of(x / 3) : 0;
}

static const struct {
  double (*weight)(double);
  double support;
} filters[IMAGE_FILTER_COUNT] = {[IMAGE_BILINEAR] = {weight_bilinear, 1},
                                 [IMAGE_BICUBIC] = {weight_bicubic, 2},
                                 [IMAGE_BOX] = {weight_box, 0.5},
                                 [IMAGE_LANCZOS] = {weight_lanczos, 3}};

/* ── an axis ──────────────────────────────────────────────────────────────────────────────── */
/* Of the taps of one output: their place, and weights[] that sum to 1. */
static ResampleSpan weigh_taps(int inputs, double centre, double scale, ImageFilter filter,
                               double *weights) {
  double support = filters[filter].support * scale, inverse = 1 / scale, sum = 0;
  int first = (int)(centre - support + 0.5), end = (int)(centre + support + 0.5);
  if (first < 0) first = 0;
  if (end > inputs) end = inputs;
  for (int i = first; i < end; i++) {
    weights[i - first] = filters[filter].weight((i - centre + 0.5) * inverse);
    sum += weights[i - first];
  }
  if (sum != 0)
    for (int i = first; i < end; i++) weights[i - first] /= sum;
  return (ResampleSpan){first, end - first};
}

/* `at` has room for what resample_axis_bytes says. */
static void make_resample_axis(int inputs, float from, float to, ImageFilter filter,
                               ResampleAxis *axis) {
  double step = (double)(to - from) / axis->outputs, scale = step < 1 ? 1 : step;
  double *weights = (double *)(void *)(axis->span + axis->outputs);
  axis->coefficient = (int32_t *)(void *)(weights + axis->taps);
  for (int i = 0; i < axis->outputs; i++) {
    int32_t *coefficient = axis->coefficient + (size_t)i * (size_t)axis->taps;
    ResampleSpan span = weigh_taps(inputs, from + (i + 0.5) * step, scale, filter, weights);
    axis->span[i] = span;
    for (int t = 0; t < span.count; t++) {
      double scaled = weights[t] * (1 << RESAMPLE_BITS);
      coefficient[t] = (int32_t)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
    }
  }
}

static size_t resample_axis_bytes(int outputs, float from, float to, ImageFilter filter,
                                  ResampleAxis *axis) {
  double step = (double)(to - from) / outputs, scale = step < 1 ? 1 : step;
  axis->outputs = outputs;
  axis->taps = (int)ceil(filters[filter].support * scale) * 2 + 1;
  size_t bytes = (size_t)outputs * sizeof *axis->span + (size_t)axis->taps * sizeof(double) +
                 (size_t)outputs * (size_t)axis->taps * sizeof *axis->coefficient;
  return (bytes + 15) / 16 * 16;
}

/* ── passes ───────────────────────────────────────────────────────────────────────────────── */
/* Rows [first, first + rows) of `from` along the axis, to `to`, whose rows are tight. */
static Status pass_across(ImageWorker *worker, const Image *from, int first, int rows,
                          const ResampleAxis *axis, uint8_t *to) {
  size_t stride = image_row_bytes(from), channels = (size_t)from->channels;
  size_t made = (size_t)axis->outputs * channels;
  uint8_t *tile;
  STATUS_TRY(image_scratch(worker, SCRATCH_TILE, RESAMPLE_ROWS * (stride + made + 16), &tile));
  for (int y = 0; y < rows; y += RESAMPLE_ROWS)
    image_rows()->across(from->at + (size_t)(first + y) * stride, stride,
                         rows - y < RESAMPLE_ROWS ? rows - y : RESAMPLE_ROWS, from->channels, axis,
                         to + (size_t)y * made, tile);
  return STATUS_OK;
}

static void pass_down(const uint8_t *from, size_t stride, int first, const ResampleAxis *axis,
                      uint8_t *to) {
  for (int y = 0; y < axis->outputs; y++)
    image_rows()->down(from + (size_t)(axis->span[y].first - first) * stride, stride,
                       axis->span[y].count, axis->coefficient + (size_t)y * (size_t)axis->taps,
                       to + (size_t)y * stride);
}

static Status resample_both(ImageWorker *worker, const Image *from, const float box[4],
                            ImageFilter filter, Image *out) {
  bool is_across = out->width != from->width || box[0] != 0 || box[2] != (float)out->width;
  bool is_down = out->height != from->height || box[1] != 0 || box[3] != (float)out->height;
  ResampleAxis across, down;
  size_t bytes = resample_axis_bytes(out->width, box[0], box[2], filter, &across);
  size_t more = resample_axis_bytes(out->height, box[1], box[3], filter, &down);
  uint8_t *room;
  STATUS_TRY(image_scratch(worker, SCRATCH_COEFFICIENTS, bytes + more, &room));
  across.span = (ResampleSpan *)(void *)room;
  down.span = (ResampleSpan *)(void *)(room + bytes);
  make_resample_axis(from->width, box[0], box[2], filter, &across);
  make_resample_axis(from->height, box[1], box[3], filter, &down);
  if (!is_across && !is_down) {
    memcpy(out->at, from->at, image_byte_count(from));
    return STATUS_OK;
  }
  if (!is_down) return pass_across(worker, from, 0, from->height, &across, out->at);
  size_t stride = image_row_bytes(out);
  const ResampleSpan *last = down.span + down.outputs - 1;
  int first = down.span->first, rows = last->first + last->count - first;
  if (!is_across) {
    pass_down(from->at, stride, 0, &down, out->at);
    return STATUS_OK;
  }
  uint8_t *between;
  STATUS_TRY(image_scratch(worker, SCRATCH_PASS, (size_t)rows * stride, &between));
  STATUS_TRY(pass_across(worker, from, first, rows, &across, between));
  pass_down(between, stride, first, &down, out->at);
  return STATUS_OK;
}

/* ── nearest ──────────────────────────────────────────────────────────────────────────────── */
/* A coordinate's pixel, or -1: outside. */
static int pixel_below(double at, int count) { return at < 0 || at >= count ? -1 : (int)at; }

static inline __attribute__((always_inline)) void
pick_pixels(const uint8_t *row, const int32_t *column, int count, size_t channels, uint8_t *to) {
  static const uint8_t black[3];
  for (int i = 0; i < count; i++, to += channels)
    memcpy(to, column[i] < 0 ? black : row + (size_t)column[i] * channels, channels);
}

static Status resample_nearest(ImageWorker *worker, const Image *from, const float box[4],
                               Image *out) {
  size_t stride = image_row_bytes(from), channels = (size_t)from->channels;
  double step_x = (double)(box[2] - box[0]) / out->width;
  double step_y = (double)(box[3] - box[1]) / out->height;
  double x = box[0] + step_x * 0.5, y = box[1] + step_y * 0.5;
  int32_t *column;
  STATUS_TRY(
      image_scratch(worker, SCRATCH_COEFFICIENTS, (size_t)out->width * sizeof *column, &column));
  for (int i = 0; i < out->width; i++, x += step_x) column[i] = pixel_below(x, from->width);
  for (int i = 0; i < out->height; i++, y += step_y) {
    int row = pixel_below(y, from->height);
    uint8_t *to = out->at + (size_t)i * image_row_bytes(out);
    const uint8_t *source = from->at + (size_t)(row < 0 ? 0 : row) * stride;
    if (row < 0)
      memset(to, 0, image_row_bytes(out));
    else if (channels == 3)
      pick_pixels(source, column, out->width, 3, to);
    else
      pick_pixels(source, column, out->width, 1, to);
  }
  return STATUS_OK;
}

Status image_resample(ImageWorker *worker, const Image *from, const double box[4], int height,
                      int width, ImageFilter filter, Image *out) {
  float f32[4];
  for (int i = 0; i < 4; i++) f32[i] = (float)box[i]; /* Pillow's boxes are f32 */
  if (!(f32[0] >= 0 && f32[1] >= 0 && f32[2] <= (float)from->width &&
        f32[3] <= (float)from->height && f32[0] < f32[2] && f32[1] < f32[3]))
    return status_fail(STATUS_USER,
                       "the box %g, %g to %g, %g is empty or not inside of an image of %d x %d",
                       box[0], box[1], box[2], box[3], from->width, from->height);
  if (height < 1 || width < 1)
    return status_fail(STATUS_USER, "an image of %d x %d has no pixels", width, height);
  STATUS_TRY(image_reserve(out, height, width, from->channels));
  if (filter == IMAGE_NEAREST) return resample_nearest(worker, from, f32, out);
  return resample_both(worker, from, f32, filter, out);
}

const ImageRows *image_rows(void) {
#if defined(__x86_64__)
  static const ImageRows *chosen;
  const ImageRows *rows = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
  if (rows) return rows;
  bool has_v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                __builtin_cpu_supports("bmi2");
  bool has_v4 = has_v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                __builtin_cpu_supports("avx512cd");
  const char *wish = getenv("FT_IMAGE_ROWS");
  rows = has_v4 ? &image_rows_v4 : has_v3 ? &image_rows_v3 : &image_rows_base;
  if (wish && !strcmp(wish, "base")) rows = &image_rows_base;
  if (wish && !strcmp(wish, "v3") && has_v3) rows = &image_rows_v3;
  __atomic_store_n(&chosen, rows, __ATOMIC_RELAXED);
  return rows;
#else
  return &image_rows_base;
#endif
}
