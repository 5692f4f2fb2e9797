/* image_table: operations that look each value up in a table, as Pillow's ImageOps. */
#include "runtime/image/image_private.h"
#include <string.h>

static void look_up_values(Image *image, uint8_t table[3][256]) {
  size_t count = image_byte_count(image);
  uint8_t *at = image->at;
  if (image->channels == 1)
    for (size_t i = 0; i < count; i++) at[i] = table[0][at[i]];
  else
    for (size_t i = 0; i < count; i += 3)
      for (size_t c = 0; c < 3; c++) at[i + c] = table[c][at[i + c]];
}

static void count_values(const Image *image, uint32_t counts[3][256]) {
  size_t count = image_byte_count(image), step = (size_t)image->channels;
  memset(counts, 0, 3 * 256 * sizeof counts[0][0]);
  for (size_t i = 0; i < count; i += step)
    for (size_t c = 0; c < step; c++) counts[c][image->at[i + c]]++;
}

void image_invert(Image *image) {
  size_t count = image_byte_count(image);
  uint8_t *at = image->at;
  for (size_t i = 0; i < count; i++) at[i] = (uint8_t)(255 - at[i]);
}

void image_posterize(Image *image, int bits) {
  size_t count = image_byte_count(image);
  if (bits < 0) bits = 0;
  if (bits > 8) bits = 8;
  uint8_t mask = (uint8_t)~((1u << (8 - bits)) - 1);
  uint8_t *at = image->at;
  for (size_t i = 0; i < count; i++) at[i] &= mask;
}

void image_solarize(Image *image, double threshold) {
  uint8_t table[3][256];
  for (int i = 0; i < 256; i++) table[0][i] = (uint8_t)(i < threshold ? i : 255 - i);
  memcpy(table[1], table[0], 256);
  memcpy(table[2], table[0], 256);
  look_up_values(image, table);
}

static void identity_table(uint8_t table[256]) {
  for (int i = 0; i < 256; i++) table[i] = (uint8_t)i;
}

void image_autocontrast(Image *image) {
  uint32_t counts[3][256];
  uint8_t table[3][256];
  count_values(image, counts);
  for (int c = 0; c < image->channels; c++) {
    int low = 0, high = 255;
    while (low < 255 && !counts[c][low]) low++;
    while (high > 0 && !counts[c][high]) high--;
    identity_table(table[c]);
    if (high <= low) continue;
    double scale = 255.0 / (high - low), offset = -low * scale;
    for (int i = 0; i < 256; i++) {
      double value = i * scale + offset;
      table[c][i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : (int)value);
    }
  }
  look_up_values(image, table);
}

/* The table of a channel: where a value stands among all, in steps of a 255th of those below the
 * highest one. */
static void equalized_table(const uint32_t counts[256], uint8_t table[256]) {
  uint64_t all = 0, sum, step;
  int last = 0, kinds = 0;
  for (int i = 0; i < 256; i++) {
    if (!counts[i]) continue;
    all += counts[i];
    last = i;
    kinds++;
  }
  step = (all - counts[last]) / 255;
  identity_table(table);
  if (kinds <= 1 || !step) return;
  sum = step / 2;
  for (int i = 0; i < 256; i++, sum += counts[i - 1])
    table[i] = (uint8_t)(sum / step > 255 ? 255 : sum / step);
}

void image_equalize(Image *image) {
  uint32_t counts[3][256];
  uint8_t table[3][256];
  count_values(image, counts);
  for (int c = 0; c < image->channels; c++) equalized_table(counts[c], table[c]);
  look_up_values(image, table);
}
