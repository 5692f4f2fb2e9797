/* interp_point: pointwise operations, reductions and random numbers of the interpreter. Floats are
 * double; integers wrap in their dtype. A NaN is never lost: max, min and their reductions give NaN
 * as soon as they see one, and to argmax and argmin the first NaN is the choice, as in NumPy. */
#include "ir/interp.h"
#include "ir/scalar.h"
#include <math.h>

static Scalar element(const Tensor *x, int64_t k) {
  return x->f ? (Scalar){.f = x->f[k]} : (Scalar){.i = x->i[k]};
}

static void set_element(Tensor *x, int64_t k, Scalar value) {
  if (x->f)
    x->f[k] = value.f;
  else
    x->i[k] = value.i;
}

bool interp_pointwise(const Eval *eval) {
  const Node *node = eval->node;
  Tensor *out = eval->out;
  int64_t count = shape_elements(&out->type.shape);
  /* of a selection: the branches */
  DType from = node->input[node->input_count - 1]->type.dtype;
  Scalar in[3];
  for (int64_t k = 0; k < count; k++) {
    for (int i = 0; i < node->input_count; i++) in[i] = element(eval->in[i], k);
    set_element(out, k, scalar_eval(node->op, from, out->type.dtype, in));
  }
  return true;
}

/* ── reductions ─────────────────────────────────────────────────────────────────────────────── */
static void reduce_start(Op op, Tensor *out) {
  int64_t count = shape_elements(&out->type.shape), lowest, highest;
  dtype_range(out->type.dtype, &lowest, &highest);
  for (int64_t k = 0; k < count; k++) {
    if (out->f)
      out->f[k] = op == OP_PROD ? 1 : op == OP_RMAX ? -INFINITY : op == OP_RMIN ? INFINITY : 0;
    else
      out->i[k] = op == OP_PROD ? 1 : op == OP_RMAX ? lowest : op == OP_RMIN ? highest : 0;
  }
}

/* Whether x[at] is to be chosen over x[best], which stands before it. */
static bool beats(Op op, const Tensor *x, int64_t at, int64_t best) {
  if (x->i) return op == OP_ARGMAX ? x->i[at] > x->i[best] : x->i[at] < x->i[best];
  if (isnan(x->f[best])) return false;
  return isnan(x->f[at]) || (op == OP_ARGMAX ? x->f[at] > x->f[best] : x->f[at] < x->f[best]);
}

bool interp_arg_reduce(const Eval *eval) {
  const Tensor *x = eval->in[0];
  int64_t axis = node_attr(eval->node, ATTR_AXES)->ints[0];
  int64_t count = shape_elements(&eval->out->type.shape), index[MAX_RANK];
  for (int64_t k = 0; k < count; k++) {
    interp_unravel(&eval->out->type.shape, k, index);
    int64_t best = interp_ravel(&x->type.shape, index);
    for (int64_t i = 1; i < x->type.shape.dim[axis]; i++) {
      index[axis] = i;
      int64_t at = interp_ravel(&x->type.shape, index);
      if (!beats(eval->node->op, x, at, best)) continue;
      best = at;
      eval->out->i[k] = i;
    }
  }
  return true;
}

/* out += x, or with a mean the squares of the differences from it. */
static void add_all(const Tensor *x, const Attr *axes, const double *mean, Tensor *out) {
  int64_t count = shape_elements(&x->type.shape), index[MAX_RANK];
  for (int64_t k = 0; k < count; k++) {
    interp_unravel(&x->type.shape, k, index);
    for (int i = 0; i < axes->count; i++) index[axes->ints[i]] = 0;
    int64_t at = interp_ravel(&out->type.shape, index);
    double value = mean ? x->f[k] - mean[at] : x->f[k];
    out->f[at] += mean ? value * value : value;
  }
}

bool interp_moment(const Eval *eval) {
  const Attr *axes = node_attr(eval->node, ATTR_AXES);
  int64_t elements = shape_elements(&eval->out->type.shape);
  double share = (double)elements / (double)shape_elements(&eval->in[0]->type.shape);
  reduce_start(OP_SUM, eval->out);
  add_all(eval->in[0], axes, NULL, eval->out);
  for (int64_t k = 0; k < elements; k++) eval->out->f[k] *= share;
  if (eval->node->op == OP_MEAN) return true;
  Arena *scratch = arena_new();
  double *mean = ARENA_ARRAY(scratch, double, elements);
  for (int64_t k = 0; k < elements; k++) mean[k] = eval->out->f[k];
  reduce_start(OP_SUM, eval->out);
  add_all(eval->in[0], axes, mean, eval->out);
  arena_free(scratch);
  return true;
}

bool interp_reduce(const Eval *eval) {
  Op op = eval->node->op, step = op_joining(op);
  const Tensor *x = eval->in[0];
  const Attr *axes = node_attr(eval->node, ATTR_AXES);
  Tensor *out = eval->out;
  reduce_start(op, out);
  int64_t count = shape_elements(&x->type.shape), index[MAX_RANK];
  for (int64_t k = 0; k < count; k++) {
    interp_unravel(&x->type.shape, k, index);
    for (int i = 0; i < axes->count; i++) index[axes->ints[i]] = 0;
    int64_t at = interp_ravel(&out->type.shape, index);
    Scalar both[2] = {element(out, at), element(x, k)};
    set_element(out, at, scalar_eval(step, x->type.dtype, x->type.dtype, both));
  }
  return true;
}

/* ── random: Philox4x32-10, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011) ──
 */
static void philox(uint32_t counter[4], uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; round++) {
    uint64_t a = (uint64_t)counter[0] * 0xD2511F53u, b = (uint64_t)counter[2] * 0xCD9E8D57u;
    uint32_t one = counter[1], three = counter[3];
    counter[0] = (uint32_t)(b >> 32) ^ one ^ key0;
    counter[1] = (uint32_t)b;
    counter[2] = (uint32_t)(a >> 32) ^ three ^ key1;
    counter[3] = (uint32_t)a;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

double interp_draw(uint64_t seed, uint64_t step, uint32_t stream, uint64_t element) {
  uint64_t block = element / 4;
  uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)step, stream + (uint32_t)(step >> 32)};
  philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
  return ldexp(counter[element % 4] >> 8, -24);
}

bool interp_random(const Eval *eval) {
  uint64_t seed = (uint64_t)eval->in[0]->i[0], step = (uint64_t)eval->in[1]->i[0];
  uint32_t stream = (uint32_t)node_int(eval->node, ATTR_STREAM, 0);
  const Tensor *first = eval->node->input_count > 2 ? eval->in[2] : NULL;
  bool is_each = first && first->type.shape.rank > 0;
  int64_t count = shape_elements(&eval->out->type.shape);
  for (int64_t k = 0; k < count; k++) {
    uint64_t from = first ? (uint64_t)first->i[is_each ? k : 0] : 0;
    eval->out->f[k] = interp_draw(seed, step, stream, from + (uint64_t)k);
  }
  return true;
}
