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

/* One number is both. */
static void pipe_size_of(const PipeStep *step, int *height, int *width) {
  const TransformArgument *size = transform_argument(step->transform, "size");
  *height = (int)size->number[0];
  *width = (int)size->number[size->count - 1];
}

static Status make_size(const PipeStep *step, PipeWorker *worker, int height, int width) {
  Image *from = worker->now, *to = pipe_other(worker);
  const double box[4] = {0, 0, from->width, from->height};
  if (from->height == height && from->width == width) return STATUS_OK;
  STATUS_TRY(image_resample(worker->images, from, box, height, width, pipe_filter(step), to));
  worker->now = to;
  return STATUS_OK;
}

/* What lies outside of the picture is black. */
static Status pipe_cut_out(PipeWorker *worker, int x, int y, int height, int width) {
  Image *from = worker->now, *to = pipe_other(worker);
  if (!x && !y && from->height == height && from->width == width) return STATUS_OK;
  STATUS_TRY(image_crop(from, x, y, height, width, to));
  worker->now = to;
  return STATUS_OK;
}

Status step_resize(const PipeStep *step, PipeWorker *worker) {
  int height, width;
  pipe_size_of(step, &height, &width);
  if (transform_argument(step->transform, "size")->count == 1) {
    const Image *image = worker->now;
    bool is_high = image->height > image->width;
    int64_t longer = is_high ? image->height : image->width;
    int64_t shorter = is_high ? image->width : image->height;
    int64_t other = height * longer / shorter;
    if (other > IMAGE_MOST_SIDE)
      return status_fail(STATUS_USER, "is %d x %d, too long to be resized", image->height,
                         image->width);
    if (is_high)
      height = (int)other;
    else
      width = (int)other;
  }
  pipe_flip_now(worker);
  return make_size(step, worker, height, width);
}

/* Python's round: halves to even. A crop larger than the picture is filled up on both sides. */
Status step_center_crop(const PipeStep *step, PipeWorker *worker) {
  int height, width;
  pipe_size_of(step, &height, &width);
  pipe_flip_now(worker);
  const Image *image = worker->now;
  int rows = image->height > height ? image->height : height;
  int columns = image->width > width ? image->width : width;
  int above = (rows - image->height) / 2, left = (columns - image->width) / 2;
  int y = (int)rint((rows - height) / 2.0), x = (int)rint((columns - width) / 2.0);
  return pipe_cut_out(worker, x - left, y - above, height, width);
}

/* In the order of the words in transforms.def. */
static Status pad_by(const PipeStep *step, PipeWorker *worker, const int side[4]) {
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
  return pad_by(step, worker, side);
}

Status step_random_crop(const PipeStep *step, PipeWorker *worker) {
  int height, width, side[4];
  transform_padding(transform_argument(step->transform, "padding"), side);
  pipe_size_of(step, &height, &width);
  pipe_flip_now(worker);
  if (pipe_number(step, "pad_if_needed") != 0) { /* what is missing, on both sides */
    int rows = height - (worker->now->height + side[1] + side[3]);
    int columns = width - (worker->now->width + side[0] + side[2]);
    for (int i = 0; i < 4; i++) {
      int missing = i % 2 ? rows : columns;
      if (missing > 0) side[i] += missing;
    }
  }
  STATUS_TRY(pad_by(step, worker, side));
  const Image *image = worker->now;
  if (image->height < height || image->width < width)
    return status_fail(STATUS_USER,
                       "is %d x %d (height x width), too small for random_crop to cut %d x %d out "
                       "of it",
                       image->height, image->width, height, width);
  int y = pipe_below(step, 0, image->height - height + 1);
  int x = pipe_below(step, 1, image->width - width + 1);
  return pipe_cut_out(worker, x, y, height, width);
}

/* The box that torchvision's RandomResizedCrop.get_params finds, in ten tries of four numbers
 * each: area, ratio, row and column. */
static void find_box(const PipeStep *step, int rows, int columns, int box[4]) {
  const double *scale = transform_argument(step->transform, "scale")->number;
  const double *ratio = transform_argument(step->transform, "ratio")->number;
  double area = (double)rows * columns;
  for (int i = 0; i < 10; i++) {
    double part = area * pipe_uniform(step, 4 * i, scale[0], scale[1]);
    double form = exp(pipe_uniform(step, 4 * i + 1, log(ratio[0]), log(ratio[1])));
    double width = rint(sqrt(part * form)), height = rint(sqrt(part / form));
    if (!(width > 0 && width <= columns && height > 0 && height <= rows)) continue;
    box[2] = (int)height, box[3] = (int)width;
    box[0] = pipe_below(step, 4 * i + 2, rows - box[2] + 1);
    box[1] = pipe_below(step, 4 * i + 3, columns - box[3] + 1);
    return;
  }
  double form = (double)columns / rows, height = rows, width = columns;
  if (form < ratio[0])
    height = rint(width / ratio[0]);
  else if (form > ratio[1])
    width = rint(height * ratio[1]);
  box[2] = height < 1 ? 1 : (int)height, box[3] = width < 1 ? 1 : (int)width;
  box[0] = (rows - box[2]) / 2, box[1] = (columns - box[3]) / 2;
}

Status step_random_resized_crop(const PipeStep *step, PipeWorker *worker) {
  int height, width, box[4];
  pipe_size_of(step, &height, &width);
  pipe_flip_now(worker);
  if (!worker->is_cut) {
    find_box(step, worker->now->height, worker->now->width, box);
    STATUS_TRY(pipe_cut_out(worker, box[1], box[0], box[2], box[3]));
  }
  worker->is_cut = false;
  return make_size(step, worker, height, width);
}

void pipe_cut_of(const PipeStep *step, int rows, int columns, int part[4]) {
  int box[4];
  find_box(step, rows, columns, box);
  part[0] = box[1], part[1] = box[0];
  part[2] = box[1] + box[3], part[3] = box[0] + box[2];
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
