/* optimizer_accumulate: a batch in parts, as if it were whole. There are two graphs of a step then:
 * "micro" runs for all parts but the last and only adds to sums; "train" runs for the last one and
 * makes the update of all. What is summed must be what a whole batch would sum: a mean over w
 * elements counts with weight w, where w may differ from part to part (targets that are ignored).
 *
 * Given loss = N/w in each part, the whole batch's is (sum of N)/(sum of w), and its gradient is
 * (sum of w times the part's gradient)/(sum of w), since w depends on no parameter. Which w belongs
 * to a loss or metric is read off the graph: the divisor that depends on the batch. A part in which
 * nothing counts has w = 0 and a loss of 0/0, and adds nothing.
 *
 * Gradients are only added, so that a library's product does it: what is differentiated is w times
 * the loss (but where a loss scale keeps gradients within f16's range), and the sums are zero when
 * a batch begins: "train" ends with that (codegen/lower.c). */
#include "passes/loss_scale.h"
#include "passes/optimizer.h"
#include <string.h>

/* ── by what a scalar was divided ───────────────────────────────────────────────────────────── */
typedef enum { SHARE_FIXED, SHARE_EQUAL, SHARE_WEIGHTED, SHARE_MIXED } ShareKind;
/* FIXED: the same in every part; EQUAL: counts the same elements in every part (or we cannot know);
 * WEIGHTED: a mean over `weight` of them; MIXED: of several weights, or not linear in such a mean.
 */
typedef struct {
  ShareKind kind;
  Node *weight;
} Share;

typedef struct {
  bool *on_batch, *on_params; /* by node: what it depends on */
  Share *share;
} Analysis;

static bool is_one(const Node *node) { return shape_elements(&node->type.shape) == 1; }

static bool is_same(const Node *a, const Node *b, int depth) {
  if (a == b) return true;
  if (!depth || a->op != b->op || a->input_count != b->input_count || !a->input_count ||
      !type_equal(&a->type, &b->type) || op_info[a->op].op_class == CLASS_LEAF)
    return false;
  for (int i = 0; i < a->input_count; i++)
    if (!is_same(a->input[i], b->input[i], depth - 1)) return false;
  return true;
}

static Share mixed_if_any(const Analysis *analysis, const Node *node) {
  Share share = {analysis->on_batch[node->id] ? SHARE_EQUAL : SHARE_FIXED, NULL};
  for (int i = 0; i < node->input_count; i++)
    if (analysis->share[node->input[i]->id].kind >= SHARE_WEIGHTED) share.kind = SHARE_MIXED;
  return share;
}

static Share sum_of(Share a, Share b) {
  if (a.kind == SHARE_FIXED) return b;
  if (b.kind == SHARE_FIXED) return a;
  if (a.kind == SHARE_EQUAL && b.kind == SHARE_EQUAL) return a;
  bool agree =
      a.kind == SHARE_WEIGHTED && b.kind == SHARE_WEIGHTED && is_same(a.weight, b.weight, 8);
  return agree ? a : (Share){SHARE_MIXED, NULL};
}

static Share share_of(const Analysis *analysis, const Node *node) {
  const Node *left = node->input_count ? node->input[0] : NULL;
  const Node *right = node->input_count > 1 ? node->input[1] : NULL;
  Share a = left ? analysis->share[left->id] : (Share){0};
  Share b = right ? analysis->share[right->id] : (Share){0};
  if (!is_one(node)) return mixed_if_any(analysis, node);
  switch (node->op) {
  case OP_NEG:
  case OP_RESHAPE:
  case OP_BROADCAST:
  case OP_CAST:
  case OP_STOP_GRADIENT:
    return a;
  case OP_ADD:
  case OP_SUB:
    return sum_of(a, b);
  case OP_MUL:
    if (a.kind == SHARE_FIXED) return b;
    return b.kind == SHARE_FIXED ? a : mixed_if_any(analysis, node);
  case OP_DIV:
    if (b.kind == SHARE_FIXED) return a;
    if (a.kind == SHARE_EQUAL && b.kind == SHARE_EQUAL && !analysis->on_params[right->id])
      return (Share){SHARE_WEIGHTED, node->input[1]};
    return mixed_if_any(analysis, node);
  default:
    return mixed_if_any(analysis, node);
  }
}

static Analysis analyse(const Graph *graph, Arena *arena) {
  int count = graph->nodes.count;
  Analysis analysis = {ARENA_ARRAY(arena, bool, count), ARENA_ARRAY(arena, bool, count),
                       ARENA_ARRAY(arena, Share, count)};
  for (int i = 0; i < count; i++) {
    const Node *node = graph->nodes.at[i];
    analysis.on_batch[i] = node->op == OP_INPUT || node->op == OP_RANDOM;
    analysis.on_params[i] = node->op == OP_PARAM;
    for (int k = 0; k < node->input_count; k++) {
      analysis.on_batch[i] |= analysis.on_batch[node->input[k]->id];
      analysis.on_params[i] |= analysis.on_params[node->input[k]->id];
    }
    analysis.share[i] = share_of(&analysis, node);
  }
  return analysis;
}

