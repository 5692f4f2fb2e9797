/* pipe_crop: the transforms that choose a size or a part of a picture (see pipe_steps.h). A resize in front of a
 * crop is only noted, and the crop resamples no more than what it keeps; of a file, only what that is made
 * of needs to be decoded. The pixels are those of doing one after the other. */
#include "runtime/data/pipe_steps.h"
#include <math.h>
#include <string.h>

typedef struct {
  int x, y, height, width;
} CropBox;

/* One number is both. */
static void pipe_size_of(const PipeStep *step, int *height, int *width) {
  const TransformArgument *size = transform_argument(step->transform, "size");
  *height = (int)size->number[0];
  *width = (int)size->number[size->count - 1];
}

/* What a resize makes of a picture of this size; false: it would be too long. */
static bool resized_size(const PipeStep *step, int rows, int columns, int *height, int *width) {
  pipe_size_of(step, height, width);
  if (transform_argument(step->transform, "size")->count > 1) return true;
  bool is_high = rows > columns;
  int64_t longer = is_high ? rows : columns, shorter = is_high ? columns : rows;
  int64_t other = *height * longer / shorter;
  if (other > IMAGE_MOST_SIDE) return false;
  *(is_high ? height : width) = (int)other;
  return true;
}

/* The pixels of `now` that the box has, in this size. */
static Status make_size(const PipeStep *step, PipeWorker *worker, const double box[4], int height,
                        int width) {
  Image *from = worker->now, *to = pipe_other(worker);
  bool is_all = !box[0] && !box[1] && box[2] == from->width && box[3] == from->height;
  if (is_all && from->height == height && from->width == width) return STATUS_OK;
  STATUS_TRY(image_resample(worker->images, from, box, height, width, pipe_filter(step), to));
  worker->now = to;
  return STATUS_OK;
}

/* ── resize ───────────────────────────────────────────────────────────────────────────────── */
/* Of a picture of rows x columns that was decoded `scale` times smaller. As Pillow's draft says, its last pixels
 * may stand for fewer of the file. */
static ImageWindow resize_of(const PipeStep *step, int rows, int columns, int scale, int height,
                             int width) {
  return (ImageWindow){.in_height = (rows + scale - 1) / scale,
                       .in_width = (columns + scale - 1) / scale,
                       .to_height = (double)rows / scale,
                       .to_width = (double)columns / scale,
                       .out_height = height,
                       .out_width = width,
                       .filter = pipe_filter(step)};
}

Status step_resize(const PipeStep *step, PipeWorker *worker) {
  const PipePart *part = &worker->part;
  const Image *image = worker->now;
  int rows = part->is_cut ? part->height : image->height, height;
  int columns = part->is_cut ? part->width : image->width, width;
  int scale = part->is_cut ? part->scale : 1;
  if (!resized_size(step, rows, columns, &height, &width))
    return status_fail(STATUS_USER, "is %d x %d, too long to be resized", rows, columns);
  pipe_flip_now(worker);
  ImageWindow resize = resize_of(step, rows, columns, scale, height, width);
  if (step->cuts_next && resize.filter != IMAGE_NEAREST) {
    worker->resize = resize;
    return STATUS_OK;
  }
  worker->part = (PipePart){0};
  return make_size(step, worker, (const double[4]){0, 0, resize.to_width, resize.to_height}, height,
                   width);
}

/* ── crops ────────────────────────────────────────────────────────────────────────────────── */
/* The size of the picture, resized as was noted. */
static void size_now(const PipeWorker *worker, int *rows, int *columns) {
  bool is_noted = worker->resize.in_width > 0;
  *rows = is_noted ? worker->resize.out_height : worker->now->height;
  *columns = is_noted ? worker->resize.out_width : worker->now->width;
}

static bool crop_window(const ImageWindow *resize, const CropBox *box, ImageWindow *out) {
  *out = *resize;
  out->x = box->x, out->y = box->y, out->height = box->height, out->width = box->width;
  return box->x >= 0 && box->y >= 0 && box->height <= resize->out_height - box->y &&
         box->width <= resize->out_width - box->x;
}

