/* infer_move: the shape rules of data movement. Sizes are checked by division or kept below 2^40,
 * so that no sum or product here can overflow. */
#include "ir/infer.h"

bool infer_reshape(Infer *in) {
  if (!infer_need_given(in)) return false;
  const Type *x = infer_operand(in, 0);
  int64_t have = shape_elements(&x->shape), want = shape_elements(&in->given->shape);
  if (have != want)
    return infer_fail(in, "a tensor of %lld elements, %s, cannot be reshaped to %lld elements, %s",
                      (long long)have, infer_show_shape(in, &x->shape), (long long)want,
                      infer_show_shape(in, &in->given->shape));
  *in->out = (Type){x->dtype, in->given->shape};
  return true;
}

bool infer_transpose(Infer *in) {
  const Type *x = infer_operand(in, 0);
  const Attr *perm = infer_need_ints(in, ATTR_PERM, x->shape.rank);
  if (!perm) return false;
  bool seen[MAX_RANK] = {false};
  *in->out = *x;
  for (int i = 0; i < perm->count; i++) {
    int64_t from = perm->ints[i];
    if (from < 0 || from >= x->shape.rank || seen[from])
      return infer_fail(in, "the order of a transposition must name each of the %d dimensions once",
                        x->shape.rank);
    seen[from] = true;
    in->out->shape.dim[i] = x->shape.dim[from];
  }
  return true;
}

bool infer_broadcast(Infer *in) {
  if (!infer_need_given(in)) return false;
  const Type *x = infer_operand(in, 0);
  const Shape *to = &in->given->shape;
  bool agree = x->shape.rank == to->rank;
  for (int i = 0; agree && i < to->rank; i++)
    agree = x->shape.dim[i] == to->dim[i] || x->shape.dim[i] == 1;
  if (!agree)
    return infer_fail(in, "%s cannot be broadcast to %s: only dimensions of 1 can grow",
                      infer_show_shape(in, &x->shape), infer_show_shape(in, to));
  *in->out = (Type){x->dtype, *to};
  return true;
}

bool infer_slice(Infer *in) {
  if (!infer_need_given(in)) return false;
  const Type *x = infer_operand(in, 0);
  const Shape *to = &in->given->shape;
  if (to->rank != x->shape.rank)
    return infer_fail(in, "a slice keeps the number of dimensions: %s to %s",
                      infer_show_shape(in, &x->shape), infer_show_shape(in, to));
  const Attr *start = infer_need_ints(in, ATTR_START, to->rank);
  if (!start) return false;
  const Attr *step = infer_attr(in, ATTR_STEP);
  if (step && !(step = infer_need_ints(in, ATTR_STEP, to->rank))) return false;
  for (int i = 0; i < to->rank; i++) {
    int64_t by = step ? step->ints[i] : 1, from = start->ints[i], size = x->shape.dim[i];
    if (by < 1) return infer_fail(in, "the step of a slice must be at least 1");
    bool inside = from >= 0 && from <= size;
    if (inside && to->dim[i] > 0) /* by division: no product that could overflow */
      inside = from < size && (to->dim[i] == 1 || to->dim[i] - 1 <= (size - 1 - from) / by);
    if (!inside)
      return infer_fail(in,
                        "a slice of %lld elements from %lld in steps of %lld leaves dimension "
                        "%d of %s",
                        (long long)to->dim[i], (long long)from, (long long)by, i,
                        infer_show_shape(in, &x->shape));
  }
  *in->out = (Type){x->dtype, *to};
  return true;
}

bool infer_pad(Infer *in) {
  const Type *x = infer_operand(in, 0);
  const Attr *low = infer_need_ints(in, ATTR_LOW, x->shape.rank);
  const Attr *high = low ? infer_need_ints(in, ATTR_HIGH, x->shape.rank) : NULL;
  if (!high) return false;
  const Attr *value = infer_attr(in, ATTR_VALUE);
  if (value && !infer_value(in, x->dtype, value->f)) return false;
  *in->out = *x;
  for (int i = 0; i < x->shape.rank; i++) {
    if (low->ints[i] < 0 || high->ints[i] < 0 || low->ints[i] > MAX_ELEMENTS ||
        high->ints[i] > MAX_ELEMENTS)
      return infer_fail(in, "the padding of dimension %d must be between 0 and 2^40", i);
    in->out->shape.dim[i] += low->ints[i] + high->ints[i];
  }
  return true;
}

