/* totals: makes of the evaluation graph one that evaluates a whole split. Each total of a loss or
 * metric is added up in a state over the batches, and the loss and metrics that are shown are those
 * of all samples so far: what one batch of all of them would give. Samples that only fill the last
 * batch are left out by their number. A total whose operands need another total first (the mean, in
 * a variance) is added up in a second pass over the samples, with that one as it ended.
 *
 * The runtime sets four states, f64[], of which zeros mean "this batch alone" (plan/plan.h):
 * @eval.keep (are there totals of batches before?), @eval.missing (samples at the end of this batch
 * that are none), @eval.more (samples of the split beyond one batch; may be less than 0), and
 * @eval.pass. A root "passes" says how many passes are needed, if not one.
 *
 * What relates samples to each other (products of pairs in a contrastive loss) has no such form:
 * it is the mean over whole batches, and the compiler says so. */
#include "passes/totals.h"
#include <string.h>

typedef struct {
  Totals t; /* first: what t.total and t.operand get */
  Node *keep, *missing, *pass;
  int states;
} Evaluation;

static Node *scalar_state(Totals *t, LeafRole role, const char *name) {
  return make_state(t->graph, role, name, (Type){DT_F64, shape_scalar()}, 0);
}

static Node *totals_number(Totals *t, double value) {
  return make_const(t->graph, DT_F64, shape_scalar(), value);
}

/* ── one batch ──────────────────────────────────────────────────────────────────────────────── */
/* bool, 1 but for the axis of the samples: is it a sample of the split? */
static Node *totals_is_there(Evaluation *e, const Shape *shape, const Samples *s) {
  Graph *graph = e->t.graph;
  Shape line = *shape;
  for (int i = 0; i < line.rank; i++)
    if (i != s->axis) line.dim[i] = 1;
  Node *index = make_iota(graph, DT_I32, line, s->axis);
  if (s->inner > 1)
    index = make_binary(graph, OP_DIV, index, make_like(graph, index, (double)s->inner));
  if (line.dim[s->axis] > e->t.batch * s->inner)
    index = make_binary(graph, OP_REM, index, make_like(graph, index, (double)e->t.batch));
  Node *real = make_binary(graph, OP_SUB, totals_number(&e->t, (double)e->t.batch), e->missing);
  return make_binary(graph, OP_LT, index, make_cast(graph, real, DT_I32));
}

static Node *evaluation_operand(Totals *t, Node *x, const Samples *s, Op op) {
  Node *nothing = totals_neutral(t, op, x->type);
  return make_select(t->graph, totals_is_there((Evaluation *)t, &x->type.shape, s), x, nothing);
}

/* ── over the batches ───────────────────────────────────────────────────────────────────────── */
static Node *evaluation_total(Totals *t, Op op, Node *part, int level) {
  Evaluation *e = (Evaluation *)t;
  Graph *graph = t->graph;
  const char *name = arena_printf(graph->arena, OWN_EVAL "%d", e->states++);
  Node *state = make_state(graph, ROLE_TOTAL, name, part->type, 0);
  Node *goes_on = make_binary(graph, OP_NE, e->keep, totals_number(t, 0));
  Node *before = make_select(graph, goes_on, state, totals_neutral(t, op, part->type));
  Node *now = totals_joined(t, op, before, part);
  Node *is_done = make_binary(graph, OP_GT, e->pass, totals_number(t, level));
  now = make_select(graph, is_done, state, now);
  make_assign(graph, name, now);
  return totals_over_ranks(t, op, now);
}

/* The mean over the batches that hold samples of the split only. */
static Node *batch_mean(Evaluation *e, Node *value) {
  Totals *t = &e->t;
  Graph *graph = t->graph;
  graph->origin = value->origin;
  Node *zero = totals_number(t, 0), *is_whole = make_binary(graph, OP_EQ, e->missing, zero);
  Node *wide = make_cast(graph, value, DT_F64);
  Node *nothing = totals_neutral(t, OP_SUM, wide->type);
  Node *sum = evaluation_total(t, OP_SUM, make_select(graph, is_whole, wide, nothing), 0);
  Node *one = make_select(graph, is_whole, totals_number(t, 1), zero);
  Node *count = evaluation_total(t, OP_SUM, one, 0);
  count = make_broadcast(graph, count, sum->type.shape);
  return make_cast(graph, make_binary(graph, OP_DIV, sum, count), value->type.dtype);
}

static void say_mixed(const Evaluation *e, const Root *root) {
  Diag *diag = e->t.context->diag;
  bool is_loss = root->kind == ROOT_LOSS;
  diag_warning(
      diag, totals_cause(&e->t, root->node),
      "this relates the samples of a batch to each other, so an evaluation cannot add up "
      "%s%s%s sample by sample: it is the mean over whole batches, and samples that do not "
      "fill one are left out of it",
      is_loss ? "the loss" : "metric '", is_loss ? "" : root->name, is_loss ? "" : "'");
}

