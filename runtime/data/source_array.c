/* source_array: see source_array.h. */
#include "runtime/data/source_array.h"
#include "runtime/data/idx.h"
#include "runtime/data/npy.h"
#include "runtime/data/tokens.h"
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

static Status open_in(DataArray *array, const char *kind, const char *path) {
  STATUS_TRY(source_bytes_open(path, &array->bytes));
  size_t count, bytes = 0;
  const uint8_t *head = source_bytes_head(array->bytes, &count);
  bool is_npy =
      strcmp(kind, "npy") == 0 || (strcmp(kind, "auto") == 0 && count > 0 && head[0] != 0);
  size_t size;
  Status status;
  if (!tokens_is_kind(kind))
    status =
        is_npy ? npy_parse(head, count, &array->header) : idx_parse(head, count, &array->header);
  else if (source_bytes_size(array->bytes, &size))
    status = tokens_parse(kind, head, count, size, &array->header);
  else
    status = status_fail(STATUS_USER, "is compressed; texts and tokens are read plain: gunzip it");
  STATUS_TRY(source_bytes_intact(array->bytes)); /* or zeros may be taken for its header */
  if (status == STATUS_OK && !array_header_bytes(&array->header, &bytes)) {
    char text[TYPE_TEXT];
    status = status_fail(STATUS_USER, "is damaged: its header promises %s, which no file can hold",
                         array_header_text(&array->header, text));
  }
  if (status != STATUS_OK) {
    char *message = strdup(status_message());
    status = status_fail(status, "%s %s", path, message ? message : "is damaged");
    free(message);
    return status;
  }
  return source_bytes_expect(array->bytes, array->header.offset + bytes);
}

Status array_open(const char *kind, const char *path, DataArray **out) {
  *out = NULL;
  if (strcmp(kind, "idx") != 0 && strcmp(kind, "npy") != 0 && strcmp(kind, "auto") != 0 &&
      !tokens_is_kind(kind))
    return status_fail(STATUS_USER, "data kind '%s' is not known: idx, npy, bytes or tokens", kind);
  DataArray *array = calloc(1, sizeof *array);
  if (!array) return status_errno(ENOMEM, "%s", path);
  Status status = open_in(array, kind, path);
  if (status == STATUS_OK)
    *out = array;
  else
    array_close(array);
  return status;
}

void array_close(DataArray *array) {
  if (!array) return;
  source_bytes_close(array->bytes);
  free(array);
}

const uint8_t *array_at(const DataArray *array) {
  return source_bytes_at(array->bytes) + array->header.offset;
}
