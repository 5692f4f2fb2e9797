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
/* What is made of an axis of `inputs` pixels, of which those from `skipped` on are there: outputs [first,
 * first + count) of the `outputs` that the part [from, to) would have. */
typedef struct {
  int inputs, skipped;
  float from, to;
  int outputs, first, count;
  ImageFilter filter;
  double step,
      scale; /* of axis_wish: from an output to the next, and how far a filter is stretched */
} AxisWish;

static AxisWish axis_wish(AxisWish wish) {
  wish.step = (double)(wish.to - wish.from) / wish.outputs;
  wish.scale = wish.step < 1 ? 1 : wish.step;
  return wish;
}

/* The pixels below output i, as Pillow rounds their ends. */
static ResampleSpan axis_span(const AxisWish *wish, int i, double *centre) {
  double support = filters[wish->filter].support * wish->scale;
  *centre = wish->from + (i + 0.5) * wish->step;
  int first = (int)(*centre - support + 0.5), end = (int)(*centre + support + 0.5);
  if (first < 0) first = 0;
  if (end > wish->inputs) end = wish->inputs;
  return (ResampleSpan){first, end - first};
}

/* Of the taps of one output: weights[] that sum to 1. */
static void weigh_taps(const AxisWish *wish, ResampleSpan span, double centre, double *weights) {
  double inverse = 1 / wish->scale, sum = 0;
  for (int t = 0; t < span.count; t++) {
    weights[t] = filters[wish->filter].weight((span.first + t - centre + 0.5) * inverse);
    sum += weights[t];
  }
  if (sum != 0)
    for (int t = 0; t < span.count; t++) weights[t] /= sum;
}

/* `axis` has room for what resample_axis_bytes says. */
static void make_resample_axis(const AxisWish *wish, ResampleAxis *axis) {
  double *weights = (double *)(void *)(axis->span + axis->outputs);
  axis->coefficient = (int32_t *)(void *)(weights + axis->taps);
  for (int i = 0; i < axis->outputs; i++) {
    int32_t *coefficient = axis->coefficient + (size_t)i * (size_t)axis->taps;
    double centre;
    ResampleSpan span = axis_span(wish, wish->first + i, &centre);
    weigh_taps(wish, span, centre, weights);
    axis->span[i] = (ResampleSpan){span.first - wish->skipped, span.count};
    for (int t = 0; t < span.count; t++) {
      double scaled = weights[t] * (1 << RESAMPLE_BITS);
      coefficient[t] = (int32_t)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
    }
  }
}

static size_t resample_axis_bytes(const AxisWish *wish, ResampleAxis *axis) {
  axis->outputs = wish->count;
  axis->taps = (int)ceil(filters[wish->filter].support * wish->scale) * 2 + 1;
  size_t bytes = (size_t)axis->outputs * sizeof *axis->span + (size_t)axis->taps * sizeof(double) +
                 (size_t)axis->outputs * (size_t)axis->taps * sizeof *axis->coefficient;
  return (bytes + 15) / 16 * 16;
}

/* Would the outputs be the inputs? */
static bool axis_is_same(const AxisWish *wish) {
  return wish->outputs == wish->inputs && wish->count == wish->outputs && wish->from == 0 &&
         wish->to == (float)wish->outputs;
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

/* `out` has its size. */
static Status resample_both(ImageWorker *worker, const Image *from, const AxisWish *x,
                            const AxisWish *y, Image *out) {
  bool is_across = !axis_is_same(x), is_down = !axis_is_same(y);
  ResampleAxis across, down;
  size_t bytes = resample_axis_bytes(x, &across), more = resample_axis_bytes(y, &down);
  uint8_t *room;
  STATUS_TRY(image_scratch(worker, SCRATCH_COEFFICIENTS, bytes + more, &room));
  across.span = (ResampleSpan *)(void *)room;
  down.span = (ResampleSpan *)(void *)(room + bytes);
  make_resample_axis(x, &across);
  make_resample_axis(y, &down);
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

/* ── a window of the result ───────────────────────────────────────────────────────────────── */
static void window_axes(const ImageWindow *w, AxisWish *x, AxisWish *y) {
  *x = axis_wish((AxisWish){.inputs = w->in_width,
                            .to = (float)(w->to_width > 0 ? w->to_width : w->in_width),
                            .outputs = w->out_width,
                            .first = w->x,
                            .count = w->width,
                            .filter = w->filter});
  *y = axis_wish((AxisWish){.inputs = w->in_height,
                            .to = (float)(w->to_height > 0 ? w->to_height : w->in_height),
                            .outputs = w->out_height,
                            .first = w->y,
                            .count = w->height,
                            .filter = w->filter});
}

static void axis_needs(const AxisWish *wish, int *first, int *end) {
  double centre;
  ResampleSpan last = axis_span(wish, wish->first + wish->count - 1, &centre);
  *first = axis_span(wish, wish->first, &centre).first;
  *end = last.first + last.count;
}

void image_window_needs(const ImageWindow *window, int box[4]) {
  AxisWish x, y;
  window_axes(window, &x, &y);
  axis_needs(&x, &box[0], &box[2]);
  axis_needs(&y, &box[1], &box[3]);
}

Status image_resample_window(ImageWorker *worker, const Image *from, int left, int top,
                             const ImageWindow *window, Image *out) {
  AxisWish x, y;
  int needs[4];
  image_window_needs(window, needs);
  if (window->x < 0 || window->y < 0 || window->width < 1 || window->height < 1 ||
      window->width > window->out_width - window->x ||
      window->height > window->out_height - window->y || window->filter == IMAGE_NEAREST ||
      needs[0] < left || needs[1] < top || needs[2] - left > from->width ||
      needs[3] - top > from->height || from->width > window->in_width - left ||
      from->height > window->in_height - top)
    return status_fail(STATUS_USER, "a window of %d x %d pixels is not inside of the image",
                       window->width, window->height);
  window_axes(window, &x, &y);
  x.skipped = left;
  y.skipped = top;
  STATUS_TRY(image_reserve(out, window->height, window->width, from->channels));
  return resample_both(worker, from, &x, &y, out);
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
  AxisWish x = axis_wish((AxisWish){from->width, 0, f32[0], f32[2], width, 0, width, filter, 0, 0});
  AxisWish y =
      axis_wish((AxisWish){from->height, 0, f32[1], f32[3], height, 0, height, filter, 0, 0});
  return resample_both(worker, from, &x, &y, out);
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
