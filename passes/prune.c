/* prune: see prune.h. Magnitudes: Han et al., Learning both Weights and Connections for Efficient Neural Networks (2015). The schedule:
 * Zhu and Gupta, To prune, or not to prune (2017). movement: Sanh et al., Movement Pruning (2020), of what is alive. gradient: |w dL/dw|,
 * Lee et al., SNIP (2019), averaged over steps. zeros: what is 0 when a training begins stays so (Frankle and Carbin, The Lottery Ticket
 * Hypothesis, 2019). */
#include "passes/prune.h"
#include "passes/prune_select.h"
#include "plan/prune_structure.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char prune_mask[] = OWN_MARK "prune.mask", prune_score[] = OWN_MARK "prune.score";
static const double mask_unknown = 2; /* zeros: before the first step */

/* A trained param: its elements are those of a matrix [rows, columns], of which `units` are pruned or kept. */
typedef struct {
  const Node *param;
  const char *by; /* the name of the one by whose units it is pruned, mostly its own; NULL: it is not pruned */
  int64_t begin, elements, rows, columns, units;
  Node *score; /* f32[units] */
  Node *keep;  /* bool[units] */
} Pruned;
typedef VEC(Pruned) PrunedList;

static bool prune_is_kind(const Update *u, const char *kind) {
  return strcmp(setting_text(u->settings, "train.prune"), kind) == 0;
}

static Shape prune_row(int64_t count) { return shape_of(1, &count); }

static PruneStructure structure_of(const Update *u) {
  PruneStructure structure = {.kind = PRUNE_ELEMENT};
  prune_structure_read(setting_text(u->settings, "train.prune.structure"), &structure);
  return structure;
}

Node *prune_masked(Update *u, Node *x) {
  if (!u->alive) return x;
  Node *alive = make_slice(u->graph, u->alive, (int64_t[]){0}, x->type.shape);
  return make_select(u->graph, alive, x, make_like(u->graph, x, 0));
}

