/* source_array: see source_array.h. */
#include "runtime/data/source_array.h"
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

char *array_header_text(const ArrayHeader *header, char buffer[TYPE_TEXT]) {
  char shape[TYPE_TEXT];
  snprintf(buffer, TYPE_TEXT, "%s%s", element_text(header->element),
           shape_text(&header->shape, shape));
  return buffer;
}

typedef Status Parse(const ArrayFile *file, ArrayHeader *out);
static Parse *const parsers[] = {
#define SOURCE(name, ...) name##_parse,
#include "plan/sources.def"
#undef SOURCE
};

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

static Status array_parse(DataArray *array, const DataSource *data) {
  ArrayFile file = {.options = data};
  file.at = source_bytes_head(array->bytes, &file.count);
  const SourceKind *kind =
      data ? source_kind_find(data->kind) : source_kind_guess(file.at, file.count);
  if (!kind) return unknown_content();
  if (kind->reads != SOURCE_HEAD && !source_bytes_size(array->bytes, &file.size))
    return status_fail(STATUS_USER, "is compressed; %s() reads files as they are: gunzip it",
                       kind->name);
  if (kind->reads == SOURCE_ALL) {
    STATUS_TRY(source_bytes_expect(array->bytes, file.size));
    file.at = source_bytes_at(array->bytes);
    file.count = file.size;
  }
  STATUS_TRY(parsers[kind - source_kinds](&file, &array->header));
  size_t bytes;
  char text[TYPE_TEXT];
  if (!array_header_bytes(&array->header, &bytes))
    return status_fail(STATUS_USER, "is damaged: its header promises %s, which no file can hold",
                       array_header_text(&array->header, text));
  return STATUS_OK;
}

static Status array_open_in(DataArray *array, const DataSource *data, const char *path) {
  STATUS_TRY(source_bytes_open(path, &array->bytes));
  Status status = array_parse(array, data);
  STATUS_TRY(source_bytes_intact(array->bytes)); /* or zeros may be taken for its header */
  if (status != STATUS_OK) {
    char *message = strdup(status_message());
    status = status_fail(status, "%s %s", path, message ? message : "is damaged");
    free(message);
    return status;
  }
  if (array->header.elements) return STATUS_OK; /* all was read */
  size_t bytes = 0;
  (void)array_header_bytes(&array->header, &bytes);
  return source_bytes_expect(array->bytes, array->header.offset + bytes);
}

Status array_open(const DataSource *data, const char *path, DataArray **out) {
  *out = NULL;
  if (data && !source_kind_find(data->kind)) return unknown_kind(data->kind);
  DataArray *array = calloc(1, sizeof *array);
  if (!array) return status_errno(ENOMEM, "%s", path);
  Status status = array_open_in(array, data, path);
  if (status == STATUS_OK)
    *out = array;
  else
    array_close(array);
  return status;
}

void array_close(DataArray *array) {
  if (!array) return;
  source_bytes_close(array->bytes);
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
  return bytes + source_bytes_memory(array->bytes);
}
