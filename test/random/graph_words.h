/* graph_words: what the recipes of graph.c are written in: numbers drawn from the seed, nodes made
 * in one word, and what a recipe asks the pool for. Included by graph.c alone. */
#ifndef FT_TEST_GRAPH_WORDS_H
#define FT_TEST_GRAPH_WORDS_H
#include "test/random/graph.h"
#include "ir/region.h"
#include <string.h>

enum { MOST_ELEMENTS = 2048 };

typedef struct {
  Graph *graph;
  uint64_t state;
  VEC(Node *) pool;
  int inputs, params, labels, states;
  int64_t streams;
  Node *seed, *step;
} Random;

/* ── chance ─────────────────────────────────────────────────────────────────────────────────── */
static uint64_t next(Random *r) { /* splitmix64 */
  uint64_t z = r->state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

static int below(Random *r, int64_t count) { return (int)(next(r) % (uint64_t)count); }
static bool chance(Random *r, int one_in) { return below(r, one_in) == 0; }

static int64_t size(Random *r) {
  static const int64_t sizes[] = {1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33};
  return sizes[below(r, (int64_t)(sizeof sizes / sizeof *sizes))];
}

static Shape shape(Random *r) {
  Shape result = {.rank = below(r, 5)};
  do
    for (int i = 0; i < result.rank; i++) result.dim[i] = size(r);
  while (shape_elements(&result) > MOST_ELEMENTS / 4);
  return result;
}

/* `count` elements as `rank` dimensions, some of them 1. */
static Shape factor(Random *r, int64_t count, int rank) {
  Shape result = {.rank = rank};
  int rest = below(r, rank);
  for (int i = 0; i < rank; i++) {
    if (i == rest) continue;
    int64_t divisor = size(r);
    while (count % divisor) divisor--;
    result.dim[i] = divisor;
    count /= divisor;
  }
  result.dim[rest] = count;
  return result;
}

/* ── small words ────────────────────────────────────────────────────────────────────────────── */
/* A line for each recipe, and a few regions one after the other. */
static void begin_recipe(Random *r) {
  enum { REGION_RECIPES = 3 };
  uint32_t line = (uint32_t)r->pool.count + 1;
  r->graph->origin =
      (Origin){.loc = {1, 1, line}, .region = {line / REGION_RECIPES, REGION_SETTING}};
}
static Node *unary(Random *r, Op op, Node *x) { return make_unary(r->graph, op, x); }
static Node *binary(Random *r, Op op, Node *a, Node *b) { return make_binary(r->graph, op, a, b); }
static Node *constant(Random *r, DType dtype, double value) {
  return make_const(r->graph, dtype, shape_scalar(), value);
}
static Node *with(Random *r, Op op, Node *x, double value) {
  return binary(r, op, x, constant(r, x->type.dtype, value));
}
static Node *scale(Random *r, Node *x, double by) { return with(r, OP_MUL, x, by); }
static Node *cast(Random *r, Node *x, DType dtype) { return make_cast(r->graph, x, dtype); }
static Node *reshape(Random *r, Node *x, Shape to) { return make_reshape(r->graph, x, to); }
static int64_t elements(const Node *x) { return shape_elements(&x->type.shape); }

static Node *leaf(Random *r, Op op, const char *name, Type type, const char *init, double low,
                  double high) {
  double args[] = {low, high};
  Attr attrs[] = {attr_str(ATTR_NAME, name), attr_str(ATTR_INIT, init),
                  attr_floats(ATTR_INIT_ARGS, args, 2)};
  int count = !init ? 1 : !strcmp(init, "zeros") ? 2 : 3;
  return graph_node(r->graph, op, NULL, 0, attrs, count, &type);
}

static Node *input(Random *r, DType dtype, Shape of) {
  const char *name = dtype == DT_F32 ? arena_printf(r->graph->arena, "x%d", r->inputs++)
                                     : arena_printf(r->graph->arena, "label%d", r->labels++);
  return leaf(r, OP_INPUT, name, (Type){dtype, of}, NULL, 0, 0);
}

static Node *param(Random *r, Shape of) {
  const char *name = arena_printf(r->graph->arena, "p%d.weight", r->params++);
  return leaf(r, OP_PARAM, name, (Type){DT_F32, of}, "uniform", -1, 1);
}

static Node *pick(Random *r) {
  int count = r->pool.count, recent = count < 5 ? count : 5;
  return r->pool.at[chance(r, 2) ? below(r, count) : count - 1 - below(r, recent)];
}

/* A pattern in [-1, 1] over the positions of a shape, without repetition. */
static Node *pattern(Random *r, Shape of) {
  Node *sum = constant(r, DT_F32, 0.25);
  for (int i = 0; i < of.rank; i++) {
    if (of.dim[i] == 1) continue;
    Shape line = {.rank = of.rank};
    for (int k = 0; k < of.rank; k++) line.dim[k] = k == i ? of.dim[i] : 1;
    DType dtype = chance(r, 4) ? DT_I64 : DT_I32;
    Node *index = cast(r, make_iota(r->graph, dtype, line, i), DT_F32);
    sum = binary(r, OP_ADD, sum, scale(r, index, 0.7390851 * (i + 1) + 0.1 * i * i));
  }
  return unary(r, OP_SIN, sum);
}

static Node *spread(Random *r, Node *x) {
  Node *apart = scale(r, pattern(r, x->type.shape), 1.5);
  return binary(r, OP_ADD, scale(r, x, 0.5), apart);
}

/* Some tensor that broadcasts to x's shape: from the pool, or a new parameter. */
static Node *partner(Random *r, Node *x) {
  Shape to = x->type.shape, joined;
  for (int tries = 0; tries < 4; tries++) {
    Node *other = pick(r);
    if (shape_broadcast(&other->type.shape, &to, &joined) && shape_equal(&joined, &to))
      return other;
  }
  int drop = to.rank ? below(r, to.rank + 1) : 0;
  Shape of = {.rank = to.rank - drop};
  for (int i = 0; i < of.rank; i++) of.dim[i] = chance(r, 3) ? 1 : to.dim[i + drop];
  return param(r, of);
}

/* A bool tensor that broadcasts to x's shape and never hangs on rounding. */
static Node *mask(Random *r, Node *x) {
  static const Op compare[] = {OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE};
  static const Op combine[] = {OP_AND, OP_OR, OP_XOR};
  Shape of = x->type.shape;
  if (!of.rank) return unary(r, OP_ISFINITE, x);
  Node *result = NULL;
  for (int i = 0, count = 1 + below(r, 2); i < count; i++) {
    Node *index = make_iota(r->graph, DT_I32, of, below(r, of.rank));
    Node *other = chance(r, 2) ? make_iota(r->graph, DT_I32, of, below(r, of.rank))
                               : with(r, OP_REM, index, 1 + below(r, 4));
    Node *made = binary(r, compare[below(r, 6)], index, other);
    if (chance(r, 3)) made = unary(r, OP_NOT, made);
    result = result ? binary(r, combine[below(r, 3)], result, made) : made;
  }
  return result;
}

/* `count` i32 or i64 numbers in 0..limit (limit itself is out of range for a table of that size).
 */
static Node *indices(Random *r, int64_t count, int64_t limit) {
  Shape line = shape_of(1, &count);
  DType dtype = chance(r, 3) ? DT_I64 : DT_I32;
  Node *x = chance(r, 2) ? input(r, dtype, line) : make_iota(r->graph, dtype, line, 0);
  x = with(r, OP_MUL, x, 1 + below(r, 5));
  x = with(r, OP_MAX, with(r, OP_ADD, x, below(r, 9)), -1);
  return with(r, OP_REM, x, (double)limit + 1);
}

static int axes_of(Random *r, const Shape *of, int64_t *axes) {
  int count = 0, kind = below(r, 3);
  for (int i = 0; i < of->rank; i++)
    if (kind == 0 ? i == of->rank - 1 : kind == 1 ? i != of->rank - 1 : chance(r, 2))
      axes[count++] = i;
  return count;
}

static int64_t reduced(const Shape *of, const int64_t *axes, int count) {
  int64_t product = 1;
  for (int i = 0; i < count; i++) product *= of->dim[axes[i]];
  return product;
}

static Node *reduce(Random *r, Op op, Node *x, const int64_t *axes, int count) {
  return make_reduce(r->graph, op, x, axes, count);
}

static Node *mean(Random *r, Node *x, const int64_t *axes, int count) {
  return scale(r, reduce(r, OP_SUM, x, axes, count),
               1.0 / (double)reduced(&x->type.shape, axes, count));
}

static Node *activation(Random *r, Node *x) {
  switch (below(r, 5)) {
  case 0:
    return unary(r, OP_TANH, x);
  case 1:
    return with(r, OP_MIN, with(r, OP_MAX, x, 0), 3.9);
  case 2:
    return unary(r, OP_SIN, x);
  case 3:
    return unary(r, OP_ERF, binary(r, OP_MUL, x, unary(r, OP_SIGMOID, x)));
  default:
    return unary(r, OP_SIGMOID, x);
  }
}

#endif
