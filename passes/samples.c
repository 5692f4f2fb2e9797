/* samples: see samples.h. Forward over the graph, one rule for each kind of op. What no rule knows
 * is MIXED, so a missing rule never gives a wrong value: a MIXED value is refused or warned of. */
#include "passes/samples.h"
#include "ir/match.h"

typedef struct {
  const Graph *graph;
  Samples *of;
  int64_t batch;
} Finder;

static const Samples *samples_at(const Finder *f, const Node *node) { return &f->of[node->id]; }
static Samples samples_mixed(void) { return (Samples){.kind = SAMPLES_MIXED}; }

static Samples each(int axis, int64_t inner, int level) {
  if (level >= SAMPLES_LEVELS) return samples_mixed();
  return (Samples){.kind = SAMPLES_EACH, .axis = axis, .inner = inner, .level = level};
}

static int64_t behind(const Shape *shape, int axis) {
  return shape_elements_between(shape, axis + 1, shape->rank);
}

/* What all inputs together are, if they lie side by side; EACH has the axis of the first. */
static Samples samples_joined(const Finder *f, Node *const *inputs, int count) {
  Samples all = {0};
  int level = 0;
  for (int i = 0; i < count; i++) {
    const Samples *s = samples_at(f, inputs[i]);
    if (s->kind == SAMPLES_MIXED) return samples_mixed();
    bool differs = s->kind == SAMPLES_EACH && all.kind == SAMPLES_EACH &&
                   (s->axis != all.axis || s->inner != all.inner);
    if (differs && f->batch > 1) return samples_mixed();
    if (s->kind == SAMPLES_EACH && all.kind != SAMPLES_EACH)
      all = (Samples){.kind = SAMPLES_EACH, .axis = s->axis, .inner = s->inner};
    if (s->kind == SAMPLES_ALL && all.kind == SAMPLES_NONE) all.kind = SAMPLES_ALL;
  }
  for (int i = 0; i < count; i++) {
    const Samples *s = samples_at(f, inputs[i]);
    int own = s->level + (s->kind == SAMPLES_ALL && all.kind == SAMPLES_EACH);
    if (own > level) level = own;
  }
  if (all.kind == SAMPLES_EACH) return each(all.axis, all.inner, level);
  all.level = level;
  return all;
}

static Samples samples_total(int level) {
  return (Samples){.kind = SAMPLES_ALL, .is_total = true, .level = level};
}

/* ── moves ──────────────────────────────────────────────────────────────────────────────────── */
static Samples samples_along(const Finder *f, const Node *node, int64_t axis, int level) {
  int64_t size = axis < node->type.shape.rank ? node->type.shape.dim[axis] : 0;
  if (size < f->batch || size % f->batch) return (Samples){0};
  return each((int)axis, size / f->batch, level);
}

/* Before and after the reshape, an element's sample is (flat index / stride) % batch. */
static Samples samples_reshaped(const Finder *f, const Node *node, const Samples *x) {
  const Shape *old = &node->input[0]->type.shape, *shape = &node->type.shape;
  int64_t axis = node_int(node, ATTR_BATCH, -1);
  if (axis >= 0) return samples_along(f, node, axis, x->level);
  int64_t stride = x->inner * behind(old, x->axis);
  for (int i = 0; i < shape->rank && shape_elements(shape); i++) {
    int64_t step = behind(shape, i);
    if (stride % step == 0 && step * shape->dim[i] % (stride * f->batch) == 0)
      return each(i, stride / step, x->level);
  }
  return samples_mixed();
}

static Samples sliced(const Finder *f, const Node *node, const Samples *x) {
  int64_t had = node->input[0]->type.shape.dim[x->axis], size = node->type.shape.dim[x->axis];
  int64_t start = node_attr(node, ATTR_START)->ints[x->axis];
  int64_t step = node_attr(node, ATTR_STEP)->ints[x->axis], block = f->batch * x->inner;
  bool is_whole = size == had || (step == 1 && start % block == 0 && size % block == 0 && size);
  return is_whole ? *x : samples_mixed();
}

static Samples gathered(const Finder *f, const Node *node) {
  const Samples *table = samples_at(f, node->input[0]), *index = samples_at(f, node->input[1]);
  Samples all = samples_joined(f, node->input, 2);
  bool is_table = table->kind == SAMPLES_EACH;
  bool is_row = is_table && table->axis == 0 && table->inner == 1;
  if (is_row && node->type.shape.dim[0] == f->batch && match_neighbours(node)) return *table;
  if (all.kind != SAMPLES_EACH) return all;
  if (is_table && (index->kind == SAMPLES_EACH || table->axis == 0)) return samples_mixed();
  if (is_table) all.axis = node->input[1]->type.shape.rank + table->axis - 1;
  return all;
}

