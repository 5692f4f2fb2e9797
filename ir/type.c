/* type: see type.h. Everything here is total: any DType and any Shape of legal rank is answered,
 * so that readers of hostile text may ask first and judge afterwards. */
#include "ir/type.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
  const char *text;
  int bytes;
} dtypes[DT_COUNT] = {
#define X(ID, text, bytes) [DT_##ID] = {text, bytes},
    DTYPES(X) FLOAT8_DTYPES(X)
#undef X
};

const char *dtype_text(DType dtype) {
  return (unsigned)dtype < DT_COUNT ? dtypes[dtype].text : "?";
}

bool dtype_parse(const char *text, DType *out) {
  for (int i = 0; i < DT_COUNT; i++)
    if (!strcmp(dtypes[i].text, text)) {
      *out = (DType)i;
      return true;
    }
  return false;
}

bool dtype_parse_named(const char *text, DType *out) {
  return dtype_parse(text, out) && !dtype_is_float8(*out);
}

int dtype_bytes(DType dtype) { return (unsigned)dtype < DT_COUNT ? dtypes[dtype].bytes : 0; }

bool dtype_is_float(DType dtype) {
  return dtype_is_narrow(dtype) || dtype_is_float8(dtype) || dtype == DT_F32 || dtype == DT_F64;
}

bool dtype_is_integer(DType dtype) {
  return dtype == DT_U8 || dtype == DT_I32 || dtype == DT_U32 || dtype == DT_I64;
}

Shape shape_scalar(void) { return (Shape){0}; }

Shape shape_of(int rank, const int64_t *dim) {
  Shape shape = {.rank = rank};
  for (int i = 0; i < rank && i < MAX_RANK; i++) shape.dim[i] = dim[i];
  return shape;
}

bool shape_equal(const Shape *a, const Shape *b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->dim[i] != b->dim[i]) return false;
  return true;
}

bool type_equal(const Type *a, const Type *b) {
  return a->dtype == b->dtype && shape_equal(&a->shape, &b->shape);
}

bool shape_is_legal(const Shape *shape) {
  if (shape->rank < 0 || shape->rank > MAX_RANK) return false;
  int64_t product = 1;
  for (int i = 0; i < shape->rank; i++) {
    int64_t dim = shape->dim[i];
    if (dim < 0 || dim > MAX_ELEMENTS) return false;
    if (dim > 1) {
      if (product > MAX_ELEMENTS / dim) return false;
      product *= dim;
    }
  }
  return true;
}

int64_t shape_elements_between(const Shape *shape, int from, int to) {
  int64_t product = 1;
  for (int i = from; i < to; i++) product *= shape->dim[i];
  return product;
}

int64_t shape_elements(const Shape *shape) { return shape_elements_between(shape, 0, shape->rank); }

bool shape_has_steps(int64_t size, int64_t start, int64_t step, int64_t count) {
  return start >= 0 && start < size && step >= 1 && count >= 1 && count <= size &&
         (count == 1 || step <= (size - 1 - start) / (count - 1));
}

int64_t shape_last(const Shape *shape) { return shape->rank ? shape->dim[shape->rank - 1] : 1; }

bool type_lies_alike(const Type *a, const Type *b) {
  return type_equal(a, b) && a->pitch == b->pitch;
}

int64_t type_bytes(const Type *type) {
  int64_t elements = shape_elements(&type->shape);
  if (type->pitch) elements = elements / shape_last(&type->shape) * type->pitch;
  return elements * dtype_bytes(type->dtype);
}

bool type_has_legal_pitch(const Type *type) {
  if (!type->pitch) return true;
  if (type->shape.rank < 2 || type->shape.rank > MAX_RANK || shape_last(&type->shape) < 1) return false;
  int64_t length = shape_last(&type->shape);
  return type->pitch >= length && type->pitch / 2 <= length &&
         type->pitch * dtype_bytes(type->dtype) % PITCH_UNIT == 0;
}

int64_t type_place(const Type *type, int64_t element) {
  if (!type->pitch) return element;
  return element / shape_last(&type->shape) * type->pitch + element % shape_last(&type->shape);
}

int64_t type_element(const Type *type, int64_t place) {
  if (!type->pitch) return place;
  int64_t column = place % type->pitch;
  return column < shape_last(&type->shape) ? place / type->pitch * shape_last(&type->shape) + column : -1;
}

void type_pack_rows(const Type *type, const char *from, char *to) {
  int64_t elements = shape_elements(&type->shape), bytes = dtype_bytes(type->dtype);
  int64_t length = type->pitch ? shape_last(&type->shape) : elements;
  for (int64_t done = 0; done < elements; done += length)
    memcpy(to + done * bytes, from + type_place(type, done) * bytes, (size_t)(length * bytes));
}

void shape_strides(const Shape *shape, int64_t stride[MAX_RANK]) {
  int64_t step = 1;
  for (int i = shape->rank - 1; i >= 0; i--) {
    stride[i] = step;
    step *= shape->dim[i];
  }
}

