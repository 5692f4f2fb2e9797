/* image_affine: an image seen through an affine or a perspective map, as Pillow's Image.transform computes it:
 * nearest by addition, in 16 bits of fraction where that reaches, others in f64, truncated to 8 bits. */
#include "runtime/image/image_private.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void fill_image(Image *image, const uint8_t *fill) {
  size_t pixels = (size_t)image->height * (size_t)image->width;
  bool is_one = image->channels == 1 || (fill[0] == fill[1] && fill[0] == fill[2]);
  if (is_one)
    memset(image->at, fill[0], image_byte_count(image));
  else
    for (size_t i = 0; i < pixels; i++) memcpy(image->at + 3 * i, fill, 3);
}

static inline void put_pixel(const Image *from, int64_t x, int64_t y, uint8_t *to) {
  const uint8_t *pixel = from->at + (y * from->width + x) * from->channels;
  if (from->channels == 3)
    memcpy(to, pixel, 3);
  else
    *to = *pixel;
}

/* ── nearest ──────────────────────────────────────────────────────────────────────────────── */
static void affine_nearest(const Image *from, const double m[6], Image *out) {
  double row_x = m[2] + m[1] * 0.5 + m[0] * 0.5, row_y = m[5] + m[4] * 0.5 + m[3] * 0.5;
  for (int i = 0; i < out->height; i++, row_x += m[1], row_y += m[4]) {
    uint8_t *to = out->at + (size_t)i * image_row_bytes(out);
    double x = row_x, y = row_y;
    for (int j = 0; j < out->width; j++, to += out->channels, x += m[0], y += m[3])
      if (x >= 0 && x < from->width && y >= 0 && y < from->height)
        put_pixel(from, (int64_t)x, (int64_t)y, to);
  }
}

/* Is it within 16 bits before the point at the corner (x, y) of the result? */
static bool corner_is_fixed(const double m[6], double x, double y) {
  return fabs(x * m[0] + y * m[1] + m[2]) < 32768 && fabs(x * m[3] + y * m[4] + m[5]) < 32768;
}

static int64_t to_fixed(double value) { return (int64_t)floor(value * 65536 + 0.5); }

static void affine_fixed(const Image *from, const double m[6], Image *out) {
  int64_t step_x = to_fixed(m[0]), step_y = to_fixed(m[3]);
  int64_t down_x = to_fixed(m[1]), down_y = to_fixed(m[4]);
  int64_t row_x = to_fixed(m[2] + m[0] * 0.5 + m[1] * 0.5);
  int64_t row_y = to_fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
  for (int i = 0; i < out->height; i++, row_x += down_x, row_y += down_y) {
    uint8_t *to = out->at + (size_t)i * image_row_bytes(out);
    int64_t x = row_x, y = row_y;
    for (int j = 0; j < out->width; j++, to += out->channels, x += step_x, y += step_y)
      if ((uint64_t)(x >> 16) < (uint64_t)from->width &&
          (uint64_t)(y >> 16) < (uint64_t)from->height)
        put_pixel(from, x >> 16, y >> 16, to);
  }
}

/* Without a turn rows and columns are stepped through on their own. */
static void affine_scaled(const Image *from, const double m[6], Image *out) {
  double y = m[5] + m[4] * 0.5;
  for (int i = 0; i < out->height; i++, y += m[4]) {
    if (!(y >= 0 && y < from->height)) continue;
    uint8_t *to = out->at + (size_t)i * image_row_bytes(out);
    double x = m[2] + m[0] * 0.5;
    for (int j = 0; j < out->width; j++, to += out->channels, x += m[0])
      if (x >= 0 && x < from->width) put_pixel(from, (int64_t)x, (int64_t)y, to);
  }
}

/* ── bilinear ─────────────────────────────────────────────────────────────────────────────── */
static inline int clamp_index(int at, int count) {
  return at < 0 ? 0 : at < count ? at : count - 1;
}

static inline __attribute__((always_inline)) void
bilinear_pixel(const Image *from, double x, double y, int channels, uint8_t *to) {
  x -= 0.5;
  y -= 0.5;
  int left = (int)floor(x), top = (int)floor(y);
  double along = x - left, down = y - top;
  size_t stride = (size_t)from->width * (size_t)channels;
  const uint8_t *above = from->at + (size_t)clamp_index(top, from->height) * stride;
  const uint8_t *below = from->at + (size_t)clamp_index(top + 1, from->height) * stride;
  size_t a = (size_t)clamp_index(left, from->width) * (size_t)channels;
  size_t b = (size_t)clamp_index(left + 1, from->width) * (size_t)channels;
  for (int c = 0; c < channels; c++, a++, b++) {
    double upper = above[a] + (above[b] - above[a]) * along;
    double lower = below[a] + (below[b] - below[a]) * along;
    to[c] = (uint8_t)(upper + (lower - upper) * down);
  }
}

