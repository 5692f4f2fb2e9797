/* source: see source.h. Invariant: column i holds at least `samples` rows whose shape is that of
 * input i without its first dimension, in an element kind that converts to the input's dtype. */
#include "runtime/data/source.h"
#include "runtime/common/inside.h"
#include "runtime/data/source_early.h"
#include "runtime/data/source_text.h"
#include "runtime/data/spool.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const DataSource *source_find_split(const Plan *plan, const char *split) {
  for (int i = 0; i < plan->sources.count; i++)
    if (strcmp(plan->sources.at[i].split, split) == 0) return &plan->sources.at[i];
  return NULL;
}

const char *source_command(const Plan *plan, const char *split) {
  const DataSource *data = source_find_split(plan, split);
  for (int i = 0; data && i < data->file_count; i++)
    if (spool_is_command(data->files[i])) return data->files[i];
  return NULL;
}

static const Transform *normalize_of(const DataSource *data) {
  return data ? transform_in(data->transforms, data->transform_count, "normalize") : NULL;
}

Status source_check_evaluated(const Plan *plan, const char *split) {
  const DataSource *of_graph = source_find_split(plan, "valid");
  if (!of_graph) of_graph = source_find_split(plan, "test");
  const Transform *own = normalize_of(source_find_split(plan, split));
  const Transform *has = normalize_of(of_graph);
  if (!own || !has || transform_is_same(own, has)) return STATUS_OK;
  return status_fail(
      STATUS_USER,
      "%s has another normalize than %s, and evaluations have that of %s: its images "
      "would be other ones; give both the same",
      split, of_graph->split, of_graph->split);
}

static Status no_split(const Plan *plan, const char *split) {
  Text names = {0};
  for (int i = 0; i < plan->sources.count; i++)
    text_printf(&names, "%s%s", i ? ", " : "", plan->sources.at[i].split);
  Status status =
      status_fail(STATUS_USER, "%s has no %s data (%s): add %s = … to its data { }", plan->source,
                  split, names.count ? text_cstr(&names) : "it has none", split);
  text_free(&names);
  return status;
}

/* Bytes from the file's first element to sample `row` of an array. */
static size_t start_of(const Column *column, const ColumnFile *file, int64_t row) {
  return (size_t)(row - file->first) * column->row_from;
}

static Status source_check_options(const DataSource *data, const SourceKind *kind) {
  Text why = {0};
  Status status = STATUS_OK;
  if (!source_kind_check(kind, data, &why))
    status = status_fail(STATUS_USER, "%s: %s", data->split, text_cstr(&why));
  text_free(&why);
  return status;
}

/* The sample of the files that the split's sample is. */
static int64_t source_row(const Source *source, int64_t sample) {
  return source->part.sample ? source->part.sample[sample] : sample;
}

static Status class_of(const void *context, const char *input, int64_t sample, int64_t *out) {
  const Source *source = context;
  if (source->images.set) return images_label(&source->images, input, sample, out);
  for (int i = 0; i < source->column_count; i++)
    if (strcmp(source->column[i].input->name, input) == 0)
      return column_integer(&source->column[i], source->label, sample, out);
  return status_fail(STATUS_USER, "%s: by %s: the model has no such input", source->label, input);
}

/* Of the samples of its files those that the split has. */
static Status source_choose(Source *source, const Plan *plan, const DataSource *data) {
  double limit = source_kind_number(data, "limit", (double)source->samples);
  if ((double)source->samples > limit) source->samples = (int64_t)limit;
  if (!source_has_parts(plan, data)) return STATUS_OK;
  int64_t samples = source->samples;
  if (source->window) {
    STATUS_TRY(source_part_windows(plan, data, samples, &source->first, &source->samples));
    int64_t end = source->first + source->samples;
    if (end < samples) source->last = (end - 1) * source->window;
    return STATUS_OK;
  }
  STATUS_TRY(source_part_choose(plan, data, samples, class_of, source, &source->part));
  source->samples = source->part.count;
  return STATUS_OK;
}

