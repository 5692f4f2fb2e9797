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

/* How many of what is true along the last axis of [c, t, n], as i32[c, t]. */
static Node *count_true(Graph *graph, Node *is) {
  const int64_t *dim = is->type.shape.dim, axis = 2;
  Node *sum = make_reduce(graph, OP_SUM, make_cast(graph, is, DT_I32), &axis, 1);
  return make_reshape(graph, sum, shape_of(2, (int64_t[]){dim[0], dim[1]}));
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

/* ── of many ────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  Graph *graph;
  PruneRows *rows; /* several such, whose rows lie behind each other where they are one tensor */
  int count;
  int64_t all, longest; /* rows, candidates of one */
  PruneJoin *join;
  void *user;
} Many;

/* Of the rows of all, those of one: [c, t]. */
static Node *rows_of_one(const Many *m, Node *x, int which) {
  int64_t start[] = {0, 0}, dim[] = {m->rows[which].score->type.shape.dim[0], x->type.shape.dim[1]};
  for (int i = 0; i < which; i++) start[0] += m->rows[i].score->type.shape.dim[0];
  return make_slice(m->graph, x, start, shape_of(2, dim));
}

static Node *all_rows(const Many *m, Node **parts) {
  Attr axis = attr_int(ATTR_AXIS, 0);
  return m->count == 1 ? parts[0] : graph_node(m->graph, OP_CONCAT, parts, m->count, &axis, 1, NULL);
}

/* is: bool[c, t, n] by rows. f64[all, t], on every rank. */
static Node *counts_of(const Many *m, Node **is) {
  for (int i = 0; i < m->count; i++) {
    const Shape *shape = &is[i]->type.shape;
    Node *here = m->rows[i].is_here;
    Shape as_three = shape_of(3, (int64_t[]){shape->dim[0], 1, shape->dim[2]});
    if (here) here = make_broadcast(m->graph, make_reshape(m->graph, here, as_three), *shape);
    is[i] = count_true(m->graph, here ? make_binary(m->graph, OP_AND, is[i], here) : is[i]);
  }
  Node *counts = all_rows(m, is);
  if (m->join) counts = m->join(m->user, counts);
  return make_cast(m->graph, counts, DT_F64);
}

/* The place in the order of all f32 of each row's last score that is kept, f64[all, 1]. */
static Node *last_kept(const Many *m, Node *keep, Node **is) {
  Graph *graph = m->graph;
  Node *u = make_const(graph, DT_F64, shape_of(2, (int64_t[]){m->all, 1}), 0);
  Shape three = shape_of(2, (int64_t[]){m->all, DIGITS});
  double weight = 4294967296.0;
  for (int round = 0; round < 16; round++) {
    weight /= DIGITS + 1;
    Node *threshold = make_cast(graph, value_at(graph, three_above(graph, u, weight)), DT_F32);
    for (int i = 0; i < m->count; i++) {
      Node *score = m->rows[i].score, *limit = rows_of_one(m, threshold, i);
      limit = along_candidates(graph, limit, score->type.shape.dim[1]);
      is[i] = make_binary(graph, OP_GE, along_thresholds(graph, score), limit);
    }
    Node *is_within = make_binary(graph, OP_GE, counts_of(m, is), make_broadcast(graph, keep, three));
    u = with_digit(graph, u, is_within, weight);
  }
  return u;
}

/* Before which number a tied score is kept, f64[all, 1]. */
static Node *end_of_ties(const Many *m, Node *wanted, Node **is_tied, Node **is) {
  Graph *graph = m->graph;
  Node *end = make_const(graph, DT_F64, shape_of(2, (int64_t[]){m->all, 1}), 0);
  Shape three = shape_of(2, (int64_t[]){m->all, DIGITS});
  double weight = 1;
  while (weight <= (double)m->longest) weight *= DIGITS + 1;
  while (weight > 1) {
    weight /= DIGITS + 1;
    Node *ends = make_cast(graph, three_above(graph, end, weight), DT_I32);
    for (int i = 0; i < m->count; i++) {
      Node *number = along_thresholds(graph, m->rows[i].number);
      Node *limit = along_candidates(graph, rows_of_one(m, ends, i), number->type.shape.dim[2]);
      Node *is_before = make_binary(graph, OP_LT, number, limit);
      is[i] = make_binary(graph, OP_AND, along_thresholds(graph, is_tied[i]), is_before);
    }
    Node *is_within = make_binary(graph, OP_LE, counts_of(m, is), make_broadcast(graph, wanted, three));
    end = with_digit(graph, end, is_within, weight);
  }
  return end;
}