/* ── sums ───────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  Update *u;
  bool is_micro;
  Node *is_first; /* bool[]; of the micro graph */
} Sums;

static Node *sum_so_far(Sums *sums, const char *name, Type type) {
  Arena *arena = sums->u->graph->arena;
  return update_leaf(sums->u, OP_STATE, arena_printf(arena, OWN_ACCUMULATE "%s", name), type, true,
                     0);
}

/* The micro graph keeps a sum for the next part. */
static Node *keep_sum(Sums *sums, const Node *before, Node *after) {
  if (sums->is_micro) update_assign(sums->u, node_str(before, ATTR_NAME), after);
  return after;
}

/* The sum with this part's term. */
static Node *add_term(Sums *sums, const char *name, Node *term) {
  Update *u = sums->u;
  Node *before = sum_so_far(sums, name, term->type), *after = update_add(u, before, term);
  if (sums->is_micro) after = make_select(u->graph, sums->is_first, term, after, u->loc);
  return keep_sum(sums, before, after);
}

/* The weight of this part as f64[], 0 or more. */
static Node *weight_of(Update *u, const Share *share) {
  if (share->kind != SHARE_WEIGHTED) return update_number(u, 1);
  Node *weight = make_reshape(u->graph, share->weight, shape_scalar(), u->loc);
  return make_cast(u->graph, weight, DT_F64, u->loc);
}

/* x times weight; nothing where the weight is 0, whatever x is. */
static Node *weighed(Update *u, Node *x, Node *weight, const Share *share) {
  if (share->kind != SHARE_WEIGHTED) return x;
  Node *factor = make_cast(u->graph, weight, x->type.dtype, u->loc);
  Node *counts = update_op(u, OP_GT, weight, update_number(u, 0));
  return make_select(u->graph, counts, update_mul(u, x, factor), make_like(u->graph, x, 0, u->loc),
                     u->loc);
}

static Node *weight_sum(Sums *sums, const char *name, Node *weight, const Share *share) {
  double parts = setting_number(sums->u->settings, "train.accumulate");
  if (share->kind != SHARE_WEIGHTED) return update_number(sums->u, parts);
  return add_term(sums, arena_printf(sums->u->graph->arena, "%s.weight", name), weight);
}

/* A loss or metric becomes that of the whole batch. */
static void sum_root(Sums *sums, Root *root, const Share *share) {
  Update *u = sums->u;
  Node *value = make_cast(u->graph, root->node, DT_F64, u->loc), *weight = weight_of(u, share);
  const char *name = arena_printf(u->graph->arena, "of.%s", root->name); /* not part, not grads */
  Node *sum = add_term(sums, name, weighed(u, value, weight, share));
  Node *weights = weight_sum(sums, name, weight, share);
  if (sums->is_micro) return;
  root->node = make_cast(u->graph, update_div(u, sum, weights), root->node->type.dtype, u->loc);
}

/* The sums lie where the gradients themselves would: a state with an offset has its place in their
 * arena (memplan), and each gradient is added there by the kernel that makes it. */
static Node *sum_grads(Sums *sums, Node *grads, const Share *share) {
  bool is_weighed = !loss_scale_is_used(sums->u->settings, sums->u->graph); /* in the loss */
  Update *u = sums->u;
  Arena *arena = u->graph->arena;
  Node *weight = weight_of(u, share), **totals = ARENA_ARRAY(arena, Node *, grads->input_count);
  const Attr *offsets = node_attr(grads, ATTR_OFFSETS);
  for (int i = 0; i < grads->input_count; i++) {
    const char *name = arena_printf(arena, "grads.%d", i);
    Attr place = attr_int(ATTR_OFFSET, offsets->ints[i]);
    Node *before = sum_so_far(sums, name, grads->input[i]->type), *term = grads->input[i];
    node_set_attr(u->graph, before, place);
    if (!is_weighed) term = weighed(u, term, weight, share);
    totals[i] = keep_sum(sums, before, update_add(u, before, term));
  }
  Node *weights = weight_sum(sums, "grads", weight, share);
  Node *inverse = update_div(u, update_number(u, 1), weights);
  if (sums->is_micro) return NULL;
  Node *sum = graph_node(u->graph, OP_PACK, totals, grads->input_count, offsets, 1, &grads->type,
                         grads->loc);
  return update_scaled(u, sum, inverse);
}