static Status new_source(const Plan *plan, const char *label, int columns, Source **out) {
  Source *source = calloc(1, sizeof *source);
  *out = source;
  if (source) source->column = calloc((size_t)columns + 1, sizeof *source->column);
  if (!source || !source->column) return status_errno(ENOMEM, "%s", label);
  source->label = label;
  source->batch = (int64_t)setting_number(plan->settings, "train.batch");
  source->rows = source->batch * plan_parts_at_once(plan);
  return STATUS_OK;
}

/* data: NULL for a kind told by the file's content. */
static Status add_file(Source *source, Column *column, const DataSource *data, Bpe *tokenizer,
                       const char *path) {
  DataArray *array = data ? source_early_take(data->kind, path) : NULL;
  if (!array)
    STATUS_TRY(status_prefix(array_open_text(data, path, tokenizer, &array), "%s", source->label));
  return column_add(column, source->label, array);
}

/* A file of records: one more for each column. */
static Status add_record_file(Source *source, const Plan *plan, const DataSource *data,
                              const char *path) {
  int count = plan->inputs.count;
  DataArray **arrays = calloc((size_t)count + 1, sizeof *arrays);
  if (!arrays) return status_errno(ENOMEM, "%s", path);
  Status status = status_prefix(array_open_records(data, path, plan->inputs.at, count, arrays),
                                "%s", source->label);
  /* backwards: the first one has the bytes, so it is the last that a failure closes */
  for (int i = count; status == STATUS_OK && i-- > 0;) {
    status = column_add(&source->column[i], source->label, arrays[i]);
    for (int rest = i; status != STATUS_OK && rest-- > 0;) array_close(arrays[rest]);
  }
  free(arrays);
  return status;
}

/* In all inputs as many samples; in as many files, in each of them. */
static Status count_samples(Source *source) {
  const Column *first = &source->column[0];
  source->samples = first->samples;
  for (int i = 1; i < source->column_count; i++) {
    const Column *column = &source->column[i];
    for (int k = 0; k < first->file_count && column->file_count == first->file_count; k++) {
      const DataArray *a = first->file[k].array, *b = column->file[k].array;
      int64_t have = a->header.shape.dim[0], also = b->header.shape.dim[0];
      if (have != also)
        return status_fail(STATUS_USER, "%s: %s holds %lld samples but %s holds %lld",
                           source->label, source_bytes_path(a->bytes), (long long)have,
                           column_file_name(b), (long long)also);
    }
    if (column->samples != first->samples)
      return status_fail(STATUS_USER,
                         "%s: %s and the others, %d files, hold %lld samples, but %s and the "
                         "others, %d, hold %lld",
                         source->label, column_file_name(first->file[0].array), first->file_count,
                         (long long)first->samples, column_file_name(column->file[0].array),
                         column->file_count, (long long)column->samples);
  }
  return STATUS_OK;
}

static Status wrong_file_count(const Plan *plan, const DataSource *data) {
  Text names = {0};
  for (int i = 0; i < plan->inputs.count; i++)
    text_printf(&names, "%s%s", i ? ", " : "", plan->inputs.at[i].name);
  Status status =
      status_fail(STATUS_USER, "%s: %s(…) names %d file%s but the model has %d input%s (%s)",
                  data->split, data->kind, data->file_count, data->file_count == 1 ? "" : "s",
                  plan->inputs.count, plan->inputs.count == 1 ? "" : "s", text_cstr(&names));
  text_free(&names);
  return status;
}

/* Of an unknown kind that of arrays: it is told when a file is opened. */
static SourceForm form_of(const DataSource *data) {
  const SourceKind *kind = source_kind_find(data->kind);
  return kind ? kind->form : SOURCE_ARRAYS;
}

/* Adds the files that name i of the recipe's stands for: to column i, or one to each, or of texts all to
 * the first. */
