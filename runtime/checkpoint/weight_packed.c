/* weight_packed: see weight_packed.h. */
#include "runtime/checkpoint/weight_packed.h"
#include "base/text.h"
#include <math.h>
#include <string.h>

enum { IN_WORD = 8, BITS = 4, OFFSET = 8 };

int64_t weight_packed_columns(int64_t columns) { return (columns + IN_WORD - 1) / IN_WORD; }

/* ── writing ────────────────────────────────────────────────────────────────────────────────── */
void weight_pack_halves(const int8_t *numbers, int64_t rows, int64_t columns, uint32_t *out) {
  int64_t words = weight_packed_columns(columns);
  memset(out, 0, (size_t)(rows * words) * sizeof *out);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++)
      out[r * words + c / IN_WORD] |= (uint32_t)(numbers[r * columns + c] + OFFSET) << (BITS * (c % IN_WORD));
}

/* ── reading ────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  const SafeTensor *from, *scale;
  Shape shape;
  int64_t rows, columns, rows_of_scale, columns_of_scale; /* weights that share a scale */
  bool is_halves;
} Packed;

static const SafeTensor *find_beside(const WeightFiles *files, const char *name, size_t length, const char *end) {
  return safetensors_find(&files->all, arena_printf(files->arena, "%.*s%s", (int)length, name, end));
}

static Status packed_damaged(const WeightFiles *files, const Packed *p, const char *why) {
  return status_fail(STATUS_USER, "%s is damaged: '%.80s' %s", weight_files_path(files, p->from), p->from->name, why);
}

static Status read_packed_shape(const WeightFiles *files, const SafeTensor *shape, Packed *p) {
  int64_t dim;
  if (!shape || shape->element != ELEMENT_I64 || shape->shape.rank != 1 || shape->shape.dim[0] < 2 || shape->shape.dim[0] > MAX_RANK)
    return packed_damaged(files, p, "has no weight_shape of I64 beside it");
  for (p->shape.rank = 0; p->shape.rank < shape->shape.dim[0]; p->shape.rank++) {
    memcpy(&dim, shape->data + p->shape.rank * (int64_t)sizeof dim, sizeof dim);
    if (dim < 0 || dim > (int64_t)1 << 40) return packed_damaged(files, p, "has a weight_shape that is none");
    p->shape.dim[p->shape.rank] = dim;
  }
  return STATUS_OK;
}

static bool are_scales_finite(const SafeTensor *scale) {
  float value;
  for (int64_t i = 0; i < shape_elements(&scale->shape); i++) {
    memcpy(&value, scale->data + i * (int64_t)sizeof value, sizeof value);
    if (!isfinite(value)) return false;
  }
  return true;
}

/* Rows and columns, which the bytes that are there bound. */
static Status measure_packed(const WeightFiles *files, Packed *p) {
  p->rows = p->shape.dim[0];
  p->columns = 1;
  for (int d = 1; d < p->shape.rank; d++) {
    if (p->shape.dim[d] && p->columns > ((int64_t)1 << 40) / p->shape.dim[d]) return packed_damaged(files, p, "is too large");
    p->columns *= p->shape.dim[d];
  }
  const Shape *held = &p->from->shape;
  if (p->is_halves && (held->rank != 2 || held->dim[0] != p->rows || held->dim[1] != weight_packed_columns(p->columns)))
    return packed_damaged(files, p, "does not hold as many numbers as its weight_shape says");
  const Shape *of = &p->scale->shape;
  int64_t scales = shape_elements(of);
  bool is_turned = of->rank == 2 && of->dim[0] > 0 && p->rows % of->dim[0] == 0 && of->dim[1] == p->columns && of->dim[0] != p->rows;
  p->rows_of_scale = 1;
  if (p->scale->element != ELEMENT_F32) return packed_damaged(files, p, "has scales that are not F32");
  if (!are_scales_finite(p->scale)) return packed_damaged(files, p, "has a scale that is not finite");
  if (scales == 1) {
    p->rows_of_scale = p->rows;
    p->columns_of_scale = p->columns;
  } else if (is_turned) {
    p->rows_of_scale = p->rows / of->dim[0];
    p->columns_of_scale = 1;
  } else if (p->rows > 0 && scales > 0 && scales % p->rows == 0 && p->columns % (scales / p->rows) == 0) {
    p->columns_of_scale = p->columns / (scales / p->rows);
  } else if (p->rows * p->columns > 0) {
    return packed_damaged(files, p, "has another number of scales than rows, or groups of columns");
  }
  return STATUS_OK;
}

