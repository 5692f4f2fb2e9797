/* source: see source.h. Invariant: array i holds at least `samples` rows whose shape is that of
 * input i without its first dimension, in an element kind that converts to the input's dtype. */
#include "runtime/data/source.h"
#include "runtime/common/order.h"
#include "runtime/data/source_early.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  DataArray *array;
  const PlanTensor *input;
  int64_t row_elements;
  size_t row_from, row_to; /* bytes from a sample to the next, in the file and in the batch */
  size_t shift;            /* text: bytes from a window's start to what this input reads */
  bool is_copy;            /* no conversion */
  bool is_shared;          /* the array is the first column's */
} Column;

struct Source {
  const char *label; /* starts every message: "train" */
  Column *column;
  int column_count;
  int64_t samples, batch;
  int64_t window; /* text: tokens of a sample, less the one that follows; else 0 */
  int64_t last;   /* text: where the last window of the file begins */
};

const DataSource *source_find_split(const Plan *plan, const char *split) {
  for (int i = 0; i < plan->sources.count; i++)
    if (strcmp(plan->sources.at[i].split, split) == 0) return &plan->sources.at[i];
  return NULL;
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

/* The part of a path after its last '/'. */
static const char *file_part(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static Status bind_column(const char *split, const PlanTensor *input, int64_t batch, Column *out) {
  const ArrayHeader *header = &out->array->header;
  char have[TYPE_TEXT], want[TYPE_TEXT];
  ArrayHeader row = *header;
  Type sample = input->type;
  if (sample.shape.rank < 1 || sample.shape.dim[0] != batch)
    return status_fail(STATUS_USER, "%s: the model's input %s has no batch dimension: it is %s",
                       split, input->name, type_text(&sample, have));
  sample.shape.rank--;
  memmove(sample.shape.dim, sample.shape.dim + 1, sizeof sample.shape.dim - sizeof(int64_t));
  if (header->shape.rank < 1)
    return status_fail(STATUS_USER, "%s: %s holds one number, not samples", split,
                       source_bytes_path(out->array->bytes));
  row.shape.rank--;
  memmove(row.shape.dim, row.shape.dim + 1, sizeof row.shape.dim - sizeof(int64_t));
  if (!shape_equal(&row.shape, &sample.shape) || !element_converts(header->element, sample.dtype))
    return status_fail(STATUS_USER, "%s: samples are %s in %s but the model's input %s wants %s",
                       split, array_header_text(&row, have),
                       file_part(source_bytes_path(out->array->bytes)), input->name,
                       type_text(&sample, want));
  out->input = input;
  out->row_elements = shape_elements(&sample.shape);
  out->row_from = (size_t)out->row_elements * (size_t)element_bytes(header->element);
  out->row_to = (size_t)type_bytes(&sample);
  out->is_copy = header->element == element_of(sample.dtype) && header->element != ELEMENT_BOOL &&
                 (!header->is_big_endian || element_bytes(header->element) == 1);
  return STATUS_OK;
}

/* A text: sample i is the window of `window` tokens from i * window on, and the token behind it.
 * The first input gets the window, the second the same moved by one: what follows each token. */
static Status bind_text(Source *source, const Plan *plan) {
  DataArray *array = source->column[0].array;
  int64_t tokens = array->header.shape.dim[0];
  char text[TYPE_TEXT];
  if (plan->inputs.count > 2)
    return status_fail(
        STATUS_USER,
        "%s: a text is for a model of one input (tokens) or two (tokens and the ones "
        "that follow), not %d",
        source->label, plan->inputs.count);
  for (int i = 0; i < plan->inputs.count; i++) {
    const PlanTensor *input = &plan->inputs.at[i];
    const Shape *shape = &input->type.shape;
    if (shape->rank != 2 || shape->dim[0] != source->batch || shape->dim[1] < 1 ||
        shape->dim[1] != plan->inputs.at[0].type.shape.dim[1] ||
        (input->type.dtype != DT_I32 && input->type.dtype != DT_I64))
      return status_fail(STATUS_USER, "%s: tokens are for inputs of i32[B,T], but %s is %s",
                         source->label, input->name, type_text(&input->type, text));
    Column *column = &source->column[i];
    int each = element_bytes(array->header.element);
    column->array = array;
    column->is_shared = i > 0;
    column->input = input;
    column->row_elements = source->window = shape->dim[1];
    column->row_from = (size_t)source->window * (size_t)each;
    column->row_to = (size_t)source->window * (size_t)dtype_bytes(input->type.dtype);
    column->shift = (size_t)(i * each);
    source->column_count = i + 1;
  }
  int64_t needs = source->window + plan->inputs.count - 1;
  if (tokens < needs)
    return status_fail(STATUS_USER, "%s: %s holds %lld tokens, but one sample takes %lld",
                       source->label, source_bytes_path(array->bytes), (long long)tokens,
                       (long long)needs);
  source->last = tokens - needs;
  source->samples = source->last / source->window + 1;
  return STATUS_OK;
}

/* Bytes from the first element to sample `index`. */
static size_t start_of(const Source *source, const Column *column, int64_t index) {
  if (!source->window) return (size_t)index * column->row_from;
  int64_t at = index % source->samples * source->window + index / source->samples;
  if (at > source->last) at = source->last;
  return (size_t)at * (column->row_from / (size_t)source->window) + column->shift;
}

/* Options are numbers that a plan may make up: whole ones that an int64_t holds, or a reader would
 * have to check. */
static Status source_check_options(const DataSource *data, const SourceKind *kind) {
  for (int i = 0; i < data->option_count; i++) {
    const char *name = data->option_names[i];
    double value = data->option_values[i];
    bool is_limit = strcmp(name, "limit") == 0;
    if (!source_kind_takes(kind, name))
      return status_fail(STATUS_USER, "%s: %s() has no option '%s'; it has limit%s%s", data->split,
                         kind->name, name, *kind->options ? " " : "", kind->options);
    if (!(value >= is_limit) || value > 0x1p53 || value != (double)(int64_t)value)
      return status_fail(STATUS_USER, "%s: %s=%g is not a number%s", data->split, name, value,
                         is_limit ? " of samples" : ", whole and from 0");
  }
  return STATUS_OK;
}

static void apply_limit(Source *source, const DataSource *data) {
  double limit = source_kind_option(data, "limit", (double)source->samples);
  if ((double)source->samples > limit) source->samples = (int64_t)limit;
}

static Status new_source(const Plan *plan, const char *label, int columns, Source **out) {
  Source *source = calloc(1, sizeof *source);
  *out = source;
  if (source) source->column = calloc((size_t)columns + 1, sizeof *source->column);
  if (!source || !source->column) return status_errno(ENOMEM, "%s", label);
  source->label = label;
  source->batch = (int64_t)setting_number(plan->settings, "train.batch");
  return STATUS_OK;
}

/* data: NULL for a kind told by the file's content. */
static Status add_column(Source *source, const DataSource *data, const char *path,
                         const PlanTensor *input) {
  Column *column = &source->column[source->column_count++];
  if (data) column->array = source_early_take(data->kind, path);
  if (!column->array)
    STATUS_TRY(status_prefix(array_open(data, path, &column->array), "%s", source->label));
  return bind_column(source->label, input, source->batch, column);
}

static Status count_samples(Source *source) {
  const DataArray *first = source->column[0].array;
  source->samples = first->header.shape.dim[0];
  if (source->samples < 1)
    return status_fail(STATUS_USER, "%s: %s holds no samples", source->label,
                       source_bytes_path(first->bytes));
  for (int i = 1; i < source->column_count; i++) {
    const DataArray *array = source->column[i].array;
    if (array->header.shape.dim[0] == source->samples) continue;
    return status_fail(STATUS_USER, "%s: %s holds %lld samples but %s holds %lld", source->label,
                       file_part(source_bytes_path(first->bytes)), (long long)source->samples,
                       file_part(source_bytes_path(array->bytes)),
                       (long long)array->header.shape.dim[0]);
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

static bool is_text_data(const DataSource *data) {
  const SourceKind *kind = source_kind_find(data->kind);
  return kind && kind->form == SOURCE_TEXT;
}

static Status open_text(Source *source, const Plan *plan, const DataSource *data,
                        const SourcePlaces *places) {
  char *path;
  STATUS_TRY(
      status_prefix(source_find_file(plan, places, data->files[0], &path), "%s", data->split));
  source->column_count = 1;
  Status status =
      status_prefix(array_open(data, path, &source->column[0].array), "%s", data->split);
  free(path);
  STATUS_TRY(status);
  STATUS_TRY(bind_text(source, plan));
  apply_limit(source, data);
  return STATUS_OK;
}

static Status open_split(Source *source, const Plan *plan, const DataSource *data,
                         const SourcePlaces *places) {
  const SourceKind *kind = source_kind_find(data->kind);
  if (kind)
    STATUS_TRY(source_check_options(data, kind)); /* an unknown one is refused with its file */
  if (is_text_data(data)) return open_text(source, plan, data, places);
  for (int i = 0; i < data->file_count; i++) {
    char *path;
    STATUS_TRY(
        status_prefix(source_find_file(plan, places, data->files[i], &path), "%s", data->split));
    Status status = add_column(source, data, path, &plan->inputs.at[i]);
    free(path);
    STATUS_TRY(status);
  }
  STATUS_TRY(count_samples(source));
  apply_limit(source, data);
  return STATUS_OK;
}

Status source_open(const Plan *plan, const char *split, const SourcePlaces *places, Source **out) {
  *out = NULL;
  const DataSource *data = source_find_split(plan, split);
  if (!data) return no_split(plan, split);
  if (data->file_count < 1 || data->file_count != (is_text_data(data) ? 1 : plan->inputs.count))
    return wrong_file_count(plan, data);
  Source *source;
  Status status = new_source(plan, data->split, plan->inputs.count, &source);
  if (status == STATUS_OK) status = open_split(source, plan, data, places);
  if (status == STATUS_OK)
    *out = source;
  else
    source_close(source);
  return status;
}

Status source_open_inputs(const Plan *plan, const SourceInput *inputs, int count, Source **out) {
  *out = NULL;
  Source *source;
  Status status = new_source(plan, "--input", count, &source);
  for (int i = 0; i < count && status == STATUS_OK; i++)
    status = add_column(source, NULL, inputs[i].path, inputs[i].input);
  if (status == STATUS_OK) status = count_samples(source);
  if (status == STATUS_OK)
    *out = source;
  else
    source_close(source);
  return status;
}

void source_close(Source *source) {
  if (!source) return;
  for (int i = 0; i < source->column_count; i++)
    if (!source->column[i].is_shared) array_close(source->column[i].array);
  free(source->column);
  free(source);
}

void source_start(const Source *source) {
  for (int i = 0; i < source->column_count; i++) source_bytes_start(source->column[i].array->bytes);
}

void source_append_paths(const Source *source, Text *out) {
  for (int i = 0; i < source->column_count; i++)
    if (!source->column[i].is_shared)
      text_printf(out, "%s%s", i ? ", " : "", source_bytes_path(source->column[i].array->bytes));
}

const char *source_label(const Source *source) { return source->label; }

const char *source_path(const Source *source, int index) {
  if (index >= source->column_count || source->column[index].is_shared) return NULL;
  return source_bytes_path(source->column[index].array->bytes);
}

int64_t source_samples(const Source *source) { return source->samples; }

bool source_is_text(const Source *source) { return source->window > 0; }

int64_t source_moved(const Source *source, uint64_t seed, uint64_t epoch) {
  if (!source->window) return 0;
  Order order = order_new(source->window, true, ~seed, epoch);
  return order_sample(&order, 0) * source->samples;
}

/* Rows that follow each other in the file are copied at once. */
static void copy_rows(const Column *column, const int64_t *sample, int64_t count, uint8_t *to) {
  const uint8_t *from = array_at(column->array);
  for (int64_t i = 0; i < count;) {
    int64_t run = 1;
    while (i + run < count && sample[i + run] == sample[i] + run) run++;
    memcpy(to + (size_t)i * column->row_to, from + (size_t)sample[i] * column->row_from,
           (size_t)run * column->row_to);
    i += run;
  }
}

static Status convert_rows(const Source *source, const Column *column, const int64_t *sample,
                           uint8_t *to) {
  const ArrayHeader *header = &column->array->header;
  DType dtype = column->input->type.dtype;
  for (int64_t i = 0; i < source->batch; i++) {
    const uint8_t *from = array_at(column->array) + start_of(source, column, sample[i]);
    int64_t done = element_convert(from, header->element, header->is_big_endian,
                                   column->row_elements, dtype, to + (size_t)i * column->row_to);
    if (done != column->row_elements)
      return status_fail(STATUS_USER,
                         "%s: sample %lld of %s holds a number that does not fit %s, "
                         "the type of input %s",
                         source->label, (long long)(sample[i] % source->samples),
                         file_part(source_bytes_path(column->array->bytes)), dtype_text(dtype),
                         column->input->name);
  }
  return STATUS_OK;
}

static int64_t integer_at(const void *values, DType dtype, int64_t i) {
  switch (dtype) {
  case DT_I64:
    return ((const int64_t *)values)[i];
  case DT_I32:
    return ((const int32_t *)values)[i];
  case DT_U32:
    return ((const uint32_t *)values)[i];
  default: /* u8, bool */
    return ((const uint8_t *)values)[i];
  }
}

/* Some lookup of element i may ignore this value: then all may. */
static bool is_ignored(const PlanTensor *input, int64_t i, int64_t value) {
  if (input->has_ignore && value == input->ignore) return true;
  int64_t stride[MAX_RANK];
  shape_strides(&input->type.shape, stride);
  for (int p = 0; p < input->part_count; p++) {
    const PlanPart *part = &input->parts[p];
    bool is_in = part->has_ignore && part->ignore == value;
    int64_t rest = i;
    for (int k = 0; is_in && k < input->type.shape.rank; k++) {
      int64_t at = rest / stride[k] - part->start[k];
      rest %= stride[k];
      is_in = at >= 0 && at % part->step[k] == 0 && at / part->step[k] < part->count[k];
    }
    if (is_in) return true;
  }
  return false;
}

/* The first element of a box that is not below its bound, or -1. */
static int64_t outside_part(const PlanTensor *input, const PlanPart *part, const void *values) {
  int rank = input->type.shape.rank;
  int64_t stride[MAX_RANK], at[MAX_RANK] = {0};
  shape_strides(&input->type.shape, stride);
  for (;;) {
    int64_t i = 0;
    for (int k = 0; k < rank; k++) i += (part->start[k] + at[k] * part->step[k]) * stride[k];
    int64_t value = integer_at(values, input->type.dtype, i);
    if ((uint64_t)value >= (uint64_t)part->below && !is_ignored(input, i, value)) return i;
    int k = rank - 1;
    while (k >= 0 && ++at[k] == part->count[k]) at[k--] = 0;
    if (k < 0) return -1;
  }
}

static int64_t outside_whole(const PlanTensor *input, const void *values, int64_t count) {
  for (int64_t i = 0; input->below && i < count; i++) {
    int64_t value = integer_at(values, input->type.dtype, i);
    if ((uint64_t)value >= (uint64_t)input->below && !is_ignored(input, i, value)) return i;
  }
  return -1;
}

/* cat[:, 0:26:2]; the batch is not told apart. */
static void append_part(const PlanTensor *input, const PlanPart *part, Text *out) {
  for (int k = 0; part && k < input->type.shape.rank; k++) {
    int64_t first = part->start[k], end = first + part->step[k] * (part->count[k] - 1) + 1;
    bool is_all = part->step[k] == 1 && part->count[k] == input->type.shape.dim[k];
    text_printf(out, "%s", k ? ", " : "[");
    if (is_all || k == 0)
      text_printf(out, ":");
    else if (part->count[k] == 1)
      text_printf(out, "%lld", (long long)first);
    else
      text_printf(out, "%lld:%lld", (long long)first, (long long)end);
    if (part->step[k] > 1 && k) text_printf(out, ":%lld", (long long)part->step[k]);
  }
  if (part) text_printf(out, "]");
}

int64_t source_find_outside(const PlanTensor *input, const void *values, int64_t count,
                            char text[SOURCE_RANGE]) {
  const PlanPart *part = NULL;
  int64_t i = outside_whole(input, values, count);
  for (int p = 0; i < 0 && p < input->part_count; p++) {
    part = &input->parts[p];
    i = outside_part(input, part, values);
  }
  if (i < 0) return -1;
  Text name = {0};
  text_printf(&name, "%s", input->name);
  append_part(input, part, &name);
  int length = snprintf(text, SOURCE_RANGE, "%lld, but input %.200s takes 0 to %lld",
                        (long long)integer_at(values, input->type.dtype, i), text_cstr(&name),
                        (long long)(part ? part->below : input->below) - 1);
  if (part ? part->has_ignore : input->has_ignore)
    snprintf(text + length, SOURCE_RANGE - (size_t)length, ", or %lld to be ignored",
             (long long)(part ? part->ignore : input->ignore));
  text_free(&name);
  return i;
}

/* Class indices and ids of what is looked up: one outside would only train badly. */
static Status check_values(const Source *source, const Column *column, const int64_t *sample,
                           const void *values) {
  char range[SOURCE_RANGE];
  int64_t count = source->batch * column->row_elements;
  int64_t i = source_find_outside(column->input, values, count, range);
  if (i < 0) return STATUS_OK;
  return status_fail(STATUS_USER, "%s: sample %lld of %s holds %s", source->label,
                     (long long)(sample[i / column->row_elements] % source->samples),
                     file_part(source_bytes_path(column->array->bytes)), range);
}

Status source_fill(const Source *source, const int64_t *sample, void *batch) {
  int64_t last = 0;
  for (int64_t i = 0; i < source->batch; i++)
    if (sample[i] > last) last = sample[i];
  for (int i = 0; i < source->column_count; i++) {
    const Column *column = &source->column[i];
    size_t upto = column->array->header.offset + (size_t)(last + 1) * column->row_from;
    if (source->window || column->array->header.elements) upto = 0; /* it is all there */
    STATUS_TRY(source_bytes_wait(column->array->bytes, upto));
    uint8_t *to = (uint8_t *)batch + column->input->offset;
    Status status = STATUS_OK;
    if (column->is_copy)
      copy_rows(column, sample, source->batch, to);
    else
      status = convert_rows(source, column, sample, to);
    Status intact = source_bytes_intact(column->array->bytes);
    if (intact == STATUS_OK) intact = status;
    STATUS_TRY(intact);
    if (column->input->below || column->input->part_count)
      STATUS_TRY(check_values(source, column, sample, to));
  }
  return STATUS_OK;
}

void source_prefetch(const Source *source, const int64_t *sample) {
  const size_t line = 64, most = 4096; /* bytes of a sample: more would push a step's data out */
  for (int i = 0; i < source->column_count; i++) {
    const Column *column = &source->column[i];
    size_t bytes = column->row_from < most ? column->row_from : most;
    for (int64_t j = 0; j < source->batch; j++) {
      const uint8_t *at = array_at(column->array) + start_of(source, column, sample[j]);
      for (size_t k = 0; k < bytes; k += line) __builtin_prefetch(at + k);
    }
  }
}

bool source_is_cheap(const Source *source) {
  const size_t small_file = 32 << 20; /* will be in the page cache after the first epoch */
  if (source->window) return source->samples * source->window <= (int64_t)small_file;
  for (int i = 0; i < source->column_count; i++) {
    const Column *column = &source->column[i];
    bool is_label = column->row_elements == 1;
    bool is_in_memory =
        array_memory(column->array) > 0 || (size_t)source->samples * column->row_from <= small_file;
    if (!is_in_memory || (!column->is_copy && !is_label)) return false;
  }
  return true;
}

Status source_check(const Source *source) {
  for (int i = 0; i < source->column_count; i++)
    STATUS_TRY(source_bytes_check(source->column[i].array->bytes));
  return STATUS_OK;
}

int64_t source_memory(const Source *source) {
  int64_t total = 0;
  for (int i = 0; i < source->column_count; i++)
    if (!source->column[i].is_shared) total += (int64_t)array_memory(source->column[i].array);
  return total;
}