static Status add_files(Source *source, const Plan *plan, const DataSource *data,
                        const SourcePlaces *places, Bpe *tokenizer, int i) {
  SourceFiles files = {0};
  bool is_records = form_of(data) == SOURCE_RECORDS;
  Column *column = &source->column[form_of(data) == SOURCE_TEXT ? 0 : i];
  Status status =
      status_prefix(source_find_files(plan, places, data->files[i], &files), "%s", data->split);
  for (int k = 0; k < files.count && status == STATUS_OK; k++)
    status = is_records ? add_record_file(source, plan, data, files.path[k])
                        : add_file(source, column, data, tokenizer, files.path[k]);
  source_files_free(&files);
  return status;
}

static Status open_images(Source *source, const Plan *plan, const DataSource *data,
                          const SourcePlaces *places) {
  SourceFiles all = {0};
  Status status = inside_check_setting(plan->settings, "data.cache_dir", places->allow_paths);
  for (int i = 0; i < data->file_count && status == STATUS_OK; i++) {
    if (form_of(data) != SOURCE_SAMPLES) {
      status = source_find_files(plan, places, data->files[i], &all);
    } else {
      all.path = calloc(1, sizeof *all.path);
      status = all.path ? source_find_file(plan, places, data->files[i], &all.path[0])
                        : status_errno(ENOMEM, "files");
      all.count = status == STATUS_OK;
    }
  }
  status = status_prefix(status, "%s", data->split);
  Bpe *tokenizer = NULL;
  if (status == STATUS_OK) status = source_text_tokenizer(plan, data, places, &tokenizer);
  SampleSetOptions options = {.data = data,
                              .tokenizer = tokenizer,
                              .path = all.path,
                              .path_count = all.count,
                              .inputs = plan->inputs.at,
                              .input_count = plan->inputs.count,
                              .rows = source->rows,
                              .may_write = places->may_index};
  if (status == STATUS_OK) status = images_open_set(plan, data, &options, &source->images);
  source_files_free(&all);
  bpe_free(tokenizer);
  STATUS_TRY(status);
  source->samples = source->images.set->count;
  return source_choose(source, plan, data);
}

/* Transforms stand behind the first column. */
static Status source_bind_column(Source *source, const Plan *plan, const DataSource *data, int i) {
  Column *column = &source->column[i];
  const PlanTensor *input = &plan->inputs.at[i];
  bool is_piped = i == 0 && transform_loaded(data->transforms, data->transform_count);
  if (!is_piped) return column_bind(column, source->label, input, source->rows);
  return images_bind_column(data, input, source->rows, column, &source->images);
}

static Status add_all_files(Source *source, const Plan *plan, const DataSource *data,
                            const SourcePlaces *places) {
  Bpe *tokenizer;
  Status status = source_text_tokenizer(plan, data, places, &tokenizer);
  for (int i = 0; i < data->file_count && status == STATUS_OK; i++)
    status = add_files(source, plan, data, places, tokenizer, i);
  bpe_free(tokenizer);
  return status;
}

static Status open_split(Source *source, const Plan *plan, const DataSource *data,
                         const SourcePlaces *places) {
  const SourceKind *kind = source_kind_find(data->kind);
  bool is_text = form_of(data) == SOURCE_TEXT;
  if (kind)
    STATUS_TRY(source_check_options(data, kind)); /* an unknown one is refused with its file */
  if (source_is_single_kind(kind)) return open_images(source, plan, data, places);
  if (is_text && !source_text_moves(plan, data)) return open_images(source, plan, data, places);
  source->column_count = is_text ? 1 : plan->inputs.count;
  STATUS_TRY(add_all_files(source, plan, data, places));
  for (int i = 0; i < source->column_count && !is_text; i++)
    STATUS_TRY(source_bind_column(source, plan, data, i));
  STATUS_TRY(is_text ? source_text_bind(source, plan) : count_samples(source));
  return source_choose(source, plan, data);
}

static bool fits_files(const Plan *plan, const DataSource *data) {
  if (data->file_count < 1 || plan->inputs.count < 1) return false;
  if (form_of(data) == SOURCE_SAMPLES) return data->file_count == 1;
  return form_of(data) != SOURCE_ARRAYS || data->file_count == plan->inputs.count;
}

