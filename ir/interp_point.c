/* interp_point: pointwise operations, reductions and random numbers of the interpreter. Floats are
 * double; integers wrap in their dtype. A NaN is never lost: max, min and their reductions give NaN
 * as soon as they see one, and to argmax and argmin the first NaN is the choice, as in NumPy. */
#include "ir/interp.h"
#include <math.h>

/* ── one input ──────────────────────────────────────────────────────────────────────────────── */
static double unary_float(Op op, double x) {
  switch (op) {
  case OP_NEG:
    return -x;
  case OP_ABS:
    return fabs(x);
  case OP_SIGN:
    return x > 0 ? 1 : x < 0 ? -1 : x;
  case OP_EXP:
    return exp(x);
  case OP_EXPM1:
    return expm1(x);
  case OP_LOG:
    return log(x);
  case OP_LOG1P:
    return log1p(x);
  case OP_SQRT:
    return sqrt(x);
  case OP_RSQRT:
    return 1 / sqrt(x);
  case OP_SIN:
    return sin(x);
  case OP_COS:
    return cos(x);
  case OP_TANH:
    return tanh(x);
  case OP_SIGMOID:
    return 1 / (1 + exp(-x));
  case OP_ERF:
    return erf(x);
  case OP_FLOOR:
    return floor(x);
  case OP_CEIL:
    return ceil(x);
  case OP_ROUND:
    return nearbyint(x);
  default:
    return NAN;
  }
}

static int64_t negate(int64_t x) { return (int64_t)(0 - (uint64_t)x); }

static int64_t unary_int(Op op, DType dtype, int64_t x) {
  switch (op) {
  case OP_NEG:
    return negate(x);
  case OP_ABS:
    return x < 0 ? negate(x) : x;
  case OP_SIGN:
    return (x > 0) - (x < 0);
  case OP_NOT:
    return dtype == DT_BOOL ? !x : ~x;
  default:
    return 0;
  }
}

/* Truncates; out of range goes to the nearest end, NaN to 0. */
static int64_t float_to_int(DType dtype, double x) {
  int64_t lowest, highest;
  if (dtype == DT_BOOL) return x != 0;
  if (isnan(x)) return 0;
  interp_lowest(dtype, &lowest, &highest);
  if (x <= (double)lowest) return lowest;
  if (x >= (double)highest) return highest;
  return (int64_t)x;
}

static void cast(const Eval *eval, int64_t k) {
  const Tensor *x = eval->in[0];
  Tensor *out = eval->out;
  DType dtype = out->type.dtype;
  if (x->f && out->f)
    out->f[k] = x->f[k];
  else if (x->f)
    out->i[k] = float_to_int(dtype, x->f[k]);
  else if (out->f)
    out->f[k] = (double)x->i[k];
  else
    out->i[k] = dtype == DT_BOOL ? x->i[k] != 0 : interp_wrap(dtype, x->i[k]);
}

/* ── two inputs ─────────────────────────────────────────────────────────────────────────────── */
static double binary_float(Op op, double a, double b) {
  switch (op) {
  case OP_ADD:
    return a + b;
  case OP_SUB:
    return a - b;
  case OP_MUL:
    return a * b;
  case OP_DIV:
    return a / b;
  case OP_POW:
    return pow(a, b);
  case OP_MAX:
    return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
  case OP_MIN:
    return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
  default:
    return NAN;
  }
}

static int64_t binary_int(Op op, int64_t a, int64_t b) {
  uint64_t x = (uint64_t)a, y = (uint64_t)b;
  switch (op) {
  case OP_ADD:
    return (int64_t)(x + y);
  case OP_SUB:
    return (int64_t)(x - y);
  case OP_MUL:
    return (int64_t)(x * y);
  case OP_DIV:
    return b == 0 ? 0 : b == -1 ? negate(a) : a / b;
  case OP_REM:
    return b == 0 || b == -1 ? 0 : a % b;
  case OP_MAX:
    return a > b ? a : b;
  case OP_MIN:
    return a < b ? a : b;
  case OP_AND:
    return a & b;
  case OP_OR:
    return a | b;
  case OP_XOR:
    return a ^ b;
  default:
    return 0;
  }
}

#define COMPARE(op, a, b)                                                                          \
  ((op) == OP_EQ   ? (a) == (b)                                                                    \
   : (op) == OP_NE ? (a) != (b)                                                                    \
   : (op) == OP_LT ? (a) < (b)                                                                     \
   : (op) == OP_LE ? (a) <= (b)                                                                    \
   : (op) == OP_GT ? (a) > (b)                                                                     \
                   : (a) >= (b))

