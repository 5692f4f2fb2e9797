/* sample_value: see sample_value.h. */
#include "runtime/data/sample_value.h"
#include "runtime/common/json.h"
#include "runtime/data/npy.h"
#include "runtime/data/source.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Status sample_value_bind(const PlanTensor *input, int64_t rows, SampleValue *out) {
  char text[TYPE_TEXT];
  *out = (SampleValue){.type = input->type, .row = *input};
  Shape *shape = &out->type.shape;
  if (shape->rank < 1 || shape->dim[0] != rows)
    return status_fail(STATUS_USER, "the model's input %s has no batch dimension: it is %s",
                       input->name, type_text(&input->type, text));
  shape->rank--;
  memmove(shape->dim, shape->dim + 1, sizeof shape->dim - sizeof *shape->dim);
  out->elements = shape_elements(shape);
  out->bytes = type_bytes(&out->type);
  out->row.type.shape.dim[0] = 1;
  if (!input->part_count) return STATUS_OK;
  out->parts = calloc((size_t)input->part_count, sizeof *out->parts);
  if (!out->parts) return status_errno(ENOMEM, "%s", input->name);
  for (int i = 0; i < input->part_count; i++) {
    out->parts[i] = input->parts[i];
    out->parts[i].start[0] = 0;
    out->parts[i].count[0] = 1;
  }
  out->row.parts = out->parts;
  return STATUS_OK;
}

void sample_value_free(SampleValue *value) {
  free(value->parts);
  *value = (SampleValue){0};
}

static Status sample_check_range(const SampleValue *value, const void *out) {
  char range[SOURCE_RANGE];
  if (!value->row.below && !value->row.part_count) return STATUS_OK;
  if (source_find_outside(&value->row, out, value->elements, range) < 0) return STATUS_OK;
  return status_fail(STATUS_USER, "holds %s", range);
}

static Status convert_values(const SampleValue *value, const void *from, Element element,
                             bool is_big_endian, void *out) {
  DType dtype = value->type.dtype;
  int64_t done = element_convert(from, element, is_big_endian, value->elements, dtype, out);
  if (done == value->elements) return sample_check_range(value, out);
  return status_fail(STATUS_USER, "holds a number that does not fit %s, the type of input %s",
                     dtype_text(dtype), value->row.name);
}

Status sample_value_integers(const SampleValue *value, const int64_t *from, void *out) {
  return convert_values(value, from, ELEMENT_I64, false, out);
}

static Status want_one(const SampleValue *value) {
  char text[TYPE_TEXT];
  if (value->elements == 1) return STATUS_OK;
  return status_fail(STATUS_USER, "holds one number, but input %s takes %s of each sample",
                     value->row.name, type_text(&value->type, text));
}

/* As Python's int() has it, but for underscores. */
Status sample_value_whole(const SampleValue *value, const uint8_t *text, size_t count, void *out) {
  char copy[64], *end;
  STATUS_TRY(want_one(value));
  while (count && strchr(" \t\n\r\v\f", text[count - 1]) && text[count - 1]) count--;
  size_t from = 0;
  while (from < count && strchr(" \t\n\r\v\f", text[from]) && text[from]) from++;
  size_t length = count - from < sizeof copy - 1 ? count - from : sizeof copy - 1;
  memcpy(copy, text + from, length);
  copy[length] = 0;
  errno = 0;
  long long whole = strtoll(copy, &end, 10);
  if (!length || *end || end != copy + length || errno || length != count - from ||
      !strchr("+-0123456789", *copy))
    return status_fail(STATUS_USER, "holds '%.40s', which is no whole number", copy);
  return convert_values(value, &(int64_t){whole}, ELEMENT_I64, false, out);
}

/* ── JSON ─────────────────────────────────────────────────────────────────────────────────── */
/* For an input of integers they are i64, else f64. */
typedef struct {
  const SampleValue *value;
  uint8_t *at; /* 8 bytes each */
  int64_t count;
} JsonNumbers;