static void of_many(const Many *m) {
  Graph *graph = m->graph;
  Node **is = ARENA_ARRAY(graph->arena, Node *, m->count), **is_tied = ARENA_ARRAY(graph->arena, Node *, m->count);
  Node **is_above = ARENA_ARRAY(graph->arena, Node *, m->count), **keeps = ARENA_ARRAY(graph->arena, Node *, m->count);
  for (int i = 0; i < m->count; i++) {
    int64_t one[] = {m->rows[i].score->type.shape.dim[0], 1};
    keeps[i] = make_broadcast(graph, m->rows[i].keep, shape_of(2, one));
  }
  Node *keep = all_rows(m, keeps);
  Node *last = make_cast(graph, value_at(graph, last_kept(m, keep, is)), DT_F32);
  for (int i = 0; i < m->count; i++) {
    Node *score = m->rows[i].score, *limit = make_broadcast(graph, rows_of_one(m, last, i), score->type.shape);
    const int64_t *dim = score->type.shape.dim;
    is_above[i] = make_binary(graph, OP_GT, score, limit);
    is_tied[i] = make_binary(graph, OP_EQ, score, limit);
    is[i] = make_reshape(graph, is_above[i], shape_of(3, (int64_t[]){dim[0], 1, dim[1]}));
  }
  Node *wanted = make_binary(graph, OP_SUB, keep, counts_of(m, is));
  Node *end = make_cast(graph, end_of_ties(m, wanted, is_tied, is), DT_I32);
  for (int i = 0; i < m->count; i++) {
    Node *before = make_broadcast(graph, rows_of_one(m, end, i), is_tied[i]->type.shape);
    Node *is_first = make_binary(graph, OP_LT, m->rows[i].number, before);
    m->rows[i].kept = make_binary(graph, OP_OR, is_above[i], make_binary(graph, OP_AND, is_tied[i], is_first));
  }
}

void prune_select_ranks(Graph *graph, PruneRows *rows, int count, PruneJoin *join, void *user) {
  Many m = {.graph = graph, .rows = rows, .count = count, .join = join, .user = user};
  for (int i = 0; i < count; i++) {
    m.all += rows[i].score->type.shape.dim[0];
    if (rows[i].all > m.longest) m.longest = rows[i].all;
  }
  of_many(&m);
}

/* ── of few ─────────────────────────────────────────────────────────────────────────────────── */
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
  Node *rank = make_cast(graph, count_true(graph, is_better), DT_F64);
  Node *is_kept = make_binary(graph, OP_LT, rank, make_broadcast(graph, keep, score->type.shape));
  return make_binary(graph, OP_AND, is_kept, make_binary(graph, OP_EQ, score, score)); /* no NaN */
}

Node *prune_select(Graph *graph, Node *score, Node *keep) {
  int64_t c = score->type.shape.dim[0], n = score->type.shape.dim[1];
  keep = make_broadcast(graph, keep, shape_of(2, (int64_t[]){c, 1}));
  bool is_few = n <= 512 && c * n * n <= MOST_PAIRS;
  if (is_few || n <= 8) return of_few(graph, score, keep);
  PruneRows rows = {.score = score, .number = make_iota(graph, DT_I32, score->type.shape, 1), .keep = keep, .all = n};
  prune_select_ranks(graph, &rows, 1, NULL, NULL);
  return rows.kept;
}
