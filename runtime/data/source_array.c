/* source_array: see source_array.h. */
#include "runtime/data/source_array.h"
#include "runtime/data/once.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool array_header_bytes(const ArrayHeader *header, size_t *bytes) {
  int64_t total = element_bytes(header->element);
  bool is_empty = false;
  for (int i = 0; i < header->shape.rank; i++) {
    int64_t dim = header->shape.dim[i];
    if (dim < 0) return false;
    if (dim == 0)
      is_empty = true;
    else if (__builtin_mul_overflow(total, dim, &total) || total > (int64_t)1 << 62)
      return false;
  }
  *bytes = is_empty ? 0 : (size_t)total;
  return true;
}

size_t array_header_sample(const ArrayHeader *header) {
  ArrayHeader sample = *header;
  size_t bytes = 0;
  if (sample.shape.rank) sample.shape.dim[0] = 1;
  (void)array_header_bytes(&sample, &bytes);
  return bytes;
}

size_t array_header_pitch(const ArrayHeader *header) {
  return header->pitch ? header->pitch : array_header_sample(header);
}

char *array_header_text(const ArrayHeader *header, char buffer[TYPE_TEXT]) {
  char shape[TYPE_TEXT];
  snprintf(buffer, TYPE_TEXT, "%s%s", element_text(header->element),
           shape_text(&header->shape, shape));
  return buffer;
}

typedef Status Parse(const ArrayFile *file, ArrayHeader *out);
#define ARRAYS(name) name##_parse
#define TEXT(name) name##_parse
#define RECORDS(name) name##_parse
#define SAMPLES(name) NULL
#define SHARDS(name) NULL
static Parse *const parsers[] = {
#define SOURCE(name, form, ...) form(name),
#include "plan/sources.def"
#undef SOURCE
};
#undef ARRAYS
#undef TEXT
#undef RECORDS
#undef SAMPLES
#undef SHARDS

static Status unknown_kind(const char *name) {
  Text kinds = {0};
  source_kind_list(&kinds);
  Status status = status_fail(STATUS_USER, "data kind '%s' is not known: there are %s", name,
                              text_cstr(&kinds));
  text_free(&kinds);
  return status;
}

static Status unknown_content(void) {
  Text kinds = {0};
  for (int i = 0, listed = 0; i < source_kind_count; i++)
    if (source_kinds[i].begins_count)
      text_printf(&kinds, "%s%s", listed++ ? " nor " : "", source_kinds[i].name);
  Status status =
      status_fail(STATUS_USER, "is neither %s: its first bytes are others", text_cstr(&kinds));
  text_free(&kinds);
  return status;
}

/* data NULL: of the kind that the first bytes tell. */
static Status array_parse(SourceBytes *bytes, ArrayFile *file, ArrayHeader *out) {
  const DataSource *data = file->options;
  file->at = source_bytes_head(bytes, &file->count);
  const SourceKind *kind =
      data ? source_kind_find(data->kind) : source_kind_guess(file->at, file->count);
  if (!kind) return unknown_content();
  if (source_is_single_kind(kind))
    return status_fail(STATUS_USER, "is read one sample at a time, not as an array");
  if (kind->reads != SOURCE_HEAD && !source_bytes_size(bytes, &file->size))
    return status_fail(STATUS_USER, "is compressed: unpack it first");
  if (kind->reads == SOURCE_ALL) {
    STATUS_TRY(source_bytes_expect(bytes, file->size));
    file->at = source_bytes_at(bytes);
    file->count = file->size;
  }
  return parsers[kind - source_kinds](file, out);
}

static Status check_header(const ArrayHeader *header) {
  size_t bytes;
  char text[TYPE_TEXT];
  if (array_header_bytes(header, &bytes)) return STATUS_OK;
  return status_fail(STATUS_USER, "is damaged: its header promises %s, which no file can hold",
                     array_header_text(header, text));
}

/* Opens the file and reads a header, or one for each input. */
static Status open_and_parse(const char *path, ArrayFile *file, SourceBytes **bytes,
                             ArrayHeader *out) {
  const SourceKind *kind = file->options ? source_kind_find(file->options->kind) : NULL;
  STATUS_TRY(kind && kind->reads != SOURCE_HEAD ? source_bytes_open_unpacked(path, bytes)
                                                : source_bytes_open(path, bytes));
  Status status = array_parse(*bytes, file, out);
  for (int i = 0; i < (file->inputs ? file->input_count : 1) && status == STATUS_OK; i++)
    status = check_header(&out[i]);
  STATUS_TRY(source_bytes_intact(*bytes)); /* or zeros may be taken for its header */
  if (status == STATUS_OK) return STATUS_OK;
  char *message = strdup(status_message());
  status = status_fail(status, "%s %s", path, message ? message : "is damaged");
  free(message);
  return status;
}

