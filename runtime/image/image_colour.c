/* image_colour: colours of single pixels, and sharpness; as Pillow's ImageEnhance, which mixes an image
 * with a poorer one, and its HSV of 8 bits. */
#include "runtime/image/image_private.h"
#include <math.h>
#include <string.h>

static size_t pixel_count(const Image *image) {
  return (size_t)image->height * (size_t)image->width;
}

void image_brightness(Image *image, double factor) {
  image_rows()->blend_value(0, image_byte_count(image), (float)factor, image->at);
}

/* With the mean of its luma, rounded. */
void image_contrast(Image *image, double factor) {
  size_t pixels = pixel_count(image);
  uint64_t sum = 0;
  for (size_t i = 0; i < pixels; i++)
    sum += image->channels == 3 ? image_luma(image->at + 3 * i) : image->at[i];
  uint8_t mean = (uint8_t)((double)sum / (double)pixels + 0.5);
  image_rows()->blend_value(mean, image_byte_count(image), (float)factor, image->at);
}

void image_saturation(Image *image, double factor) {
  if (image->channels == 3) image_rows()->blend_luma(pixel_count(image), (float)factor, image->at);
}

void image_grey(Image *image) {
  if (image->channels == 3) image_rows()->blend_luma(pixel_count(image), 0, image->at);
}

/* ── hue ──────────────────────────────────────────────────────────────────────────────────── */
/* Which of it is computed in f32 and which in f64 is Pillow's. */
static void to_hsv(const uint8_t *rgb, uint8_t *hsv) {
  uint8_t r = rgb[0], g = rgb[1], b = rgb[2];
  uint8_t most = r > g ? r : g, least = r < g ? r : g;
  if (b > most) most = b;
  if (b < least) least = b;
  hsv[0] = hsv[1] = 0;
  hsv[2] = most;
  if (most == least) return;
  float range = (float)(most - least), s = range / (float)most, h;
  float rc = (float)(most - r) / range, gc = (float)(most - g) / range;
  float bc = (float)(most - b) / range;
  if (r == most)
    h = bc - gc;
  else if (g == most)
    h = (float)(2.0 + rc - bc);
  else
    h = (float)(4.0 + gc - rc);
  double turn = h / 6.0 + 1.0;
  h = (float)(turn >= 1 ? turn - 1 : turn);
  hsv[0] = (uint8_t)(int)(h * 255.0);
  hsv[1] = (uint8_t)(int)(s * 255.0);
}

static void from_hsv(const uint8_t *hsv, uint8_t *rgb) {
  uint8_t v = hsv[2];
  if (!hsv[1]) {
    memset(rgb, v, 3);
    return;
  }
  int sextant = (int)((float)hsv[0] * 6.0 / 255.0);
  float rest = (float)((float)hsv[0] * 6.0 / 255.0 - (float)sextant);
  float s = (float)(hsv[1] / 255.0);
  uint8_t p = (uint8_t)((float)v * (1.0 - s) + 0.5),
          q = (uint8_t)((float)v * (1.0 - s * rest) + 0.5);
  uint8_t t = (uint8_t)((float)v * (1.0 - s * (1.0 - rest)) + 0.5);
  const uint8_t mixed[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
  memcpy(rgb, mixed[sextant % 6], 3);
}

void image_hue(Image *image, double shift) {
  uint8_t turn = (uint8_t)(int)(shift * 255);
  if (image->channels != 3) return;
  size_t pixels = pixel_count(image);
  for (size_t i = 0; i < pixels; i++) {
    uint8_t hsv[3];
    to_hsv(image->at + 3 * i, hsv);
    hsv[0] = (uint8_t)(hsv[0] + turn);
    from_hsv(hsv, image->at + 3 * i);
  }
}

/* ── sharpness ────────────────────────────────────────────────────────────────────────────── */
/* Mixed with the mean of 3 x 3 pixels, in which the one in the middle counts five times; those at
 * the edge stay. A sum of thirteen never lies half-way between two results, so integers give what
 * Pillow's f32 does. */
Status image_sharpness(ImageWorker *worker, Image *image, double factor) {
  size_t stride = image_row_bytes(image), channels = (size_t)image->channels;
  uint8_t *smooth;
  if (image->height < 3 || image->width < 3) return STATUS_OK;
  STATUS_TRY(image_scratch(worker, SCRATCH_PASS, image_byte_count(image), &smooth));
  memcpy(smooth, image->at, image_byte_count(image));
  for (size_t y = 1; y + 1 < (size_t)image->height; y++)
    image_rows()->smooth(image->at + y * stride + channels, stride, channels, stride - 2 * channels,
                         smooth + y * stride + channels);
  image_rows()->blend(smooth, image->at, image_byte_count(image), (float)factor, image->at);
  return STATUS_OK;
}