/* ── bicubic ──────────────────────────────────────────────────────────────────────────────── */
/* Between b (0) and c (1), with a = -1 in Keys' kernel. */
static inline double cubic(double a, double b, double c, double d, double at) {
  double first = -a + c, second = 2 * (a - b) + c - d, third = -a + b - c + d;
  return b + at * (first + at * (second + at * third));
}

static inline __attribute__((always_inline)) void
bicubic_pixel(const Image *from, double x, double y, int channels, uint8_t *to) {
  x -= 0.5;
  y -= 0.5;
  int left = (int)floor(x), top = (int)floor(y);
  double along = x - left, down = y - top;
  size_t column[4], stride = (size_t)from->width * (size_t)channels;
  const uint8_t *row[4];
  for (int i = 0; i < 4; i++) {
    column[i] = (size_t)clamp_index(left - 1 + i, from->width) * (size_t)channels;
    row[i] = from->at + (size_t)clamp_index(top - 1 + i, from->height) * stride;
  }
  for (size_t c = 0; c < (size_t)channels; c++) {
    double value[4];
    for (int i = 0; i < 4; i++)
      value[i] = cubic(row[i][column[0] + c], row[i][column[1] + c], row[i][column[2] + c],
                       row[i][column[3] + c], along);
    double made = cubic(value[0], value[1], value[2], value[3], down);
    to[c] = (uint8_t)(made > 0 ? made < 255 ? made : 255 : 0);
  }
}

/* ── any map ──────────────────────────────────────────────────────────────────────────────── */
typedef void PixelMaker(const Image *from, double x, double y, int channels, uint8_t *to);

static inline __attribute__((always_inline)) void
nearest_pixel(const Image *from, double x, double y, int channels, uint8_t *to) {
  (void)channels;
  put_pixel(from, (int64_t)x, (int64_t)y, to);
}

/* Inlined for each kind of pixel, number of channels, and map: an affine one has c6 = c7 = 0. */
static inline __attribute__((always_inline)) void map_pixels(const Image *from, const double c[8],
                                                             bool is_affine, int channels,
                                                             PixelMaker *make, Image *out) {
  for (int i = 0; i < out->height; i++) {
    uint8_t *to = out->at + (size_t)i * image_row_bytes(out);
    for (int j = 0; j < out->width; j++, to += channels) {
      double across = j + 0.5, down = i + 0.5;
      double x = c[0] * across + c[1] * down + c[2], y = c[3] * across + c[4] * down + c[5];
      if (!is_affine) {
        double by = c[6] * across + c[7] * down + 1;
        x /= by;
        y /= by;
      }
      if (x >= 0 && x < from->width && y >= 0 && y < from->height) make(from, x, y, channels, to);
    }
  }
}

static inline __attribute__((always_inline)) void
map_channels(const Image *from, const double c[8], bool is_affine, PixelMaker *make, Image *out) {
  if (from->channels == 3)
    map_pixels(from, c, is_affine, 3, make, out);
  else
    map_pixels(from, c, is_affine, 1, make, out);
}

static Status begin_map(const Image *from, const double *numbers, int count, ImageFilter filter,
                        const uint8_t fill[3], Image *out) {
  if (filter != IMAGE_NEAREST && filter != IMAGE_BILINEAR && filter != IMAGE_BICUBIC)
    return status_fail(STATUS_USER, "a map is nearest, bilinear or bicubic");
  for (int i = 0; i < count; i++)
    if (!isfinite(numbers[i]))
      return status_fail(STATUS_USER, "a map of numbers that are not finite");
  STATUS_TRY(image_reserve(out, from->height, from->width, from->channels));
  fill_image(out, fill);
  return STATUS_OK;
}

Status image_affine(const Image *from, const double matrix[6], ImageFilter filter,
                    const uint8_t fill[3], Image *out) {
  int height = from->height, width = from->width;
  double c[8] = {0};
  STATUS_TRY(begin_map(from, matrix, 6, filter, fill, out));
  memcpy(c, matrix, 6 * sizeof *c);
  if (filter == IMAGE_BILINEAR)
    map_channels(from, c, true, bilinear_pixel, out);
  else if (filter == IMAGE_BICUBIC)
    map_channels(from, c, true, bicubic_pixel, out);
  else if (matrix[1] == 0 && matrix[3] == 0)
    affine_scaled(from, matrix, out);
  else if (corner_is_fixed(matrix, 0, 0) && corner_is_fixed(matrix, width, height) &&
           corner_is_fixed(matrix, 0, height) && corner_is_fixed(matrix, width, 0))
    affine_fixed(from, matrix, out);
  else
    affine_nearest(from, matrix, out);
  return STATUS_OK;
}

