/* pipe_augment: transforms of colours with a probability, and those that choose among others: RandAugment
 * (Cubuk et al. 2020) and TrivialAugment (Müller and Hutter 2021), as torchvision's v2 has them. */
#include "runtime/data/pipe_steps.h"
#include <math.h>

Status step_sharpness(const PipeStep *step, PipeWorker *worker) {
  if (!pipe_happens(step, 0)) return STATUS_OK;
  return image_sharpness(worker->images, worker->now, pipe_number(step, "sharpness_factor"));
}

Status step_invert(const PipeStep *step, PipeWorker *worker) {
  if (pipe_happens(step, 0)) image_invert(worker->now);
  return STATUS_OK;
}

Status step_posterize(const PipeStep *step, PipeWorker *worker) {
  if (pipe_happens(step, 0)) image_posterize(worker->now, (int)pipe_number(step, "bits"));
  return STATUS_OK;
}

Status step_solarize(const PipeStep *step, PipeWorker *worker) {
  if (pipe_happens(step, 0)) image_solarize(worker->now, pipe_number(step, "threshold"));
  return STATUS_OK;
}

Status step_autocontrast(const PipeStep *step, PipeWorker *worker) {
  if (pipe_happens(step, 0)) image_autocontrast(worker->now);
  return STATUS_OK;
}

Status step_equalize(const PipeStep *step, PipeWorker *worker) {
  if (pipe_happens(step, 0)) image_equalize(worker->now);
  return STATUS_OK;
}

/* ── a choice of operations ───────────────────────────────────────────────────────────────── */
/* In torchvision's order. */
typedef enum {
  IDENTITY,
  SHEAR_X,
  SHEAR_Y,
  TRANSLATE_X,
  TRANSLATE_Y,
  ROTATE,
  BRIGHTNESS,
  COLOR,
  CONTRAST,
  SHARPNESS,
  POSTERIZE,
  SOLARIZE,
  AUTO_CONTRAST,
  EQUALIZE,
  OPERATION_COUNT
} Operation;

/* What the last bin means: of translations in pixels, or of the width or height (150 of 331); of
 * posterize, how many bits are lost. */
typedef struct {
  double shear, pixels, part, degrees, colour, bits;
} Space;

/* Bin `at` of torch.linspace(first, last, bins), which counts from the nearer end in f32. */
static float bin_value(double first, double last, int bins, int at) {
  float from = (float)first, to = (float)last, width = (to - from) / (float)(bins - 1);
  return at < bins / 2 ? from + width * (float)at : to - width * (float)(bins - at - 1);
}

static double last_bin(const Space *space, Operation operation, const Image *image) {
  if (operation <= SHEAR_Y) return space->shear;
  if (operation == TRANSLATE_X) return space->pixels + space->part * image->width;
  if (operation == TRANSLATE_Y) return space->pixels + space->part * image->height;
  return operation == ROTATE ? space->degrees : space->colour;
}

/* The number of bin `at`; those of maps and of colours up to sharpness may be negative. */
static double magnitude_of(const Space *space, Operation operation, int bins, int at,
                           bool is_negative, const Image *image) {
  if (operation == SOLARIZE) return bin_value(1, 0, bins, at);
  if (operation == POSTERIZE) return rintf(8 - (float)at / (float)((bins - 1) / space->bits));
  double value = bin_value(0, last_bin(space, operation, image), bins, at);
  return is_negative ? -value : value;
}

/* A shear keeps the corner (0, 0) where it is. */
static Status shear_or_move(const PipeStep *step, PipeWorker *worker, Operation operation,
                            double magnitude) {
  bool is_shear = operation <= SHEAR_Y;
  int axis = operation == SHEAR_Y || operation == TRANSLATE_Y;
  Image *from = worker->now, *to = pipe_other(worker);
  double centre[2] = {0}, translate[2] = {0}, shear[2] = {0}, matrix[6];
  uint8_t fill[3];
  if (is_shear)
    shear[axis] = atan(magnitude) * (180 / M_PI);
  else
    centre[0] = from->width * 0.5, centre[1] = from->height * 0.5,
    translate[axis] = trunc(magnitude);
  image_affine_matrix(centre, 0, translate, 1, shear, matrix);
  pipe_colour(step, "fill", fill);
  STATUS_TRY(image_affine(from, matrix, pipe_filter(step), fill, to));
  worker->now = to;
  return STATUS_OK;
}

static Status turn(const PipeStep *step, PipeWorker *worker, double degrees) {
  Image *to = pipe_other(worker);
  uint8_t fill[3];
  pipe_colour(step, "fill", fill);
  STATUS_TRY(image_rotate(worker->now, degrees, pipe_filter(step), fill, to));
  worker->now = to;
  return STATUS_OK;
}

static Status apply_operation(const PipeStep *step, PipeWorker *worker, Operation operation,
                              double magnitude) {
  Image *image = worker->now;
  switch (operation) {
  case SHEAR_X:
  case SHEAR_Y:
  case TRANSLATE_X:
  case TRANSLATE_Y:
    return shear_or_move(step, worker, operation, magnitude);
  case ROTATE:
    return turn(step, worker, magnitude);
  case BRIGHTNESS:
    image_brightness(image, 1 + magnitude);
    break;
  case COLOR:
    image_saturation(image, 1 + magnitude);
    break;
  case CONTRAST:
    image_contrast(image, 1 + magnitude);
    break;
  case SHARPNESS:
    return image_sharpness(worker->images, image, 1 + magnitude);
  case POSTERIZE:
    image_posterize(image, (int)magnitude);
    break;
  case SOLARIZE:
    image_solarize(image, 255 * magnitude);
    break;
  case AUTO_CONTRAST:
    image_autocontrast(image);
    break;
  case EQUALIZE:
    image_equalize(image);
    break;
  case IDENTITY:
  case OPERATION_COUNT:
    break;
  }
  return STATUS_OK;
}

/* Words 2 i and 2 i + 1 are those of operation i: which, and its sign. Translations are shares of the picture
 * in front of all of them, which keep its size. */
Status step_randaugment(const PipeStep *step, PipeWorker *worker) {
  static const Space space = {
      .shear = 0.3, .part = 150.0 / 331.0, .degrees = 30, .colour = 0.9, .bits = 4};
  int bins = (int)pipe_number(step, "num_magnitude_bins");
  int at = (int)pipe_number(step, "magnitude"), count = (int)pipe_number(step, "num_ops");
  pipe_flip_now(worker);
  for (int i = 0; i < count; i++) {
    Operation operation = (Operation)pipe_below(step, 2 * i, OPERATION_COUNT);
    bool is_negative = pipe_uniform(step, 2 * i + 1, 0, 1) <= 0.5;
    double magnitude = magnitude_of(&space, operation, bins, at, is_negative, worker->now);
    STATUS_TRY(apply_operation(step, worker, operation, magnitude));
  }
  return STATUS_OK;
}

/* Words: which operation, which bin, its sign. */
Status step_trivialaugment(const PipeStep *step, PipeWorker *worker) {
  static const Space space = {
      .shear = 0.99, .pixels = 32, .degrees = 135, .colour = 0.99, .bits = 6};
  int bins = (int)pipe_number(step, "num_magnitude_bins");
  pipe_flip_now(worker);
  Operation operation = (Operation)pipe_below(step, 0, OPERATION_COUNT);
  bool is_negative = pipe_uniform(step, 2, 0, 1) <= 0.5;
  double magnitude =
      magnitude_of(&space, operation, bins, pipe_below(step, 1, bins), is_negative, worker->now);
  return apply_operation(step, worker, operation, magnitude);
}