bool shape_broadcast(const Shape *a, const Shape *b, Shape *out) {
  Shape result = {.rank = a->rank > b->rank ? a->rank : b->rank};
  for (int i = 0; i < result.rank; i++) { /* i counts from the last dimension */
    int64_t x = i < a->rank ? a->dim[a->rank - 1 - i] : 1;
    int64_t y = i < b->rank ? b->dim[b->rank - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return false;
    result.dim[result.rank - 1 - i] = x == 1 ? y : x;
  }
  *out = result;
  return true;
}

/* ── storage ────────────────────────────────────────────────────────────────────────────────── */
bool storage_is_legal(const Storage *storage, const Shape *shape) {
  bool seen[MAX_RANK] = {false};
  if (!shape_is_legal(&storage->view) || storage->view.rank < 1) return false;
  if (shape_elements(&storage->view) != shape_elements(shape)) return false;
  for (int i = 0; i < storage->view.rank; i++) {
    int64_t from = storage->perm[i];
    if (from < 0 || from >= storage->view.rank || seen[from]) return false;
    seen[from] = true;
  }
  return true;
}

Shape storage_shape(const Storage *storage) {
  Shape shape = {.rank = storage->view.rank};
  for (int i = 0; i < shape.rank; i++) shape.dim[i] = storage->view.dim[storage->perm[i]];
  return shape;
}

Storage storage_inverse(const Storage *storage) {
  Storage inverse = {.view = storage_shape(storage)};
  for (int i = 0; i < inverse.view.rank; i++) inverse.perm[storage->perm[i]] = i;
  return inverse;
}

/* Does dimension `next` come behind `last`, with nothing but ones between them? */
static bool comes_next(const Shape *shape, int64_t last, int64_t next) {
  for (int64_t i = last + 1; i < next; i++)
    if (shape->dim[i] != 1) return false;
  return next > last;
}

Storage storage_merged(const Storage *storage) {
  int64_t first[MAX_RANK] = {0}, last = 0; /* runs of dimensions that stay together, as they lie */
  Storage merged = {0};
  Shape run = {0};
  for (int i = 0; i < storage->view.rank; i++) {
    int64_t from = storage->perm[i], size = storage->view.dim[from];
    if (size == 1) continue;
    if (run.rank && comes_next(&storage->view, last, from)) {
      run.dim[run.rank - 1] *= size;
    } else {
      first[run.rank] = from;
      run.dim[run.rank++] = size;
    }
    last = from;
  }
  if (run.rank < 2) return merged;
  merged.view.rank = run.rank;
  for (int i = 0; i < run.rank; i++) {
    for (int k = 0; k < run.rank; k++) merged.perm[i] += first[k] < first[i];
    merged.view.dim[merged.perm[i]] = run.dim[i];
  }
  return merged;
}

bool storage_equal(const Storage *a, const Storage *b) {
  Storage x = storage_merged(a), y = storage_merged(b);
  for (int i = 0; i < x.view.rank; i++)
    if (x.perm[i] != y.perm[i]) return false;
  return shape_equal(&x.view, &y.view);
}

int64_t storage_element(const Storage *storage, int64_t place) {
  int64_t stride[MAX_RANK], element = 0;
  if (!storage->view.rank) return place;
  shape_strides(&storage->view, stride);
  for (int i = storage->view.rank - 1; i >= 0; i--) {
    int64_t from = storage->perm[i];
    element += place % storage->view.dim[from] * stride[from];
    place /= storage->view.dim[from];
  }
  return element;
}

char *shape_text(const Shape *shape, char buffer[TYPE_TEXT]) {
  int used = snprintf(buffer, TYPE_TEXT, "[");
  for (int i = 0; i < shape->rank && i < MAX_RANK; i++)
    used += snprintf(buffer + used, (size_t)(TYPE_TEXT - used), i ? ",%lld" : "%lld",
                     (long long)shape->dim[i]);
  snprintf(buffer + used, (size_t)(TYPE_TEXT - used), "]");
  return buffer;
}

bool type_is_metric(const Type *type) {
  return type->shape.rank <= METRIC_MOST_RANK &&
         shape_elements(&type->shape) <= METRIC_MOST_ELEMENTS;
}

bool type_is_auc(const Type *type) {
  return type->dtype == DT_F32 && type->shape.rank == 2 && type->shape.dim[1] >= 2;
}

char *type_text(const Type *type, char buffer[TYPE_TEXT]) {
  char shape[TYPE_TEXT], pitch[24] = "]";
  shape_text(&type->shape, shape);
  if (type->pitch) snprintf(pitch, sizeof pitch, ":%lld]", (long long)type->pitch);
  snprintf(buffer, TYPE_TEXT, "%s%.*s%s", dtype_text(type->dtype), (int)strlen(shape) - 1, shape, pitch);
  return buffer;
}

double dtype_largest(DType dtype) {
  return dtype == DT_F16    ? 65504
         : dtype == DT_BF16 ? 0x1.fep127
         : dtype == DT_E4M3 ? 448
         : dtype == DT_E5M2 ? 57344
         : dtype == DT_F32  ? FLT_MAX
                            : DBL_MAX;
}

double dtype_extreme(DType dtype, bool is_least) {
  switch (dtype) {
  case DT_BOOL:
    return is_least ? 0 : 1;
  case DT_U8:
    return is_least ? 0 : 255;
  case DT_U32:
    return is_least ? 0 : 4294967295.0;
  case DT_I32:
    return is_least ? -2147483648.0 : 2147483647.0;
  case DT_I64:
    return is_least ? -0x1p63 : 0x1.fffffffffffffp62;
  default:
    return is_least ? -INFINITY : INFINITY;
  }
}