Status image_perspective(const Image *from, const double c[8], ImageFilter filter,
                         const uint8_t fill[3], Image *out) {
  STATUS_TRY(begin_map(from, c, 8, filter, fill, out));
  if (filter == IMAGE_NEAREST)
    map_channels(from, c, false, nearest_pixel, out);
  else if (filter == IMAGE_BILINEAR)
    map_channels(from, c, false, bilinear_pixel, out);
  else
    map_channels(from, c, false, bicubic_pixel, out);
  return STATUS_OK;
}

/* ── maps ─────────────────────────────────────────────────────────────────────────────────── */
static double radians_of(double degrees) { return degrees * (M_PI / 180); }

void image_affine_matrix(const double centre[2], double angle, const double translate[2],
                         double scale, const double shear[2], double matrix[6]) {
  double turn = radians_of(angle), sx = radians_of(shear[0]), sy = radians_of(shear[1]);
  double x = centre[0] + translate[0], y = centre[1] + translate[1];
  /* the map without its scale is a turn behind two shears, whose determinant is 1 */
  double a = cos(turn - sy) / cos(sy), b = -(a * tan(sx) + sin(turn));
  double c = sin(turn - sy) / cos(sy), d = cos(turn) - c * tan(sx);
  double inverse[6] = {d / scale, -b / scale, 0, -c / scale, a / scale, 0};
  inverse[2] = centre[0] - inverse[0] * x - inverse[1] * y;
  inverse[5] = centre[1] - inverse[3] * x - inverse[4] * y;
  memcpy(matrix, inverse, sizeof inverse);
}

/* Gauss and Jordan with the largest pivot; the last column is the right side. */
static bool solve_eight(double m[8][9]) {
  for (int k = 0; k < 8; k++) {
    int best = k;
    for (int i = k + 1; i < 8; i++)
      if (fabs(m[i][k]) > fabs(m[best][k])) best = i;
    if (fabs(m[best][k]) < 1e-9) return false;
    for (int j = 0; j < 9; j++) {
      double kept = m[k][j];
      m[k][j] = m[best][j];
      m[best][j] = kept;
    }
    for (int i = 0; i < 8; i++) {
      double factor = m[i][k] / m[k][k];
      for (int j = k; j < 9 && i != k; j++) m[i][j] -= factor * m[k][j];
    }
  }
  return true;
}

bool image_perspective_matrix(int height, int width, const int points[4][2], double c[8]) {
  const int corners[4][2] = {{0, 0}, {width - 1, 0}, {width - 1, height - 1}, {0, height - 1}};
  double m[8][9];
  for (int i = 0; i < 4; i++) {
    double x = points[i][0], y = points[i][1], u = corners[i][0], v = corners[i][1];
    const double first[9] = {x, y, 1, 0, 0, 0, -u * x, -u * y, u};
    const double second[9] = {0, 0, 0, x, y, 1, -v * x, -v * y, v};
    memcpy(m[2 * i], first, sizeof first);
    memcpy(m[2 * i + 1], second, sizeof second);
  }
  if (height < 2 || width < 2 || !solve_eight(m)) return false;
  for (int i = 0; i < 8; i++) c[i] = (float)(m[i][8] / m[i][i]);
  return true;
}

/* To 15 decimals, as Pillow does. */
static double round_decimals(double value) {
  char text[40];
  snprintf(text, sizeof text, "%.15f", value);
  return strtod(text, NULL);
}

Status image_rotate(const Image *from, double angle, ImageFilter filter, const uint8_t fill[3],
                    Image *out) {
  if (!isfinite(angle)) return status_fail(STATUS_USER, "a rotation by no finite angle");
  angle = fmod(angle, 360);
  if (angle < 0) angle += 360;
  if (angle == 0) return image_copy(from, out);
  if (angle == 180) return image_turn(from, 3, out);
  if (from->height == from->width && angle == 90) return image_turn(from, 8, out);
  if (from->height == from->width && angle == 270) return image_turn(from, 6, out);
  double turn = -radians_of(angle), x = from->width / 2.0, y = from->height / 2.0;
  double matrix[6] = {round_decimals(cos(turn)),  round_decimals(sin(turn)), 0,
                      round_decimals(-sin(turn)), round_decimals(cos(turn)), 0};
  matrix[2] = matrix[0] * -x + matrix[1] * -y + 0.0;
  matrix[5] = matrix[3] * -x + matrix[4] * -y + 0.0;
  matrix[2] += x;
  matrix[5] += y;
  return image_affine(from, matrix, filter, fill, out);
}
