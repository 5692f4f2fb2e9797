/* pipe_maps: transforms that see a picture through a map, or cover a part of it; see pipe_steps.h. What is
 * drawn, and in which order of roundings, is torchvision's (v2, of PIL images). */
#include "runtime/data/pipe_steps.h"
#include <math.h>

/* (low, high), or a number that is both but for its sign. */
static double draw_spread(const PipeStep *step, int n, const char *parameter) {
  const TransformArgument *spread = transform_argument(step->transform, parameter);
  double high = spread->number[spread->count - 1];
  return pipe_uniform(step, n, spread->count == 1 ? -high : spread->number[0], high);
}

Status step_rotate(const PipeStep *step, PipeWorker *worker) {
  uint8_t fill[3];
  Image *to = pipe_other(worker);
  pipe_colour(step, "fill", fill);
  pipe_flip_now(worker);
  STATUS_TRY(
      image_rotate(worker->now, draw_spread(step, 0, "degrees"), pipe_filter(step), fill, to));
  worker->now = to;
  return STATUS_OK;
}

/* Words: angle, translation across and down in whole pixels, scale, shear across and down. */
Status step_affine(const PipeStep *step, PipeWorker *worker) {
  const double *part = transform_argument(step->transform, "translate")->number;
  const double *scale = transform_argument(step->transform, "scale")->number;
  const TransformArgument *shear = transform_argument(step->transform, "shear");
  const Image *from = worker->now;
  Image *to = pipe_other(worker);
  double most[2] = {part[0] * from->width, part[1] * from->height}, translate[2], matrix[6];
  double low = shear->count == 1 ? -shear->number[0] : shear->number[0], slant[2] = {0};
  uint8_t fill[3];
  for (int i = 0; i < 2; i++) translate[i] = rint(pipe_uniform(step, 1 + i, -most[i], most[i]));
  slant[0] = pipe_uniform(step, 4, low, shear->number[shear->count > 1]);
  if (shear->count == 4) slant[1] = pipe_uniform(step, 5, shear->number[2], shear->number[3]);
  const double centre[2] = {from->width * 0.5, from->height * 0.5};
  image_affine_matrix(centre, draw_spread(step, 0, "degrees"), translate,
                      pipe_uniform(step, 3, scale[0], scale[1]), slant, matrix);
  pipe_colour(step, "fill", fill);
  pipe_flip_now(worker);
  STATUS_TRY(image_affine(from, matrix, pipe_filter(step), fill, to));
  worker->now = to;
  return STATUS_OK;
}

/* Word 0 says whether; 1 to 8 are x and y of where the corners go, from the upper left one on in the
 * direction of a clock's hand. A picture of one row or column stays as it is. */
Status step_perspective(const PipeStep *step, PipeWorker *worker) {
  double by = pipe_number(step, "distortion_scale"), c[8];
  const int size[2] = {worker->now->width, worker->now->height};
  int points[4][2], most[2];
  uint8_t fill[3];
  Image *to = pipe_other(worker);
  if (!pipe_happens(step, 0)) return STATUS_OK;
  for (int i = 0; i < 2; i++) most[i] = (int)(by * (size[i] / 2)) + 1;
  for (int i = 0; i < 8; i++) {
    int corner = i / 2, axis = i % 2;
    bool is_far = axis ? corner >= 2 : corner == 1 || corner == 2;
    points[corner][axis] =
        pipe_below(step, 1 + i, most[axis]) + (is_far ? size[axis] - most[axis] : 0);
  }
  pipe_flip_now(worker);
  if (!image_perspective_matrix(size[1], size[0], points, c)) return STATUS_OK;
  pipe_colour(step, "fill", fill);
  STATUS_TRY(image_perspective(worker->now, c, pipe_filter(step), fill, to));
  worker->now = to;
  return STATUS_OK;
}

/* Words 4 i to 4 i + 3 are those of try i: share of the area, logarithm of the ratio (of height to width),
 * row, column; 40 says whether. After ten tries nothing is covered. */
Status step_erase(const PipeStep *step, PipeWorker *worker) {
  const double *scale = transform_argument(step->transform, "scale")->number;
  const double *ratio = transform_argument(step->transform, "ratio")->number;
  uint8_t value[3];
  if (!pipe_happens(step, 40)) return STATUS_OK;
  pipe_colour(step, "value", value);
  pipe_flip_now(worker);
  Image *image = worker->now;
  double area = (double)image->height * image->width;
  for (int i = 0; i < 10; i++) {
    double part = area * pipe_uniform(step, 4 * i, scale[0], scale[1]);
    double form = exp(pipe_uniform(step, 4 * i + 1, log(ratio[0]), log(ratio[1])));
    double height = rint(sqrt(part * form)), width = rint(sqrt(part / form));
    if (!(height < image->height && width < image->width)) continue;
    int y = pipe_below(step, 4 * i + 2, image->height - (int)height + 1);
    int x = pipe_below(step, 4 * i + 3, image->width - (int)width + 1);
    image_erase(image, x, y, (int)height, (int)width, value);
    break;
  }
  return STATUS_OK;
}

/* DeVries and Taylor, Improved Regularization of Convolutional Neural Networks with Cutout (2017): a square
 * around any pixel (words 1 and 2: row, column), of which a part may be outside. Word 0 says whether. */
Status step_cutout(const PipeStep *step, PipeWorker *worker) {
  int length = (int)pipe_number(step, "length");
  uint8_t value[3];
  if (!pipe_happens(step, 0)) return STATUS_OK;
  pipe_colour(step, "value", value);
  pipe_flip_now(worker);
  Image *image = worker->now;
  int y = pipe_below(step, 1, image->height), x = pipe_below(step, 2, image->width);
  image_erase(image, x - length / 2, y - length / 2, length, length, value);
  return STATUS_OK;
}