/* What lies outside of the picture is black. */
static Status pipe_cut_out(PipeWorker *worker, const CropBox *box) {
  ImageWindow resize = worker->resize, window;
  PipePart part = worker->part;
  worker->resize = (ImageWindow){0};
  worker->part = (PipePart){0};
  if (resize.in_width && crop_window(&resize, box, &window)) {
    Image *to = pipe_other(worker);
    STATUS_TRY(
        image_resample_window(worker->images, worker->now, part.left, part.top, &window, to));
    worker->now = to;
    return STATUS_OK;
  }
  if (resize.in_width) { /* all of it; then there is all of the picture */
    Image *from = worker->now, *to = pipe_other(worker);
    const double whole[4] = {0, 0, resize.to_width, resize.to_height};
    STATUS_TRY(image_resample(worker->images, from, whole, resize.out_height, resize.out_width,
                              resize.filter, to));
    worker->now = to;
  }
  Image *from = worker->now, *to = pipe_other(worker);
  if (!box->x && !box->y && from->height == box->height && from->width == box->width)
    return STATUS_OK;
  STATUS_TRY(image_crop(from, box->x, box->y, box->height, box->width, to));
  worker->now = to;
  return STATUS_OK;
}

/* Python's round: halves to even. A crop larger than the picture is filled up on both sides. */
static CropBox center_box(const PipeStep *step, int height_now, int width_now) {
  CropBox box;
  pipe_size_of(step, &box.height, &box.width);
  int rows = height_now > box.height ? height_now : box.height;
  int columns = width_now > box.width ? width_now : box.width;
  int above = (rows - height_now) / 2, left = (columns - width_now) / 2;
  box.y = (int)rint((rows - box.height) / 2.0) - above;
  box.x = (int)rint((columns - box.width) / 2.0) - left;
  return box;
}

Status step_center_crop(const PipeStep *step, PipeWorker *worker) {
  int rows, columns;
  pipe_flip_now(worker);
  size_now(worker, &rows, &columns);
  CropBox box = center_box(step, rows, columns);
  return pipe_cut_out(worker, &box);
}

/* false: the picture is too small. */
static bool random_box(const PipeStep *step, int rows, int columns, CropBox *box) {
  pipe_size_of(step, &box->height, &box->width);
  if (rows < box->height || columns < box->width) return false;
  box->y = pipe_below(step, 0, rows - box->height + 1);
  box->x = pipe_below(step, 1, columns - box->width + 1);
  return true;
}

static bool pads(const Transform *transform) {
  const TransformArgument *padding = transform_argument(transform, "padding");
  bool any = transform_argument(transform, "pad_if_needed")->number[0] != 0;
  for (int i = 0; i < padding->count; i++) any |= padding->number[i] != 0;
  return any;
}

Status step_random_crop(const PipeStep *step, PipeWorker *worker) {
  int height, width, side[4], rows, columns;
  CropBox box;
  transform_padding(transform_argument(step->transform, "padding"), side);
  pipe_size_of(step, &height, &width);
  pipe_flip_now(worker);
  if (pipe_number(step, "pad_if_needed") != 0) { /* what is missing, on both sides */
    rows = height - (worker->now->height + side[1] + side[3]);
    columns = width - (worker->now->width + side[0] + side[2]);
    for (int i = 0; i < 4; i++) {
      int missing = i % 2 ? rows : columns;
      if (missing > 0) side[i] += missing;
    }
  }
  STATUS_TRY(pipe_pad_by(step, worker, side));
  size_now(worker, &rows, &columns);
  if (!random_box(step, rows, columns, &box))
    return status_fail(STATUS_USER,
                       "is %d x %d (height x width), too small for random_crop to cut %d x %d out "
                       "of it",
                       rows, columns, height, width);
  return pipe_cut_out(worker, &box);
}

bool pipe_cuts(const Transform *transform) {
  if (!strcmp(transform->kind->name, "random_crop")) return !pads(transform);
  return !strcmp(transform->kind->name, "center_crop");
}

/* ── random_resized_crop ──────────────────────────────────────────────────────────────────── */
/* The box that torchvision's RandomResizedCrop.get_params finds, in ten tries of four numbers
 * each: area, ratio, row and column. */
