/* source_column: see source_column.h. Invariant: file i begins where file i - 1 ends, and all have the
 * elements and the shape of a sample of the first. */
#include "runtime/data/source_column.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *column_file_name(const DataArray *array) {
  const char *path = source_bytes_path(array->bytes), *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* The header of a sample: without the first dimension. */
static ArrayHeader sample_header(const ArrayHeader *header) {
  ArrayHeader row = *header;
  row.shape.rank--;
  memmove(row.shape.dim, row.shape.dim + 1, sizeof row.shape.dim - sizeof(int64_t));
  return row;
}

static Status check_array(const Column *column, const char *label, const DataArray *array) {
  const ArrayHeader *header = &array->header;
  char have[TYPE_TEXT], want[TYPE_TEXT];
  if (header->shape.rank < 1)
    return status_fail(STATUS_USER, "%s: %s holds one number, not samples", label,
                       source_bytes_path(array->bytes));
  if (header->shape.dim[0] < 1)
    return status_fail(STATUS_USER, "%s: %s holds no samples", label,
                       source_bytes_path(array->bytes));
  if (header->shape.dim[0] > INT64_MAX / 2 - column->samples)
    return status_fail(STATUS_USER, "%s: %s holds too many samples", label,
                       source_bytes_path(array->bytes));
  if (!column->file_count) return STATUS_OK;
  const DataArray *first = column->file[0].array;
  ArrayHeader row = sample_header(header), before = sample_header(&first->header);
  if (row.element == before.element && row.is_big_endian == before.is_big_endian &&
      shape_equal(&row.shape, &before.shape) &&
      array_header_pitch(header) == array_header_pitch(&first->header))
    return STATUS_OK;
  return status_fail(STATUS_USER, "%s: samples are %s in %s but %s in %s%s", label,
                     array_header_text(&before, want), column_file_name(first),
                     array_header_text(&row, have), column_file_name(array),
                     row.is_big_endian == before.is_big_endian ? ""
                                                               : ", in another order of bytes");
}

Status column_add(Column *column, const char *label, DataArray *array) {
  Status status = check_array(column, label, array);
  ColumnFile *more = NULL;
  if (status == STATUS_OK) {
    more = realloc(column->file, ((size_t)column->file_count + 1) * sizeof *more);
    if (!more) status = status_errno(ENOMEM, "%s", label);
  }
  if (status != STATUS_OK) {
    array_close(array);
    return status;
  }
  column->file = more;
  column->file[column->file_count++] = (ColumnFile){array, column->samples};
  column->samples += array->header.shape.dim[0];
  return STATUS_OK;
}

/* What most often is meant where samples do not fit an input. */
static const char *column_advice(const ArrayHeader *row, const Type *sample) {
  bool is_one = sample->shape.rank == 0, is_class = is_one && !dtype_is_float(sample->dtype);
  if (is_class && row->shape.rank == 0)
    return "; if these are classes, save them with numpy.save(file, labels.astype(\"int32\")), or "
           "let the input be f32[B] and cast it in the model, i32(...)";
  if (is_class && row->shape.rank == 1)
    return "; of one-hot rows numpy.argmax(labels, axis=-1) makes classes, or let the input have "
           "their shape: cross_entropy() takes probabilities, too";
  if (shape_equal(&row->shape, &sample->shape))
    return "; cast the array before it is saved, or give the input its type";
  if (shape_elements(&row->shape) == shape_elements(&sample->shape))
    return "; let the input have this shape, and reshape() or flatten() it in the model";
  return "; files stand in the order of the model's inputs, and an input has its file's shape";
}

Status column_bind(Column *column, const char *label, const PlanTensor *input, int64_t rows) {
  const DataArray *array = column->file[0].array;
  const ArrayHeader *header = &array->header;
  char have[TYPE_TEXT], want[TYPE_TEXT];
  Type sample = input->type;
  if (sample.shape.rank < 1 || sample.shape.dim[0] != rows)
    return status_fail(STATUS_USER, "%s: the model's input %s has no batch dimension: it is %s",
                       label, input->name, type_text(&sample, have));
  sample.shape.rank--;
  memmove(sample.shape.dim, sample.shape.dim + 1, sizeof sample.shape.dim - sizeof(int64_t));
  ArrayHeader row = sample_header(header);
  if (!shape_equal(&row.shape, &sample.shape) || !element_converts(header->element, sample.dtype))
    return status_fail(STATUS_USER, "%s: samples are %s in %s but the model's input %s wants %s%s",
                       label, array_header_text(&row, have), column_file_name(array), input->name,
                       type_text(&sample, want), column_advice(&row, &sample));
  column->input = input;
  column->row_elements = shape_elements(&sample.shape);
  column->row_from = array_header_pitch(header);
  column->row_bytes = array_header_sample(header);
  column->row_to = (size_t)type_bytes(&sample);
  column->is_copy = header->element == element_of(sample.dtype) &&
                    header->element != ELEMENT_BOOL &&
                    (!header->is_big_endian || element_bytes(header->element) == 1);
  return STATUS_OK;
}

void column_close(Column *column) {
  for (int i = 0; i < column->file_count && !column->is_shared; i++)
    array_close(column->file[i].array);
  free(column->file);
  *column = (Column){0};
}

const ColumnFile *column_find(const Column *column, int64_t sample) {
  int low = 0, high = column->file_count - 1; /* low begins before it or with it */
  while (low < high) {
    int middle = low + (high - low + 1) / 2;
    if (column->file[middle].first <= sample)
      low = middle;
    else
      high = middle - 1;
  }
  return &column->file[low];
}

Status column_integer(const Column *column, const char *label, int64_t sample, int64_t *out) {
  const ColumnFile *file = column_find(column, sample);
  const DataArray *array = file->array;
  const ArrayHeader *header = &array->header;
  char text[TYPE_TEXT];
  if (column->row_elements != 1 || column->is_piped || !element_converts(header->element, DT_I64))
    return status_fail(
        STATUS_USER, "%s: by %s: samples are split by a whole number for each, but %s holds %s",
        label, column->input->name, column_file_name(array), array_header_text(header, text));
  size_t start = (size_t)(sample - file->first) * column->row_from;
  size_t upto = header->elements ? 0 : header->offset + start + column->row_bytes;
  STATUS_TRY(source_bytes_wait(array->bytes, upto));
  element_convert(array_at(array) + start, header->element, header->is_big_endian, 1, DT_I64, out);
  return source_bytes_intact(array->bytes);
}
