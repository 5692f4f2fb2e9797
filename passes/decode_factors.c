/* decode_factors: see decode_factors.h. */
#include "passes/decode_factors.h"

static bool factors_push(Factors *factors, int dim, Factor factor) {
  int count = factors->dim[dim].count;
  Factor *last = count ? &factors->dim[dim].at[count - 1] : 0;
  if (factor.size == 1) return true;
  if (last && last->kind == FACTOR_PLAIN && factor.kind == FACTOR_PLAIN) {
    last->size *= factor.size;
    return true;
  }
  if (count == MOST_FACTORS) return false;
  factors->dim[dim].at[factors->dim[dim].count++] = factor;
  return true;
}

void factors_set(Factors *factors, int dim, FactorKind kind, int64_t size) {
  factors->dim[dim].count = 0;
  (void)factors_push(factors, dim, (Factor){kind, size});
}

Factors factors_plain(const Shape *shape) {
  Factors factors = {.rank = shape->rank};
  for (int d = 0; d < shape->rank; d++) factors_set(&factors, d, FACTOR_PLAIN, shape->dim[d]);
  return factors;
}

bool factors_equal_dim(const Factors *a, int dim_a, const Factors *b, int dim_b) {
  if (a->dim[dim_a].count != b->dim[dim_b].count) return false;
  for (int i = 0; i < a->dim[dim_a].count; i++) {
    Factor x = a->dim[dim_a].at[i], y = b->dim[dim_b].at[i];
    if (x.kind != y.kind || x.size != y.size) return false;
  }
  return true;
}

bool factors_equal(const Factors *a, const Factors *b) {
  if (a->rank != b->rank) return false;
  for (int d = 0; d < a->rank; d++)
    if (!factors_equal_dim(a, d, b, d)) return false;
  return true;
}

bool factors_has(const Factors *factors, int dim, FactorKind kind) {
  for (int i = 0; i < factors->dim[dim].count; i++)
    if (factors->dim[dim].at[i].kind == kind) return true;
  return false;
}

bool factors_is(const Factors *factors, int dim, FactorKind kind) {
  return factors->dim[dim].count == 1 && factors->dim[dim].at[0].kind == kind;
}

bool factors_is_plain_dim(const Factors *factors, int dim) {
  return !factors_has(factors, dim, FACTOR_BATCH) && !factors_has(factors, dim, FACTOR_PLACE);
}

bool factors_is_plain(const Factors *factors) {
  for (int d = 0; d < factors->rank; d++)
    if (!factors_is_plain_dim(factors, d)) return false;
  return true;
}

/* All factors in order, as if in one dimension; plain ones may be taken in parts. */
typedef struct {
  const Factors *from;
  int dim, index;
  Factor rest; /* of the factor before (dim, index); size 1: nothing */
} Reader;

static bool next_factor(Reader *reader, Factor *out) {
  if (reader->rest.size > 1) {
    *out = reader->rest;
    reader->rest.size = 1;
    return true;
  }
  while (reader->dim < reader->from->rank && reader->index == reader->from->dim[reader->dim].count)
    reader->dim++, reader->index = 0;
  if (reader->dim == reader->from->rank) return false;
  *out = reader->from->dim[reader->dim].at[reader->index++];
  return true;
}

bool factors_reshape(const Factors *from, const Shape *shape, Factors *out) {
  Reader reader = {.from = from, .rest = {.size = 1}};
  *out = (Factors){.rank = shape->rank};
  for (int d = 0; d < shape->rank; d++) {
    for (int64_t left = shape->dim[d]; left > 1;) {
      Factor factor;
      if (!next_factor(&reader, &factor)) return false;
      if (left % factor.size) { /* the dimension ends within this factor */
        if (factor.kind != FACTOR_PLAIN || factor.size % left) return false;
        reader.rest = (Factor){FACTOR_PLAIN, factor.size / left};
        factor.size = left;
      }
      if (!factors_push(out, d, factor)) return false;
      left /= factor.size;
    }
  }
  return true;
}

Shape factors_shape(const Factors *factors, int64_t texts, int64_t width) {
  Shape shape = {.rank = factors->rank};
  for (int d = 0; d < factors->rank; d++) {
    shape.dim[d] = 1;
    for (int i = 0; i < factors->dim[d].count; i++) {
      Factor factor = factors->dim[d].at[i];
      if (factor.kind == FACTOR_PLAIN) shape.dim[d] *= factor.size;
      if (factor.kind == FACTOR_BATCH) shape.dim[d] *= texts;
      if (factor.kind == FACTOR_PLACE) shape.dim[d] *= width;
    }
  }
  return shape;
}
