/* noise: how far the arithmetic of f32 (bf16, f16) may move the results of a graph, found by Monte
 * Carlo arithmetic (Parker 1997): the interpreter runs again, and each operation that rounds has
 * its result moved, at random, by as much as rounding may. Moves, comparisons, maxima and the like
 * are exact and stay as they are. A sum or a product of matrices is moved in proportion to the sum
 * of the sizes of its terms, since their order is not laid down. */
#ifndef FT_TEST_NOISE_H
#define FT_TEST_NOISE_H
#include "ir/interp.h"
#include "ir/scalar.h"
#include "noise_exact.h"
#include <float.h>
#include <math.h>
#include <string.h>

typedef struct {
  Arena *arena;
  uint64_t state;
  bool is_tf32;   /* products of matrices round their operands to 11 bits */
  bool is_common; /* all elements of a value move alike: one number is rounded the same everywhere,
                     and errors add up that would otherwise cancel */
  double common;
  Tensor *const *exact; /* by node: the values of the graph without noise, for noise_exact.h; NULL: any value may be rounded
                           either way */
} Noise;

/* Relative, of one operation: two places for arithmetic (a product and a sum may be rounded
 * together), four for elementary functions (kernels/math.h), four for sums of rounded terms. */
#define NOISE_PLAIN 0x1p-23
#define NOISE_ELEMENTARY 0x1p-22
/* Those that are approximate (passes/approximate.c, kernels/approximate.h). */
#define NOISE_APPROXIMATE 0x1p-18
#define NOISE_SUM 0x1p-22
#define NOISE_TF32 0x1p-11
#define NOISE_ATTENTION 0x1p-20

