/* prune: see prune.h. Magnitudes: Han et al., Learning both Weights and Connections for Efficient Neural Networks (2015). The schedule:
 * Zhu and Gupta, To prune, or not to prune (2017). movement: Sanh et al., Movement Pruning (2020), of what is alive. gradient: |w dL/dw|,
 * Lee et al., SNIP (2019), averaged over steps. zeros: what is 0 when a training begins stays so (Frankle and Carbin, The Lottery Ticket
 * Hypothesis, 2019). */
#include "passes/autodiff.h"
#include "passes/prune.h"
#include "passes/prune_ranks.h"
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
  PruneShare share;
  int64_t rows, columns, units;
  Node *score; /* f32[units] */
  Node *keep;  /* bool[units] */
  bool by_counts, is_chosen; /* by_counts: the units are elements, and score and keep are of those that this rank has */
} Pruned;
typedef VEC(Pruned) PrunedList;

static bool prune_is_kind(const Update *u, const char *kind) {
  return strcmp(setting_text(u->settings, "train.prune"), kind) == 0;
}

static bool prune_chooses_nothing(const SettingValue *settings) {
  const char *kind = setting_text(settings, "train.prune");
  return strcmp(kind, "none") == 0 || strcmp(kind, "zeros") == 0;
}

static Shape prune_row(int64_t count) { return shape_of(1, &count); }

static PruneStructure structure_of(const SettingValue *settings) {
  PruneStructure structure = {.kind = PRUNE_ELEMENT};
  prune_structure_read(setting_text(settings, "train.prune.structure"), &structure);
  return structure;
}

/* Among the units of all params, and not of each. */
static bool chooses_of_all(const SettingValue *settings) {
  return strcmp(setting_text(settings, "train.prune.scope"), "global") == 0 || structure_of(settings).kind == PRUNE_LAYER;
}

Node *prune_masked(Update *u, Node *x) {
  if (!u->alive) return x;
  Node *alive = make_slice(u->graph, u->alive, (int64_t[]){0}, x->type.shape);
  return make_select(u->graph, alive, x, make_like(u->graph, x, 0));
}

/* ── what there is ──────────────────────────────────────────────────────────────────────────── */
static int prune_by_begin(const void *a, const void *b) {
  const Pruned *x = a, *y = b;
  return (x->share.begin > y->share.begin) - (x->share.begin < y->share.begin);
}

static PrunedList prune_list(Update *u) {
  PrunedList list = {0};
  for (int i = 0; i < u->graph->nodes.count; i++) {
    const Node *param = u->graph->nodes.at[i];
    if (param->op != OP_PARAM || node_is_frozen(param) || !shape_elements(&param->type.shape)) continue;
    Pruned one = {.param = param, .by = node_str(param, ATTR_PRUNED), .share = prune_share(u, param)};
    one.rows = one.share.shape.rank ? one.share.shape.dim[0] : 1;
    one.columns = one.share.whole / one.rows;
    VEC_PUSH(u->graph->arena, list, one);
  }
  if (list.count) qsort(list.at, (size_t)list.count, sizeof *list.at, prune_by_begin);
  return list;
}

static bool is_pruned_leader(const Node *param) {
  const char *by = node_str(param, ATTR_PRUNED);
  return param->op == OP_PARAM && by && strcmp(by, node_str(param, ATTR_NAME)) == 0;
}

static bool is_leader(const Pruned *one) { return is_pruned_leader(one->param); }

/* f32[N] of 1 and 0: what the pieces say of each param's elements that this rank has, 1 where a param has none. What lies between params is
 * written too. */
static Node *prune_pack(Update *u, const PrunedList *list, Node **pieces) {
  int64_t *offsets = ARENA_ARRAY(u->graph->arena, int64_t, list->count);
  for (int i = 0; i < list->count; i++) {
    const Pruned *one = &list->at[i];
    int64_t end = i + 1 < list->count ? list->at[i + 1].share.begin : shape_elements(&u->flat.shape);
    offsets[i] = one->share.begin;
    if (pieces[i])
      pieces[i] = prune_place(u, pieces[i], &one->share, end - one->share.begin);
    else
      pieces[i] = make_const(u->graph, DT_F32, prune_row(end - one->share.begin), 1);
  }
  Attr places = attr_ints(ATTR_OFFSETS, offsets, list->count);
  return graph_node(u->graph, OP_PACK, pieces, list->count, &places, 1, &u->flat);
}

