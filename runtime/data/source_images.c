/* source_images: see source_images.h. */
#include "runtime/data/source_images.h"
#include "base/clock.h"
#include "runtime/common/fnv.h"
#include "runtime/data/pipe_steps.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Status source_worker_new(const Source *source, uint64_t seed, SourceWorker **out) {
  *out = NULL;
  if (!source_takes_worker(source)) return STATUS_OK;
  SourceWorker *worker = calloc(1, sizeof *worker);
  if (!worker) return status_errno(ENOMEM, "data workers");
  worker->seed = seed;
  Status status = pipe_worker_new(&worker->pipe);
  if (status == STATUS_OK)
    *out = worker;
  else
    source_worker_free(worker);
  return status;
}

void source_worker_free(SourceWorker *worker) {
  if (!worker) return;
  pipe_worker_free(&worker->pipe);
  free(worker->sample.at);
  free(worker->other.at);
  free(worker);
}

void images_close(SourceImages *images) {
  sample_set_close(images->set);
  image_cache_free(images->cache);
  disk_cache_close(images->disk);
  damaged_free(images->damaged);
}

static Shape sample_shape(const PlanTensor *input) {
  Shape sample = input->type.shape;
  sample.rank--;
  memmove(sample.dim, sample.dim + 1, sizeof sample.dim - sizeof *sample.dim);
  return sample;
}

/* The compiler makes such inputs; a plan may say anything. */
static Status images_bind_input(const DataSource *data, const PlanTensor *input,
                                SourceImages *out) {
  char text[TYPE_TEXT];
  Shape sample = sample_shape(input);
  ImageLayout layout;
  if (input->type.shape.rank < 1 || input->type.dtype != DT_U8 || !image_layout(&sample, &layout))
    return status_fail(STATUS_USER,
                       "%s: its images want an input of u8[B, channels, height, width] or the "
                       "like, of 1 or 3 channels, but %s is %s",
                       data->split, input->name, type_text(&input->type, text));
  out->image = input;
  out->pipe = pipe_of(data, &layout);
  return STATUS_OK;
}

static Status images_bind_classes(const DataSource *data, const PlanTensor *input,
                                  SourceImages *out) {
  char text[TYPE_TEXT];
  DType dtype = input->type.dtype;
  int64_t below = input->below, classes = out->set->class_count;
  if (input->type.shape.rank != 1 ||
      (dtype != DT_I32 && dtype != DT_I64 && dtype != DT_U32 && (dtype != DT_U8 || classes > 256)))
    return status_fail(STATUS_USER, "%s: classes are for an input of i32[B], but %s is %s",
                       data->split, input->name, type_text(&input->type, text));
  for (int i = 0; i < input->part_count; i++)
    if (!below || input->parts[i].below < below) below = input->parts[i].below;
  if (below && classes > below)
    return status_fail(STATUS_USER,
                       "%s: %s has folders for %lld classes, but input %s takes 0 to "
                       "%lld",
                       data->split, data->files[0], (long long)classes, input->name,
                       (long long)below - 1);
  out->target = input;
  return STATUS_OK;
}

