/* image_program: runtime/image by standard input, for test/num/image.py. Each line is a command, on the
 * image that the last one left:
 *   decode CHANNELS LEAST_HEIGHT LEAST_WIDTH COUNT   and COUNT bytes of a file
 *   decode_part CHANNELS LEAST_HEIGHT LEAST_WIDTH COUNT X0 Y0 X1 Y1   the same; answers `inside`
 *   size COUNT, orientation COUNT                    and COUNT bytes of a file
 *   load HEIGHT WIDTH CHANNELS                       and its pixels
 *   get                                              answers "HEIGHT WIDTH CHANNELS" and the pixels
 *   time TIMES SECOND_COMMAND …                      answers the seconds of CPU time of one; for decode, the file
 *                                                    comes once
 * and the operations of image.h with their numbers. Answers are lines: "ok", numbers, or "failed" with
 * the sentence. */
#include "runtime/image/image.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 16 };
static Image image, other;
static ImageWorker *worker;
static uint8_t *bytes;
static double a[MOST], inside[4];
static size_t byte_count;

/* The next bytes of standard input, in memory of exactly that size. */
static void take(size_t count) {
  free(bytes);
  bytes = malloc(count ? count : 1);
  byte_count = count;
  if (!bytes || fread(bytes, 1, count, stdin) != count) exit(2);
}

/* Of this process, so that others do not count. */
static int64_t cpu_nanoseconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static bool has_swapped;
static void swap_images(void) {
  Image made = other;
  other = image;
  image = made;
  has_swapped = !has_swapped;
}
static Status swapped(Status status) {
  if (status == STATUS_OK) swap_images();
  return status;
}

/* Some commands have any number, nan too, where others have a whole one. */
static int whole(double value) { return fabs(value) < 0x1p31 ? (int)value : 0; }

/* OUT_HEIGHT OUT_WIDTH X Y HEIGHT WIDTH FILTER: a window of the image resampled, from no more of it than that needs. */
static Status window(const int n[6]) {
  ImageWindow w = {image.height, image.width, n[0], n[1], (ImageFilter)a[6],
                   n[2],         n[3],        n[4], n[5]};
  int needs[4];
  Image part = {0};
  image_window_needs(&w, needs);
  Status status =
      image_crop(&image, needs[0], needs[1], needs[3] - needs[1], needs[2] - needs[0], &part);
  if (status == STATUS_OK)
    status = image_resample_window(worker, &part, needs[0], needs[1], &w, &other);
  image_free(&part);
  return status;
}

static Status other_place(const char *word) {
  uint8_t fill[3] = {(uint8_t)whole(a[7]), (uint8_t)whole(a[8]), (uint8_t)whole(a[9])};
  const int n[6] = {whole(a[0]), whole(a[1]), whole(a[2]), whole(a[3]), whole(a[4]), whole(a[5])};
  if (!strcmp(word, "resample"))
    return swapped(image_resample(worker, &image, a, n[4], n[5], (ImageFilter)a[6], &other));
  if (!strcmp(word, "crop")) return swapped(image_crop(&image, n[0], n[1], n[2], n[3], &other));
  if (!strcmp(word, "pad"))
    return swapped(image_pad(&image, n[0], n[1], n[2], n[3], (ImagePad)n[4], fill, &other));
  if (!strcmp(word, "affine"))
    return swapped(image_affine(&image, a, (ImageFilter)a[6], fill, &other));
  if (!strcmp(word, "affine_of")) {
    double matrix[6], centre[2] = {image.width * 0.5, image.height * 0.5};
    image_affine_matrix(centre, a[0], a + 1, a[3], a + 4, matrix);
    return swapped(image_affine(&image, matrix, (ImageFilter)a[6], fill, &other));
  }
  if (!strcmp(word, "perspective"))
    return swapped(image_perspective(
        &image, a, (ImageFilter)a[10],
        (const uint8_t[3]){(uint8_t)a[11], (uint8_t)a[12], (uint8_t)a[13]}, &other));
  if (!strcmp(word, "rotate"))
    return swapped(image_rotate(&image, a[0], (ImageFilter)a[6], fill, &other));
  if (!strcmp(word, "window")) return swapped(window(n));
  if (!strcmp(word, "turn")) return swapped(image_turn(&image, n[0], &other));
  if (!strcmp(word, "channels")) return swapped(image_channels(&image, n[0], &other));
  return status_fail(STATUS_USER, "no command %s", word);
}

/* For the least sizes a[1] and a[2], of the whole or of a part; 0, 0: none. */
static int draft(const int *box) {
  int height, width;
  if (a[1] < 1 || a[2] < 1 || image_size(bytes, byte_count, &height, &width) != STATUS_OK) return 1;
  if (box) height = box[3] - box[1], width = box[2] - box[0];
  return image_draft(height, width, (int)a[1], (int)a[2]);
}