bool infer_concat(Infer *in) {
  const Type *first = infer_operand(in, 0);
  const Attr *axis = infer_need_attr(in, ATTR_AXIS);
  if (!axis) return false;
  if (axis->i < 0 || axis->i >= first->shape.rank)
    return infer_fail(in, "concatenation along axis %lld of tensors with %d dimensions",
                      (long long)axis->i, first->shape.rank);
  *in->out = *first;
  for (int k = 1; k < in->input_count; k++) {
    const Type *x = infer_operand(in, k);
    bool agree = x->dtype == first->dtype && x->shape.rank == first->shape.rank;
    for (int i = 0; agree && i < first->shape.rank; i++)
      agree = i == axis->i || x->shape.dim[i] == first->shape.dim[i];
    if (!agree)
      return infer_fail(in,
                        "tensors concatenated along axis %lld must agree in everything else: "
                        "%s and %s",
                        (long long)axis->i, infer_show(in, first), infer_show(in, x));
    in->out->shape.dim[axis->i] += x->shape.dim[axis->i];
    if (in->out->shape.dim[axis->i] > MAX_ELEMENTS)
      return infer_fail(in, "the concatenated tensor would have more than 2^40 elements");
  }
  return true;
}

static bool check_index(Infer *in, const Type *index) {
  return index->dtype == DT_I32 || index->dtype == DT_I64 ||
         infer_fail(in, "the indices of a lookup must be i32 or i64, not %s",
                    dtype_text(index->dtype));
}

/* index.shape + table.shape[1:] */
static bool gather_shape(Infer *in, const Shape *table, const Shape *index, Shape *out) {
  if (table->rank < 1) return infer_fail(in, "a lookup needs a table with at least one dimension");
  if (index->rank + table->rank - 1 > MAX_RANK)
    return infer_fail(in, "a lookup of %s in %s would have more than %d dimensions",
                      infer_show_shape(in, index), infer_show_shape(in, table), MAX_RANK);
  *out = *index;
  for (int i = 1; i < table->rank; i++) out->dim[out->rank++] = table->dim[i];
  return true;
}

bool infer_gather(Infer *in) {
  const Type *table = infer_operand(in, 0), *index = infer_operand(in, 1);
  in->out->dtype = table->dtype;
  return check_index(in, index) && gather_shape(in, &table->shape, &index->shape, &in->out->shape);
}

bool infer_scatter_add(Infer *in) {
  if (!infer_take_given(in)) return false;
  const Type *updates = infer_operand(in, 0), *index = infer_operand(in, 1);
  Shape want;
  if (!check_index(in, index)) return false;
  if (!gather_shape(in, &in->given->shape, &index->shape, &want)) return false;
  if (updates->dtype != in->given->dtype || updates->dtype == DT_BOOL)
    return infer_fail(in, "scatter_add adds %s to %s", dtype_text(updates->dtype),
                      dtype_text(in->given->dtype));
  return shape_equal(&want, &updates->shape) ||
         infer_fail(in, "scatter_add to %s with indices %s needs updates of shape %s, not %s",
                    infer_show(in, in->given), infer_show_shape(in, &index->shape),
                    infer_show_shape(in, &want), infer_show_shape(in, &updates->shape));
}

bool infer_put(Infer *in) {
  const Type *base = infer_operand(in, 0), *part = infer_operand(in, 1), *at = infer_operand(in, 2);
  const Attr *axis = infer_need_attr(in, ATTR_AXIS);
  if (!axis) return false;
  if (axis->i < 0 || axis->i >= base->shape.rank)
    return infer_fail(in, "put along axis %lld of a tensor with %d dimensions", (long long)axis->i,
                      base->shape.rank);
  bool agree = part->dtype == base->dtype && part->shape.rank == base->shape.rank;
  for (int i = 0; agree && i < base->shape.rank; i++)
    agree = i == axis->i || part->shape.dim[i] == base->shape.dim[i];
  if (!agree)
    return infer_fail(in,
                      "put along axis %lld needs tensors that agree in everything else: %s and %s",
                      (long long)axis->i, infer_show(in, base), infer_show(in, part));
  if (at->shape.rank || (at->dtype != DT_I32 && at->dtype != DT_I64))
    return infer_fail(in, "the place of put must be i32[] or i64[], not %s", infer_show(in, at));
  *in->out = *base;
  return true;
}