Status source_open(const Plan *plan, const char *split, const SourcePlaces *places, Source **out) {
  *out = NULL;
  const DataSource *data = source_find_split(plan, split);
  if (!data) return no_split(plan, split);
  if (!fits_files(plan, data)) return wrong_file_count(plan, data);
  if (form_of(data) == SOURCE_SAMPLES && source_command(plan, split))
    return status_fail(STATUS_USER,
                       "%s: %s(...) reads a folder, which no command prints: tar(...) "
                       "takes what one prints as an archive",
                       split, data->kind);
  Source *source;
  Status status = new_source(plan, data->split, plan->inputs.count, &source);
  if (status == STATUS_OK) status = open_split(source, plan, data, places);
  if (status == STATUS_OK)
    *out = source;
  else
    source_close(source);
  return status;
}

static int64_t source_length_of(const void *context, int64_t row) {
  const SampleSet *set = ((const Source *)context)->images.set;
  return set->length(set, row);
}

Status source_open_train(const Plan *plan, const SourcePlaces *places, Source **out) {
  STATUS_TRY(source_open(plan, "train", places, out));
  Source *source = *out;
  VisitData data = {.label = source->label,
                    .samples = source->samples,
                    .rows = source->part.sample,
                    .class_of = class_of,
                    .context = source,
                    .length_of = source_length_of};
  const SampleSet *set = source->images.set;
  if (set && set->length) data.buckets = source_text_buckets(plan, source_find_split(plan, "train"));
  data.total = source->images.set ? source->images.set->count : source->column[0].samples;
  Status status = STATUS_OK;
  if (source->window && *setting_text(plan->settings, "data.order"))
    status =
        status_fail(STATUS_USER, "%s: data.order is for samples, not for a text", source->label);
  else
    status = visits_new(plan, places, &data, &source->visits);
  if (status != STATUS_OK) {
    source_close(source);
    *out = NULL;
  }
  return status;
}

const Visits *source_visits(const Source *source) { return source->visits; }

void source_append_buckets(const Source *source, Text *out) {
  if (source && source->visits) visits_append_buckets(source->visits, out);
}

int64_t source_epoch_samples(const Source *source) {
  return source->visits ? visits_count(source->visits) : source->samples;
}

Status source_open_inputs(const Plan *plan, const SourceInput *inputs, int count, Source **out) {
  *out = NULL;
  Source *source;
  Status status = new_source(plan, "--input", count, &source);
  for (int i = 0; i < count && status == STATUS_OK; i++) {
    Column *column = &source->column[source->column_count++];
    status = add_file(source, column, NULL, NULL, inputs[i].path);
    if (status == STATUS_OK)
      status = column_bind(column, source->label, inputs[i].input, source->rows);
  }
  if (status == STATUS_OK) status = count_samples(source);
  if (status == STATUS_OK)
    *out = source;
  else
    source_close(source);
  return status;
}

void source_close(Source *source) {
  if (!source) return;
  for (int i = source->column_count; i-- > 0;) column_close(&source->column[i]);
  images_close(&source->images);
  source_part_free(&source->part);
  visits_free(source->visits);
  free(source->column);
  free(source);
}

/* File `index` of all columns, each file once; NULL: there are no more. */
static DataArray *nth_file(const Source *source, int index) {
  for (int i = 0; i < source->column_count; i++) {
    const Column *column = &source->column[i];
    if (column->is_shared || column->file[0].array->is_shared) continue;
    if (index < column->file_count) return column->file[index].array;
    index -= column->file_count;
  }
  return NULL;
}

void source_start(const Source *source) {
  const int most = 16; /* threads that inflate, but for those of samples that are waited for */
  DataArray *array;
  for (int i = 0; i < most && (array = nth_file(source, i)); i++) source_bytes_start(array->bytes);
}

