/* prune_select: see prune_select.h. There is no sort in a graph, and none is needed. Few candidates are ranked by comparing each with
 * each. Of many, the score of the last one that is kept is found digit by digit: floats are ordered as their bit patterns are, so sixteen
 * rounds of two bits, each of which counts how many scores are at least three thresholds, find it exactly. Ties are then cut at a place
 * that is found in the same way, from the lowest index on. Every count is an integer, so the result is the same however the work is
 * divided, and on every device. */
#include "passes/prune_select.h"

enum { MOST_PAIRS = 1 << 18, DIGITS = 3 /* thresholds of a round, that is two bits */ };

static Node *select_number(Graph *graph, Node *like, double value) {
  return make_like(graph, like, value);
}

/* 2 to the power of e, an integer from 0 to 255; exact. */
static Node *power_of_two(Graph *graph, Node *e) {
  Node *power = select_number(graph, e, 1);
  for (int bit = 7; bit >= 0; bit--) {
    double weight = (double)(1 << bit), factor = 1;
    for (int i = 0; i < 1 << bit; i++) factor *= 2;
    Node *has = make_binary(graph, OP_GE, e, select_number(graph, e, weight));
    Node *grown = make_binary(graph, OP_MUL, power, select_number(graph, power, factor));
    power = make_select(graph, has, grown, power);
    e = make_select(graph, has, make_binary(graph, OP_SUB, e, select_number(graph, e, weight)), e);
  }
  return power;
}

/* The f32 whose place in the order of all f32 is u (f64, an integer from 0 to 2^32 - 1; 2^31 is zero), as f64: monotone in u. */
static Node *value_at(Graph *graph, Node *u) {
  const double two31 = 2147483648.0, two23 = 8388608.0, two_126 = 0x1p-126, two_149 = 0x1p-149;
  Node *offset = make_binary(graph, OP_SUB, u, select_number(graph, u, two31));
  Node *bits = make_unary(graph, OP_ABS, offset);
  bits = make_binary(graph, OP_MIN, bits, select_number(graph, u, two31 - 1));
  Node *e = make_unary(graph, OP_FLOOR,
                       make_binary(graph, OP_MUL, bits, select_number(graph, u, 1 / two23)));
  Node *whole = make_binary(graph, OP_MUL, e, select_number(graph, u, two23));
  Node *part = make_binary(graph, OP_SUB, bits, whole);
  Node *below = make_binary(graph, OP_MUL, part, select_number(graph, u, two_149));
  Node *fraction = make_binary(graph, OP_MUL, part, select_number(graph, u, 1 / two23));
  Node *mantissa = make_binary(graph, OP_ADD, fraction, select_number(graph, u, 1));
  Node *scaled = make_binary(graph, OP_MUL, mantissa, power_of_two(graph, e));
  scaled = make_binary(graph, OP_MUL, scaled, select_number(graph, u, two_126 / 2));
  Node *is_below = make_binary(graph, OP_EQ, e, select_number(graph, u, 0));
  Node *size = make_select(graph, is_below, below, scaled);
  Node *negative = make_binary(graph, OP_LT, offset, select_number(graph, u, 0));
  return make_select(graph, negative, make_unary(graph, OP_NEG, size), size);
}

/* How many of what is true along the last axis of [c, t, n], as f64[c, t]. */
static Node *count_true(Graph *graph, Node *is) {
  const int64_t *dim = is->type.shape.dim, axis = 2;
  Node *ones = make_cast(graph, is, DT_I32);
  Node *sum = make_reduce(graph, OP_SUM, ones, &axis, 1);
  sum = make_reshape(graph, sum, shape_of(2, (int64_t[]){dim[0], dim[1]}));
  return make_cast(graph, sum, DT_F64);
}

static Node *along_candidates(Graph *graph, Node *x, int64_t n) {
  const int64_t *dim = x->type.shape.dim;
  x = make_reshape(graph, x, shape_of(3, (int64_t[]){dim[0], dim[1], 1}));
  return make_broadcast(graph, x, shape_of(3, (int64_t[]){dim[0], dim[1], n}));
}

static Node *along_thresholds(Graph *graph, Node *x) {
  const int64_t *dim = x->type.shape.dim;
  x = make_reshape(graph, x, shape_of(3, (int64_t[]){dim[0], 1, dim[1]}));
  return make_broadcast(graph, x, shape_of(3, (int64_t[]){dim[0], DIGITS, dim[1]}));
}

/* u + 1, 2 and 3 times weight, as [c, 3] */
static Node *three_above(Graph *graph, Node *u, double weight) {
  Shape shape = shape_of(2, (int64_t[]){u->type.shape.dim[0], DIGITS});
  Node *digit = make_cast(graph, make_iota(graph, DT_I32, shape, 1), DT_F64);
  digit = make_binary(graph, OP_ADD, digit, make_like(graph, digit, 1));
  digit = make_binary(graph, OP_MUL, digit, make_like(graph, digit, weight));
  return make_binary(graph, OP_ADD, make_broadcast(graph, u, shape), digit);
}