/* ── what there is ──────────────────────────────────────────────────────────────────────────── */
static int prune_by_begin(const void *a, const void *b) {
  const Pruned *x = a, *y = b;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

static PrunedList prune_list(Update *u) {
  PrunedList list = {0};
  for (int i = 0; i < u->graph->nodes.count; i++) {
    const Node *param = u->graph->nodes.at[i];
    const Shape *shape = &param->type.shape;
    int64_t elements = shape_elements(shape);
    if (param->op != OP_PARAM || node_is_frozen(param) || !elements) continue;
    Pruned one = {.param = param,
                  .by = node_str(param, ATTR_PRUNED),
                  .begin = node_int(param, ATTR_OFFSET, 0),
                  .elements = elements,
                  .rows = shape->rank ? shape->dim[0] : 1};
    one.columns = elements / one.rows;
    VEC_PUSH(u->graph->arena, list, one);
  }
  if (list.count) qsort(list.at, (size_t)list.count, sizeof *list.at, prune_by_begin);
  return list;
}

static bool is_leader(const Pruned *one) {
  return one->by && strcmp(one->by, node_str(one->param, ATTR_NAME)) == 0;
}

/* f32[N] of 1 and 0: what the pieces say of each param's elements, 1 where a param has none. What lies between params is written too. */
static Node *prune_pack(Update *u, const PrunedList *list, Node **pieces) {
  Arena *arena = u->graph->arena;
  int64_t *offsets = ARENA_ARRAY(arena, int64_t, list->count);
  for (int i = 0; i < list->count; i++) {
    const Pruned *one = &list->at[i];
    int64_t end = i + 1 < list->count ? list->at[i + 1].begin : shape_elements(&u->flat.shape);
    int64_t low = 0, high = end - one->begin - one->elements;
    offsets[i] = one->begin;
    if (pieces[i])
      pieces[i] = make_pad(u->graph, pieces[i], &low, &high);
    else
      pieces[i] = make_const(u->graph, DT_F32, prune_row(end - one->begin), 1);
  }
  Attr places = attr_ints(ATTR_OFFSETS, offsets, list->count);
  return graph_node(u->graph, OP_PACK, pieces, list->count, &places, 1, &u->flat);
}

static Node *prune_number_of(Update *u, Node *is) {
  Node *one = make_const(u->graph, DT_F32, is->type.shape, 1);
  return make_select(u->graph, is, one, make_like(u->graph, one, 0));
}

static Node *elements_of(Update *u, Node *flat, const Pruned *one) {
  return make_slice(u->graph, flat, &one->begin, prune_row(one->elements));
}

/* ── units ──────────────────────────────────────────────────────────────────────────────────── */
static int64_t prune_parts(int64_t count, int64_t size) { return (count + size - 1) / size; }

static PruneStructure block_of(const Pruned *one, PruneStructure structure) {
  const Attr *block = node_attr(one->param, ATTR_KERNEL);
  if (block) return (PruneStructure){PRUNE_BLOCK, block->ints[0], block->ints[1]};
  if (structure.kind == PRUNE_CHANNEL) return (PruneStructure){PRUNE_BLOCK, 1, one->columns};
  return structure;
}

/* [rows, columns] as sums over blocks, [blocks], in f64; the last ones may be smaller. */
static Node *block_sums(Update *u, Node *x, PruneStructure block) {
  const int64_t *dim = x->type.shape.dim, low[] = {0, 0}, axes[] = {1, 3};
  int64_t down = prune_parts(dim[0], block.first), across = prune_parts(dim[1], block.second);
  int64_t high[] = {down * block.first - dim[0], across * block.second - dim[1]};
  x = make_pad(u->graph, make_cast(u->graph, x, DT_F64), low, high);
  int64_t split[] = {down, block.first, across, block.second};
  x = make_reduce(u->graph, OP_SUM, make_reshape(u->graph, x, shape_of(4, split)), axes, 2);
  return make_reshape(u->graph, x, prune_row(down * across));
}

/* A block's score is the mean over its elements. */
static Node *unit_scores(Update *u, Node *flat, Pruned *one, PruneStructure structure) {
  Node *x = elements_of(u, flat, one);
  one->units = one->elements;
  if (structure.kind == PRUNE_ELEMENT || structure.kind == PRUNE_N_OF_M) return x;
  PruneStructure block = block_of(one, structure);
  x = make_reshape(u->graph, x, shape_of(2, (int64_t[]){one->rows, one->columns}));
  Node *sum = block_sums(u, x, block);
  Node *count = block_sums(u, make_like(u->graph, x, 1), block);
  one->units = shape_elements(&sum->type.shape);
  return make_cast(u->graph, update_div(u, sum, count), DT_F32);
}

/* bool[units] as what it says of each element. */
static Node *unit_elements(Update *u, Node *keep, const Pruned *one, PruneStructure structure) {
  if (structure.kind == PRUNE_ELEMENT || structure.kind == PRUNE_N_OF_M) return keep;
  PruneStructure block = block_of(one, structure);
  int64_t down = prune_parts(one->rows, block.first), start[] = {0, 0};
  int64_t across = prune_parts(one->columns, block.second);
  int64_t split[] = {down, 1, across, 1}, all[] = {down, block.first, across, block.second};
  keep = make_reshape(u->graph, keep, shape_of(4, split));
  keep = make_broadcast(u->graph, keep, shape_of(4, all));
  int64_t padded[] = {down * block.first, across * block.second};
  keep = make_reshape(u->graph, keep, shape_of(2, padded));
  keep = make_slice(u->graph, keep, start, shape_of(2, (int64_t[]){one->rows, one->columns}));
  return make_reshape(u->graph, keep, prune_row(one->elements));
}

/* ── when, and how much ─────────────────────────────────────────────────────────────────────── */
typedef struct {
  Node *due;      /* bool[]: the mask is chosen in this step */
  Node *sparsity; /* f64[] */
} PruneTime;

static Node *prune_of(Update *u, const char *key) {
  return update_setting(u, arena_printf(u->graph->arena, "train.prune.%s", key));
}

/* count: the updates done behind this one. */
static PruneTime prune_time(Update *u) {
  Node *one = update_number(u, 1), *zero = update_number(u, 0), *count = update_add(u, u->step, one);
  Node *begin = prune_of(u, "begin"), *end = prune_of(u, "end");
  Node *most = update_mul(u, update_number(u, 0.75), update_setting(u, "train.total_steps"));
  end = make_select(u->graph, update_op(u, OP_GT, end, zero), end,
                    make_unary(u->graph, OP_FLOOR, most));
  end = update_op(u, OP_MAX, end, begin);
  Node *every = update_op(u, OP_MAX, prune_of(u, "every"), one);
  Node *since = update_sub(u, count, begin);
  Node *times = make_unary(u->graph, OP_FLOOR, update_div(u, since, every));
  Node *is_at = update_op(u, OP_EQ, update_mul(u, times, every), since);
  Node *is_end = update_op(u, OP_EQ, count, end);
  Node *is_within = update_op(u, OP_AND, update_op(u, OP_GE, since, zero),
                              update_op(u, OP_LE, count, end));
  Node *length = update_op(u, OP_MAX, update_sub(u, end, begin), one);
  Node *left = update_one_minus(u, update_div(u, since, length));
  left = update_op(u, OP_MIN, update_op(u, OP_MAX, left, zero), one);
  left = make_select(u->graph, update_op(u, OP_GE, count, end), zero, left);
  Node *cube = update_mul(u, update_mul(u, left, left), left);
  Node *last = prune_of(u, "sparsity"), *first = prune_of(u, "initial");
  Node *sparsity = update_add(u, last, update_mul(u, update_sub(u, first, last), cube));
  sparsity = update_op(u, OP_MIN, update_op(u, OP_MAX, sparsity, zero), one);
  return (PruneTime){update_op(u, OP_AND, is_within, update_op(u, OP_OR, is_at, is_end)), sparsity};
}

/* f64[]: of so many units, those that stay; the pruned ones are sparsity times all, rounded. */
static Node *kept_of(Update *u, Node *sparsity, int64_t units) {
  Node *all = update_number(u, (double)units);
  Node *share = update_add(u, update_mul(u, sparsity, all), update_number(u, 0.5));
  return update_sub(u, all, make_unary(u->graph, OP_FLOOR, share));
}

/* ── choosing ───────────────────────────────────────────────────────────────────────────────── */
/* Params [from, to) of `chosen` have rows of one matrix of scores, or, if is_global, are one row. */
static void prune_together(Update *u, Pruned **chosen, int count, bool is_global, Node *sparsity) {
  Node **scores = ARENA_ARRAY(u->graph->arena, Node *, count);
  int64_t all = 0;
  for (int i = 0; i < count; i++) scores[i] = chosen[i]->score, all += chosen[i]->units;
  Attr axis = attr_int(ATTR_AXIS, 0);
  Node *score =
      count > 1 ? graph_node(u->graph, OP_CONCAT, scores, count, &axis, 1, NULL) : scores[0];
  int64_t rows = is_global ? 1 : count;
  score = make_reshape(u->graph, score, shape_of(2, (int64_t[]){rows, all / rows}));
  Node *keep = prune_select(u->graph, score, kept_of(u, sparsity, all / rows));
  keep = make_reshape(u->graph, keep, prune_row(all));
  int64_t at = 0;
  for (int i = 0; i < count; at += chosen[i++]->units)
    chosen[i]->keep =
        count > 1 ? make_slice(u->graph, keep, &at, prune_row(chosen[i]->units)) : keep;
}

/* Of each m places along the second dimension, the inputs, the n best; the last m may be fewer. */
static Node *keep_n_of_m(Update *u, const Pruned *one, PruneStructure structure) {
  int64_t inputs = one->param->type.shape.dim[1], rest = one->columns / inputs;
  int64_t groups = prune_parts(inputs, structure.second), low[] = {0, 0, 0};
  int64_t high[] = {0, 0, groups * structure.second - inputs}, swap[] = {0, 2, 1};
  Node *x = make_reshape(u->graph, one->score, shape_of(3, (int64_t[]){one->rows, inputs, rest}));
  x = make_transpose(u->graph, x, swap);
  Attr attrs[] = {attr_ints(ATTR_LOW, low, 3), attr_ints(ATTR_HIGH, high, 3),
                  attr_float(ATTR_VALUE, -INFINITY)};
  if (high[2]) x = graph_node(u->graph, OP_PAD, &x, 1, attrs, 3, NULL);
  int64_t rows[] = {one->rows * rest * groups, structure.second};
  x = make_reshape(u->graph, x, shape_of(2, rows));
  Node *keep = prune_select(u->graph, x, update_number(u, (double)structure.first));
  int64_t padded[] = {one->rows, rest, groups * structure.second};
  keep = make_reshape(u->graph, keep, shape_of(3, padded));
  keep = make_slice(u->graph, keep, low, shape_of(3, (int64_t[]){one->rows, rest, inputs}));
  return make_reshape(u->graph, make_transpose(u->graph, keep, swap), prune_row(one->elements));
}

/* Layers of as many units are one matrix: fewer kernels. */
static void choose_units(Update *u, PrunedList *list, PruneStructure structure, Node *sparsity) {
  bool is_global = strcmp(setting_text(u->settings, "train.prune.scope"), "global") == 0 || structure.kind == PRUNE_LAYER;
  Pruned **chosen = ARENA_ARRAY(u->graph->arena, Pruned *, list->count);
  for (int i = 0; i < list->count; i++) {
    Pruned *first = &list->at[i];
    int count = 0;
    if (!is_leader(first) || first->keep) continue;
    if (structure.kind == PRUNE_N_OF_M) {
      first->keep = keep_n_of_m(u, first, structure);
      continue;
    }
    for (int k = i; k < list->count; k++)
      if (is_leader(&list->at[k]) && (is_global || list->at[k].units == first->units))
        chosen[count++] = &list->at[k];
    prune_together(u, chosen, count, is_global, sparsity);
  }
}

/* Of a vector beside a matrix: an element for each of its units, or all by its only one. */
static Node *companion_elements(Update *u, Node *keep, const Pruned *one) {
  bool is_one = shape_elements(&keep->type.shape) == 1;
  return is_one ? make_broadcast(u->graph, keep, prune_row(one->elements)) : keep;
}

/* f32[N]: which elements stay, by the scores of all. */
static Node *chosen_mask(Update *u, Node *scores, Node *sparsity) {
  PruneStructure structure = structure_of(u);
  PrunedList list = prune_list(u);
  Node **pieces = ARENA_ARRAY(u->graph->arena, Node *, list.count);
  scores = make_select(u->graph, u->alive, scores, make_like(u->graph, scores, -FLT_MAX));
  for (int i = 0; i < list.count; i++)
    if (is_leader(&list.at[i]))
      list.at[i].score = unit_scores(u, scores, &list.at[i], structure);
  choose_units(u, &list, structure, sparsity);
  for (int i = 0; i < list.count; i++) {
    Node *is = NULL;
    if (is_leader(&list.at[i])) is = unit_elements(u, list.at[i].keep, &list.at[i], structure);
    for (int k = 0; list.at[i].by && !is && k < list.count; k++)
      if (strcmp(node_str(list.at[k].param, ATTR_NAME), list.at[i].by) == 0) is = companion_elements(u, list.at[k].keep, &list.at[i]);
    if (is) pieces[i] = prune_number_of(u, is);
  }
  return prune_pack(u, &list, pieces);
}

/* ── before and behind the rule ─────────────────────────────────────────────────────────────── */
/* What is 0 when a training begins, or goes on from a checkpoint of one that was not pruned. */
static Node *nonzero_mask(Update *u, Node *mask) {
  PrunedList list = prune_list(u);
  Node **pieces = ARENA_ARRAY(u->graph->arena, Node *, list.count);
  for (int i = 0; i < list.count; i++) {
    if (!list.at[i].by) continue;
    Node *x = elements_of(u, u->params, &list.at[i]);
    pieces[i] = prune_number_of(u, update_op(u, OP_NE, x, make_like(u->graph, x, 0)));
  }
  Node *is_first = update_op(u, OP_EQ, mask, make_like(u->graph, mask, mask_unknown));
  return make_select(u->graph, is_first, prune_pack(u, &list, pieces), mask);
}

void prune_gradients(Update *u) {
  if (prune_is_kind(u, "none")) return;
  update_at(u, "train.prune");
  bool is_zeros = prune_is_kind(u, "zeros");
  Node *mask = update_state(u, ROLE_PRUNE, prune_mask, is_zeros ? mask_unknown : 1);
  if (is_zeros) mask = nonzero_mask(u, mask);
  u->mask = mask;
  u->alive = update_op(u, OP_NE, mask, make_like(u->graph, mask, 0));
  u->grads = prune_masked(u, u->grads);
  update_at(u, "train.optimizer");
}

/* f32[N], the higher the better. */
static Node *scores_of(Update *u, Node *params) {
  if (prune_is_kind(u, "magnitude")) return make_unary(u->graph, OP_ABS, params);
  Node *product = update_mul(u, u->params, u->grads), *before = update_state(u, ROLE_PRUNE, prune_score, 0);
  Node *score;
  if (prune_is_kind(u, "movement")) {
    score = update_sub(u, before, product);
  } else {
    Node *decay = prune_of(u, "average");
    score = update_add(u, update_scaled(u, before, decay),
                       update_scaled(u, make_unary(u->graph, OP_ABS, product), update_one_minus(u, decay)));
  }
  update_assign(u, prune_score, score);
  return score;
}

Node *prune_params(Update *u, Node *params) {
  if (!u->alive) return params;
  update_at(u, "train.prune");
  if (!prune_is_kind(u, "zeros")) {
    PruneTime time = prune_time(u);
    Node *fresh = chosen_mask(u, scores_of(u, params), time.sparsity);
    Node *both = update_mul(u, fresh, u->mask); /* nothing comes back */
    u->mask = make_select(u->graph, time.due, both, u->mask);
    u->alive = update_op(u, OP_NE, u->mask, make_like(u->graph, u->mask, 0));
  }
  update_assign(u, prune_mask, u->mask);
  params = prune_masked(u, params);
  update_at(u, "train.optimizer");
  return params;
}