/* The rows of an AUC, which the runtime collects: those of samples that are none have no class. */
static Node *rows_of_batch(Evaluation *e, const Root *root) {
  Totals *t = &e->t;
  const Samples *s = &t->samples[root->node->id];
  t->graph->origin = root->node->origin;
  if (s->kind != SAMPLES_EACH || s->axis != 0) {
    diag_error(t->context->diag, totals_cause(t, root->node),
               "auc '%s' needs scores of each sample by itself, in the samples' order, and this "
               "relates the samples of a batch to each other",
               root->name);
    return root->node;
  }
  Node *rows = totals_value(t, root->node);
  if (s->level + 1 > t->levels) t->levels = s->level + 1;
  Node *none = make_const(t->graph, DT_F32, rows->type.shape, -1);
  return make_select(t->graph, totals_is_there(e, &rows->type.shape, s), rows, none);
}

static Node *of_split(Evaluation *e, const Root *root) {
  Totals *t = &e->t;
  if (root->kind == ROOT_AUC) return rows_of_batch(e, root);
  if (root->node->type.shape.rank && t->samples[root->node->id].kind == SAMPLES_EACH) {
    char text[TYPE_TEXT];
    diag_error(t->context->diag, root->node->origin.loc,
               "metric '%s' is %s, values of each sample by itself: take their mean(...)",
               root->name, type_text(&root->node->type, text));
    return root->node;
  }
  if (!totals_is_mixed(t, root->node)) return totals_value(t, root->node);
  if (t->batch > 1) say_mixed(e, root); /* batches of one sample leave out none */
  return batch_mean(e, root->node);
}

/* ── notes ──────────────────────────────────────────────────────────────────────────────────── */
static Node *without_notes(Graph *fresh, const Node *old, Node **inputs, void *context) {
  if (old->op == OP_ASSIGN &&
      graph_find_root(context, ROOT_ASSIGN, node_str(old, ATTR_TARGET)) != old)
    return inputs[0]; /* another part's, or of one rank alone: totals_parts.c, totals_ranks.c */
  if (!node_attr(old, ATTR_SAMPLES) && !node_attr(old, ATTR_BATCH)) return NULL;
  Attr *kept = ARENA_ARRAY(fresh->arena, Attr, old->attr_count);
  int count = 0;
  for (int i = 0; i < old->attr_count; i++)
    if (old->attr[i].id != ATTR_SAMPLES && old->attr[i].id != ATTR_BATCH)
      kept[count++] = old->attr[i];
  return graph_node(fresh, old->op, inputs, old->input_count, kept, count, &old->type);
}

/* ── the pass ───────────────────────────────────────────────────────────────────────────────── */
static void totals_evaluate(PassContext *context, Graph *graph) {
  Evaluation e = {.t = {.total = evaluation_total, .operand = evaluation_operand}};
  Totals *t = &e.t;
  totals_begin(t, context, graph, NULL);
  if (!t->batch) return; /* without an input there is nothing to go through */
  graph->origin = (Origin){0};
  e.keep = scalar_state(t, ROLE_KEEP, OWN_EVAL "keep");
  e.missing = scalar_state(t, ROLE_MISSING, OWN_EVAL "missing");
  e.pass = scalar_state(t, ROLE_PASS, OWN_EVAL "pass");
  Node *more = scalar_state(t, ROLE_MORE, OWN_EVAL "more");
  Node *batch = totals_number(t, (double)t->batch);
  if (t->ranks) batch = make_binary(graph, OP_MUL, batch, t->ranks);
  t->number = make_binary(graph, OP_ADD, more, batch);
  for (int i = 0, roots = graph->roots.count; i < roots; i++) {
    Root root = graph->roots.at[i];
    if (root.kind != ROOT_LOSS && root.kind != ROOT_METRIC && root.kind != ROOT_AUC) continue;
    Node *value = of_split(&e, &root); /* adds roots */
    graph->roots.at[i].node = value;
  }
  if (t->levels > 1) graph_add_root(graph, ROOT_PASSES, "passes", totals_number(t, t->levels));
}

Graph *pass_totals(PassContext *context, Graph *old) {
  Graph *graph = graph_rewrite(pass_cse(context, old), NULL, NULL); /* equal totals are one */
  graph = totals_random_of_rows(context, graph);
  if (pass_trains(context)) graph = totals_synchronised(context, graph);
  if (pass_trains(context) && !totals_of_parts(context, graph)) return NULL;
  if (context->of == PASS_OF_EVAL) totals_evaluate(context, graph);
  return graph_rewrite(graph, without_notes, graph);
}
