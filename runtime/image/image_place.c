/* image_place: operations that move pixels and change none; see image.h. */
#include "runtime/image/image_private.h"
#include <string.h>

static void fill_row(uint8_t *to, int pixels, int channels, const uint8_t *fill) {
  if (channels == 1)
    memset(to, fill[0], (size_t)pixels);
  else
    for (int x = 0; x < pixels; x++) memcpy(to + 3 * (size_t)x, fill, 3);
}

Status image_crop(const Image *from, int x, int y, int height, int width, Image *out) {
  int64_t channels = from->channels;
  STATUS_TRY(image_reserve(out, height, width, from->channels));
  /* of the result's columns, those that `from` has */
  int64_t first = x < 0 ? -(int64_t)x : 0, end = (int64_t)from->width - x;
  if (end > width) end = width;
  if (first > width) first = width;
  if (end < first) end = first;
  for (int i = 0; i < height; i++) {
    uint8_t *to = out->at + (size_t)i * image_row_bytes(out);
    int64_t row = (int64_t)y + i;
    if (row < 0 || row >= from->height || first == end) {
      memset(to, 0, image_row_bytes(out));
      continue;
    }
    memset(to, 0, (size_t)(first * channels));
    memcpy(to + first * channels, from->at + (row * from->width + x + first) * channels,
           (size_t)((end - first) * channels));
    memset(to + end * channels, 0, (size_t)((width - end) * channels));
  }
  return STATUS_OK;
}

/* The pixel that stands at `at`, which may lie outside; -1: none. */
static int padded_index(int64_t at, int count, ImagePad kind) {
  if (at >= 0 && at < count) return (int)at;
  if (kind == IMAGE_PAD_CONSTANT) return -1;
  if (kind == IMAGE_PAD_EDGE || count == 1) return at < 0 ? 0 : count - 1;
  bool is_twice = kind == IMAGE_PAD_SYMMETRIC;
  int64_t period = 2 * ((int64_t)count - !is_twice), place = at % period;
  if (place < 0) place += period;
  return (int)(place < count ? place : period - is_twice - place);
}

static void pad_row(const Image *from, int row, int left, ImagePad kind, const uint8_t *fill,
                    const Image *out, uint8_t *to) {
  size_t channels = (size_t)from->channels;
  const uint8_t *source = from->at + (size_t)row * image_row_bytes(from);
  memcpy(to + (size_t)left * channels, source, image_row_bytes(from));
  for (int x = 0; x < out->width; x++) {
    if (x == left) x += from->width;
    if (x >= out->width) break;
    int column = padded_index((int64_t)x - left, from->width, kind);
    const uint8_t *pixel = column < 0 ? fill : source + (size_t)column * channels;
    for (size_t c = 0; c < channels; c++) to[(size_t)x * channels + c] = pixel[c];
  }
}

Status image_pad(const Image *from, int left, int top, int right, int bottom, ImagePad kind,
                 const uint8_t fill[3], Image *out) {
  if (left < 0 || top < 0 || right < 0 || bottom < 0)
    return status_fail(STATUS_USER, "padding of less than 0 pixels: crop the image instead");
  int64_t height = (int64_t)top + from->height + bottom;
  int64_t width = (int64_t)left + from->width + right;
  STATUS_TRY(image_check_size((uint64_t)height, (uint64_t)width));
  STATUS_TRY(image_reserve(out, (int)height, (int)width, from->channels));
  for (int y = 0; y < out->height; y++) {
    int row = padded_index((int64_t)y - top, from->height, kind);
    uint8_t *to = out->at + (size_t)y * image_row_bytes(out);
    if (row < 0)
      fill_row(to, out->width, out->channels, fill);
    else
      pad_row(from, row, left, kind, fill, out, to);
  }
  return STATUS_OK;
}

void image_flip_left_right(Image *image) {
  for (int y = 0; y < image->height; y++) {
    uint8_t *row = image->at + (size_t)y * image_row_bytes(image);
    if (image->channels == 1) {
      for (int i = 0, j = image->width - 1; i < j; i++, j--) {
        uint8_t kept = row[i];
        row[i] = row[j];
        row[j] = kept;
      }
      continue;
    }
    for (uint8_t *left = row, *right = row + 3 * ((size_t)image->width - 1); left < right;
         left += 3, right -= 3) {
      uint8_t kept[3];
      memcpy(kept, left, 3);
      memcpy(left, right, 3);
      memcpy(right, kept, 3);
    }
  }
}

void image_flip_top_bottom(Image *image) {
  size_t bytes = image_row_bytes(image);
  for (int i = 0, j = image->height - 1; i < j; i++, j--) {
    uint8_t *above = image->at + (size_t)i * bytes, *below = image->at + (size_t)j * bytes;
    for (size_t x = 0; x < bytes; x++) {
      uint8_t kept = above[x];
      above[x] = below[x];
      below[x] = kept;
    }
  }
}

void image_erase(Image *image, int x, int y, int height, int width, const uint8_t fill[3]) {
  int64_t left = x < 0 ? 0 : x, right = (int64_t)x + width;
  int64_t top = y < 0 ? 0 : y, bottom = (int64_t)y + height;
  if (right > image->width) right = image->width;
  if (bottom > image->height) bottom = image->height;
  if (right <= left) return;
  for (int64_t row = top; row < bottom; row++)
    fill_row(image->at + (row * image->width + left) * image->channels, (int)(right - left),
             image->channels, fill);
}
