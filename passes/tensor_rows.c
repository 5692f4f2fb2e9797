/* tensor_rows: sequence parallel work between the products that share a layer's work. Korthikanti et
 * al., Reducing Activation Recomputation in Large Transformer Models (2022): what lies between a
 * joined product and the next one that is cut (residual sums, norms, dropout) is made on 1/n of the
 * rows by each of n ranks. The shares of the joined product are added by a reduce_scatter, and what
 * the next product reads is gathered: together the bytes of the all_reduce that they replace.
 *
 * Rows are samples where ranks divide their number, so that a rank's rows lie behind one another;
 * otherwise positions. From the joined products they reach as far forward as every node can be made
 * of rows, and backward to what only such nodes read. Of what is connected so, all is made on rows,
 * or nothing: only where not much more is gathered than joined, and where a norm or random numbers
 * are worth a second latency. */
#include "passes/tensor_cut.h"

typedef struct {
  TensorCuts *t;
  bool *is_row;      /* by node: made on rows */
  bool *is_total;    /* by node: a sum over rows, with one element */
  bool *is_read_all; /* by node: something needs all rows of it */
  int *group;        /* by node: one that it is connected with; itself: the group's name */
} Rows;

/* What is known of a group of nodes that are connected. */
typedef struct {
  int64_t joined, gathered; /* bytes */
  bool pays;
} Group;

static const Node *rows_at(const Rows *r, int id) { return r->t->graph->nodes.at[id]; }

static bool is_uncut(const Rows *r, const Node *node) {
  return !r->t->cut[node->id].run && !r->t->is_joined[node->id];
}

static int rows_group(Rows *r, int id) {
  while (r->group[id] != id) id = r->group[id] = r->group[r->group[id]];
  return id;
}

static void rows_connect(Rows *r, int a, int b) { r->group[rows_group(r, a)] = rows_group(r, b); }

/* What a node reads of operand k; run 0: all. */
static Cut rows_read(const Rows *r, const Node *node, int k) {
  Cut cut = r->t->cut[node->id], operand = {0};
  bool is_join = r->t->is_joined[node->id];
  if (is_join) return tensor_joined_operand(r->t, node, k);
  if (!cut.run || r->t->is_taken[node->id] || tensor_is_made_in_parts(node)) return operand;
  tensor_operand(r->t, node, cut, k, &operand);
  return operand;
}

/* ── forward ────────────────────────────────────────────────────────────────────────────────── */
/* The cut of a node that has this one in operand k; run 0: none. */
static Cut rows_result(const Rows *r, const Node *node, int k, Cut cut) {
  const Shape *shape = &node->type.shape;
  if (node->op == OP_RESHAPE)
    return tensor_reshaped(&node->input[0]->type.shape, cut, shape, r->t->ranks);
  for (int i = 0; i < shape->rank; i++) {
    Cut found = {i, cut.run}, operand;
    if (tensor_is_legal(shape, found, r->t->ranks) &&
        tensor_operand(r->t, node, found, k, &operand) && tensor_cut_equal(operand, cut))
      return found;
  }
  return (Cut){0};
}

/* Can the operand be read so? */
static bool rows_can_read(const Rows *r, const Node *operand, Cut cut) {
  if (!cut.run || operand->op == OP_CONST) return true;
  if (!tensor_is_legal(&operand->type.shape, cut, r->t->ranks)) return false;
  if (r->t->cut[operand->id].run) return tensor_cut_equal(r->t->cut[operand->id], cut);
  return !node_has_results(operand);
}

static bool rows_can_make(const Rows *r, const Node *node, Cut cut) {
  bool fine = tensor_is_legal(&node->type.shape, cut, r->t->ranks) && node->input_count > 0;
  for (int k = 0; k < node->input_count && fine; k++) {
    Cut operand;
    fine = tensor_operand(r->t, node, cut, k, &operand) &&
           rows_can_read(r, node->input[k], operand);
  }
  return fine;
}

/* What no rank has a part of yet is taken from the whole, or drawn in parts. */
static void rows_make(Rows *r, const Node *node, Cut cut) {
  r->t->cut[node->id] = cut;
  r->t->is_taken[node->id] = false;
  r->is_row[node->id] = true;
  for (int k = 0; k < node->input_count; k++) {
    const Node *x = node->input[k];
    Cut operand = rows_read(r, node, k);
    if (!operand.run || r->t->cut[x->id].run || x->op == OP_CONST) continue;
    r->t->cut[x->id] = operand;
    r->t->is_taken[x->id] = x->op != OP_IOTA && x->op != OP_RANDOM;
  }
}

/* A sum over the rows is the sum of the ranks' sums. */
static bool is_total(const Rows *r, const Node *node) {
  if (op_info[node->op].op_class != CLASS_REDUCE || !op_joins_ranks(node->op)) return false;
  return r->is_row[node->input[0]->id] && shape_elements(&node->type.shape) == 1;
}

static void rows_forward(Rows *r) {
  for (int i = 0; i < r->t->graph->nodes.count; i++) {
    const Node *node = rows_at(r, i);
    if (!is_uncut(r, node)) continue;
    if (is_total(r, node)) r->t->is_joined[i] = r->is_total[i] = true;
    for (int k = 0; k < node->input_count && is_uncut(r, node); k++) {
      if (!r->is_row[node->input[k]->id]) continue;
      Cut cut = rows_result(r, node, k, r->t->cut[node->input[k]->id]);
      if (cut.run && rows_can_make(r, node, cut)) rows_make(r, node, cut);
    }
  }
}