static Node *prune_number_of(Update *u, Node *is) {
  Node *one = make_const(u->graph, DT_F32, is->type.shape, 1);
  return make_select(u->graph, is, one, make_like(u->graph, one, 0));
}

/* ── units ──────────────────────────────────────────────────────────────────────────────────── */
static int64_t prune_parts(int64_t count, int64_t size) { return (count + size - 1) / size; }

static PruneStructure block_of(const Node *param, int64_t columns, PruneStructure structure) {
  const Attr *block = node_attr(param, ATTR_KERNEL);
  if (block) return (PruneStructure){PRUNE_BLOCK, block->ints[0], block->ints[1]};
  if (structure.kind == PRUNE_CHANNEL) return (PruneStructure){PRUNE_BLOCK, 1, columns};
  return structure;
}

/* Of a param that all ranks have whole. */
static int64_t units_of(const Node *param, PruneStructure structure) {
  int64_t elements = shape_elements(&param->type.shape), rows = param->type.shape.rank ? param->type.shape.dim[0] : 1;
  if (structure.kind == PRUNE_ELEMENT || !elements) return elements;
  PruneStructure block = block_of(param, elements / rows, structure);
  return prune_parts(rows, block.first) * prune_parts(elements / rows, block.second);
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
  Node *x = prune_own(u, flat, &one->share);
  one->units = one->share.whole;
  one->by_counts = structure.kind == PRUNE_ELEMENT && one->share.is_spread;
  if (one->by_counts) return x;
  x = prune_whole(u, x, &one->share, node_str(one->param, ATTR_NAME));
  if (structure.kind == PRUNE_ELEMENT || structure.kind == PRUNE_N_OF_M) return x;
  PruneStructure block = block_of(one->param, one->columns, structure);
  x = make_reshape(u->graph, x, shape_of(2, (int64_t[]){one->rows, one->columns}));
  Node *sum = block_sums(u, x, block);
  Node *count = block_sums(u, make_like(u->graph, x, 1), block);
  one->units = shape_elements(&sum->type.shape);
  return make_cast(u->graph, update_div(u, sum, count), DT_F32);
}

