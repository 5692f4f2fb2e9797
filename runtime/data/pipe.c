/* pipe: see pipe.h. A flip is only noted and done where the pixels are written, unless something
 * follows that does not treat both sides alike. */
#include "runtime/data/pipe.h"
#include "runtime/common/philox.h"
#include "runtime/data/pipe_steps.h"
#include <errno.h>
#include <string.h>

/* ── random numbers ───────────────────────────────────────────────────────────────────────── */
/* Word n of a transform's stream. The counter's last word is apart from those of initial values and
 * of dropout (runtime/execute/init.c). */
static uint32_t draw_word(const PipeStep *step, int n) {
  const PipeDraw *draw = &step->draw;
  const uint32_t key[2] = {(uint32_t)draw->seed, (uint32_t)(draw->seed >> 32)};
  const uint32_t counter[4] = {
      (uint32_t)draw->sample, (uint32_t)(draw->sample >> 32 & 0xFFFF) | (uint32_t)step->place << 16,
      (uint32_t)draw->epoch, 0x40000000u | (uint32_t)(n / 4)};
  uint32_t words[4];
  philox(key, counter, words);
  return words[n % 4];
}

double pipe_uniform(const PipeStep *step, int n, double low, double high) {
  return low + (high - low) * (draw_word(step, n) * 0x1p-32);
}

int pipe_below(const PipeStep *step, int n, int end) {
  return (int)((uint64_t)draw_word(step, n) * (uint64_t)end >> 32);
}

/* ── the chain ────────────────────────────────────────────────────────────────────────────── */
#define WORKER(name) {#name, step_##name},
#define RANDOM WORKER
#define STEP(name)
#define TRAIN(name)
#define TEXT(name)
static const struct {
  const char *name;
  PipeStepRun *run;
} runs[] = {
#define TRANSFORM(name, where, parameters) where(name)
#include "plan/transforms.def"
#undef TRANSFORM
};
#undef WORKER
#undef RANDOM
#undef STEP
#undef TRAIN
#undef TEXT

static PipeStepRun *pipe_run_of(const Transform *transform) {
  size_t i = 0;
  while (strcmp(runs[i].name, transform->kind->name) != 0) i++;
  return runs[i].run;
}

Pipe pipe_of(const DataSource *data, const ImageLayout *layout) {
  return (Pipe){.transforms = data->transforms,
                .count = transform_loaded(data->transforms, data->transform_count),
                .layout = *layout};
}

int pipe_fixed(const Pipe *pipe) {
  int count = 0;
  while (count < pipe->count && pipe->transforms[count].kind->where != TRANSFORM_RANDOM) count++;
  return count;
}

bool pipe_is_random(const Pipe *pipe) { return pipe_fixed(pipe) < pipe->count; }

bool pipe_fixes_size(const Pipe *pipe) {
  for (int i = 0; i < pipe->count; i++) {
    const Transform *transform = &pipe->transforms[i];
    bool is_size = transform->kind->parameter[0].type == PARAMETER_SIZE;
    bool keeps_aspect =
        strcmp(transform->kind->name, "resize") == 0 && transform->argument[0].count == 1;
    if (is_size && !keeps_aspect) return true;
  }
  return false;
}

Status pipe_worker_new(PipeWorker *out) {
  *out = (PipeWorker){.images = image_worker_new()};
  return out->images ? STATUS_OK : status_errno(ENOMEM, "data workers");
}

void pipe_worker_free(PipeWorker *worker) {
  for (int i = 0; i < 2; i++) image_free(&worker->picture[i]);
  image_worker_free(worker->images);
}

int64_t pipe_worker_memory(const PipeWorker *worker) {
  return (int64_t)(worker->picture[0].room + worker->picture[1].room) +
         image_worker_memory(worker->images);
}

Image *pipe_start(PipeWorker *worker) {
  worker->flip_x = worker->flip_y = false;
  worker->part = (PipePart){0};
  worker->resize = (ImageWindow){0};
  return worker->now = &worker->picture[0];
}

