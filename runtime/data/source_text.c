/* source_text: see source_text.h. Sample i is the window of `window` tokens from i * window on, and the
 * token behind it. The first input gets the window, the second the same moved by one: what follows each
 * token. */
#include "runtime/data/source_text.h"
#include "plan/text_form.h"
#include "runtime/common/order.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool source_text_moves(const Plan *plan, const DataSource *data) {
  TextForm form;
  Text why = {0};
  bool fine = text_form(data, plan->inputs.count, &form, &why);
  text_free(&why);
  return fine && form.moves;
}

const TransformArgument *source_text_buckets(const Plan *plan, const DataSource *data) {
  TextForm form;
  Text why = {0};
  bool fine = text_form(data, plan->inputs.count, &form, &why);
  text_free(&why);
  return fine ? text_form_buckets(&form) : NULL; /* the plan's */
}

Status source_text_tokenizer(const Plan *plan, const DataSource *data, const SourcePlaces *places,
                             Bpe **out) {
  const char *name = source_kind_text(data, "tokenizer", NULL);
  char *path;
  *out = NULL;
  if (!name) return STATUS_OK;
  STATUS_TRY(
      status_prefix(source_find_file(plan, places, name, &path), "%s: tokenizer", data->split));
  Status status = status_prefix(bpe_open(path, out), "%s", data->split);
  free(path);
  return status;
}

static Status bind_input(Source *source, const Plan *plan, int i) {
  const Column *first = &source->column[0];
  Column *column = &source->column[i];
  const PlanTensor *input = &plan->inputs.at[i];
  const Shape *shape = &input->type.shape;
  char text[TYPE_TEXT];
  if (shape->rank != 2 || shape->dim[0] != source->rows || shape->dim[1] < 1 ||
      shape->dim[1] != plan->inputs.at[0].type.shape.dim[1] ||
      (input->type.dtype != DT_I32 && input->type.dtype != DT_I64))
    return status_fail(STATUS_USER, "%s: tokens are for inputs of i32[B,T], but %s is %s",
                       source->label, input->name, type_text(&input->type, text));
  if (i) {
    size_t bytes = (size_t)first->file_count * sizeof *column->file;
    column->file = malloc(bytes);
    if (!column->file) return status_errno(ENOMEM, "%s", source->label);
    memcpy(column->file, first->file, bytes);
    column->file_count = first->file_count;
    column->samples = first->samples;
  }
  source->column_count = i + 1;
  column->is_shared = i > 0;
  column->input = input;
  column->shift = i;
  column->row_elements = source->window = shape->dim[1];
  column->row_to = (size_t)source->window * (size_t)dtype_bytes(input->type.dtype);
  return STATUS_OK;
}

Status source_text_bind(Source *source, const Plan *plan) {
  const Column *first = &source->column[0];
  for (int i = 0; i < plan->inputs.count; i++) STATUS_TRY(bind_input(source, plan, i));
  int64_t tokens = first->samples, needs = source->window + plan->inputs.count - 1;
  if (tokens < needs)
    return status_fail(STATUS_USER, "%s: %s%s hold%s %lld tokens, but one sample takes %lld",
                       source->label, source_bytes_path(first->file[0].array->bytes),
                       first->file_count > 1 ? " and the other files" : "",
                       first->file_count > 1 ? "" : "s", (long long)tokens, (long long)needs);
  source->last = tokens - needs;
  source->samples = source->last / source->window + 1;
  return STATUS_OK;
}

/* Which window a message speaks of: it may have moved. */
static int64_t told_window(const Source *source, int64_t sample) {
  return source->first + sample % source->samples;
}

/* The token that the window begins with in this input. */
static int64_t window_start(const Source *source, const Column *column, int64_t sample) {
  int64_t at = told_window(source, sample) * source->window + sample / source->samples;
  return (at > source->last ? source->last : at) + column->shift;
}

/* `count` tokens from `at` on, which lie in one file. That the file has not become shorter is asked
 * after they were read. */
static Status fill_tokens(const Source *source, const Column *column, const ColumnFile *file,
                          int64_t at, int64_t count, int64_t sample, uint8_t *to) {
  const DataArray *array = file->array;
  Element element = array->header.element;
  DType dtype = column->input->type.dtype;
  const uint8_t *from = array_at(array) + (at - file->first) * element_bytes(element);
  int64_t done = element_convert(from, element, false, count, dtype, to);
  STATUS_TRY(source_bytes_intact(array->bytes));
  if (done == count) return STATUS_OK;
  Text place = {0};
  int64_t start = window_start(source, column, sample);
  source_text_append(source, column, sample, at + done - start, false, &place);
  Status status = status_fail(
      STATUS_USER, "%s: %s holds a number that does not fit %s, the type of input %s",
      source->label, text_cstr(&place), dtype_text(dtype), column->input->name);
  text_free(&place);
  return status;
}

Status source_text_fill(const Source *source, const Column *column, const int64_t *sample,
                        uint8_t *to) {
  int64_t each = dtype_bytes(column->input->type.dtype);
  for (int64_t i = 0; i < source->batch; i++) {
    int64_t at = window_start(source, column, sample[i]), end = at + source->window;
    while (at < end) {
      const ColumnFile *file = column_find(column, at);
      int64_t behind = file->first + file->array->header.shape.dim[0];
      int64_t count = (behind < end ? behind : end) - at;
      STATUS_TRY(fill_tokens(source, column, file, at, count, sample[i], to));
      at += count;
      to += count * each;
    }
  }
  return STATUS_OK;
}

void source_text_prefetch(const Source *source, const Column *column, int64_t sample) {
  const int64_t line = 64, most = 4096; /* bytes: more would push a step's data out */
  int64_t at = window_start(source, column, sample);
  const ColumnFile *file = column_find(column, at);
  int64_t each = element_bytes(file->array->header.element);
  int64_t bytes = source->window * each < most ? source->window * each : most;
  int64_t start = (at - file->first) * each, end = file->array->header.shape.dim[0] * each;
  for (int64_t k = start; k < start + bytes && k < end; k += line)
    __builtin_prefetch(array_at(file->array) + k);
}

void source_text_append(const Source *source, const Column *column, int64_t sample, int64_t element,
                        bool has_path, Text *out) {
  const ColumnFile *file = &column->file[0];
  if (column->file_count == 1) {
    text_printf(out, "sample %lld of ", (long long)told_window(source, sample));
  } else {
    int64_t at = window_start(source, column, sample) + element;
    file = column_find(column, at);
    text_printf(out, "token %lld of ", (long long)(at - file->first));
  }
  text_printf(out, "%s",
              has_path ? source_bytes_path(file->array->bytes) : column_file_name(file->array));
}

void source_text_describe(const Source *source, Text *out) {
  const Column *column = &source->column[0];
  size_t memory = 0;
  for (int i = 0; i < column->file_count; i++) memory += array_memory(column->file[i].array);
  text_printf(out, "%s: %lld tokens in %d file%s, %lld windows of %lld", source->label,
              (long long)column->samples, column->file_count, column->file_count == 1 ? "" : "s",
              (long long)source->samples, (long long)source->window);
  if (memory)
    text_printf(out, "; the tokens take %.1f MiB of memory", (double)memory / 0x1p20);
  else
    text_printf(out, "; the files are mapped and take no memory");
}

bool source_is_text(const Source *source) { return source->window > 0; }

int64_t source_moved(const Source *source, uint64_t seed, uint64_t epoch) {
  if (!source->window) return 0;
  Order order = order_new(source->window, true, ~seed, epoch);
  return order_sample(&order, 0) * source->samples;
}
