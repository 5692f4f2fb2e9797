/* noise_exact: what noise.h knows better of programs with 8-bit floats, where one place of a rounding is a sixteenth of
 * the number, and to let any value fall on the other side would excuse everything.
 *
 * A result that f32 holds is not moved: arithmetic of f32 gives just that. A sum is not moved either if all its terms are
 * multiples of 2^p and their sizes add up to at most 2^(24+p): then f32 holds all partial sums, in any order. Few bits are
 * left of what is rounded to 8, so of most products all sums are such.
 *
 * A rounding to 8 or 16 bits takes the error of its operand away, unless a tie lies within it: within SURE_OF_SIDE times
 * what this run moved the operand by. Then it falls on either side. */
#ifndef FT_TEST_NOISE_EXACT_H
#define FT_TEST_NOISE_EXACT_H
#include "ir/interp.h"
#include <limits.h>
#include <math.h>

enum { SURE_OF_SIDE = 8, F32_PLACES = 24, NO_PLACE = INT_MAX / 2 };

static inline bool exact_in_f32(double x) { return (double)(float)x == x; }

/* The largest p of which all numbers are multiples of 2^p; NO_PLACE: all are 0. INT_MIN: not finite. */
static inline int exact_place(const Tensor *x) {
  int least = NO_PLACE;
  for (int64_t i = 0; i < shape_elements(&x->type.shape); i++) {
    int exponent;
    if (!isfinite(x->f[i])) return INT_MIN;
    if (x->f[i] == 0) continue;
    int64_t digits = (int64_t)ldexp(frexp(x->f[i], &exponent), 53);
    int place = exponent - 53 + __builtin_ctzll((uint64_t)digits);
    if (place < least) least = place;
  }
  return least;
}

static inline bool exact_is_power(int64_t n) { return (n & (n - 1)) == 0; }

/* How many terms a mean has, or the gradient of one spreads over. */
static inline int64_t exact_terms(const Node *node, const Tensor *x) {
  int64_t from = shape_elements(&x->type.shape), to = shape_elements(&node->type.shape);
  return from > to ? from / (to ? to : 1) : to / (from ? from : 1);
}

/* The place of a sum's terms; INT_MIN: nothing is known of them. */
static inline int exact_place_of_terms(const Node *node, const Tensor *const *inputs) {
  bool is_product = op_info[node->op].op_class == CLASS_CONTRACT;
  bool is_sum = node->op == OP_SUM || node->op == OP_MEAN;
  if (node->op == OP_MEAN && !exact_is_power(exact_terms(node, inputs[0]))) return INT_MIN;
  if ((!is_product && !is_sum) || !inputs[0]->f || (is_product && (node->input_count != 2 || !inputs[1]->f)))
    return INT_MIN;
  int place = exact_place(inputs[0]), other = is_product ? exact_place(inputs[1]) : 0;
  if (place == INT_MIN || other == INT_MIN) return INT_MIN;
  return place == NO_PLACE || other == NO_PLACE ? NO_PLACE : place + other;
}

/* Of element i, whose terms' sizes add up to `size` (of a mean: their mean). */
static inline bool exact_sum(const Node *node, const Tensor *const *inputs, int place, double size, double sum) {
  if (place == NO_PLACE) return true;
  if (place == INT_MIN || !exact_in_f32(sum)) return false;
  if (node->op == OP_MEAN) size *= (double)exact_terms(node, inputs[0]);
  return size <= ldexp(1, F32_PLACES + place);
}

/* What the rounding `node` makes of x + share * d, where d is how far x was moved. */
static inline Tensor *exact_rounded(Arena *arena, const Node *node, const Tensor *x, const Tensor *moved, double share) {
  Tensor *operand = tensor_new(arena, x->type), *rounded = tensor_new(arena, node->type);
  const Tensor *inputs[] = {operand};
  for (int64_t i = 0; i < shape_elements(&x->type.shape); i++)
    operand->f[i] = x->f[i] == moved->f[i] ? x->f[i] : x->f[i] + share * fabs(moved->f[i] - x->f[i]);
  interp_evaluator[node->op](&(Eval){node, inputs, rounded, NULL});
  return rounded;
}

static inline bool exact_is_rounding(const Node *node) {
  DType to = node->type.dtype;
  if (node->op == OP_ROUND_E4M3 || node->op == OP_ROUND_E5M2) return true;
  return node->op == OP_CAST && node->input[0]->type.dtype == DT_F32 && (dtype_is_narrow(to) || dtype_is_float8(to));
}
#endif