Status pipe_load(PipeWorker *worker, const ImageLayout *from, const uint8_t *at) {
  Image *image = pipe_start(worker);
  int64_t pixels = from->height * from->width, channels = from->channels;
  STATUS_TRY(image_reserve(image, (int)from->height, (int)from->width, (int)channels));
  if (channels == 1 || !from->is_channels_first) {
    memcpy(image->at, at, (size_t)(pixels * channels));
    return STATUS_OK;
  }
  for (int64_t i = 0; i < pixels; i++)
    for (int64_t c = 0; c < 3; c++) image->at[i * 3 + c] = at[c * pixels + i];
  return STATUS_OK;
}

void pipe_flip_now(PipeWorker *worker) {
  if (worker->flip_x) image_flip_left_right(worker->now);
  if (worker->flip_y) image_flip_top_bottom(worker->now);
  worker->flip_x = worker->flip_y = false;
}

Image *pipe_other(PipeWorker *worker) {
  return worker->now == &worker->picture[0] ? &worker->picture[1] : &worker->picture[0];
}

/* ── writing ──────────────────────────────────────────────────────────────────────────────── */
/* One row to planes of `plane` bytes: every loop has its numbers known, so it becomes shuffles. */
static void write_planes(const uint8_t *restrict from, int64_t width, bool flip, size_t plane,
                         uint8_t *restrict to) {
  uint8_t *restrict red = to, *restrict green = to + plane, *restrict blue = to + 2 * plane;
  if (flip)
    for (int64_t x = 0; x < width; x++) {
      const uint8_t *pixel = from + (width - 1 - x) * 3;
      red[x] = pixel[0], green[x] = pixel[1], blue[x] = pixel[2];
    }
  else
    for (int64_t x = 0; x < width; x++)
      red[x] = from[x * 3], green[x] = from[x * 3 + 1], blue[x] = from[x * 3 + 2];
}

static void write_pixels(const uint8_t *restrict from, int64_t width, int64_t channels, bool flip,
                         uint8_t *restrict to) {
  if (!flip)
    memcpy(to, from, (size_t)(width * channels));
  else if (channels == 1)
    for (int64_t x = 0; x < width; x++) to[x] = from[width - 1 - x];
  else
    for (int64_t x = 0; x < width; x++)
      for (int64_t c = 0; c < 3; c++) to[x * 3 + c] = from[(width - 1 - x) * 3 + c];
}

Status pipe_write(const Pipe *pipe, const PipeWorker *worker, uint8_t *out) {
  const ImageLayout *layout = &pipe->layout;
  const Image *image = worker->now;
  int64_t height = layout->height, width = layout->width, channels = layout->channels;
  if (image->height != height || image->width != width || image->channels != channels)
    return status_fail(STATUS_USER,
                       "is %d x %d (height x width) of %d channels behind its transforms, but the "
                       "model wants %lld x %lld of %lld",
                       image->height, image->width, image->channels, (long long)height,
                       (long long)width, (long long)channels);
  bool is_planes = layout->is_channels_first && channels == 3;
  for (int64_t y = 0; y < height; y++) {
    int64_t row = worker->flip_y ? height - 1 - y : y;
    const uint8_t *from = image->at + row * width * channels;
    if (is_planes)
      write_planes(from, width, worker->flip_x, (size_t)(height * width), out + y * width);
    else
      write_pixels(from, width, channels, worker->flip_x, out + y * width * channels);
  }
  return STATUS_OK;
}

Status pipe_run(const Pipe *pipe, int first, int end, PipeWorker *worker, PipeDraw draw) {
  for (int i = first; i < end; i++) {
    PipeStep step = {.transform = &pipe->transforms[i], .place = i, .draw = draw};
    step.cuts_next = i + 1 < end && pipe_cuts(&pipe->transforms[i + 1]);
    STATUS_TRY(pipe_run_of(step.transform)(&step, worker));
  }
  return STATUS_OK;
}