static CropBox find_box(const PipeStep *step, int rows, int columns) {
  const double *scale = transform_argument(step->transform, "scale")->number;
  const double *ratio = transform_argument(step->transform, "ratio")->number;
  double area = (double)rows * columns;
  CropBox box;
  for (int i = 0; i < 10; i++) {
    double part = area * pipe_uniform(step, 4 * i, scale[0], scale[1]);
    double form = exp(pipe_uniform(step, 4 * i + 1, log(ratio[0]), log(ratio[1])));
    double width = rint(sqrt(part * form)), height = rint(sqrt(part / form));
    if (!(width > 0 && width <= columns && height > 0 && height <= rows)) continue;
    box.height = (int)height, box.width = (int)width;
    box.y = pipe_below(step, 4 * i + 2, rows - box.height + 1);
    box.x = pipe_below(step, 4 * i + 3, columns - box.width + 1);
    return box;
  }
  double form = (double)columns / rows, height = rows, width = columns;
  if (form < ratio[0])
    height = rint(width / ratio[0]);
  else if (form > ratio[1])
    width = rint(height * ratio[1]);
  box.height = height < 1 ? 1 : (int)height, box.width = width < 1 ? 1 : (int)width;
  box.y = (rows - box.height) / 2, box.x = (columns - box.width) / 2;
  return box;
}

Status step_random_resized_crop(const PipeStep *step, PipeWorker *worker) {
  int height, width;
  PipePart part = worker->part;
  pipe_size_of(step, &height, &width);
  pipe_flip_now(worker);
  if (!part.is_cut) {
    CropBox box = find_box(step, worker->now->height, worker->now->width);
    STATUS_TRY(pipe_cut_out(worker, &box));
    part.inside[2] = worker->now->width, part.inside[3] = worker->now->height;
  }
  worker->part = (PipePart){0};
  return make_size(step, worker, part.inside, height, width);
}

/* ── parts of files ───────────────────────────────────────────────────────────────────────── */
/* What `crop` keeps of a picture that `resize` has made, of the one in front of it. */
static bool resized_part(const ImageWindow *resize, const PipeStep *crop, int part[4]) {
  CropBox box;
  ImageWindow window;
  if (resize->filter == IMAGE_NEAREST) return false;
  if (!strcmp(crop->transform->kind->name, "center_crop"))
    box = center_box(crop, resize->out_height, resize->out_width);
  else if (!random_box(crop, resize->out_height, resize->out_width, &box))
    return false;
  if (!crop_window(resize, &box, &window)) return false;
  image_window_needs(&window, part);
  return true;
}

static void resize_needs(const Pipe *pipe, const PipeStep *step, bool may_scale, PipeNeeds *out) {
  PipePart *part = &out->part;
  PipeStep next = {.place = 1, .draw = step->draw};
  int height, width, box[4];
  if (!resized_size(step, part->height, part->width, &height, &width)) return;
  if (may_scale) out->scale = image_draft(part->height, part->width, height, width);
  int scale = part->scale = out->scale;
  ImageWindow resize = resize_of(step, part->height, part->width, scale, height, width);
  part->is_cut = scale > 1;
  if (pipe->count < 2 || !pipe_cuts(&pipe->transforms[1])) return;
  next.transform = &pipe->transforms[1];
  if (!resized_part(&resize, &next, box)) return;
  out->is_part = part->is_cut = true;
  part->left = box[0], part->top = box[1];
  for (int i = 0; i < 4; i++) {
    int most = i % 2 ? part->height : part->width;
    out->box[i] = box[i] * scale < most ? box[i] * scale : most;
  }
}

PipeNeeds pipe_needs(const Pipe *pipe, PipeDraw draw, int height, int width, bool may_scale) {
  PipeNeeds needs = {.scale = 1,
                     .box = {0, 0, width, height},
                     .part = {.scale = 1, .height = height, .width = width}};
  if (!pipe->count) return needs;
  PipeStep step = {.transform = &pipe->transforms[0], .place = 0, .draw = draw};
  const char *name = step.transform->kind->name;
  if (!strcmp(name, "resize")) {
    resize_needs(pipe, &step, may_scale, &needs);
  } else if (!strcmp(name, "random_resized_crop")) {
    CropBox box = find_box(&step, height, width);
    int least_height, least_width;
    pipe_size_of(&step, &least_height, &least_width);
    if (may_scale) needs.scale = image_draft(box.height, box.width, least_height, least_width);
    needs.is_part = needs.is_box = true;
    needs.box[0] = box.x, needs.box[1] = box.y;
    needs.box[2] = box.x + box.width, needs.box[3] = box.y + box.height;
    needs.part.is_cut = true;
    needs.part.scale = needs.scale;
  }
  return needs;
}

bool pipe_scales(const Pipe *pipe) {
  const char *name = pipe->count ? pipe->transforms[0].kind->name : "";
  return !strcmp(name, "resize") || !strcmp(name, "random_resized_crop");
}