static Status take_number(JsonNumbers *numbers, const json_t *json) {
  const SampleValue *value = numbers->value;
  bool is_whole = !dtype_is_float(value->type.dtype);
  int64_t whole = json_is_integer(json) ? json_integer_value(json) : json_is_true(json);
  double number = json_is_real(json) ? json_real_value(json) : (double)whole;
  if (!json_is_number(json) && !json_is_boolean(json))
    return status_fail(STATUS_USER, "holds something else than numbers");
  if (is_whole && json_is_real(json)) {
    if (number != trunc(number) || fabs(number) > 0x1p53)
      return status_fail(STATUS_USER, "holds %g, but input %s takes whole numbers", number,
                         value->row.name);
    whole = (int64_t)number;
  }
  memcpy(numbers->at + 8 * numbers->count++, is_whole ? (void *)&whole : (void *)&number, 8);
  return STATUS_OK;
}

/* Arrays in arrays have to be of the input's shape; `depth` dimensions are entered. */
static Status take_json(JsonNumbers *numbers, const json_t *json, int depth) {
  const Shape *shape = &numbers->value->type.shape;
  char text[TYPE_TEXT];
  if (depth == shape->rank && !json_is_array(json)) return take_number(numbers, json);
  if (depth == shape->rank || !json_is_array(json) ||
      json_array_size(json) != (size_t)shape->dim[depth])
    return status_fail(STATUS_USER,
                       "does not hold numbers of the shape of a sample of input %s, %s",
                       numbers->value->row.name, type_text(&numbers->value->type, text));
  for (size_t i = 0; i < json_array_size(json); i++)
    STATUS_TRY(take_json(numbers, json_array_get(json, i), depth + 1));
  return STATUS_OK;
}

static Status take_field(const SampleValue *value, const json_t *json, const char *field,
                         void *out) {
  if (*field) {
    json = json_is_object(json) ? json_object_get(json, field) : NULL;
    if (!json) return status_fail(STATUS_USER, "has no member '%s'", field);
  }
  JsonNumbers numbers = {.value = value, .at = malloc((size_t)value->elements * 8 + 1)};
  if (!numbers.at) return status_errno(ENOMEM, "is not read");
  Element element = dtype_is_float(value->type.dtype) ? ELEMENT_F64 : ELEMENT_I64;
  Status status = json_is_array(json) || value->elements != 1 ? take_json(&numbers, json, 0)
                                                              : take_number(&numbers, json);
  if (status == STATUS_OK) status = convert_values(value, numbers.at, element, false, out);
  free(numbers.at);
  return status;
}

Status sample_value_json(const SampleValue *value, const uint8_t *text, size_t count,
                         const char *field, void *out) {
  json_t *json;
  Status status = json_parse_any((const char *)text, count, &json);
  if (status != STATUS_OK) return status_prefix(status, "is no JSON");
  status = take_field(value, json, field, out);
  json_decref(json);
  return status;
}

Status sample_value_npy(const SampleValue *value, const uint8_t *bytes, size_t count, void *out) {
  ArrayFile file = {.at = bytes, .count = count};
  ArrayHeader header;
  char have[TYPE_TEXT], want[TYPE_TEXT];
  size_t wanted = 0;
  STATUS_TRY(npy_parse(&file, &header));
  if (!array_header_bytes(&header, &wanted) || header.offset > count ||
      wanted != count - header.offset)
    return status_fail(STATUS_USER, "is truncated or damaged: it does not hold as many elements as "
                                    "its header promises");
  bool is_one = value->elements == 1 && shape_elements(&header.shape) == 1;
  if ((!is_one && !shape_equal(&header.shape, &value->type.shape)) ||
      !element_converts(header.element, value->type.dtype))
    return status_fail(STATUS_USER, "is %s, but input %s takes %s of each sample",
                       array_header_text(&header, have), value->row.name,
                       type_text(&value->type, want));
  return convert_values(value, bytes + header.offset, header.element, header.is_big_endian, out);
}
