/* interp_move: data movement, matrix product, and pack. Every output element asks where it comes
 * from; an element that comes from nowhere keeps its filler. */
#include "ir/interp.h"
#include "ir/scalar.h"
#include <string.h>

static void copy_one(const Tensor *from, int64_t at, Tensor *to, int64_t k) {
  if (to->f)
    to->f[k] = from->f[at];
  else
    to->i[k] = from->i[at];
}

bool interp_reshape(const Eval *eval) {
  int64_t count = shape_elements(&eval->out->type.shape);
  for (int64_t k = 0; k < count; k++) copy_one(eval->in[0], k, eval->out, k);
  return true;
}

/* transpose, broadcast and slice: the source index is a function of each output index alone. */
static bool rearrange(const Eval *eval) {
  const Tensor *x = eval->in[0];
  const Shape *to = &eval->out->type.shape;
  const Attr *perm = node_attr(eval->node, ATTR_PERM), *start = node_attr(eval->node, ATTR_START);
  const Attr *step = node_attr(eval->node, ATTR_STEP);
  int64_t count = shape_elements(to), index[MAX_RANK], source[MAX_RANK];
  for (int64_t k = 0; k < count; k++) {
    interp_unravel(to, k, index);
    for (int i = 0; i < to->rank; i++) {
      if (perm)
        source[perm->ints[i]] = index[i];
      else if (start)
        source[i] = start->ints[i] + index[i] * (step ? step->ints[i] : 1);
      else
        source[i] = x->type.shape.dim[i] == 1 ? 0 : index[i];
    }
    copy_one(x, interp_ravel(&x->type.shape, source), eval->out, k);
  }
  return true;
}

bool interp_transpose(const Eval *eval) { return rearrange(eval); }
bool interp_broadcast(const Eval *eval) { return rearrange(eval); }
bool interp_slice(const Eval *eval) { return rearrange(eval); }

bool interp_pad(const Eval *eval) {
  const Tensor *x = eval->in[0];
  const Shape *to = &eval->out->type.shape;
  const int64_t *low = node_attr(eval->node, ATTR_LOW)->ints;
  double value = node_float(eval->node, ATTR_VALUE, 0);
  int64_t count = shape_elements(to), index[MAX_RANK];
  for (int64_t k = 0; k < count; k++) {
    interp_unravel(to, k, index);
    bool inside = true;
    for (int i = 0; i < to->rank; i++) {
      index[i] -= low[i];
      inside = inside && index[i] >= 0 && index[i] < x->type.shape.dim[i];
    }
    if (inside)
      copy_one(x, interp_ravel(&x->type.shape, index), eval->out, k);
    else if (eval->out->f)
      eval->out->f[k] = value;
    else
      eval->out->i[k] = (int64_t)value;
  }
  return true;
}

bool interp_concat(const Eval *eval) {
  int64_t axis = node_int(eval->node, ATTR_AXIS, 0), from = 0, index[MAX_RANK];
  for (int i = 0; i < eval->node->input_count; i++) {
    const Tensor *x = eval->in[i];
    int64_t count = shape_elements(&x->type.shape);
    for (int64_t k = 0; k < count; k++) {
      interp_unravel(&x->type.shape, k, index);
      index[axis] += from;
      copy_one(x, k, eval->out, interp_ravel(&eval->out->type.shape, index));
    }
    from += x->type.shape.dim[axis];
  }
  return true;
}

bool interp_gather(const Eval *eval) {
  const Tensor *table = eval->in[0], *index = eval->in[1];
  int64_t rows = table->type.shape.dim[0], count = shape_elements(&index->type.shape);
  int64_t width = count ? shape_elements(&eval->out->type.shape) / count : 0;
  for (int64_t k = 0; k < count; k++) {
    int64_t row = index->i[k];
    if (row < 0 || row >= rows) continue;
    for (int64_t j = 0; j < width; j++) copy_one(table, row * width + j, eval->out, k * width + j);
  }
  return true;
}

bool interp_scatter_add(const Eval *eval) {
  const Tensor *updates = eval->in[0], *index = eval->in[1];
  Tensor *out = eval->out;
  int64_t rows = out->type.shape.dim[0], count = shape_elements(&index->type.shape);
  int64_t width = count ? shape_elements(&updates->type.shape) / count : 0;
  for (int64_t k = 0; k < count; k++) {
    int64_t row = index->i[k];
    if (row < 0 || row >= rows) continue;
    for (int64_t j = 0; j < width; j++) {
      int64_t to = row * width + j, from = k * width + j;
      if (out->f)
        out->f[to] += updates->f[from];
      else
        out->i[to] = dtype_wrap(out->type.dtype,
                                (int64_t)((uint64_t)out->i[to] + (uint64_t)updates->i[from]));
    }
  }
  return true;
}

bool interp_put(const Eval *eval) {
  const Tensor *base = eval->in[0], *part = eval->in[1];
  int64_t axis = node_int(eval->node, ATTR_AXIS, 0), at = eval->in[2]->i[0], index[MAX_RANK];
  int64_t size = base->type.shape.dim[axis], count = shape_elements(&part->type.shape);
  for (int64_t k = 0; k < shape_elements(&base->type.shape); k++) copy_one(base, k, eval->out, k);
  for (int64_t k = 0; k < count; k++) {
    interp_unravel(&part->type.shape, k, index);
    if (at >= size - index[axis] || at < -index[axis]) continue;
    index[axis] += at;
    copy_one(part, k, eval->out, interp_ravel(&base->type.shape, index));
  }
  return true;
}

bool interp_pack(const Eval *eval) {
  const int64_t *offsets = node_attr(eval->node, ATTR_OFFSETS)->ints;
  for (int i = 0; i < eval->node->input_count; i++) {
    int64_t count = shape_elements(&eval->in[i]->type.shape);
    for (int64_t k = 0; k < count; k++) copy_one(eval->in[i], k, eval->out, offsets[i] + k);
  }
  return true;
}

bool interp_dot(const Eval *eval) {
  const Tensor *a = eval->in[0], *b = eval->in[1];
  const DotForm f = dot_form(eval->node);
  for (int64_t batch = 0; batch < f.batch; batch++) {
    const double *x = a->f + batch * f.m * f.k, *y = b->f + batch * f.k * f.n;
    for (int64_t i = 0; i < f.m; i++)
      for (int64_t j = 0; j < f.n; j++) {
        double sum = 0;
        for (int64_t k = 0; k < f.k; k++)
          sum += x[f.ta ? k * f.m + i : i * f.k + k] * y[f.tb ? j * f.k + k : k * f.n + j];
        eval->out->f[(batch * f.m + i) * f.n + j] = sum;
      }
  }
  return true;
}