static Status array_open_in(DataArray *array, const DataSource *data, const char *path,
                            Bpe *tokenizer) {
  ArrayFile file = {.options = data, .tokenizer = tokenizer};
  STATUS_TRY(open_and_parse(path, &file, &array->bytes, &array->header));
  if (array->header.elements) return STATUS_OK; /* all was read */
  size_t bytes = 0;
  (void)array_header_bytes(&array->header, &bytes);
  return source_bytes_expect(array->bytes, array->header.offset + bytes);
}

Status array_open(const DataSource *data, const char *path, DataArray **out) {
  return array_open_text(data, path, NULL, out);
}

static Status open_alone(const DataSource *data, const char *path, Bpe *tokenizer,
                         DataArray **out) {
  DataArray *array = calloc(1, sizeof *array);
  if (!array) return status_errno(ENOMEM, "%s", path);
  Status status = array_open_in(array, data, path, tokenizer);
  if (status == STATUS_OK)
    *out = array;
  else
    array_close(array);
  return status;
}

Status array_open_text(const DataSource *data, const char *path, Bpe *tokenizer, DataArray **out) {
  *out = NULL;
  if (data && !source_kind_find(data->kind)) return unknown_kind(data->kind);
  if (!data || source_kind_find(data->kind)->reads != SOURCE_ALL)
    return open_alone(data, path, tokenizer, out);
  Text key = {0};
  once_key("array", data, (char *const[]){(char *)(uintptr_t)path}, 1, &key);
  *out = once_take(&key);
  bool is_new = !*out;
  Status status = is_new ? open_alone(data, path, tokenizer, out) : STATUS_OK;
  if (is_new && status == STATUS_OK) once_offer(&key, *out);
  text_free(&key);
  return status;
}

/* What a reader of records found lies in the file, whose length is known. */
static Status check_inside(const ArrayHeader *header, size_t size) {
  size_t sample = array_header_sample(header), end;
  int64_t last = header->shape.rank ? header->shape.dim[0] - 1 : 0;
  if (header->elements || last < 0) return STATUS_OK;
  if (!__builtin_mul_overflow((size_t)last, array_header_pitch(header), &end) &&
      !__builtin_add_overflow(end, header->offset, &end) &&
      !__builtin_add_overflow(end, sample, &end) && end <= size)
    return STATUS_OK;
  return status_fail(STATUS_USER, "is truncated: its elements end behind its %zu bytes", size);
}

static Status records_open_in(const DataSource *data, const char *path, ArrayFile *file,
                              ArrayHeader *headers, DataArray **out) {
  for (int i = 0; i < file->input_count; i++) {
    out[i] = calloc(1, sizeof **out);
    if (!out[i]) return status_errno(ENOMEM, "%s", path);
    out[i]->is_shared = i > 0;
  }
  Status status = open_and_parse(path, file, &out[0]->bytes, headers);
  if (status == STATUS_OK && source_kind_find(data->kind)->reads == SOURCE_SIZE)
    status = source_bytes_expect(out[0]->bytes, file->size);
  for (int i = 0; i < file->input_count && status == STATUS_OK; i++)
    status = status_prefix(check_inside(&headers[i], file->size), "%s", path);
  for (int i = 0; i < file->input_count; i++) {
    out[i]->header = headers[i];
    out[i]->bytes = out[0]->bytes;
  }
  return status;
}

Status array_open_records(const DataSource *data, const char *path, const PlanTensor *inputs,
                          int input_count, DataArray **out) {
  memset(out, 0, sizeof *out * (size_t)input_count);
  if (!source_kind_find(data->kind)) return unknown_kind(data->kind);
  ArrayFile file = {.options = data, .inputs = inputs, .input_count = input_count};
  ArrayHeader *headers = calloc((size_t)input_count + 1, sizeof *headers);
  if (!headers) return status_errno(ENOMEM, "%s", path);
  Status status = records_open_in(data, path, &file, headers, out);
  free(headers);
  if (status == STATUS_OK) return STATUS_OK;
  for (int i = input_count; i-- > 0;) {
    array_close(out[i]);
    out[i] = NULL;
  }
  return status;
}

void array_close(DataArray *array) {
  if (!array || !once_leave(array)) return;
  if (!array->is_shared) source_bytes_close(array->bytes);
  free(array->header.elements);
  free(array);
}

const uint8_t *array_at(const DataArray *array) {
  if (array->header.elements) return array->header.elements;
  return source_bytes_at(array->bytes) + array->header.offset;
}

size_t array_memory(const DataArray *array) {
  size_t bytes = 0;
  if (array->header.elements) (void)array_header_bytes(&array->header, &bytes);
  return bytes + (array->is_shared ? 0 : source_bytes_memory(array->bytes));
}