/* u + weight times how many of the three are within. */
static Node *with_digit(Graph *graph, Node *u, Node *is_within, double weight) {
  const int64_t axis = 1;
  Node *digit = make_reduce(graph, OP_SUM, make_cast(graph, is_within, DT_F64), &axis, 1);
  return make_binary(graph, OP_ADD, u,
                     make_binary(graph, OP_MUL, digit, make_like(graph, digit, weight)));
}

static Node *of_many(Graph *graph, Node *score, Node *keep) {
  int64_t c = score->type.shape.dim[0], n = score->type.shape.dim[1];
  Shape one = shape_of(2, (int64_t[]){c, 1});
  Shape three = shape_of(2, (int64_t[]){c, DIGITS});
  Node *u = make_const(graph, DT_F64, one, 0), *scores = along_thresholds(graph, score);
  double weight = 4294967296.0;
  for (int round = 0; round < 16; round++) {
    weight /= DIGITS + 1;
    Node *above = three_above(graph, u, weight);
    Node *threshold = make_cast(graph, value_at(graph, above), DT_F32);
    Node *is = make_binary(graph, OP_GE, scores, along_candidates(graph, threshold, n));
    Node *is_within =
        make_binary(graph, OP_GE, count_true(graph, is), make_broadcast(graph, keep, three));
    u = with_digit(graph, u, is_within, weight);
  }
  Node *last = make_broadcast(graph, make_cast(graph, value_at(graph, u), DT_F32), score->type.shape);
  Node *above = make_binary(graph, OP_GT, score, last);
  Node *is_tied = make_binary(graph, OP_EQ, score, last);
  Shape as_three = shape_of(3, (int64_t[]){c, 1, n});
  Node *more = count_true(graph, make_reshape(graph, above, as_three));
  Node *wanted = make_binary(graph, OP_SUB, keep, more);
  Node *tied = along_thresholds(graph, is_tied);
  Node *index = make_iota(graph, DT_I32, shape_of(3, (int64_t[]){c, DIGITS, n}), 2);
  Node *end = make_const(graph, DT_F64, one, 0);
  for (weight = 1; weight <= (double)n;) weight *= DIGITS + 1;
  while (weight > 1) {
    weight /= DIGITS + 1;
    Node *ends = three_above(graph, end, weight);
    Node *limit = along_candidates(graph, make_cast(graph, ends, DT_I32), n);
    Node *is = make_binary(graph, OP_AND, tied, make_binary(graph, OP_LT, index, limit));
    Node *is_within =
        make_binary(graph, OP_LE, count_true(graph, is), make_broadcast(graph, wanted, three));
    end = with_digit(graph, end, is_within, weight);
  }
  Node *place = make_iota(graph, DT_I32, score->type.shape, 1);
  Node *before = make_broadcast(graph, make_cast(graph, end, DT_I32), score->type.shape);
  Node *is_first = make_binary(graph, OP_LT, place, before);
  return make_binary(graph, OP_OR, above, make_binary(graph, OP_AND, is_tied, is_first));
}

/* A candidate's rank is how many are better: a greater score, or the same at a lower index. */
static Node *of_few(Graph *graph, Node *score, Node *keep) {
  int64_t c = score->type.shape.dim[0], n = score->type.shape.dim[1];
  Shape all = shape_of(3, (int64_t[]){c, n, n});
  Node *own = make_reshape(graph, score, shape_of(3, (int64_t[]){c, n, 1}));
  Node *other = make_reshape(graph, score, shape_of(3, (int64_t[]){c, 1, n}));
  own = make_broadcast(graph, own, all);
  other = make_broadcast(graph, other, all);
  Node *is_earlier = make_binary(graph, OP_LT, make_iota(graph, DT_I32, all, 2),
                                 make_iota(graph, DT_I32, all, 1));
  Node *is_tied = make_binary(graph, OP_EQ, own, other);
  Node *is_better = make_binary(graph, OP_OR, make_binary(graph, OP_GT, other, own),
                                make_binary(graph, OP_AND, is_tied, is_earlier));
  Node *rank = count_true(graph, is_better);
  return make_binary(graph, OP_LT, rank, make_broadcast(graph, keep, score->type.shape));
}

Node *prune_select(Graph *graph, Node *score, Node *keep) {
  int64_t c = score->type.shape.dim[0], n = score->type.shape.dim[1];
  keep = make_broadcast(graph, keep, shape_of(2, (int64_t[]){c, 1}));
  bool is_few = n <= 512 && c * n * n <= MOST_PAIRS;
  return is_few || n <= 8 ? of_few(graph, score, keep) : of_many(graph, score, keep);
}