void source_append_sample(const Source *source, const PlanTensor *input, int64_t sample,
                          Text *out) {
  int64_t moved = source->window ? sample / source->samples : 0;
  const SampleSet *set = source->images.set;
  const Column *column = NULL;
  for (int i = 0; i < source->column_count; i++)
    if (source->column[i].input == input) column = &source->column[i];
  if (!source->window) sample = source_row(source, sample);
  if (!column) {
    text_printf(out, "sample %lld of %s", (long long)sample, set ? set->path : source->label);
    if (set) text_printf(out, ", ");
    if (set) set->name(set, sample, out);
    return;
  }
  if (source->window) {
    source_text_append(source, column, sample, 0, true, out);
  } else {
    const ColumnFile *file = column_find(column, sample);
    text_printf(out, "sample %lld of %s", (long long)(sample - file->first),
                source_bytes_path(file->array->bytes));
    if (file->first) text_printf(out, " (%lld of all files)", (long long)sample);
  }
  if (moved) text_printf(out, ", moved by %lld tokens", (long long)moved);
}

const char *source_label(const Source *source) { return source->label; }

const char *source_path(const Source *source, int index) {
  const SampleSet *set = source->images.set;
  if (set) return index < set->file_count ? set->files[index] : NULL;
  const DataArray *array = nth_file(source, index);
  return array ? source_bytes_path(array->bytes) : NULL;
}

int64_t source_samples(const Source *source) { return source->samples; }

/* Samples that follow each other in the file are copied at once. */
static int64_t sample_run(const Source *source, const Column *column, const ColumnFile *file,
                          const int64_t *sample, int64_t count) {
  int64_t run = 1, first = source_row(source, sample[0]),
          end = file->first + file->array->header.shape.dim[0];
  if (!column->is_copy || column->row_from != column->row_to) return 1;
  while (run < count && source_row(source, sample[run]) == first + run && first + run < end) run++;
  return run;
}

static Status convert_row(const Source *source, const Column *column, const ColumnFile *file,
                          const uint8_t *from, int64_t sample, uint8_t *to) {
  const ArrayHeader *header = &file->array->header;
  DType dtype = column->input->type.dtype;
  int64_t done = element_convert(from, header->element, header->is_big_endian, column->row_elements,
                                 dtype, to);
  if (done == column->row_elements) return STATUS_OK;
  return status_fail(STATUS_USER,
                     "%s: sample %lld of %s holds a number that does not fit %s, the type of "
                     "input %s",
                     source->label, (long long)(sample - file->first),
                     column_file_name(file->array), dtype_text(dtype), column->input->name);
}

/* Waits until the samples are there. That the file has not become shorter is asked after they were
 * read, and that goes before what was read. */
static Status fill_rows(const Source *source, const Column *column, SourceWorker *worker,
                        uint64_t epoch, const int64_t *sample, uint8_t *to) {
  for (int64_t i = 0, run; i < source->batch; i += run, to += run * (int64_t)column->row_to) {
    int64_t row = source_row(source, sample[i]);
    const ColumnFile *file = column_find(column, row);
    const DataArray *array = file->array;
    run = sample_run(source, column, file, sample + i, source->batch - i);
    size_t start = start_of(column, file, row);
    size_t upto =
        array->header.offset + start + (size_t)(run - 1) * column->row_from + column->row_bytes;
    if (array->header.elements) upto = 0; /* it is all there */
    STATUS_TRY(source_bytes_wait(array->bytes, upto));
    const uint8_t *from = array_at(array) + start;
    Status status = STATUS_OK;
    if (column->is_piped)
      status =
          images_fill_from(&source->images, worker, epoch, row, column_file_name(array), from, to);
    else if (column->is_copy)
      memcpy(to, from, (size_t)run * column->row_bytes);
    else
      status = convert_row(source, column, file, from, row, to);
    STATUS_TRY(source_bytes_intact(array->bytes));
    STATUS_TRY(status);
  }
  return STATUS_OK;
}

