/* image: small cases whose values are known, memory that is used again, and refusals. Everything else is
 * compared with Pillow in test/num/image.py. */
#include "runtime/image/image.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ImageWorker *worker;
static Image image, other;
static const uint8_t none[3];

#include "test/unit/runtime_image.inc"

static void load(int height, int width, int channels, const uint8_t *bytes) {
  assert_int_equal(image_reserve(&image, height, width, channels), STATUS_OK);
  memcpy(image.at, bytes, (size_t)(height * width * channels));
}

static void is_now(const Image *made, int height, int width, int channels, const uint8_t *bytes) {
  assert_int_equal(made->height, height);
  assert_int_equal(made->width, width);
  assert_int_equal(made->channels, channels);
  assert_memory_equal(made->at, bytes, (size_t)(height * width * channels));
}

static void decodes_png(void **state) {
  (void)state;
  int height, width;
  assert_int_equal(image_size(png_file, sizeof png_file, &height, &width), STATUS_OK);
  assert_int_equal(height, 2);
  assert_int_equal(width, 3);
  static const uint8_t colours[] = {255, 0, 0, 0, 255, 0, 0,   0,   255,
                                    0,   0, 0, 9, 8,   7, 255, 255, 255};
  assert_int_equal(image_decode(worker, png_file, sizeof png_file, 3, 1, &image), STATUS_OK);
  is_now(&image, 2, 3, 3, colours);
  static const uint8_t luma[] = {76, 150, 29, 0, 8, 255};
  assert_int_equal(image_decode(worker, png_file, sizeof png_file, 1, 1, &image), STATUS_OK);
  is_now(&image, 2, 3, 1, luma);
}

static void decodes_jpeg(void **state) {
  (void)state;
  for (int channels = 1; channels <= 3; channels += 2) {
    assert_int_equal(image_decode(worker, jpeg_file, sizeof jpeg_file, channels, 1, &image),
                     STATUS_OK);
    assert_int_equal(image.height * 100 + image.width, 2010);
    for (int i = 0; i < 200 * channels; i++) assert_int_equal(image.at[i], 77);
    assert_int_equal(image_decode(worker, jpeg_file, sizeof jpeg_file, channels,
                                  image_draft(20, 10, 5, 2), &image),
                     STATUS_OK);
    assert_int_equal(image.height * 100 + image.width, 503);
    for (int i = 0; i < 15 * channels; i++) assert_int_equal(image.at[i], 77);
  }
}

/* Once warm, a worker and its images stay where they are. */
static void uses_memory_again(void **state) {
  (void)state;
  assert_int_equal(image_decode(worker, jpeg_file, sizeof jpeg_file, 3, 1, &image), STATUS_OK);
  const uint8_t *at = image.at;
  const double box[4] = {0, 0, 3, 2};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(image_decode(worker, png_file, sizeof png_file, 3, 1, &image), STATUS_OK);
    assert_ptr_equal(image.at, at);
    assert_int_equal(image_resample(worker, &image, box, 9, 9, IMAGE_LANCZOS, &other), STATUS_OK);
    const uint8_t *made = other.at;
    assert_int_equal(image_resample(worker, &image, box, 8, 8, IMAGE_BICUBIC, &other), STATUS_OK);
    assert_ptr_equal(other.at, made);
  }
}

static void refused(const uint8_t *bytes, size_t count, const char *words) {
  int height, width;
  assert_int_equal(image_decode(worker, bytes, count, 3, 1, &image), STATUS_USER);
  if (!strstr(status_message(), words)) fail_msg("%s lacks %s", status_message(), words);
  assert_true(image_size(bytes, count, &height, &width) == STATUS_USER || height > 0);
}

static void refuses(void **state) {
  (void)state;
  refused((const uint8_t *)"", 0, "the file is empty");
  refused((const uint8_t *)"RIFF\0\0\0\0WEBPVP8 ", 16, "a WebP image; JPEG and PNG are read");
  refused((const uint8_t *)"class,score\n", 12, "neither a JPEG nor a PNG image");
  for (size_t count = 3; count < sizeof jpeg_file - 2; count++)
    refused(jpeg_file, count, "the JPEG image is truncated");
  for (size_t count = 8; count < sizeof png_file - 16; count++)
    refused(png_file, count, "PNG image");
  uint8_t changed[sizeof png_file];
  memcpy(changed, png_file, sizeof changed);
  changed[45] ^= 1; /* of the pixels: their sum is wrong */
  refused(changed, sizeof changed, "the PNG image cannot be decoded");
}

static void resamples(void **state) {
  (void)state;
  static const uint8_t row[] = {0, 100, 200, 255};
  const double all[4] = {0, 0, 4, 1}, half[4] = {1, 0, 3, 1};
  load(1, 4, 1, row);
  assert_int_equal(image_resample(worker, &image, all, 1, 2, IMAGE_NEAREST, &other), STATUS_OK);
  is_now(&other, 1, 2, 1, (uint8_t[]){100, 255});
  assert_int_equal(image_resample(worker, &image, all, 1, 2, IMAGE_BOX, &other), STATUS_OK);
  is_now(&other, 1, 2, 1, (uint8_t[]){50, 228});
  /* (3/4 * 0 + 3/4 * 100 + 1/4 * 200) / (7/4) */
  assert_int_equal(image_resample(worker, &image, all, 1, 2, IMAGE_BILINEAR, &other), STATUS_OK);
  is_now(&other, 1, 2, 1, (uint8_t[]){71, 209});
  assert_int_equal(image_resample(worker, &image, half, 1, 1, IMAGE_BOX, &other), STATUS_OK);
  is_now(&other, 1, 1, 1, (uint8_t[]){150});
  assert_int_equal(image_resample(worker, &image, all, 3, 4, IMAGE_BOX, &other), STATUS_OK);
  is_now(&other, 3, 4, 1, (uint8_t[]){0, 100, 200, 255, 0, 100, 200, 255, 0, 100, 200, 255});
  const double outside[4] = {0, 0, 5, 1};
  assert_int_equal(image_resample(worker, &image, outside, 1, 2, IMAGE_BOX, &other), STATUS_USER);
  assert_int_equal(image_resample(worker, &image, all, 0, 2, IMAGE_BOX, &other), STATUS_USER);
}

