/* pipe_steps: see pipe_steps.h. Sizes, roundings and the order of what is done are torchvision's
 * (v2, of PIL images), the pixels Pillow's. */
#include "runtime/data/pipe_steps.h"
#include <math.h>

double pipe_number(const PipeStep *step, const char *parameter) {
  return transform_argument(step->transform, parameter)->number[0];
}

/* In the order of the words in transforms.def. */
ImageFilter pipe_filter(const PipeStep *step) {
  static const ImageFilter filters[] = {IMAGE_NEAREST, IMAGE_BILINEAR, IMAGE_BICUBIC};
  return filters[(int)pipe_number(step, "filter")];
}

void pipe_colour(const PipeStep *step, const char *parameter, uint8_t fill[3]) {
  const TransformArgument *colour = transform_argument(step->transform, parameter);
  for (int i = 0; i < 3; i++) fill[i] = (uint8_t)colour->number[colour->count > i ? i : 0];
}

bool pipe_happens(const PipeStep *step, int n) {
  return pipe_uniform(step, n, 0, 1) < pipe_number(step, "p");
}

/* In the order of the words in transforms.def. */
Status pipe_pad_by(const PipeStep *step, PipeWorker *worker, const int side[4]) {
  static const ImagePad kinds[] = {IMAGE_PAD_CONSTANT, IMAGE_PAD_EDGE, IMAGE_PAD_REFLECT,
                                   IMAGE_PAD_SYMMETRIC};
  ImagePad kind = kinds[(int)pipe_number(step, "padding_mode")];
  Image *to = pipe_other(worker);
  uint8_t fill[3];
  pipe_colour(step, "fill", fill);
  if (!side[0] && !side[1] && !side[2] && !side[3]) return STATUS_OK;
  STATUS_TRY(image_pad(worker->now, side[0], side[1], side[2], side[3], kind, fill, to));
  worker->now = to;
  return STATUS_OK;
}

Status step_pad(const PipeStep *step, PipeWorker *worker) {
  int side[4];
  transform_padding(transform_argument(step->transform, "padding"), side);
  pipe_flip_now(worker);
  return pipe_pad_by(step, worker, side);
}

Status step_hflip(const PipeStep *step, PipeWorker *worker) {
  worker->flip_x ^= pipe_happens(step, 0);
  return STATUS_OK;
}

Status step_vflip(const PipeStep *step, PipeWorker *worker) {
  worker->flip_y ^= pipe_happens(step, 0);
  return STATUS_OK;
}

/* Words 0 to 2 make the order of the four, 4 to 7 their factors. What is 0 is left out. */
Status step_color_jitter(const PipeStep *step, PipeWorker *worker) {
  static const char *const names[] = {"brightness", "contrast", "saturation", "hue"};
  static void (*const change[])(Image *, double) = {image_brightness, image_contrast,
                                                    image_saturation, image_hue};
  int order[4] = {0, 1, 2, 3};
  for (int i = 3; i > 0; i--) {
    int other = pipe_below(step, 3 - i, i + 1), last = order[i];
    order[i] = order[other], order[other] = last;
  }
  for (int i = 0; i < 4; i++) {
    int which = order[i];
    double by = pipe_number(step, names[which]), middle = which == 3 ? 0 : 1;
    double low = which < 3 && by > 1 ? 0 : middle - by;
    if (by > 0) change[which](worker->now, pipe_uniform(step, 4 + which, low, middle + by));
  }
  return STATUS_OK;
}

Status step_grey(const PipeStep *step, PipeWorker *worker) {
  if (pipe_happens(step, 0)) image_grey(worker->now);
  return STATUS_OK;
}

Status step_blur(const PipeStep *step, PipeWorker *worker) {
  const double *range = transform_argument(step->transform, "sigma")->number;
  int taps = (int)pipe_number(step, "size");
  double sigma = pipe_uniform(step, 0, range[0], range[1]);
  return image_blur(worker->images, worker->now, (const int[2]){taps, taps},
                    (const double[2]){sigma, sigma});
}