/* Class indices and ids of what is looked up: one outside would only train badly. */
static Status check_values(const Source *source, const Column *column, const int64_t *sample,
                           const void *values) {
  char range[SOURCE_RANGE];
  int64_t count = source->batch * column->row_elements;
  int64_t i = source_find_outside(column->input, values, count, range);
  if (i < 0) return STATUS_OK;
  Text place = {0};
  int64_t at = sample[i / column->row_elements];
  if (source->window) {
    source_text_append(source, column, at, i % column->row_elements, false, &place);
  } else {
    int64_t row = source_row(source, at);
    const ColumnFile *file = column_find(column, row);
    text_printf(&place, "sample %lld of %s", (long long)(row - file->first),
                column_file_name(file->array));
  }
  Status status =
      status_fail(STATUS_USER, "%s: %s holds %s", source->label, text_cstr(&place), range);
  text_free(&place);
  return status;
}

Status source_fill_row(const Source *source, SourceWorker *worker, uint64_t epoch, int64_t sample,
                       int64_t row, void *batch) {
  return images_fill_row(&source->images, worker, epoch, source_row(source, sample), row, batch);
}

Status source_fill_part(const Source *source, SourceWorker *worker, uint64_t epoch,
                        const int64_t *sample, int64_t part, void *batch) {
  int64_t first_row = part * source->batch;
  for (int64_t i = 0; source->images.set && i < source->batch; i++)
    STATUS_TRY(source_fill_row(source, worker, epoch, sample[i], first_row + i, batch));
  for (int i = 0; i < source->column_count; i++) {
    const Column *column = &source->column[i];
    int64_t first = part * source->batch * (int64_t)column->row_to;
    uint8_t *to = (uint8_t *)batch + column->input->offset + first;
    STATUS_TRY(source->window ? source_text_fill(source, column, sample, to)
                              : fill_rows(source, column, worker, epoch, sample, to));
    if (column->input->below || column->input->part_count)
      STATUS_TRY(check_values(source, column, sample, to));
  }
  return STATUS_OK;
}

Status source_fill(const Source *source, SourceWorker *worker, const int64_t *sample, void *batch) {
  return source_fill_part(source, worker, 0, sample, 0, batch);
}

bool source_is_single(const Source *source) { return source->images.set != NULL; }

bool source_takes_worker(const Source *source) {
  return source->images.set || (source->column_count && source->column[0].is_piped);
}

bool source_is_random(const Source *source) {
  return source_takes_worker(source) && pipe_is_random(&source->images.pipe);
}

void source_prefetch(const Source *source, const int64_t *sample) {
  const size_t line = 64, most = 4096; /* bytes of a sample: more would push a step's data out */
  for (int i = 0; i < source->column_count; i++) {
    const Column *column = &source->column[i];
    size_t bytes = column->row_from < most ? column->row_from : most;
    for (int64_t j = 0; j < source->batch && source->window; j++)
      source_text_prefetch(source, column, sample[j]);
    for (int64_t j = 0; j < source->batch && !source->window; j++) {
      int64_t row = source_row(source, sample[j]);
      const ColumnFile *file = column_find(column, row);
      const uint8_t *at = array_at(file->array) + start_of(column, file, row);
      for (size_t k = 0; k < bytes; k += line) __builtin_prefetch(at + k);
    }
  }
}

bool source_is_cheap(const Source *source) {
  const size_t small_file = 32 << 20; /* will be in the page cache after the first epoch */
  if (source_takes_worker(source)) return false;
  if (source->window) return source->samples * source->window <= (int64_t)small_file;
  for (int i = 0; i < source->column_count; i++) {
    const Column *column = &source->column[i];
    bool is_label = column->row_elements == 1;
    bool is_in_memory = array_memory(column->file[0].array) > 0 ||
                        (size_t)source->samples * column->row_from <= small_file;
    if (!is_in_memory || (!column->is_copy && !is_label)) return false;
  }
  return true;
}

bool source_is_inflating(const Source *source) {
  DataArray *array;
  bool is_inflating = false;
  for (int i = 0; !is_inflating && (array = nth_file(source, i)); i++)
    is_inflating = source_bytes_is_inflating(array->bytes);
  return is_inflating;
}

Status source_check(const Source *source) {
  DataArray *array;
  for (int i = 0; (array = nth_file(source, i)); i++) STATUS_TRY(source_bytes_check(array->bytes));
  return STATUS_OK;
}