Node *update_accumulate(Update *u, Diag *diag, bool is_micro, Node *grads) {
  Graph *graph = u->graph;
  Analysis analysis = analyse(graph, graph->arena);
  Type counter_type = {DT_I64, shape_scalar()};
  Node *part = update_leaf(u, OP_STATE, OWN_ACCUMULATE "part", counter_type, true, 0);
  Sums sums = {.u = u, .is_micro = is_micro};
  if (is_micro) sums.is_first = update_op(u, OP_EQ, part, make_like(graph, part, 0, u->loc));
  Share of_loss = {0};
  for (int i = 0; i < graph->roots.count; i++) {
    Root *root = &graph->roots.at[i];
    bool is_scalar = (root->kind == ROOT_LOSS || root->kind == ROOT_METRIC) && is_one(root->node);
    if (!is_scalar) continue;
    Share share = analysis.share[root->node->id];
    if (root->kind == ROOT_LOSS) of_loss = share;
    if (root->kind == ROOT_LOSS && share.kind == SHARE_MIXED) {
      diag_error(diag, root->node->loc,
                 "with accumulate the loss must be a mean over one set of elements: this one mixes "
                 "means that count different elements, and parts of a batch cannot be weighed");
      return NULL;
    }
    sum_root(&sums, root, &share);
  }
  Node *whole = sum_grads(&sums, grads, &of_loss);
  Node *next = update_add(u, part, make_like(graph, part, 1, u->loc));
  update_assign(u, OWN_ACCUMULATE "part", is_micro ? next : make_like(graph, part, 0, u->loc));
  return is_micro ? grads : whole;
}

/* ── the loss that is differentiated ────────────────────────────────────────────────────────── */
/* The same mean, but over 1 where nothing counts: its gradients are finite. */
static Node *safe_mean(Graph *graph, const Analysis *analysis, Node *node) {
  Node *inputs[2] = {NULL};
  if (analysis->share[node->id].kind != SHARE_WEIGHTED) return node;
  for (int i = 0; i < node->input_count; i++)
    inputs[i] = safe_mean(graph, analysis, node->input[i]);
  if (node->op == OP_DIV && inputs[0] == node->input[0]) {
    Node *over = node->input[1],
         *counts = make_binary(graph, OP_GT, over, make_like(graph, over, 0, over->loc), over->loc);
    inputs[1] = make_select(graph, counts, over, make_like(graph, over, 1, over->loc), over->loc);
  }
  return graph_copy_node(graph, node, inputs);
}

Node *update_weighed_loss(SettingValue *settings, Graph *graph, Node *loss) {
  if (!settings || setting_number(settings, "train.accumulate") <= 1 || !is_one(loss) ||
      loss_scale_is_used(settings, graph))
    return loss;
  Analysis analysis = analyse(graph, graph->arena);
  Share share = analysis.share[loss->id];
  if (share.kind != SHARE_WEIGHTED) return loss;
  Node *mean = safe_mean(graph, &analysis, loss);
  Node *weight = make_reshape(graph, share.weight, loss->type.shape, loss->loc);
  weight = make_cast(graph, weight, loss->type.dtype, loss->loc);
  weight = make_binary(graph, OP_MAX, weight, make_like(graph, weight, 0, loss->loc), loss->loc);
  return make_binary(graph, OP_MUL, mean, weight, loss->loc);
}

/* ── evaluation ─────────────────────────────────────────────────────────────────────────────── */
Graph *update_show_weights(Graph *old) {
  Graph *graph = graph_rewrite(old, NULL, NULL);
  Analysis analysis = analyse(graph, graph->arena);
  int roots = graph->roots.count;
  for (int i = 0; i < roots; i++) {
    const Root root = graph->roots.at[i];
    const Share *share = &analysis.share[root.node->id];
    if ((root.kind != ROOT_LOSS && root.kind != ROOT_METRIC) || share->kind != SHARE_WEIGHTED)
      continue;
    Node *weight = make_reshape(graph, share->weight, shape_scalar(), root.node->loc);
    graph_add_root(graph, ROOT_WEIGHT, root.name, weight);
  }
  return graph->roots.count > roots ? graph : old;
}

/* ── random numbers ─────────────────────────────────────────────────────────────────────────── */
/* Each part draws its own: step becomes step x parts + part. */
static Node *draw_apart(Graph *fresh, const Node *old, Node **inputs, void *context) {
  const double *parts = context;
  if (old->op != OP_RANDOM || old->input[1]->op != OP_STATE) return NULL;
  Update u = {.graph = fresh, .loc = old->loc};
  Node *step = inputs[1];
  Node *part = update_leaf(&u, OP_STATE, OWN_ACCUMULATE "part", step->type, true, 0);
  Node *scaled = update_mul(&u, step, make_like(fresh, step, *parts, old->loc));
  Node *changed[] = {inputs[0], update_add(&u, scaled, part)};
  return graph_copy_node(fresh, old, changed);
}

Graph *update_part_random(Graph *graph, double parts) {
  return graph_rewrite(graph, draw_apart, &parts);
}