static float packed_number(const Packed *p, int64_t i) {
  uint32_t word;
  if (!p->is_halves) return (float)(int8_t)p->from->data[i];
  int64_t c = i % p->columns, at = i / p->columns * weight_packed_columns(p->columns) + c / IN_WORD;
  memcpy(&word, p->from->data + at * (int64_t)sizeof word, sizeof word);
  return (float)((int)(word >> (BITS * (c % IN_WORD)) & 15) - OFFSET);
}

static SafeTensor unpack(const WeightFiles *files, const Packed *p, const char *name) {
  int64_t count = p->rows * p->columns;
  float *out = ARENA_ARRAY(files->arena, float, count + 1), scale;
  int64_t in_row = count ? p->columns / p->columns_of_scale : 0;
  for (int64_t i = 0; i < count; i++) {
    int64_t at = i / p->columns / p->rows_of_scale * in_row + i % p->columns / p->columns_of_scale;
    memcpy(&scale, p->scale->data + at * (int64_t)sizeof scale, sizeof scale);
    out[i] = packed_number(p, i) * scale;
  }
  return (SafeTensor){name, ELEMENT_F32, p->shape, (const uint8_t *)out, (size_t)count * sizeof *out};
}

static void leave_out(WeightFiles *files, const SafeTensor *tensor) {
  int at = (int)(tensor - files->all.tensor), rest = --files->all.tensor_count - at;
  memmove(&files->all.tensor[at], &files->all.tensor[at + 1], (size_t)rest * sizeof *files->all.tensor);
  memmove(&files->path[at], &files->path[at + 1], (size_t)rest * sizeof *files->path);
}

static Status unpack_one(WeightFiles *files, SafeTensor *tensor) {
  size_t length = strlen(tensor->name);
  Packed p = {.from = tensor, .shape = tensor->shape, .is_halves = tensor->element != ELEMENT_I8};
  if (p.is_halves) length -= strlen("_packed");
  const char *name = arena_strndup(files->arena, tensor->name, length);
  p.scale = find_beside(files, name, length, "_scale");
  if (!p.scale) return text_ends_with(tensor->name, "weight_packed") ? packed_damaged(files, &p, "has no weight_scale beside it") : STATUS_OK;
  const SafeTensor *shape = p.is_halves ? find_beside(files, name, length, "_shape") : NULL;
  if (p.is_halves) STATUS_TRY(read_packed_shape(files, shape, &p));
  if (p.is_halves && tensor->element != ELEMENT_I32) return packed_damaged(files, &p, "is not I32");
  if (p.is_halves && safetensors_find(&files->all, name)) return packed_damaged(files, &p, "is there once more, without _packed");
  if (p.shape.rank < 1) return packed_damaged(files, &p, "is a single number");
  STATUS_TRY(measure_packed(files, &p));
  *tensor = unpack(files, &p, name);
  if (shape) leave_out(files, shape);
  return STATUS_OK;
}

Status weight_unpack(WeightFiles *files) {
  for (int i = 0; i < files->all.tensor_count; i++) {
    SafeTensor *tensor = &files->all.tensor[i];
    bool is_halves = text_ends_with(tensor->name, "weight_packed") || (tensor->element == ELEMENT_I32 && text_ends_with(tensor->name, "_packed"));
    int before = files->all.tensor_count;
    if (tensor->element == ELEMENT_I8 || is_halves) STATUS_TRY(unpack_one(files, tensor));
    if (files->all.tensor_count < before) i--; /* its shape may have stood in front */
  }
  return STATUS_OK;
}