typedef Status Open(const SampleSetOptions *options, SampleSet **out);
static Open *open_of(const char *kind) {
#define SAMPLES(name)                                                                              \
  if (strcmp(kind, #name) == 0) return name##_samples;
#define SHARDS SAMPLES
#define ARRAYS(name)
#define TEXT(name)                                                                                 \
  if (strcmp(kind, #name) == 0) return text_samples;
#define RECORDS(name)
#define SOURCE(name, form, ...) form(name)
#include "plan/sources.def"
#undef SOURCE
#undef SAMPLES
#undef SHARDS
#undef ARRAYS
#undef TEXT
#undef RECORDS
  return NULL;
}

/* What the pictures in front of the first random transform depend on but their files' content. */
static uint64_t images_key(const SampleSetOptions *options, const SourceImages *images) {
  const SampleSet *set = images->set;
  uint64_t sum = set->sum(set), key = fnv_add(FNV_START, "pictures 1", 10);
  const int form[] = {(int)images->pipe.layout.channels, images->turns, images->scales};
  key = fnv_add(fnv_add(key, &sum, sizeof sum), form, sizeof form);
  for (int i = 0; i < options->path_count; i++) {
    char *path = realpath(options->path[i], NULL);
    const char *name = path ? path : options->path[i];
    key = fnv_add(key, name, strlen(name) + 1);
    free(path);
  }
  for (int i = 0; i < pipe_fixed(&images->pipe); i++) {
    const Transform *transform = &images->pipe.transforms[i];
    key = fnv_add(key, transform->kind->name, strlen(transform->kind->name) + 1);
    for (int k = 0; k < transform_parameter_count(transform->kind); k++) {
      const TransformArgument *argument = &transform->argument[k];
      key = fnv_add(key, &argument->count, sizeof argument->count);
      key = fnv_add(key, argument->number, (size_t)argument->count * sizeof *argument->number);
    }
  }
  return key;
}

static Status images_open_disk(const Plan *plan, const SampleSetOptions *options,
                               SourceImages *out) {
  const char *folder = setting_text(plan->settings, "data.cache_dir");
  double budget = setting_number(plan->settings, "data.disk_cache");
  if (!*folder && !(budget >= 1)) return STATUS_OK;
  if (!*folder || !(budget >= 1))
    return status_fail(STATUS_USER, "%s",
                       *folder
                           ? "data.cache_dir names a folder for decoded images: data.disk_cache = "
                             "20 GiB or the like says how much may be kept there"
                           : "data.disk_cache keeps decoded images on disk: data.cache_dir = "
                             "\"FOLDER\" says where");
  out->disk_folder = folder;
  out->disk_budget = (int64_t)fmin(budget, 0x1p60);
  return disk_cache_open(folder, images_key(options, out), out->disk_budget, options->may_write,
                         &out->disk);
}

/* An option that would do nothing, or something else with a cache than without, is refused. */
static Status images_bind_scale(const DataSource *data, bool has_cache, SourceImages *out) {
  out->scales = source_kind_flag(data, "scaled", false);
  if (!out->scales) return STATUS_OK;
  if (!pipe_scales(&out->pipe))
    return status_fail(STATUS_USER,
                       "%s: scaled=true decodes as small as the first transform needs, which is to "
                       "be resize or random_resized_crop",
                       data->split);
  if (has_cache && !pipe_fixed(&out->pipe))
    return status_fail(
        STATUS_USER,
        "%s: a cache keeps whole pictures in front of random_resized_crop, so "
        "scaled=true does not go with it: put a resize in front, or take one of them",
        data->split);
  return STATUS_OK;
}

/* Images through the transforms, and their classes. */
static Status images_bind_set(const Plan *plan, const DataSource *data,
                              const SampleSetOptions *options, SourceImages *out) {
  STATUS_TRY(images_bind_input(data, &plan->inputs.at[0], out));
  if (!pipe_fixes_size(&out->pipe))
    return status_fail(STATUS_USER,
                       "%s: no transform makes the images of %s(...) of one size: center_crop, "
                       "random_resized_crop or resize((h, w)) does",
                       data->split, data->kind);
  STATUS_TRY(image_open_libraries());
  if (plan->inputs.count == 2 && !out->set->write)
    STATUS_TRY(images_bind_classes(data, &plan->inputs.at[1], out));
  out->turns = source_kind_flag(data, "exif", false);
  if (!strcmp(source_kind_text(data, "damaged", "error"), "skip"))
    STATUS_TRY(damaged_new(out->set->count, &out->damaged));
  double budget = setting_number(plan->settings, "data.cache");
  double of_disk = setting_number(plan->settings, "data.disk_cache");
  STATUS_TRY(images_bind_scale(data, budget >= 1 || of_disk >= 1, out));
  STATUS_TRY(images_open_disk(plan, options, out));
  if (!(budget >= 1)) return STATUS_OK;
  return image_cache_new(out->set->count, (int64_t)fmin(budget, 0x1p60), &out->cache);
}

Status images_open_set(const Plan *plan, const DataSource *data, const SampleSetOptions *options,
                       SourceImages *out) {
  *out = (SourceImages){.label = data->split};
  if (plan->inputs.count > 2 && source_kind_find(data->kind)->form == SOURCE_SAMPLES)
    return status_fail(STATUS_USER,
                       "%s: %s(...) is for a model of one input (images) or two (images and their "
                       "classes), not %d",
                       data->split, data->kind, plan->inputs.count);
  SampleSet *set;
  STATUS_TRY(status_prefix(open_of(data->kind)(options, &set), "%s", data->split));
  out->set = set;
  if (!set->is_image && transform_loaded(data->transforms, data->transform_count))
    return status_fail(STATUS_USER, "%s: transforms are for images, and keys= names none",
                       data->split);
  Status status = STATUS_OK;
  if (set->is_image) status = images_bind_set(plan, data, options, out);
  out->inputs = plan->inputs.at;
  out->first_written = set->is_image;
  out->input_count = set->write ? plan->inputs.count : 0;
  return status;
}

Status images_bind_column(const DataSource *data, const PlanTensor *input, int64_t rows,
                          Column *column, SourceImages *out) {
  const DataArray *array = column->file[0].array;
  char have[TYPE_TEXT];
  ArrayHeader row = array->header;
  *out = (SourceImages){.label = data->split};
  if (input->type.shape.rank < 1 || input->type.shape.dim[0] != rows)
    return status_fail(STATUS_USER, "%s: the model's input %s has no batch dimension: it is %s",
                       data->split, input->name, type_text(&input->type, have));
  STATUS_TRY(images_bind_input(data, input, out));
  row.shape.rank--;
  memmove(row.shape.dim, row.shape.dim + 1, sizeof row.shape.dim - sizeof *row.shape.dim);
  if (row.element != ELEMENT_U8 || !image_layout(&row.shape, &out->from) ||
      out->from.channels != out->pipe.layout.channels || out->from.height > IMAGE_MOST_SIDE ||
      out->from.width > IMAGE_MOST_SIDE)
    return status_fail(STATUS_USER,
                       "%s: samples are %s in %s, but its transforms and input %s want u8 images "
                       "of %lld channel%s",
                       data->split, array_header_text(&row, have), column_file_name(array),
                       input->name, (long long)out->pipe.layout.channels,
                       out->pipe.layout.channels == 1 ? "" : "s");
  column->input = input;
  column->row_elements = shape_elements(&row.shape);
  column->row_from = array_header_pitch(&array->header);
  column->row_bytes = array_header_sample(&array->header);
  column->row_to = (size_t)(type_bytes(&input->type) / rows);
  column->is_piped = true;
  return STATUS_OK;
}

static void write_label(const PlanTensor *input, int64_t label, int64_t row, uint8_t *batch) {
  uint8_t *at = batch + input->offset;
  switch (input->type.dtype) {
  case DT_I64:
    ((int64_t *)at)[row] = label;
    break;
  case DT_I32:
    ((int32_t *)at)[row] = (int32_t)label;
    break;
  case DT_U32:
    ((uint32_t *)at)[row] = (uint32_t)label;
    break;
  default:
    at[row] = (uint8_t)label;
  }
}

/* "train: sample 12, photos/cat/3.jpg is cut off". */
static Status name_sample(const SourceImages *images, int64_t index, Status status) {
  Text name = {0}, why = {0};
  text_printf(&why, "%s", status_message());
  images->set->name(images->set, index, &name);
  text_make_printable(name.at);
  status = status_fail(status, "%s: sample %lld, %s %s", images->label, (long long)index,
                       text_cstr(&name), text_cstr(&why));
  text_free(&name);
  text_free(&why);
  return status;
}

/* The part of a scaled picture, all of which is there, that the chain begins with: what decoding no more gives. */
static Status cut_scaled(PipeWorker *pipe, const PipeNeeds *needs) {
  int at[4], by = needs->scale;
  for (int i = 0; i < 4; i++) at[i] = (needs->box[i] + (i < 2 ? 0 : by - 1)) / by;
  for (int i = 0; i < 4; i++) pipe->part.inside[i] = (double)needs->box[i] / by - at[i % 2];
  Image *to = pipe_other(pipe);
  STATUS_TRY(image_crop(pipe->now, at[0], at[1], at[3] - at[1], at[2] - at[0], to));
  pipe->now = to;
  return STATUS_OK;
}

/* Only the part that the chain begins with, where all of the file is there: one that ends too early
 * is refused whatever is cut out of it. What is kept is the whole; and so is what is turned, and what may
 * be left out, as that is not to depend on the part. */
static Status decode_needed(const SourceImages *images, SourceWorker *worker, PipeDraw draw,
                            int turn) {
  const Sample *sample = &worker->sample;
  PipeWorker *pipe = &worker->pipe;
  int channels = (int)images->pipe.layout.channels, height, width;
  bool takes_whole =
      images->cache || images->disk_budget || worker->takes_whole || images->damaged || turn > 1;
  bool may_scale = images->scales && !worker->takes_whole && turn <= 1;
  bool may_cut = !takes_whole && image_ends(sample->at, sample->count);
  if (!image_is_jpeg(sample->at, sample->count) || !(may_cut || may_scale))
    return image_decode(pipe->images, sample->at, sample->count, channels, 1, pipe->now);
  STATUS_TRY(image_size(sample->at, sample->count, &height, &width));
  PipeNeeds needs = pipe_needs(&images->pipe, draw, height, width, may_scale);
  if (needs.is_part && may_cut) {
    pipe->part = needs.part;
    return image_decode_part(pipe->images, sample->at, sample->count, channels, needs.box,
                             needs.scale, pipe->now, pipe->part.inside);
  }
  STATUS_TRY(
      image_decode(pipe->images, sample->at, sample->count, channels, needs.scale, pipe->now));
  if (needs.scale == 1) return STATUS_OK;
  pipe->part = needs.part;
  pipe->part.left = pipe->part.top = 0;
  return needs.is_box ? cut_scaled(pipe, &needs) : STATUS_OK;
}

/* *is_damaged: it is no image. */
static Status images_decode(const SourceImages *images, SourceWorker *worker, int64_t index,
                            PipeDraw draw, bool *is_damaged) {
  Sample *sample = &worker->sample;
  PipeWorker *pipe = &worker->pipe;
  sample->count = 1;
  Status status = images->set->read(images->set, index, sample);
  *is_damaged = status == STATUS_USER && !sample->count; /* the file is there, and empty */
  STATUS_TRY(status_prefix(status, "%s: sample %lld", images->label, (long long)index));
  int turn = images->turns ? image_orientation(sample->at, sample->count) : 1;
  status = decode_needed(images, worker, draw, turn);
  *is_damaged = status == STATUS_USER;
  if (status == STATUS_OK && turn > 1) {
    status = image_turn(pipe->now, turn, pipe_other(pipe));
    pipe->now = pipe_other(pipe);
  }
  return status == STATUS_OK ? status : name_sample(images, index, status);
}

/* The picture of sample `index` behind the first `fixed` transforms, read or as it was kept. */
static Status images_get(const SourceImages *images, SourceWorker *worker, PipeDraw draw,
                         int64_t index, int fixed, bool *is_damaged) {
  Sample *sample = &worker->sample;
  Image *image = pipe_start(&worker->pipe);
  const KeptImage *kept = images->cache ? image_cache_find(images->cache, index) : NULL;
  *is_damaged = false;
  if (kept) {
    STATUS_TRY(image_reserve(image, kept->height, kept->width, kept->channels));
    memcpy(image->at, kept->at,
           (size_t)kept->height * (size_t)kept->width * (size_t)kept->channels);
    sample->label = kept->label;
    return STATUS_OK;
  }
  DiskStamp stamp;
  bool has_stamp = images->disk && !worker->takes_whole &&
                   images->set->stamp(images->set, index, &stamp.size, &stamp.time);
  int channels = (int)images->pipe.layout.channels;
  if (!has_stamp || !disk_cache_find(images->disk, index, stamp, channels, image, &sample->label)) {
    STATUS_TRY(images_decode(images, worker, index, draw, is_damaged));
    Status status = pipe_run(&images->pipe, 0, fixed, &worker->pipe, draw);
    if (status != STATUS_OK) return name_sample(images, index, status);
    const Image *made = worker->pipe.now;
    worker->decoded += (int64_t)made->height * made->width * made->channels;
    if (has_stamp) disk_cache_keep(images->disk, index, stamp, made, sample->label);
  }
  if (images->cache) image_cache_keep(images->cache, index, worker->pipe.now, sample->label);
  return STATUS_OK;
}

/* The same; for a damaged one the next that is none stands in, and *index says which: it follows from
 * the data alone, so workers, ranks and resuming change nothing. */
static Status images_get_sound(const SourceImages *images, SourceWorker *worker, PipeDraw draw,
                               int64_t *index, int fixed) {
  enum { MOST_IN_A_ROW = 1000 };
  Status status = STATUS_OK;
  for (int tries = 0; tries <= MOST_IN_A_ROW; tries++) {
    bool is_damaged = false;
    if (!images->damaged || !damaged_has(images->damaged, *index) || tries == MOST_IN_A_ROW)
      status = images_get(images, worker, draw, *index, fixed, &is_damaged);
    else
      is_damaged = true;
    if (!is_damaged || !images->damaged || tries == MOST_IN_A_ROW) return status;
    damaged_add(images->damaged, *index);
    *index = (*index + 1) % images->set->count;
  }
  return status;
}

/* Makes sample *index, or the one that stands in for it, and writes its pixels. */
static Status images_make(const SourceImages *images, SourceWorker *worker, uint64_t epoch,
                          int64_t *index, uint8_t *out) {
  const Pipe *pipe = &images->pipe;
  PipeDraw draw = {worker->seed, epoch, (uint64_t)*index};
  int fixed = images->cache || images->disk_budget ? pipe_fixed(pipe)
                                                   : 0; /* a resize and its crop stay together */
  STATUS_TRY(images_get_sound(images, worker, draw, index, fixed));
  Status status = pipe_run(pipe, fixed, pipe->count, &worker->pipe, draw);
  if (status == STATUS_OK) status = pipe_write(pipe, &worker->pipe, out);
  return status == STATUS_OK ? status : name_sample(images, *index, status);
}

bool images_say_damaged(const SourceImages *images, Text *out) {
  int64_t first, count = images->damaged ? damaged_count(images->damaged, &first) : 0;
  if (!count) return false;
  text_printf(out,
              "%s: %lld damaged image%s left out, the one behind it taken instead: ", images->label,
              (long long)count, count == 1 ? " was" : "s were");
  images->set->name(images->set, first, out);
  if (count > 1) text_printf(out, " and others");
  text_make_printable(out->at);
  return true;
}

bool images_say_full(const SourceImages *images, Text *out) {
  if (!images->disk || !disk_cache_say_full(images->disk, out)) return false;
  text_make_printable(out->at);
  return true;
}

/* What the set writes by itself, row by row. */
static Status images_write(const SourceImages *images, SourceWorker *worker, uint64_t epoch,
                           int64_t index, int64_t row, void *batch) {
  for (int i = images->first_written; i < images->input_count; i++) {
    const PlanTensor *input = &images->inputs[i];
    int64_t bytes = type_bytes(&input->type) / input->type.shape.dim[0];
    uint8_t *to = (uint8_t *)batch + input->offset + row * bytes;
    STATUS_TRY(status_prefix(
        images->set->write(images->set, index, i, worker->seed, epoch, &worker->other, to),
        "%s: sample %lld", images->label, (long long)index));
  }
  return STATUS_OK;
}

Status images_fill_row(const SourceImages *images, SourceWorker *worker, uint64_t epoch,
                       int64_t index, int64_t row, void *batch) {
  if (images->image) {
    const ImageLayout *layout = &images->pipe.layout;
    int64_t bytes = layout->channels * layout->height * layout->width;
    uint8_t *out = (uint8_t *)batch + images->image->offset + row * bytes;
    STATUS_TRY(images_make(images, worker, epoch, &index, out));
    if (images->target) write_label(images->target, worker->sample.label, row, batch);
  }
  return images_write(images, worker, epoch, index, row, batch);
}

Status images_fill_from(const SourceImages *images, SourceWorker *worker, uint64_t epoch,
                        int64_t index, const char *file, const uint8_t *at, uint8_t *out) {
  PipeDraw draw = {worker->seed, epoch, (uint64_t)index};
  const Pipe *pipe = &images->pipe;
  Status status = pipe_load(&worker->pipe, &images->from, at);
  if (status == STATUS_OK) status = pipe_run(pipe, 0, pipe->count, &worker->pipe, draw);
  if (status == STATUS_OK) status = pipe_write(pipe, &worker->pipe, out);
  if (status == STATUS_OK) return status;
  char *why = strdup(status_message());
  status = status_fail(status, "%s: sample %lld of %s %s", images->label, (long long)index, file,
                       why ? why : "is wrong");
  free(why);
  return status;
}

/* ── what a set is ────────────────────────────────────────────────────────────────────────── */
Status images_label(const SourceImages *images, const char *input, int64_t index, int64_t *out) {
  const SampleSet *set = images->set;
  const PlanTensor *labelled = images->target ? images->target : set->label_of;
  if (!labelled || strcmp(labelled->name, input) != 0)
    return status_fail(STATUS_USER, "%s: by %s: that input has no classes", images->label, input);
  if (set->label) {
    *out = set->label(set, index);
    return STATUS_OK;
  }
  Sample sample = {0};
  Status status = set->read(set, index, &sample);
  *out = sample.label;
  free(sample.at);
  return status;
}

uint64_t images_list_sum(const SourceImages *images) {
  return images->set ? images->set->sum(images->set) : 0;
}

/* Of a thread: its stack, and what malloc does not give back. */
enum { IMAGES_THREAD = 256 << 10 };

/* Of a set, from all over it. */
static int64_t tried_count(const SourceImages *images) {
  return images->set->count < 16 ? images->set->count : 16;
}
static int64_t tried_index(const SourceImages *images, int64_t i) {
  return i * (images->set->count / tried_count(images));
}

/* Makes some and the largest file, for what a thread needs for that at most: a smaller progressive JPEG may need more. */
static Status try_largest(const SourceImages *images, int64_t index, int *height, int *width,
                          int64_t *memory) {
  const ImageLayout *layout = &images->pipe.layout;
  SourceWorker worker = {.takes_whole = true};
  uint8_t *out = malloc((size_t)(layout->channels * layout->height * layout->width));
  Status status = out ? pipe_worker_new(&worker.pipe) : status_errno(ENOMEM, "%s", images->label);
  for (int64_t i = 0; status == STATUS_OK && i < tried_count(images); i++) {
    int64_t other = tried_index(images, i);
    if (images_make(images, &worker, 0, &other, out) != STATUS_OK) break; /* the training will say */
  }
  if (status == STATUS_OK) status = images_make(images, &worker, 0, &index, out);
  *memory = pipe_worker_memory(&worker.pipe) + (int64_t)worker.sample.room + IMAGES_THREAD;
  if (status == STATUS_OK)
    status = image_size(worker.sample.at, worker.sample.count, height, width);
  pipe_worker_free(&worker.pipe);
  free(worker.sample.at);
  free(out);
  return status;
}

/* What a worker reads and makes in a second, by samples from all over the set; 0: not known. Nothing is kept;
 * *kept: what all of them would take in a cache. */
static double try_rate(const SourceImages *images, double *kept) {
  const ImageLayout *layout = &images->pipe.layout;
  SourceImages plain = *images;
  SourceWorker worker = {0};
  uint8_t *out = malloc((size_t)(layout->channels * layout->height * layout->width));
  Status status = out ? pipe_worker_new(&worker.pipe) : STATUS_FAULT;
  int64_t start = clock_nanoseconds(), took = 0, made = 0, count = images->set->count;
  plain.disk_budget += images->cache != NULL; /* transforms as far as a cache keeps them */
  plain.cache = NULL;
  plain.disk = NULL;
  plain.damaged = NULL;
  for (; status == STATUS_OK && made < tried_count(images) && took < 500000000; made++) {
    int64_t index = tried_index(images, made);
    status = images_make(&plain, &worker, 0, &index, out);
    took = clock_nanoseconds() - start;
  }
  *kept = made ? (double)worker.decoded * (double)count / (double)made : 0;
  pipe_worker_free(&worker.pipe);
  free(worker.sample.at);
  free(out);
  return status == STATUS_OK && took > 0 ? (double)made * 1e9 / (double)took : 0;
}

static void describe_caches(const SourceImages *images, double all, Text *out) {
  char size[32];
  bool is_in_memory = images->cache != NULL, is_on_disk = images->disk_budget > 0;
  if (!is_in_memory && !is_on_disk) return;
  text_printf(out, "; decoded images, which take about %s in all, are kept",
              text_bytes((int64_t)all, size));
  if (is_in_memory)
    text_printf(out, " in memory, up to data.cache = %s",
                text_bytes(image_cache_budget(images->cache), size));
  if (!is_on_disk) return;
  text_printf(out, "%s on disk in %s, up to data.disk_cache = %s", is_in_memory ? ", and" : "",
              images->disk_folder, text_bytes(images->disk_budget, size));
  int64_t used = images->disk ? disk_cache_used(images->disk) : 0;
  if (used >= 0) text_printf(out, ", of which %s are taken", text_bytes(used, size));
}

static void describe_set(const SampleSet *set, int64_t which, int64_t total, Text *out) {
  text_printf(out, "%s: %lld ", set->path, (long long)set->count);
  if (set->file_count)
    text_printf(out, "samples in %d shard%s", set->file_count, set->file_count == 1 ? "" : "s");
  else
    text_printf(out, "files of %lld classes", (long long)set->class_count);
  text_printf(out, ", %.1f MiB in all; the largest, ", (double)total / 0x1p20);
  set->name(set, which, out);
}

Status images_describe(const SourceImages *images, int workers, Text *out) {
  int64_t which, largest, total, memory = 0;
  int height, width;
  const SampleSet *set = images->set;
  if (!set) return STATUS_OK;
  if (set->describe) {
    text_printf(out, "%s: ", images->label);
    set->describe(set, out);
    return STATUS_OK;
  }
  STATUS_TRY(status_prefix(set->measure(set, &which, &largest, &total), "%s", images->label));
  if (images->image) STATUS_TRY(try_largest(images, which, &height, &width, &memory));
  text_printf(out, "%s: ", images->label);
  describe_set(set, which, total, out);
  text_printf(out, ", has %.1f KiB", (double)largest / 0x1p10);
  if (images->image)
    text_printf(out,
                " and %d x %d pixels (height x width); an image takes %.1f MiB in each of %d worker%s",
                height, width, (double)memory / 0x1p20, workers, workers == 1 ? "" : "s");
  double all = 0, rate = images->image ? try_rate(images, &all) : 0;
  if (rate > 0) text_printf(out, "; a worker makes about %.0f samples a second", rate);
  text_printf(out, "; the list of %s takes %.1f MiB", set->file_count ? "samples" : "files",
              (double)set->memory / 0x1p20);
  double kept = images->cache ? (double)image_cache_budget(images->cache) : 0;
  if (images->image)
    text_printf(out, "; the loader's memory is at most %.1f MiB beside its batches",
                ((double)memory * workers + (double)set->memory + kept) / 0x1p20);
  describe_caches(images, all, out);
  text_make_printable(out->at);
  return STATUS_OK;
}

Status images_same_classes(const SourceImages *train, const SourceImages *other) {
  const SampleSet *a = train->set, *b = other->set;
  if (!a || !b || !a->class_count || !b->class_count) return STATUS_OK;
  for (int64_t i = 0; i < a->class_count || i < b->class_count; i++) {
    const char *left = i < a->class_count ? a->classes[i] : NULL;
    const char *right = i < b->class_count ? b->classes[i] : NULL;
    if (left && right && strcmp(left, right) == 0) continue;
    bool is_extra = right && (!left || strcmp(right, left) < 0);
    return status_fail(STATUS_USER,
                       "%s: class '%s' is in %s, but not in %s: then the same number would mean "
                       "another class in each",
                       other->label, is_extra ? right : left, is_extra ? b->path : a->path,
                       is_extra ? a->path : b->path);
  }
  return STATUS_OK;
}