/* ── backward ───────────────────────────────────────────────────────────────────────────────── */
static void rows_roots(Rows *r) {
  const Graph *graph = r->t->graph;
  for (int i = 0; i < graph->nodes.count; i++) r->is_read_all[i] = false;
  for (int i = 0; i < graph->roots.count; i++) r->is_read_all[graph->roots.at[i].node->id] = true;
}

static void rows_note_read(Rows *r, const Node *node) {
  for (int k = 0; k < node->input_count; k++)
    if (!rows_read(r, node, k).run) r->is_read_all[node->input[k]->id] = true;
}

/* What is read in rows only need not be made whole. */
static void rows_backward(Rows *r) {
  rows_roots(r);
  for (int i = r->t->graph->nodes.count - 1; i >= 0; i--) {
    const Node *node = rows_at(r, i);
    bool is_part = r->t->is_taken[i] && !r->is_read_all[i] && !r->t->is_joined[i];
    if (is_part && rows_can_make(r, node, r->t->cut[i])) rows_make(r, node, r->t->cut[i]);
    rows_note_read(r, node);
  }
}

/* ── what pays ──────────────────────────────────────────────────────────────────────────────── */
static Group *rows_groups(Rows *r) {
  int count = r->t->graph->nodes.count;
  Group *groups = ARENA_ARRAY(r->t->arena, Group, count);
  for (int i = 0; i < count; i++) r->group[i] = i;
  for (int i = 0; i < count; i++)
    for (int k = 0; (r->is_row[i] || r->is_total[i]) && k < rows_at(r, i)->input_count; k++)
      if (r->is_row[rows_at(r, i)->input[k]->id] && rows_read(r, rows_at(r, i), k).run)
        rows_connect(r, i, rows_at(r, i)->input[k]->id);
  rows_roots(r);
  for (int i = 0; i < count; i++) rows_note_read(r, rows_at(r, i));
  for (int i = 0; i < count; i++) {
    Group *group = &groups[rows_group(r, i)];
    const Node *node = rows_at(r, i);
    int64_t bytes = type_bytes(&node->type);
    if (!r->is_row[i]) continue;
    if (r->t->is_joined[i]) group->joined += bytes;
    if (r->is_read_all[i]) group->gathered += bytes;
    group->pays |= op_info[node->op].op_class == CLASS_REDUCE;
    for (int k = 0; k < node->input_count; k++) group->pays |= node->input[k]->op == OP_RANDOM;
  }
  return groups;
}

static void rows_drop(Rows *r, const Group *groups) {
  int count = r->t->graph->nodes.count;
  for (int i = 0; i < count; i++) {
    const Group *group = &groups[rows_group(r, i)];
    if (group->pays && group->gathered <= group->joined + group->joined / 4) continue;
    if (r->is_row[i]) r->t->cut[i] = (Cut){0};
    if (r->is_total[i]) r->t->is_joined[i] = r->is_total[i] = false;
    r->is_row[i] = false;
  }
  bool *is_wanted = ARENA_ARRAY(r->t->arena, bool, count);
  for (int i = 0; i < count; i++)
    for (int k = 0; k < rows_at(r, i)->input_count; k++)
      is_wanted[rows_at(r, i)->input[k]->id] |= rows_read(r, rows_at(r, i), k).run > 0;
  for (int i = 0; i < count; i++)
    if (r->t->is_taken[i] && !is_wanted[i]) r->t->cut[i] = (Cut){0}, r->t->is_taken[i] = false;
}

/* Samples, or positions: of a product whose rows are positions of samples, as it is reshaped. */
static Cut rows_of_join(const Rows *r, const Node *join, bool by_sample) {
  const Shape *shape = &join->type.shape;
  if (shape->rank < 2) return (Cut){0};
  if (by_sample) return (Cut){0, shape->dim[0] / r->t->ranks};
  if (shape->rank > 2 && join->op != OP_CONV) return (Cut){1, shape->dim[1] / r->t->ranks};
  for (int i = join->id + 1; i < r->t->graph->nodes.count; i++) {
    const Node *user = rows_at(r, i);
    const Shape *to = &user->type.shape;
    if (user->op == OP_RESHAPE && user->input[0] == join && to->rank == 3)
      return (Cut){0, to->dim[1] / r->t->ranks};
  }
  return (Cut){0};
}

void tensor_cut_rows(TensorCuts *t) {
  int count = t->graph->nodes.count;
  Rows r = {.t = t,
            .is_row = ARENA_ARRAY(t->arena, bool, count),
            .is_total = ARENA_ARRAY(t->arena, bool, count),
            .is_read_all = ARENA_ARRAY(t->arena, bool, count),
            .group = ARENA_ARRAY(t->arena, int, count)};
  for (int by_sample = 1; by_sample >= 0; by_sample--) {
    for (int i = 0; i < count; i++) {
      const Node *join = rows_at(&r, i);
      bool is_seed = t->is_joined[i] && !t->cut[i].run &&
                     op_info[join->op].op_class != CLASS_REDUCE;
      Cut cut = is_seed ? rows_of_join(&r, join, by_sample) : (Cut){0};
      if (!cut.run || !tensor_is_legal(&join->type.shape, cut, t->ranks)) continue;
      t->cut[i] = cut;
      r.is_row[i] = true;
    }
    rows_forward(&r);
    rows_backward(&r);
    rows_drop(&r, rows_groups(&r));
  }
}