/* bool[units] as what it says of each element. */
static Node *unit_elements(Update *u, Node *keep, const Pruned *one, PruneStructure structure) {
  if (structure.kind == PRUNE_ELEMENT || structure.kind == PRUNE_N_OF_M) return keep;
  PruneStructure block = block_of(one->param, one->columns, structure);
  int64_t down = prune_parts(one->rows, block.first), start[] = {0, 0};
  int64_t across = prune_parts(one->columns, block.second);
  int64_t split[] = {down, 1, across, 1}, all[] = {down, block.first, across, block.second};
  keep = make_reshape(u->graph, keep, shape_of(4, split));
  keep = make_broadcast(u->graph, keep, shape_of(4, all));
  int64_t padded[] = {down * block.first, across * block.second};
  keep = make_reshape(u->graph, keep, shape_of(2, padded));
  keep = make_slice(u->graph, keep, start, shape_of(2, (int64_t[]){one->rows, one->columns}));
  return make_reshape(u->graph, keep, prune_row(one->share.whole));
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
  if (structure_of(u->settings).kind == PRUNE_N_OF_M) begin = update_op(u, OP_MAX, begin, one); /* there is no update 0 to choose behind */
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
/* Params that are rows of one matrix of scores, or one row, in the order in which one rank by itself has them: the first of equal scores
 * stays. Of a pipeline's stage that has none, too, if the row is of all stages. */
typedef struct {
  Pruned **at;
  int count, rows;
  int64_t all; /* candidates of a row, on all ranks */
  bool of_stages;
} Together;
typedef VEC(Together) TogetherList;

/* Values of the params as their rows. */
static Node *rows_together(Update *u, const Together *t, Node **values) {
  Attr axis = attr_int(ATTR_AXIS, 0);
  Node *x = t->count > 1 ? graph_node(u->graph, OP_CONCAT, values, t->count, &axis, 1, NULL) : values[0];
  return make_reshape(u->graph, x, shape_of(2, (int64_t[]){t->rows, shape_elements(&x->type.shape) / t->rows}));
}

static void split_kept(Update *u, const Together *t, Node *kept) {
  int64_t all = shape_elements(&kept->type.shape), at = 0;
  kept = make_reshape(u->graph, kept, prune_row(all));
  for (int i = 0; i < t->count; i++) {
    const Shape *shape = &t->at[i]->score->type.shape;
    t->at[i]->keep = t->count > 1 ? make_slice(u->graph, kept, &at, *shape) : kept;
    at += shape_elements(shape);
  }
}

static void prune_together(Update *u, const Together *t, Node *sparsity) {
  Node **scores = ARENA_ARRAY(u->graph->arena, Node *, t->count);
  for (int i = 0; i < t->count; i++) scores[i] = t->at[i]->score;
  split_kept(u, t, prune_select(u->graph, rows_together(u, t, scores), kept_of(u, sparsity, t->all)));
}

/* This rank counts nothing. */
static PruneRows no_rows(Update *u, const Together *t, Node *sparsity) {
  Shape one = shape_of(2, (int64_t[]){1, 1});
  return (PruneRows){.score = make_const(u->graph, DT_F32, one, 0),
                     .number = make_const(u->graph, DT_I32, one, 0),
                     .is_here = make_const(u->graph, DT_BOOL, one, 0),
                     .keep = kept_of(u, sparsity, t->all),
                     .all = t->all};
}

static PruneRows spread_rows(Update *u, const Together *t, Node *sparsity) {
  Node **scores = ARENA_ARRAY(u->graph->arena, Node *, t->count), **numbers = ARENA_ARRAY(u->graph->arena, Node *, t->count);
  Node **is_here = ARENA_ARRAY(u->graph->arena, Node *, t->count);
  int64_t before = 0;
  if (!t->count) return no_rows(u, t, sparsity);
  for (int i = 0; i < t->count; before += t->at[i++]->units) {
    const Pruned *one = t->at[i];
    PruneNumbers its = one->by_counts ? prune_numbers(u, &one->share) : prune_numbers_of_units(u, one->units);
    double first = t->rows > 1 ? 0 : (double)(t->of_stages ? node_attr(one->param, ATTR_START)->ints[0] : before);
    scores[i] = t->at[i]->score;
    numbers[i] = update_add(u, its.number, make_like(u->graph, its.number, first));
    is_here[i] = its.is_here;
  }
  return (PruneRows){.score = rows_together(u, t, scores),
                     .number = rows_together(u, t, numbers),
                     .is_here = rows_together(u, t, is_here),
                     .keep = kept_of(u, sparsity, t->all),
                     .all = t->all};
}

static Node *join_counts(void *update, Node *counts) { return prune_counts(update, counts, false); }
static Node *join_counts_of_stages(void *update, Node *counts) { return prune_counts(update, counts, true); }

/* All at a time: a count is one collective. */
static void prune_spread(Update *u, const TogetherList *spread, Node *sparsity) {
  PruneRows *rows = ARENA_ARRAY(u->graph->arena, PruneRows, spread->count);
  for (int i = 0; i < spread->count; i++) rows[i] = spread_rows(u, &spread->at[i], sparsity);
  if (!spread->count) return;
  prune_select_ranks(u->graph, rows, spread->count, spread->at[0].of_stages ? join_counts_of_stages : join_counts, u);
  for (int i = 0; i < spread->count; i++) split_kept(u, &spread->at[i], rows[i].kept);
}

/* Of each m places along the second dimension, the inputs, the n best; the last m may be fewer. */
static Node *keep_n_of_m(Update *u, const Pruned *one, PruneStructure structure) {
  int64_t inputs = one->share.shape.dim[1], rest = one->columns / inputs;
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
  return make_reshape(u->graph, make_transpose(u->graph, keep, swap), prune_row(one->share.whole));
}

/* Are they rows of one matrix? */
static bool is_row_of(const Pruned *a, const Pruned *b) {
  return a->units == b->units && a->by_counts == b->by_counts && (!a->by_counts || a->share.own == b->share.own);
}

static int prune_by_order(const void *a, const void *b) {
  return autodiff_compare_alone((*(Pruned *const *)a)->param, (*(Pruned *const *)b)->param);
}

/* As prune_note_order says on each param, frozen ones too: a stage may have no others, and counts with the rest. */
static int64_t units_of_stages(const Graph *graph) {
  for (int i = 0; i < graph->nodes.count; i++)
    if (graph->nodes.at[i]->op == OP_PARAM) return node_attr(graph->nodes.at[i], ATTR_START)->ints[1];
  return 0;
}

static Together find_together(Update *u, PrunedList *list, int first, bool is_global) {
  Together t = {.at = ARENA_ARRAY(u->graph->arena, Pruned *, list->count)};
  int64_t units = 0;
  for (int k = first; k < list->count; k++) {
    Pruned *one = &list->at[k];
    if (!is_leader(one) || (!is_global && !is_row_of(&list->at[first], one))) continue;
    t.at[t.count++] = one;
    units += one->units;
    one->is_chosen = true;
  }
  if (t.count) qsort(t.at, (size_t)t.count, sizeof *t.at, prune_by_order);
  t.rows = is_global ? 1 : t.count;
  t.all = units / t.rows;
  t.of_stages = is_global && setting_pipeline(u->settings) > 1;
  if (t.of_stages) t.all = units_of_stages(u->graph);
  return t;
}

/* Layers of as many units are one matrix: fewer kernels. */
static void choose_units(Update *u, PrunedList *list, PruneStructure structure, Node *sparsity) {
  bool is_global = chooses_of_all(u->settings);
  TogetherList spread = {0};
  if (is_global && setting_pipeline(u->settings) > 1) {
    VEC_PUSH(u->graph->arena, spread, find_together(u, list, 0, true));
    prune_spread(u, &spread, sparsity);
    return;
  }
  for (int i = 0; i < list->count; i++) {
    Pruned *first = &list->at[i];
    if (!is_leader(first) || first->is_chosen) continue;
    if (structure.kind == PRUNE_N_OF_M) {
      first->keep = keep_n_of_m(u, first, structure);
      continue;
    }
    Together t = find_together(u, list, i, is_global);
    bool by_counts = false;
    for (int k = 0; k < t.count; k++) by_counts |= t.at[k]->by_counts;
    if (by_counts)
      VEC_PUSH(u->graph->arena, spread, t);
    else
      prune_together(u, &t, sparsity);
  }
  prune_spread(u, &spread, sparsity);
}

/* Of a vector beside a matrix: an element for each of its units, or all by its only one. */
static Node *companion_elements(Update *u, Node *keep, const Pruned *one) {
  bool is_one = shape_elements(&keep->type.shape) == 1;
  return is_one ? make_broadcast(u->graph, keep, prune_row(one->share.whole)) : keep;
}

static int prune_by_alone(const void *a, const void *b) { return autodiff_compare_alone(*(Node *const *)a, *(Node *const *)b); }

void prune_note_order(Graph *graph, const SettingValue *settings) {
  VEC(Node *) params = {0};
  PruneStructure structure = structure_of(settings);
  int64_t all = 0, at = 0;
  if (prune_chooses_nothing(settings) || !chooses_of_all(settings)) return;
  for (int i = 0; i < graph->nodes.count; i++)
    if (graph->nodes.at[i]->op == OP_PARAM) VEC_PUSH(graph->arena, params, graph->nodes.at[i]);
  if (params.count) qsort(params.at, (size_t)params.count, sizeof *params.at, prune_by_alone);
  for (int i = 0; i < params.count; i++) all += is_pruned_leader(params.at[i]) ? units_of(params.at[i], structure) : 0;
  for (int i = 0; i < params.count; i++) {
    bool is_one = is_pruned_leader(params.at[i]);
    node_set_attr(graph, params.at[i], attr_ints(ATTR_START, (int64_t[]){is_one ? at : -1, all}, 2));
    at += is_one ? units_of(params.at[i], structure) : 0;
  }
}

/* f32[N]: which elements stay, by the scores of all. */
static Node *chosen_mask(Update *u, Node *scores, Node *sparsity) {
  PruneStructure structure = structure_of(u->settings);
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
    if (!is) continue;
    pieces[i] = prune_number_of(u, is);
    if (!list.at[i].by_counts) pieces[i] = prune_part(u, pieces[i], &list.at[i].share);
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
    Node *x = prune_own(u, u->params, &list.at[i].share);
    pieces[i] = prune_number_of(u, update_op(u, OP_NE, x, make_like(u->graph, x, 0)));
  }
  Node *is_first = update_op(u, OP_EQ, mask, make_like(u->graph, mask, mask_unknown));
  return make_select(u->graph, is_first, prune_pack(u, &list, pieces), mask);
}

void prune_gradients(Update *u) {
  if (prune_is_kind(u, "none") || !prune_list(u).count) return; /* a stage whose params are all frozen has no mask */
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

/* A stage without a mask takes part in the counts of the others. */
static void count_for_others(Update *u) {
  PrunedList none = {0};
  if (prune_chooses_nothing(u->settings) || !chooses_of_all(u->settings)) return;
  choose_units(u, &none, structure_of(u->settings), prune_time(u).sparsity);
}

Node *prune_params(Update *u, Node *params) {
  if (prune_is_kind(u, "none")) return params;
  update_at(u, "train.prune");
  if (!u->alive) {
    count_for_others(u);
    update_at(u, "train.optimizer");
    return params;
  }
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