static Status operate(const char *word) {
  uint8_t fill[3] = {(uint8_t)a[7], (uint8_t)a[8], (uint8_t)a[9]};
#define IS(name) (!strcmp(word, name))
  if (IS("decode")) return image_decode(worker, bytes, byte_count, (int)a[0], draft(NULL), &image);
  if (IS("decode_part")) {
    int box[4] = {(int)a[4], (int)a[5], (int)a[6], (int)a[7]};
    return image_decode_part(worker, bytes, byte_count, (int)a[0], box, draft(box), &image, inside);
  }
  if (IS("flip_x")) return image_flip_left_right(&image), STATUS_OK;
  if (IS("flip_y")) return image_flip_top_bottom(&image), STATUS_OK;
  if (IS("brightness")) return image_brightness(&image, a[0]), STATUS_OK;
  if (IS("contrast")) return image_contrast(&image, a[0]), STATUS_OK;
  if (IS("saturation")) return image_saturation(&image, a[0]), STATUS_OK;
  if (IS("hue")) return image_hue(&image, a[0]), STATUS_OK;
  if (IS("grey")) return image_grey(&image), STATUS_OK;
  if (IS("sharpness")) return image_sharpness(worker, &image, a[0]);
  if (IS("blur")) return image_blur(worker, &image, (int[2]){(int)a[0], (int)a[1]}, a + 2);
  if (IS("invert")) return image_invert(&image), STATUS_OK;
  if (IS("posterize")) return image_posterize(&image, (int)a[0]), STATUS_OK;
  if (IS("solarize")) return image_solarize(&image, a[0]), STATUS_OK;
  if (IS("autocontrast")) return image_autocontrast(&image), STATUS_OK;
  if (IS("equalize")) return image_equalize(&image), STATUS_OK;
  if (IS("erase"))
    return image_erase(&image, (int)a[0], (int)a[1], (int)a[2], (int)a[3], fill), STATUS_OK;
  return other_place(word);
#undef IS
}

/* Commands whose answer is more than "ok"; false: it is none. */
static bool answered(const char *word) {
  int height, width;
  if (!strcmp(word, "get")) {
    printf("%d %d %d\n", image.height, image.width, image.channels);
    fwrite(image.at, 1, (size_t)image.height * (size_t)image.width * (size_t)image.channels,
           stdout);
  } else if (!strcmp(word, "size")) {
    take((size_t)a[0]);
    if (image_size(bytes, byte_count, &height, &width) == STATUS_OK)
      printf("%d %d\n", height, width);
    else
      printf("failed %s\n", status_message());
  } else if (!strcmp(word, "orientation")) {
    take((size_t)a[0]);
    printf("%d\n", image_orientation(bytes, byte_count));
  } else {
    return false;
  }
  return true;
}

static Status load_pixels(void) {
  Status status = image_reserve(&image, (int)a[0], (int)a[1], (int)a[2]);
  size_t count = (size_t)a[0] * (size_t)a[1] * (size_t)a[2];
  take(count);
  if (status == STATUS_OK) memcpy(image.at, bytes, count);
  return status;
}

int main(void) {
  static char line[1 << 12];
  worker = image_worker_new();
  while (worker && fgets(line, sizeof line, stdin)) {
    const char *word = strtok(line, " \n");
    int times = 0;
    if (word && !strcmp(word, "time")) {
      times = atoi(strtok(NULL, " \n"));
      word = strtok(NULL, " \n");
    }
    if (!word) continue;
    memset(a, 0, sizeof a);
    const char *number;
    for (int i = 0; i < MOST && (number = strtok(NULL, " \n")); i++) a[i] = strtod(number, NULL);
    if (!strncmp(word, "decode", 6)) take((size_t)a[3]);
    if (!answered(word)) {
      Status status = STATUS_OK;
      int64_t start = cpu_nanoseconds();
      for (int i = 0; i < (times ? times : 1) && status == STATUS_OK; i++) {
        if (i && has_swapped) swap_images(); /* from the same image again */
        has_swapped = false;
        status = strcmp(word, "load") ? operate(word) : load_pixels();
      }
      if (times && has_swapped) swap_images();
      if (status != STATUS_OK)
        printf("failed %s\n", status_message());
      else if (times)
        printf("%.9f\n", (double)(cpu_nanoseconds() - start) * 1e-9 / times);
      else if (!strcmp(word, "decode_part"))
        printf("%.9g %.9g %.9g %.9g\n", inside[0], inside[1], inside[2], inside[3]);
      else
        printf("ok\n");
    }
    fflush(stdout);
  }
  image_worker_free(worker);
  image_free(&image);
  image_free(&other);
  free(bytes);
  return 0;
}
