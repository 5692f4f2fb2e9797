/* totals_ranks: a batch whose samples are shared out among ranks, as if it were whole. Rank r has
 * the r-th part of the rows, and computes what a rank by itself would of them. What differs:
 *
 * - a total is joined over the ranks (all_reduce) when this rank's part of it is complete
 * - random numbers for samples are those of this rank's rows in the whole batch
 * - with distributed.sync_batch_norm the statistics of a batch norm are joined, too, forward and
 *   backward; otherwise each rank normalises by its own
 * - a state that follows the batch (running statistics) becomes the mean of what the ranks make
 *   of it, each of its own samples: all have the same afterwards. What follows it by way of totals
 *   of all ranks only (statistics that were joined) is the same on every rank already
 *
 * Gradients are added over the ranks by pass allreduce. */
#include "passes/totals.h"

void totals_ranks_begin(Totals *t) {
  const SettingValue *settings = t->context->settings;
  t->ranks = NULL;
  if (!settings || setting_ranks(settings) == 1) return;
  t->ranks = make_setting(t->graph, "distributed.ranks");
}

Node *totals_over_ranks(Totals *t, Op op, Node *part) {
  if (!t->ranks) return part;
  Op by = op == OP_DOT ? OP_SUM : op;
  DType dtype = part->type.dtype;
  if (dtype != DT_BOOL) return make_all_reduce(t->graph, by, part);
  Node *number = make_cast(t->graph, part, DT_I32);
  return make_cast(t->graph, make_all_reduce(t->graph, by, number), dtype);
}

Node *totals_share(Totals *t, Node *value) {
  if (!t->ranks) return value;
  Node *ranks = make_cast(t->graph, t->ranks, value->type.dtype);
  return make_binary(t->graph, OP_DIV, value, make_broadcast(t->graph, ranks, value->type.shape));
}

/* ── states ─────────────────────────────────────────────────────────────────────────────────── */
/* By old node: may it be another on each rank? */
static bool *find_own(const Totals *t) {
  bool *is_own = ARENA_ARRAY(t->graph->arena, bool, t->count);
  for (int i = 0; i < t->count; i++) {
    const Node *node = t->graph->nodes.at[i];
    is_own[i] = node->op == OP_INPUT || node->op == OP_RANDOM;
    if (node->op == OP_ALL_REDUCE && node_axis(node) <= MESH_DATA) continue; /* or all */
    for (int k = 0; k < node->input_count; k++) is_own[i] |= is_own[node->input[k]->id];
  }
  return is_own;
}

bool totals_average_states(Totals *t) {
  Graph *graph = t->graph;
  const bool *is_own = t->ranks ? find_own(t) : NULL;
  bool is_good = true;
  for (int i = 0; t->ranks && i < graph->roots.count; i++) {
    const Root root = graph->roots.at[i];
    if (root.kind != ROOT_ASSIGN || root.node->id >= t->count || !is_own[root.node->id]) continue;
    Node *assign = root.node, *value = assign->input[0];
    graph->origin = assign->origin;
    if (!dtype_is_float(value->type.dtype)) {
      diag_error(
          t->context->diag, assign->origin.loc,
          "state '%s' follows the samples of the batch, of which each rank has its own: only "
          "states of floating-point numbers are averaged over the ranks",
          root.name);
      is_good = false;
      continue;
    }
    Node *wide = make_cast(graph, value, DT_F64);
    Node *sum = make_all_reduce(graph, OP_SUM, wide);
    Node *mean = make_cast(graph, totals_share(t, sum), value->type.dtype);
    Attr target = attr_str(ATTR_TARGET, root.name);
    graph->roots.at[i].node = graph_node(graph, OP_ASSIGN, &mean, 1, &target, 1, NULL);
  }
  return is_good;
}

/* ── random numbers ─────────────────────────────────────────────────────────────────────────── */
typedef struct {
  const Samples *samples;
  bool has_ranks, has_parts; /* of a batch: several */
} RowsDrawn;

/* How many others of its size stand before this rank's rows: those of ranks before and, in what is drawn for the
 * whole batch, of the parts that all ranks have done. NULL: none. */