static inline double noise_draw(Noise *noise) { /* -1 … 1 */
  uint64_t z = noise->state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (double)((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1;
}

static inline double noise_share(Noise *noise) {
  return noise->is_common ? noise->common : noise_draw(noise);
}

static inline void noise_relative(Noise *noise, Tensor *value, double size) {
  for (int64_t i = 0; i < shape_elements(&value->type.shape); i++)
    value->f[i] *= 1 + size * noise_share(noise);
}

/* … of arithmetic, which gives what f32 holds as it is. A division by a constant may be a product. */
static inline void noise_arithmetic(Noise *noise, const Node *node, Tensor *value, double size) {
  const Node *divisor = node->op == OP_DIV ? node->input[1] : NULL;
  while (divisor && (divisor->op == OP_BROADCAST || divisor->op == OP_RESHAPE)) divisor = divisor->input[0];
  bool is_sharp = noise->exact && !(divisor && divisor->op == OP_CONST);
  for (int64_t i = 0; i < shape_elements(&value->type.shape); i++) {
    double share = noise_share(noise);
    if (!is_sharp || !exact_in_f32(value->f[i])) value->f[i] *= 1 + size * share;
  }
}

/* Below the smallest normal number f32 has fewer places, and a GPU may have none. */
static inline void noise_underflow(Noise *noise, Tensor *value) {
  for (int64_t i = 0; i < shape_elements(&value->type.shape); i++)
    if (fabs(value->f[i]) < 0x1p-125 && noise_draw(noise) > 0) value->f[i] = 0;
}

/* What the type cannot hold is infinite (seed 3162: a training that diverges, in double to
 * 6e54). */
static inline void noise_overflow(Tensor *value) {
  double most = value->type.dtype == DT_F16 ? 65504 : FLT_MAX;
  for (int64_t i = 0; i < shape_elements(&value->type.shape); i++)
    if (fabs(value->f[i]) > most) value->f[i] = copysign(INFINITY, value->f[i]);
}

/* Each element by a share of the tensor's largest. */
static inline void noise_of_largest(Noise *noise, Tensor *value, double size) {
  double most = 0;
  int64_t count = shape_elements(&value->type.shape);
  for (int64_t i = 0; i < count; i++)
    if (isfinite(value->f[i])) most = fmax(most, fabs(value->f[i]));
  for (int64_t i = 0; i < count; i++) value->f[i] += most * size * noise_share(noise);
}

static inline const Tensor *noise_sizes(Noise *noise, const Tensor *of) {
  if (!of->f) return of;
  Tensor *sizes = tensor_new(noise->arena, of->type);
  for (int64_t i = 0; i < shape_elements(&of->type.shape); i++) sizes->f[i] = fabs(of->f[i]);
  return sizes;
}

/* What f32 makes of each sum when its terms are added one after the other. Each rounding depends on
 * the term and on the sum so far: where all terms are equal, as the gradients of a mean are, many
 * in a row err in one direction, and a few hundred of them by far more than NOISE_SUM. */
static inline void noise_one_by_one(Noise *noise, const Node *node, const Tensor *x,
                                    double *error) {
  const Attr *axes = node_attr(node, ATTR_AXES);
  int64_t count = shape_elements(&x->type.shape), elements = shape_elements(&node->type.shape);
  float *sum = ARENA_ARRAY(noise->arena, float, elements);
  int64_t index[MAX_RANK];
  for (int64_t i = 0; i < elements; i++) sum[i] = 0, error[i] = 0;
  for (int64_t k = 0; k < count; k++) {
    interp_unravel(&x->type.shape, k, index);
    for (int i = 0; i < axes->count; i++) index[axes->ints[i]] = 0;
    int64_t at = interp_ravel(&node->type.shape, index);
    sum[at] += (float)x->f[k];
    error[at] -= (float)x->f[k];
  }
  double share = node->op == OP_MEAN ? (double)elements / (double)count : 1;
  for (int64_t i = 0; i < elements; i++) error[i] = fabs(error[i] + sum[i]) * share;
}

/* Sums: the same operation over the sizes of the terms says how large they are together. */
static inline void noise_sum(Noise *noise, const Node *node, const Tensor *const *inputs,
                             Tensor *value, double size) {
  const Tensor *sizes[3];
  for (int k = 0; k < node->input_count && k < 3; k++) sizes[k] = noise_sizes(noise, inputs[k]);
  Tensor *total = tensor_new(noise->arena, node->type);
  Eval eval = {node, sizes, total};
  interp_evaluator[node->op](&eval);
  int64_t count = shape_elements(&value->type.shape);
  double *error = ARENA_ARRAY(noise->arena, double, count);
  bool is_plain = node->op == OP_SUM || node->op == OP_MEAN;
  if (is_plain) noise_one_by_one(noise, node, inputs[0], error);
  int place = noise->exact && !noise->is_tf32 ? exact_place_of_terms(node, inputs) : INT_MIN;
  for (int64_t i = 0; i < count; i++) {
    double most = total->f[i] * size;
    if (is_plain && error[i] > most) most = error[i];
    if (exact_sum(node, inputs, place, total->f[i], value->f[i])) most = 0;
    value->f[i] += most * noise_share(noise);
  }
}

static inline bool noise_is_exact(const Node *node) {
  if (node->op != OP_CAST) return op_has(node->op, TRAIT_EXACT);
  return dtype_bytes(node->input[0]->type.dtype) <= dtype_bytes(node->type.dtype);
}

/* A value near the middle of two narrow ones may fall on either side: an eighth of all does. */
static inline void noise_narrow(Noise *noise, Tensor *value) {
  double place = value->type.dtype == DT_BF16 ? 0x1p-8 : 0x1p-11;
  for (int64_t i = 0; i < shape_elements(&value->type.shape); i++) {
    double draw = noise_draw(noise);
    bool is_there = noise->exact && dtype_round(value->type.dtype, value->f[i]) == value->f[i];
    if (fabs(draw) > 0.875 && !is_there) value->f[i] *= 1 + copysign(place, draw);
  }
}

/* noise_exact.h: what is rounded falls on the other side where a tie is near. */
static inline void noise_of_rounding(Noise *noise, const Node *node, const Tensor *moved, Tensor *value) {
  const Tensor *exact = noise->exact[node->input[0]->id];
  Tensor *low = exact_rounded(noise->arena, node, exact, moved, -SURE_OF_SIDE);
  Tensor *high = exact_rounded(noise->arena, node, exact, moved, SURE_OF_SIDE);
  for (int64_t i = 0; i < shape_elements(&value->type.shape); i++) {
    double draw = noise_draw(noise);
    if (fabs(draw) > 0.25) value->f[i] = draw < 0 ? low->f[i] : high->f[i];
  }
}

/* What lies between its two products has the type of its operands too. */
static inline double noise_of_attention(const Noise *noise, const Node *node) {
  DType dtype = node->input[0]->type.dtype;
  return dtype == DT_BF16  ? 0x1p-8
         : dtype == DT_F16 ? 0x1p-11
         : noise->is_tf32  ? NOISE_TF32
                           : NOISE_ATTENTION;
}

/* Where a gradient of attention has overflowed, a kernel that multiplies what is not seen by zero
 * has NaN where one that skips it has 0 (seed 1021 of the simulator's): then nothing is said of
 * any. */
static inline void noise_after_overflow(Tensor *value) {
  int64_t count = shape_elements(&value->type.shape);
  bool is_finite = true;
  for (int64_t i = 0; i < count; i++) is_finite &= isfinite(value->f[i]) != 0;
  for (int64_t i = 0; !is_finite && i < count; i++) value->f[i] = NAN;
}

/* An InterpAfter. */
static inline void noise_after(const Node *node, const Tensor *const *inputs, Tensor *value,
                               void *context) {
  Noise *noise = context;
  if (!value->f || node->type.dtype == DT_F64) return;
  noise->common = noise_draw(noise);
  noise_underflow(noise, value);
  noise_overflow(value);
  if (node->op == OP_CONST && (float)value->f[0] != value->f[0]) {
    bool was_common = noise->is_common;
    noise->is_common = true; /* one number, rounded once */
    noise_relative(noise, value, NOISE_PLAIN);
    noise->is_common = was_common;
  }
  OpClass op_class = op_info[node->op].op_class;
  bool rounds = op_class == CLASS_POINTWISE || op_class == CLASS_CONTRACT ||
                node->op == OP_SUM || node->op == OP_POOL_AVG || node->op == OP_POOL_AVG_GRAD;
  if (op_class == CLASS_POINTWISE && noise_is_exact(node)) return;
  if (noise->exact && exact_is_rounding(node)) {
    noise_of_rounding(noise, node, inputs[0], value);
    return;
  }
  if (rounds && (node->type.dtype == DT_BF16 || node->type.dtype == DT_F16))
    noise_narrow(noise, value);
  if (node->op == OP_RESULT && node->input[0]->op == OP_ATTENTION_GRAD) noise_after_overflow(value);
  if (node->op == OP_RESULT && op_info[node->input[0]->op].op_class == CLASS_CONTRACT)
    noise_of_largest(noise, value, noise_of_attention(noise, node->input[0]));
  if (node->op == OP_ATTENTION || node->op == OP_ATTENTION_GRAD) return;
  if (op_class == CLASS_POINTWISE && (node_attr(node, ATTR_KIND) || op_has(node->op, TRAIT_ELEMENTARY)))
    noise_relative(noise, value, node_attr(node, ATTR_KIND) ? NOISE_APPROXIMATE : NOISE_ELEMENTARY);
  else if (op_class == CLASS_POINTWISE)
    noise_arithmetic(noise, node, value, node->op == OP_DIV ? NOISE_ELEMENTARY : NOISE_PLAIN);
  else if (op_class == CLASS_CONTRACT)
    noise_sum(noise, node, inputs, value, noise->is_tf32 ? NOISE_TF32 : NOISE_SUM);
  else if (node->op == OP_SUM || node->op == OP_MEAN || node->op == OP_SPREAD ||
           node->op == OP_POOL_AVG || node->op == OP_POOL_AVG_GRAD ||
           node->op == OP_POOL_MAX_GRAD || node->op == OP_SCATTER_ADD)
    noise_sum(noise, node, inputs, value, NOISE_SUM);
  else if (node->op == OP_PROD)
    noise_relative(noise, value, NOISE_ELEMENTARY);
}
#endif
