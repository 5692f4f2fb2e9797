/* type: see type.h. Everything here is total: any DType and any Shape of legal rank is answered,
 * so that readers of hostile text may ask first and judge afterwards. */
#include "ir/type.h"
#include <stdio.h>
#include <string.h>

static const struct {
  const char *text;
  int bytes;
} dtypes[DT_COUNT] = {
#define X(ID, text, bytes) [DT_##ID] = {text, bytes},
    DTYPES(X)
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

int dtype_bytes(DType dtype) { return (unsigned)dtype < DT_COUNT ? dtypes[dtype].bytes : 0; }

bool dtype_is_float(DType dtype) {
  return dtype == DT_F16 || dtype == DT_BF16 || dtype == DT_F32 || dtype == DT_F64;
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

int64_t shape_elements(const Shape *shape) {
  int64_t product = 1;
  for (int i = 0; i < shape->rank; i++) product *= shape->dim[i];
  return product;
}

int64_t type_bytes(const Type *type) {
  return shape_elements(&type->shape) * dtype_bytes(type->dtype);
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

char *shape_text(const Shape *shape, char buffer[TYPE_TEXT]) {
  int used = snprintf(buffer, TYPE_TEXT, "[");
  for (int i = 0; i < shape->rank && i < MAX_RANK; i++)
    used += snprintf(buffer + used, (size_t)(TYPE_TEXT - used), i ? ",%lld" : "%lld",
                     (long long)shape->dim[i]);
  snprintf(buffer + used, (size_t)(TYPE_TEXT - used), "]");
  return buffer;
}

char *type_text(const Type *type, char buffer[TYPE_TEXT]) {
  char shape[TYPE_TEXT];
  snprintf(buffer, TYPE_TEXT, "%s%.200s", dtype_text(type->dtype), shape_text(&type->shape, shape));
  return buffer;
}
