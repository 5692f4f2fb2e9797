/* totals_value: the values of all samples, from totals that totals.c or totals_parts.c adds up. See
 * totals.h. */
#include "passes/totals.h"
#include <string.h>

void totals_begin(Totals *t, PassContext *context, Graph *graph, const bool *excused) {
  t->context = context;
  t->graph = graph;
  t->count = graph->nodes.count;
  t->samples = samples_find(graph, graph->arena, excused, &t->batch);
  t->value = ARENA_ARRAY(graph->arena, Node *, t->count);
  t->on_batch = ARENA_ARRAY(graph->arena, bool, t->count);
  t->is_scaled = true;
  totals_ranks_begin(t);
  for (int i = 0; i < t->count; i++) {
    const Node *node = graph->nodes.at[i];
    bool is_drawn = node->op == OP_RANDOM && !node_int(node, ATTR_WHOLE, 0);
    t->on_batch[i] = node->op == OP_INPUT || is_drawn;
    for (int k = 0; k < node->input_count; k++) t->on_batch[i] |= t->on_batch[node->input[k]->id];
    if (node->op == OP_INPUT && node_attr(node, ATTR_SAMPLES)) t->is_scaled = false;
  }
}

/* ── sums, products, extremes ───────────────────────────────────────────────────────────────── */
Node *totals_neutral(Totals *t, Op op, Type type) {
  bool is_extreme = op == OP_RMAX || op == OP_RMIN;
  double value = is_extreme ? dtype_extreme(type.dtype, op == OP_RMAX) : op == OP_PROD ? 1 : 0;
  return make_const(t->graph, type.dtype, type.shape, value);
}

Node *totals_joined(Totals *t, Op op, Node *a, Node *b) {
  Op both = op == OP_PROD ? OP_MUL : op == OP_RMAX ? OP_MAX : op == OP_RMIN ? OP_MIN : OP_ADD;
  if (a->type.dtype == DT_BOOL) both = op == OP_RMAX ? OP_OR : OP_AND;
  return make_binary(t->graph, both, a, b);
}

/* In what a total is added up: f32 would lose much over many batches. */
static DType wide(Op op, DType dtype) {
  if (op == OP_RMAX || op == OP_RMIN) return dtype;
  return dtype_is_float(dtype) ? DT_F64 : DT_I64;
}

static Node *totals_scaled(Totals *t, Op op, Node *total) {
  if (!t->is_scaled || (op != OP_SUM && op != OP_DOT)) return total;
  Node *batch = make_const(t->graph, DT_F64, shape_scalar(), (double)t->batch);
  Node *share = make_binary(t->graph, OP_DIV, batch, t->number);
  share = make_broadcast(t->graph, share, total->type.shape);
  Node *wide = make_cast(t->graph, total, DT_F64);
  return make_cast(t->graph, make_binary(t->graph, OP_MUL, wide, share), total->type.dtype);
}

static Node *total_of(Totals *t, Node *old) {
  Node *inputs[2] = {NULL};
  int level = t->samples[old->id].level;
  DType dtype = old->type.dtype;
  for (int i = 0; i < old->input_count; i++) {
    const Samples *s = &t->samples[old->input[i]->id];
    inputs[i] = t->value[old->input[i]->id];
    if (s->kind == SAMPLES_EACH) inputs[i] = t->operand(t, inputs[i], s, old->op);
  }
  if (level + 1 > t->levels) t->levels = level + 1;
  Node *part = graph_copy_node(t->graph, old, inputs);
  part = make_cast(t->graph, part, wide(old->op, dtype));
  Node *total = t->total(t, old->op, part, level);
  return make_cast(t->graph, totals_scaled(t, old->op, total), dtype);
}

/* ── everything else ────────────────────────────────────────────────────────────────────────── */
/* (a n + b) / (c n + d): frontend/sizes.c. */
Node *totals_constant(Totals *t, const Node *old, const double *form) {
  Node *part[2];
  for (int i = 0; i < 2; i++) {
    Node *factor = make_const(t->graph, DT_F64, shape_scalar(), form[2 * i]);
    Node *more = make_const(t->graph, DT_F64, shape_scalar(), form[2 * i + 1]);
    part[i] = form[2 * i] ? make_binary(t->graph, OP_MUL, t->number, factor) : more;
    if (form[2 * i] && form[2 * i + 1]) part[i] = make_binary(t->graph, OP_ADD, part[i], more);
  }
  Node *value = make_binary(t->graph, OP_DIV, part[0], part[1]);
  value = make_cast(t->graph, value, old->type.dtype);
  return make_broadcast(t->graph, value, old->type.shape);
}

static Node *copied(Totals *t, Node *old) {
  bool is_changed = false;
  Node **inputs = ARENA_ARRAY(t->graph->arena, Node *, old->input_count);
  for (int i = 0; i < old->input_count; i++) {
    inputs[i] = t->value[old->input[i]->id];
    is_changed |= inputs[i] != old->input[i];
  }
  return is_changed ? graph_copy_node(t->graph, old, inputs) : old;
}

static Node *totals_value_of(Totals *t, Node *old) {
  const Samples *s = &t->samples[old->id];
  const Attr *form = old->op == OP_CONST ? node_attr(old, ATTR_SAMPLES) : NULL;
  if (s->kind == SAMPLES_NONE && t->on_batch[old->id]) return old; /* excused: of these samples */
  if (s->is_total) return total_of(t, old);
  return form && form->count == 4 ? totals_constant(t, old, form->floats) : copied(t, old);
}

Node *totals_value(Totals *t, Node *root) {
  bool *wanted = ARENA_ARRAY(t->graph->arena, bool, t->count);
  wanted[root->id] = true;
  for (int i = root->id; i >= 0; i--)
    for (int k = 0; wanted[i] && !t->value[i] && k < t->graph->nodes.at[i]->input_count; k++)
      wanted[t->graph->nodes.at[i]->input[k]->id] = true;
  const Origin before = t->graph->origin;
  for (int i = 0; i <= root->id; i++) {
    if (!wanted[i] || t->value[i]) continue;
    Node *old = t->graph->nodes.at[i];
    t->graph->origin = old->origin;
    t->value[i] = totals_value_of(t, old);
  }
  t->graph->origin = before;
  return t->value[root->id];
}

/* ── what is no function of totals ──────────────────────────────────────────────────────────── */
bool totals_is_mixed(const Totals *t, const Node *old) {
  SamplesKind kind = t->samples[old->id].kind;
  return kind == SAMPLES_MIXED || kind == SAMPLES_EACH;
}

Loc totals_cause(const Totals *t, const Node *old) {
  for (;;) {
    const Node *behind = NULL;
    for (int i = 0; i < old->input_count && !behind; i++) {
      const Samples *s = &t->samples[old->input[i]->id];
      if (s->kind == SAMPLES_MIXED || s->level > 0) behind = old->input[i];
    }
    if (!behind) return old->origin.loc;
    old = behind;
  }
}