static Samples concatenated(const Finder *f, const Node *node) {
  Samples all = samples_joined(f, node->input, node->input_count);
  if (all.kind != SAMPLES_EACH || node_int(node, ATTR_AXIS, 0) != all.axis) return all;
  for (int i = 0; i < node->input_count; i++)
    if (samples_at(f, node->input[i])->kind != SAMPLES_EACH) return samples_mixed();
  return all;
}

static Samples samples_moved(const Finder *f, const Node *node) {
  const Samples *x = samples_at(f, node->input[0]);
  if (node->op == OP_GATHER) return gathered(f, node);
  if (node->op == OP_CONCAT) return concatenated(f, node);
  if (node->op == OP_SCATTER_ADD || node->op == OP_PUT) {
    Samples all = samples_joined(f, node->input, node->input_count);
    return all.kind == SAMPLES_EACH ? samples_mixed() : all;
  }
  Samples same = *x;
  int64_t grown = node->op == OP_BROADCAST ? node_int(node, ATTR_BATCH, -1) : -1;
  same.is_total = false;
  if (grown >= 0 && x->kind == SAMPLES_EACH) return samples_mixed();
  if (grown >= 0 && x->kind != SAMPLES_MIXED)
    return samples_along(f, node, grown, x->level + (x->kind == SAMPLES_ALL));
  if (x->kind != SAMPLES_EACH) return same;
  if (node->op == OP_RESHAPE) return samples_reshaped(f, node, x);
  if (node->op == OP_SLICE) return sliced(f, node, x);
  if (node->op == OP_PAD) {
    bool grows =
        node_attr(node, ATTR_LOW)->ints[x->axis] || node_attr(node, ATTR_HIGH)->ints[x->axis];
    return grows ? samples_mixed() : same;
  }
  const Attr *perm = node->op == OP_TRANSPOSE ? node_attr(node, ATTR_PERM) : NULL;
  for (int i = 0; perm && i < perm->count; i++)
    if (perm->ints[i] == x->axis) same.axis = i;
  return same;
}

/* ── sums ───────────────────────────────────────────────────────────────────────────────────── */
static Samples reduced(const Finder *f, const Node *node) {
  const Samples *x = samples_at(f, node->input[0]);
  const Attr *axes = node_attr(node, ATTR_AXES);
  Samples same = *x;
  same.is_total = false;
  if (x->kind != SAMPLES_EACH) return same;
  bool is_over = false;
  for (int i = 0; axes && i < axes->count; i++) is_over |= axes->ints[i] == x->axis;
  if (!is_over) return same;
  bool is_known =
      node->op == OP_SUM || node->op == OP_PROD || node->op == OP_RMAX || node->op == OP_RMIN;
  return is_known ? samples_total(x->level) : samples_mixed();
}

/* The axis of the product that an operand's axis becomes; -1: it is summed over. */
static int product_axis(int axis, int rank, bool is_turned, bool is_left) {
  if (axis < rank - 2) return axis;
  bool is_first = (axis == rank - 2) != is_turned;
  if (is_left) return is_first ? rank - 2 : -1;
  return is_first ? -1 : rank - 1;
}

static Samples samples_product(const Finder *f, const Node *node) {
  const Samples *a = samples_at(f, node->input[0]), *b = samples_at(f, node->input[1]);
  int rank = node->type.shape.rank, level = 0;
  if (a->kind == SAMPLES_MIXED || b->kind == SAMPLES_MIXED) return samples_mixed();
  if (a->kind != SAMPLES_EACH && b->kind != SAMPLES_EACH) return samples_joined(f, node->input, 2);
  for (int i = 0; i < 2; i++) {
    const Samples *s = i ? b : a;
    int own = s->level + (s->kind == SAMPLES_ALL);
    if (own > level) level = own;
  }
  int left = product_axis(a->axis, rank, node_int(node, ATTR_TRANS_A, 0), true);
  int right = product_axis(b->axis, rank, node_int(node, ATTR_TRANS_B, 0), false);
  if (a->kind == SAMPLES_EACH && b->kind == SAMPLES_EACH &&
      (left != right || a->inner != b->inner) && f->batch > 1)
    return samples_mixed();
  const Samples *x = a->kind == SAMPLES_EACH ? a : b;
  int axis = x == a ? left : right;
  if (level >= SAMPLES_LEVELS) return samples_mixed();
  return axis < 0 ? samples_total(level) : each(axis, x->inner, level);
}

/* Heads of attention know nothing of each other, unless several of q share one of k and v: samples may stand in their
 * dimension, as in [B, T, D]. */
static bool may_be_heads(const Node *node) {
  if (node->op != OP_ATTENTION && node->op != OP_ATTENTION_GRAD) return false;
  AttentionForm form = attention_form(node);
  return !form.is_beside && form.heads == form.groups;
}