static Node *parts_before(Graph *fresh, const RowsDrawn *rows, bool is_whole) {
  Node *rank = NULL, *part = NULL;
  if (rows->has_ranks)
    rank = make_cast(fresh, make_setting(fresh, "distributed.data_rank"), DT_I64);
  if (rows->has_parts && is_whole)
    part = make_state(fresh, ROLE_PART, PARTS_DONE, (Type){DT_I64, shape_scalar()}, 0);
  if (part && rank) {
    Node *ranks = make_cast(fresh, make_setting(fresh, "distributed.ranks"), DT_I64);
    return make_binary(fresh, OP_ADD, make_binary(fresh, OP_MUL, part, ranks), rank);
  }
  return part ? part : rank;
}

/* Rows stand in the whole batch behind those of the ranks before. */
static Node *draw_rows(Graph *fresh, const Node *old, Node **inputs, void *context) {
  const RowsDrawn *rows = context;
  if (old->op != OP_RANDOM || rows->samples[old->id].kind != SAMPLES_EACH) return NULL;
  Node *before = parts_before(fresh, rows, node_int(old, ATTR_WHOLE, 0) != 0);
  if (!before) return NULL;
  Node *count = make_like(fresh, before, (double)shape_elements(&old->type.shape));
  Node *operands[] = {inputs[0], inputs[1], make_binary(fresh, OP_MUL, before, count)};
  return graph_node(fresh, OP_RANDOM, operands, 3, old->attr, old->attr_count, &old->type);
}

Graph *totals_random_of_rows(PassContext *context, Graph *graph) {
  int64_t batch;
  if (!context->settings) return graph;
  RowsDrawn rows = {.has_ranks = setting_ranks(context->settings) != 1,
               .has_parts = pass_trains(context) &&
                            setting_number(context->settings, "train.accumulate") > 1};
  if (!rows.has_ranks && !rows.has_parts) return graph;
  const bool *excused = samples_of_states(graph, graph->arena);
  rows.samples = samples_find(graph, graph->arena, excused, &batch);
  return graph_rewrite(graph, draw_rows, &rows);
}

/* ── statistics of all ranks' samples ───────────────────────────────────────────────────────── */
typedef struct {
  Totals t; /* graph, ranks, number, batch */
  const bool *statistics;
  const Samples *samples;
  bool has_notes; /* of how constants follow the number of samples */
  bool *is_made;  /* by old node: of such statistics only */
} Synchronised;

static Node *for_all_samples(Synchronised *s, const Node *old, Node *fresh) {
  const Attr *form = old->op == OP_CONST ? node_attr(old, ATTR_SAMPLES) : NULL;
  if (!form || form->count != 4 || (!form->floats[2] && !form->floats[3])) return fresh;
  return totals_constant(&s->t, old, form->floats);
}

static Node *joined_statistic(Graph *fresh, const Node *old, Node **inputs, void *context) {
  Synchronised *s = context;
  if (!s->t.ranks) { /* the first node */
    s->t.graph = fresh;
    s->t.ranks = make_setting(fresh, "distributed.ranks");
    s->t.number = make_binary(fresh, OP_MUL, s->t.ranks,
                              make_const(fresh, DT_F64, shape_scalar(), (double)s->t.batch));
  }
  if (s->statistics[old->id]) {
    s->is_made[old->id] = true;
    Node *sum = totals_over_ranks(&s->t, old->op, graph_copy_node(fresh, old, inputs));
    return s->has_notes ? sum : totals_share(&s->t, sum);
  }
  bool is_made = false;
  for (int k = 0; k < old->input_count; k++) is_made |= s->is_made[old->input[k]->id];
  if (!is_made || s->samples[old->id].kind != SAMPLES_NONE) return NULL;
  s->is_made[old->id] = true;
  for (int k = 0; k < old->input_count; k++)
    inputs[k] = for_all_samples(s, old->input[k], inputs[k]);
  return graph_copy_node(fresh, old, inputs);
}

Graph *totals_synchronised(PassContext *context, Graph *graph) {
  const SettingValue *settings = context->settings;
  if (!settings || setting_ranks(settings) == 1) return graph;
  if (!setting_number(settings, "distributed.sync_batch_norm")) return graph;
  Arena *arena = graph->arena;
  Synchronised s = {.t = {.context = context},
                    .statistics = samples_of_states(graph, arena),
                    .is_made = ARENA_ARRAY(arena, bool, graph->nodes.count)};
  s.samples = samples_find(graph, arena, s.statistics, &s.t.batch);
  for (int i = 0; i < graph->nodes.count; i++)
    s.has_notes |=
        graph->nodes.at[i]->op == OP_INPUT && node_attr(graph->nodes.at[i], ATTR_SAMPLES);
  return graph_rewrite(graph, joined_statistic, &s);
}