static void moves(void **state) {
  (void)state;
  static const uint8_t six[] = {1, 2, 3, 4, 5, 6};
  load(2, 3, 1, six);
  image_flip_left_right(&image);
  is_now(&image, 2, 3, 1, (uint8_t[]){3, 2, 1, 6, 5, 4});
  image_flip_top_bottom(&image);
  is_now(&image, 2, 3, 1, (uint8_t[]){6, 5, 4, 3, 2, 1});
  load(2, 3, 1, six);
  assert_int_equal(image_crop(&image, 1, -1, 3, 3, &other), STATUS_OK);
  is_now(&other, 3, 3, 1, (uint8_t[]){0, 0, 0, 2, 3, 0, 5, 6, 0});
  assert_int_equal(image_pad(&image, 2, 1, 1, 0, IMAGE_PAD_REFLECT, none, &other), STATUS_OK);
  is_now(&other, 3, 6, 1, (uint8_t[]){6, 5, 4, 5, 6, 5, 3, 2, 1, 2, 3, 2, 6, 5, 4, 5, 6, 5});
  assert_int_equal(image_pad(&image, 0, 0, -1, 0, IMAGE_PAD_EDGE, none, &other), STATUS_USER);
  assert_int_equal(image_turn(&image, 6, &other), STATUS_OK);
  is_now(&other, 3, 2, 1, (uint8_t[]){4, 1, 5, 2, 6, 3});
  const double along[6] = {1, 0, 1, 0, 1, 0}, strange[6] = {0.0 / 0.0};
  const uint8_t fill[3] = {9, 9, 9};
  assert_int_equal(image_affine(&image, along, IMAGE_NEAREST, fill, &other), STATUS_OK);
  is_now(&other, 2, 3, 1, (uint8_t[]){2, 3, 9, 5, 6, 9});
  assert_int_equal(image_affine(&image, strange, IMAGE_NEAREST, fill, &other), STATUS_USER);
  assert_int_equal(image_rotate(&image, 180, IMAGE_BILINEAR, fill, &other), STATUS_OK);
  is_now(&other, 2, 3, 1, (uint8_t[]){6, 5, 4, 3, 2, 1});
  image_erase(&image, -1, 1, 5, 3, fill);
  is_now(&image, 2, 3, 1, (uint8_t[]){1, 2, 3, 9, 9, 6});
}

static void colours(void **state) {
  (void)state;
  static const uint8_t two[] = {10, 100, 200, 250, 30, 40};
  load(1, 2, 3, two);
  image_brightness(&image, 1.5);
  is_now(&image, 1, 2, 3, (uint8_t[]){15, 150, 255, 255, 45, 60});
  load(1, 2, 3, two);
  image_saturation(&image, 0);
  is_now(&image, 1, 2, 3, (uint8_t[]){84, 84, 84, 97, 97, 97});
  load(1, 2, 3, two);
  image_contrast(&image, 0.5); /* with 91 */
  is_now(&image, 1, 2, 3, (uint8_t[]){50, 95, 145, 170, 60, 65});
  load(1, 2, 3, two);
  load(1, 2, 3, two);
  image_posterize(&image, 2);
  is_now(&image, 1, 2, 3, (uint8_t[]){0, 64, 192, 192, 0, 0});
  image_solarize(&image, 192);
  is_now(&image, 1, 2, 3, (uint8_t[]){0, 64, 63, 63, 0, 0});
  image_invert(&image);
  is_now(&image, 1, 2, 3, (uint8_t[]){255, 191, 192, 192, 255, 255});
  image_autocontrast(&image);
  is_now(&image, 1, 2, 3, (uint8_t[]){255, 0, 0, 0, 255, 255});
  static const uint8_t dot[] = {0, 0, 0, 0, 130, 0, 0, 0, 0};
  load(3, 3, 1, dot);
  assert_int_equal(image_sharpness(worker, &image, 0), STATUS_OK);
  is_now(&image, 3, 3, 1, (uint8_t[]){0, 0, 0, 0, 50, 0, 0, 0, 0});
  load(3, 3, 1, dot);
  assert_int_equal(image_blur(worker, &image, (int[2]){3, 1}, (double[2]){1e9, 1}), STATUS_OK);
  is_now(&image, 3, 3, 1, (uint8_t[]){0, 0, 0, 87, 43, 87, 0, 0, 0});
  assert_int_equal(image_blur(worker, &image, (int[2]){7, 1}, (double[2]){1, 1}), STATUS_USER);
  assert_int_equal(image_blur(worker, &image, (int[2]){3, 1}, (double[2]){0, 1}), STATUS_USER);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(decodes_png),       cmocka_unit_test(decodes_jpeg),
      cmocka_unit_test(uses_memory_again), cmocka_unit_test(refuses),
      cmocka_unit_test(resamples),         cmocka_unit_test(moves),
      cmocka_unit_test(colours),
  };
  worker = image_worker_new();
  if (image_open_libraries() != STATUS_OK) fprintf(stderr, "%s\n", status_message());
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  image_worker_free(worker);
  image_free(&image);
  image_free(&other);
  return failed;
}