static void point(const Eval *eval, int64_t k) {
  Op op = eval->node->op;
  const Tensor *a = eval->in[0];
  const Tensor *b = eval->node->input_count > 1 ? eval->in[1] : NULL;
  Tensor *out = eval->out;
  DType dtype = out->type.dtype;
  switch (op) {
  case OP_CAST:
    cast(eval, k);
    return;
  case OP_ISFINITE:
    out->i[k] = isfinite(a->f[k]) != 0;
    return;
  case OP_EQ:
  case OP_NE:
  case OP_LT:
  case OP_LE:
  case OP_GT:
  case OP_GE:
    out->i[k] = a->f ? COMPARE(op, a->f[k], b->f[k]) : COMPARE(op, a->i[k], b->i[k]);
    return;
  case OP_SELECT: {
    const Tensor *chosen = a->i[k] ? b : eval->in[2];
    if (out->f)
      out->f[k] = chosen->f[k];
    else
      out->i[k] = chosen->i[k];
    return;
  }
  default:
    break;
  }
  if (out->f)
    out->f[k] = b ? binary_float(op, a->f[k], b->f[k]) : unary_float(op, a->f[k]);
  else
    out->i[k] =
        interp_wrap(dtype, b ? binary_int(op, a->i[k], b->i[k]) : unary_int(op, dtype, a->i[k]));
}

void interp_pointwise(const Eval *eval) {
  int64_t count = shape_elements(&eval->out->type.shape);
  for (int64_t k = 0; k < count; k++) point(eval, k);
}

/* ── reductions ─────────────────────────────────────────────────────────────────────────────── */
static void reduce_start(Op op, Tensor *out) {
  int64_t count = shape_elements(&out->type.shape), lowest, highest;
  interp_lowest(out->type.dtype, &lowest, &highest);
  for (int64_t k = 0; k < count; k++) {
    if (out->f)
      out->f[k] = op == OP_PROD ? 1 : op == OP_RMAX ? -INFINITY : op == OP_RMIN ? INFINITY : 0;
    else
      out->i[k] = op == OP_PROD ? 1 : op == OP_RMAX ? lowest : op == OP_RMIN ? highest : 0;
  }
}

static Op reduce_step(Op op) {
  return op == OP_SUM ? OP_ADD : op == OP_PROD ? OP_MUL : op == OP_RMAX ? OP_MAX : OP_MIN;
}

/* Whether x[at] is to be chosen over x[best], which stands before it. */
static bool beats(Op op, const Tensor *x, int64_t at, int64_t best) {
  if (x->i) return op == OP_ARGMAX ? x->i[at] > x->i[best] : x->i[at] < x->i[best];
  if (isnan(x->f[best])) return false;
  return isnan(x->f[at]) || (op == OP_ARGMAX ? x->f[at] > x->f[best] : x->f[at] < x->f[best]);
}

static void arg_reduce(const Eval *eval) {
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

static void moment(const Eval *eval) {
  const Attr *axes = node_attr(eval->node, ATTR_AXES);
  int64_t elements = shape_elements(&eval->out->type.shape);
  double share = (double)elements / (double)shape_elements(&eval->in[0]->type.shape);
  reduce_start(OP_SUM, eval->out);
  add_all(eval->in[0], axes, NULL, eval->out);
  for (int64_t k = 0; k < elements; k++) eval->out->f[k] *= share;
  if (eval->node->op == OP_MEAN) return;
  Arena *scratch = arena_new();
  double *mean = ARENA_ARRAY(scratch, double, elements);
  for (int64_t k = 0; k < elements; k++) mean[k] = eval->out->f[k];
  reduce_start(OP_SUM, eval->out);
  add_all(eval->in[0], axes, mean, eval->out);
  arena_free(scratch);
}

void interp_reduce(const Eval *eval) {
  Op op = eval->node->op, step = reduce_step(op);
  if (op == OP_ARGMAX || op == OP_ARGMIN) {
    arg_reduce(eval);
    return;
  }
  if (op_is_moment(op)) {
    moment(eval);
    return;
  }
  const Tensor *x = eval->in[0];
  const Attr *axes = node_attr(eval->node, ATTR_AXES);
  Tensor *out = eval->out;
  reduce_start(op, out);
  int64_t count = shape_elements(&x->type.shape), index[MAX_RANK];
  for (int64_t k = 0; k < count; k++) {
    interp_unravel(&x->type.shape, k, index);
    for (int i = 0; i < axes->count; i++) index[axes->ints[i]] = 0;
    int64_t at = interp_ravel(&out->type.shape, index);
    if (out->f)
      out->f[at] = binary_float(step, out->f[at], x->f[k]);
    else
      out->i[at] = interp_wrap(out->type.dtype, binary_int(step, out->i[at], x->i[k]));
  }
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

void interp_random(const Eval *eval) {
  uint64_t seed = (uint64_t)eval->in[0]->i[0], step = (uint64_t)eval->in[1]->i[0];
  uint32_t stream = (uint32_t)node_int(eval->node, ATTR_STREAM, 0);
  int64_t count = shape_elements(&eval->out->type.shape);
  for (int64_t k = 0; k < count; k++) {
    uint64_t block = (uint64_t)k / 4;
    uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)step, stream};
    philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
    eval->out->f[k] = ldexp(counter[k % 4] >> 8, -24);
  }
}
