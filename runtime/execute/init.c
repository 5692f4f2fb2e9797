/* init: see init.h. */
#include "runtime/execute/init.h"
#include "runtime/common/element.h"
#include "runtime/common/philox.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  uint32_t key[2], stream;
} Source;

/* The counter's fourth word is apart from dropout's streams, which count from 0. */
static void init_draw(const Source *source, uint64_t index, uint32_t attempt, uint32_t out[4]) {
  uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), attempt,
                         source->stream | 0x80000000u};
  philox(source->key, counter, out);
}

/* In [0, 1), 24 bits. */
static double unit(uint32_t bits) { return (bits >> 8) * 0x1p-24; }

static double uniform_at(const Source *source, int64_t index) {
  uint32_t word[4];
  init_draw(source, (uint64_t)index / 4, 0, word);
  return unit(word[index % 4]);
}

/* Standard normal by Box and Muller, from 32-bit uniforms in (0, 1]: one draw an element. */
static double normal_at(const Source *source, int64_t index, uint32_t attempt) {
  uint32_t word[4];
  init_draw(source, (uint64_t)index, attempt, word);
  double radius = sqrt(-2 * log((word[0] + 1.0) * 0x1p-32));
  return radius * cos(6.283185307179586 * word[1] * 0x1p-32);
}

/* Redrawn until within two standard deviations: 95 % at each attempt. */
static double truncated_at(const Source *source, int64_t index) {
  for (uint32_t attempt = 1; attempt < 64; attempt++) {
    double value = normal_at(source, index, attempt);
    if (fabs(value) <= 2) return value;
  }
  return 0;
}

/* Into integers numbers are truncated, and those beyond the ends become these; a NaN is 0. */
static void init_store(DType dtype, void *values, int64_t index, double value) {
  if (!dtype_is_float(dtype)) {
    double low = dtype_extreme(dtype, true), high = dtype_extreme(dtype, false);
    value = value > low ? value < high ? value : high : value <= low ? low : 0;
  }
  switch (dtype) {
  case DT_BOOL:
    ((uint8_t *)values)[index] = value != 0;
    break;
  case DT_U8:
    ((uint8_t *)values)[index] = (uint8_t)value;
    break;
  case DT_I32:
    ((int32_t *)values)[index] = (int32_t)value;
    break;
  case DT_U32:
    ((uint32_t *)values)[index] = (uint32_t)value;
    break;
  case DT_I64:
    ((int64_t *)values)[index] = (int64_t)value;
    break;
  case DT_F32:
    ((float *)values)[index] = (float)value;
    break;
  case DT_F64:
    ((double *)values)[index] = value;
    break;
  case DT_BF16:
    ((uint16_t *)values)[index] = bfloat_from_float((float)value);
    break;
  default:
    break; /* f16 is never kept */
  }
}

/* ── orthogonal ───────────────────────────────────────────────────────────────────────────── */
static double init_dot(const double *a, const double *b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}

/* Gram-Schmidt, twice per vector (Kahan and Parlett: twice is enough), on `count` vectors of
 * `length` >= count normal numbers: uniformly distributed, as the Q of a QR with positive R. */
static void orthonormalise(double *vectors, int64_t count, int64_t length) {
  for (int64_t i = 0; i < count; i++) {
    double *v = vectors + i * length;
    for (int pass = 0; pass < 2; pass++)
      for (int64_t j = 0; j < i; j++) {
        const double *u = vectors + j * length;
        double along = init_dot(u, v, length);
        for (int64_t k = 0; k < length; k++) v[k] -= along * u[k];
      }
    double norm = sqrt(init_dot(v, v, length));
    for (int64_t k = 0; k < length; k++) v[k] /= norm;
  }
}

static Status fill_orthogonal(const Type *type, const Source *source, double gain, void *values) {
  int64_t elements = shape_elements(&type->shape);
  int64_t rows = type->shape.rank ? type->shape.dim[0] : 1;
  int64_t columns = rows ? elements / rows : 0;
  bool is_wide = rows <= columns;
  int64_t count = is_wide ? rows : columns, length = is_wide ? columns : rows;
  if (!elements) return STATUS_OK;
  double *vectors = malloc((size_t)elements * sizeof *vectors);
  if (!vectors) return status_fail(STATUS_FAULT, "out of memory");
  for (int64_t i = 0; i < elements; i++) vectors[i] = normal_at(source, i, 0);
  orthonormalise(vectors, count, length);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++)
      init_store(type->dtype, values, r * columns + c,
                 gain * (is_wide ? vectors[r * length + c] : vectors[c * length + r]));
  free(vectors);
  return STATUS_OK;
}

/* 1 where index 0 equals index 1 and every further index is in the middle (torch's eye_, dirac_).
 */
static void fill_identity(const Type *type, void *values) {
  const Shape *shape = &type->shape;
  int64_t stride[MAX_RANK], middle = 0;
  if (shape->rank < 2 || !shape_elements(shape)) return;
  shape_strides(shape, stride);
  for (int i = 2; i < shape->rank; i++) middle += shape->dim[i] / 2 * stride[i];
  int64_t count = shape->dim[0] < shape->dim[1] ? shape->dim[0] : shape->dim[1];
  for (int64_t i = 0; i < count; i++)
    init_store(type->dtype, values, i * (stride[0] + stride[1]) + middle, 1);
}

/* ── all ──────────────────────────────────────────────────────────────────────────────────── */
Status init_fill(const Init *init, const Type *type, uint64_t seed, uint32_t stream, void *values) {
  const Source source = {{(uint32_t)seed, (uint32_t)(seed >> 32)}, stream};
  const char *text = init->text ? init->text : "zeros";
  int64_t elements = shape_elements(&type->shape);
  double a = init->arg[0], b = init->arg[1];
  memset(values, 0, (size_t)type_bytes(type));
  if (!strcmp(text, "zeros")) return STATUS_OK;
  if (!strcmp(text, "orthogonal")) return fill_orthogonal(type, &source, a, values);
  if (!strcmp(text, "identity")) {
    fill_identity(type, values);
    return STATUS_OK;
  }
  bool is_const = !strcmp(text, "const"), is_uniform = !strcmp(text, "uniform");
  bool is_normal = !strcmp(text, "normal"), is_truncated = !strcmp(text, "trunc_normal");
  if (!is_const && !is_uniform && !is_normal && !is_truncated)
    return status_fail(STATUS_USER, "there is no initialiser '%s'", text);
  for (int64_t i = 0; i < elements; i++) {
    double value = is_const     ? a
                   : is_uniform ? a + (b - a) * uniform_at(&source, i)
                   : is_normal  ? a + b * normal_at(&source, i, 0)
                                : a + b * truncated_at(&source, i);
    init_store(type->dtype, values, i, value);
  }
  return STATUS_OK;
}