/* conv, attention: samples side by side along the first dimension, or the heads'. */
static Samples contracted(const Finder *f, const Node *node) {
  if (node->op == OP_DOT) return samples_product(f, node);
  Samples all = samples_joined(f, node->input, node->input_count);
  if (all.kind != SAMPLES_EACH) return all;
  bool is_weight = node->op == OP_CONV && samples_at(f, node->input[1])->kind == SAMPLES_EACH;
  bool is_apart = all.axis == 0 || (all.axis == 1 && may_be_heads(node));
  return is_apart && !is_weight ? all : samples_mixed();
}

/* ── the whole ──────────────────────────────────────────────────────────────────────────────── */
static Samples leaf(const Finder *f, const Node *node) {
  const Attr *form = node->op == OP_CONST ? node_attr(node, ATTR_SAMPLES) : NULL;
  if (form && form->count == 4 && !form->floats[2] && !form->floats[3]) return samples_mixed();
  int64_t axis = node->op == OP_INPUT ? 0 : node_int(node, ATTR_BATCH, -1);
  if (axis < 0) return (Samples){0};
  if (node->op == OP_IOTA && node_int(node, ATTR_AXIS, -1) == axis) return samples_mixed();
  return samples_along(f, node, axis, 0);
}

static Samples find_samples(const Finder *f, const Node *node) {
  Samples all;
  switch (op_info[node->op].op_class) {
  case CLASS_LEAF:
    return leaf(f, node);
  case CLASS_POINTWISE:
    return samples_joined(f, node->input, node->input_count);
  case CLASS_MOVE:
    return samples_moved(f, node);
  case CLASS_REDUCE:
    return reduced(f, node);
  case CLASS_CONTRACT:
    return contracted(f, node);
  case CLASS_WINDOW:
    all = samples_joined(f, node->input, node->input_count);
    return all.kind == SAMPLES_EACH && all.axis > 1 ? samples_mixed() : all;
  default:
    return samples_joined(f, node->input, node->input_count); /* stop_gradient, result, assign */
  }
}

int64_t samples_of_inputs(const Graph *graph) {
  int64_t batch = 0;
  for (int i = 0; i < graph->nodes.count && !batch; i++) {
    const Node *node = graph->nodes.at[i];
    if (node->op == OP_INPUT && node->type.shape.rank) batch = node->type.shape.dim[0];
  }
  return batch;
}

Samples *samples_find(const Graph *graph, Arena *arena, const bool *excused, int64_t *batch) {
  Finder f = {graph, ARENA_ARRAY(arena, Samples, graph->nodes.count), samples_of_inputs(graph)};
  *batch = f.batch;
  for (int i = 0; i < graph->nodes.count && f.batch; i++) {
    f.of[i] = find_samples(&f, graph->nodes.at[i]);
    if (excused && excused[i] && f.of[i].is_total) f.of[i] = (Samples){0};
  }
  return f.of;
}

/* ── totals that a state follows ────────────────────────────────────────────────────────────── */
/* What states are updated with, back to the reductions over the first dimension. */
static bool *reach_of_states(const Graph *graph, Arena *arena) {
  int count = graph->nodes.count;
  bool *reached = ARENA_ARRAY(arena, bool, count);
  for (int i = count - 1; i >= 0; i--) {
    const Node *node = graph->nodes.at[i];
    const Attr *axes = node_attr(node, ATTR_AXES);
    reached[i] |= node->op == OP_ASSIGN;
    bool stops =
        op_info[node->op].op_class == CLASS_REDUCE && axes && axes->count && !axes->ints[0];
    for (int k = 0; reached[i] && !stops && k < node->input_count; k++)
      reached[node->input[k]->id] = true;
  }
  return reached;
}

bool *samples_of_states(const Graph *graph, Arena *arena) {
  int count = graph->nodes.count;
  bool *reached = reach_of_states(graph, arena), *found = ARENA_ARRAY(arena, bool, count);
  for (bool is_new = true; is_new;) {
    is_new = false;
    int64_t batch;
    Samples *of = samples_find(graph, arena, found, &batch);
    bool *back = ARENA_ARRAY(arena, bool, count); /* goes back into values of single samples */
    for (int i = count - 1; i >= 0; i--) {
      const Node *node = graph->nodes.at[i];
      bool is_single = of[i].kind == SAMPLES_EACH || of[i].kind == SAMPLES_MIXED || back[i];
      for (int k = 0; is_single && k < node->input_count; k++)
        if (of[node->input[k]->id].kind == SAMPLES_ALL) back[node->input[k]->id] = true;
      if (!of[i].is_total || !back[i] || !reached[i] || found[i]) continue;
      found[i] = is_new = true;
    }
  }
  return found;
}
