/* image_blur: torchvision's gaussian_blur. Weights are exp(-(x / sigma)^2 / 2), summing to 1; the two
 * passes are in f32, with one rounding to 8 bits behind both, half to even. */
#include "runtime/image/image_private.h"
#include <math.h>
#include <string.h>

enum { MOST_TAPS = 1 << 12 };

static void blur_weights(int taps, double sigma, float *weights) {
  double sum = 0;
  for (int i = 0; i < taps; i++) {
    double x = (i - (taps - 1) * 0.5) / sigma;
    sum += exp(-0.5 * x * x);
  }
  for (int i = 0; i < taps; i++) {
    double x = (i - (taps - 1) * 0.5) / sigma;
    weights[i] = (float)(exp(-0.5 * x * x) / sum);
  }
}

static int reflected(int at, int count) {
  if (at < 0) return -at;
  return at < count ? at : 2 * (count - 1) - at;
}

static Status check_blur(const Image *image, const int taps[2], const double sigma[2]) {
  const int size[2] = {image->width, image->height};
  for (int i = 0; i < 2; i++) {
    if (taps[i] < 1 || taps[i] % 2 == 0 || taps[i] >= MOST_TAPS)
      return status_fail(STATUS_USER, "a blur has an odd number of taps below %d, not %d",
                         MOST_TAPS, taps[i]);
    if (!(sigma[i] > 0) || !isfinite(sigma[i]))
      return status_fail(STATUS_USER, "the sigma of a blur is above 0, not %g", sigma[i]);
    if (taps[i] / 2 >= size[i])
      return status_fail(STATUS_USER,
                         "a blur of %d taps reflects %d pixels at the edge, and the image of "
                         "%d x %d has fewer",
                         taps[i], taps[i] / 2, image->width, image->height);
  }
  return STATUS_OK;
}

/* Each row with its reflection at both ends, across, to f32. */
static void blur_across(const Image *image, int taps, const float *weights, uint8_t *padded,
                        float *to) {
  size_t stride = image_row_bytes(image), channels = (size_t)image->channels;
  int radius = taps / 2, width = image->width;
  for (int y = 0; y < image->height; y++, to += stride) {
    const uint8_t *row = image->at + (size_t)y * stride;
    memcpy(padded + (size_t)radius * channels, row, stride);
    for (int i = 0; i < radius; i++)
      for (size_t c = 0; c < channels; c++) {
        padded[(size_t)i * channels + c] = row[(size_t)reflected(i - radius, width) * channels + c];
        padded[(size_t)(radius + width + i) * channels + c] =
            row[(size_t)reflected(width + i, width) * channels + c];
      }
    image_rows()->weigh_bytes(padded, stride, channels, taps, weights, to);
  }
}

Status image_blur(ImageWorker *worker, Image *image, const int taps[2], const double sigma[2]) {
  float weights[2][MOST_TAPS], *between;
  const float *rows[MOST_TAPS];
  uint8_t *padded;
  STATUS_TRY(check_blur(image, taps, sigma));
  size_t stride = image_row_bytes(image);
  STATUS_TRY(
      image_scratch(worker, SCRATCH_PASS, image_byte_count(image) * sizeof(float), &between));
  STATUS_TRY(
      image_scratch(worker, SCRATCH_ROW, stride + (size_t)(taps[0] * image->channels), &padded));
  for (int i = 0; i < 2; i++) blur_weights(taps[i], sigma[i], weights[i]);
  blur_across(image, taps[0], weights[0], padded, between);
  for (int y = 0; y < image->height; y++) {
    for (int t = 0; t < taps[1]; t++)
      rows[t] = between + (size_t)reflected(y + t - taps[1] / 2, image->height) * stride;
    image_rows()->weigh_rows(rows, taps[1], weights[1], stride, image->at + (size_t)y * stride);
  }
  return STATUS_OK;
}
