/* tensor: ranks share out the work of each layer (distributed.tensor). tensor_cut.c chooses which
 * values each rank has a part of; this pass makes the graph that every rank runs.
 *
 * A param that is cut becomes the rank's part of it, and what is made of it is as small. A product
 * that adds up what is cut makes a share of its result, and an all_reduce over the axis adds the
 * shares; so do reductions (the softmax over a vocabulary). A value that some node needs whole, and
 * that is cut, is gathered.
 *
 * Every rank computes the same loss, and is differentiated by itself: the gradient of an all_reduce
 * is one, so what comes back is the gradient of the sum of all ranks' losses. Each loss counts as
 * one share of it. The gradient of a param that all have whole is then the sum over the ranks
 * (allreduce.c); of a part it is complete. */
#include "passes/forms.h"
#include "passes/tensor_cut.h"
#include <string.h>

/* PART: of what is cut, and of what is taken. */
typedef enum { WHOLE, PART } Form;

typedef struct {
  TensorCuts cuts;
  const Graph *old;
  Graph *fresh;
  Forms forms;
} Tensors;

static Node *tensor_get(Tensors *t, const Node *old, Form form) {
  return forms_get(&t->forms, old, (int)form);
}

static Cut tensor_cut_of(const Tensors *t, const Node *node) { return t->cuts.cut[node->id]; }

static Node *rank_index(Tensors *t, DType dtype) {
  return make_cast(t->fresh, make_setting(t->fresh, "distributed.tensor_rank"), dtype);
}

static void name_collective(Tensors *t, Node *made, const Node *old, const char *what) {
  Node *node = made->op == OP_RESULT ? made->input[0] : made;
  while (old->op == OP_RESHAPE || old->op == OP_TRANSPOSE) old = old->input[0];
  const char *why = arena_printf(t->fresh->arena, "%s of %s", what, op_info[old->op].text);
  if (node->origin.piece)
    why = arena_printf(t->fresh->arena, "%s, piece %d", why, node->origin.piece);
  node_set_attr(t->fresh, node, attr_str(ATTR_OVER, mesh_axis_text(MESH_TENSOR)));
  node_set_attr(t->fresh, node, attr_str(ATTR_WHY, why));
}

/* ── parts ──────────────────────────────────────────────────────────────────────────────────── */
static Type local_type(const Tensors *t, const Node *node) {
  return (Type){node->type.dtype,
                tensor_local(&node->type.shape, tensor_cut_of(t, node), t->cuts.ranks)};
}

static Node *part_of_param(Tensors *t, const Node *param) {
  Type type = local_type(t, param);
  Cut cut = tensor_cut_of(t, param);
  int64_t numbers[] = {cut.dim, cut.run};
  Node *made = graph_copy_as(t->fresh, param, NULL, &type);
  node_set_attr(t->fresh, made, attr_ints(ATTR_CUT, numbers, 2));
  node_set_attr(t->fresh, made, attr_int(ATTR_TENSOR, t->cuts.ranks));
  return made;
}

/* The index in the whole. */
static Node *part_of_iota(Tensors *t, const Node *iota) {
  Type type = local_type(t, iota);
  Cut cut = tensor_cut_of(t, iota);
  Node *index = graph_copy_as(t->fresh, iota, NULL, &type);
  if (node_int(iota, ATTR_AXIS, 0) != cut.dim) return index;
  Node *run = make_like(t->fresh, index, (double)cut.run);
  Node *first = make_binary(t->fresh, OP_MUL, rank_index(t, type.dtype), run);
  Node *group = make_binary(t->fresh, OP_DIV, index, run);
  Node *skipped = make_like(t->fresh, index, (double)(cut.run * (t->cuts.ranks - 1)));
  group = make_binary(t->fresh, OP_MUL, group, skipped);
  return make_binary(t->fresh, OP_ADD, make_binary(t->fresh, OP_ADD, index, group), first);
}

/* [groups, ranks, run and what lies behind it] of a value's elements. */
static Shape tensor_runs(const Tensors *t, const Node *node, int64_t ranks) {
  int64_t inner = tensor_inner(&node->type.shape, tensor_cut_of(t, node));
  int64_t dims[] = {shape_elements(&node->type.shape) / inner / t->cuts.ranks, ranks, inner};
  return shape_of(3, dims);
}

/* From [groups, ranks, ...] to [ranks, groups, ...], or back. */
static Node *ranks_exchanged(Tensors *t, Node *x) {
  const int64_t *dim = x->type.shape.dim, perm[] = {1, 0, 2};
  if (dim[0] == 1 || dim[1] == 1)
    return make_reshape(t->fresh, x, shape_of(3, (int64_t[]){dim[1], dim[0], dim[2]}));
  return make_transpose(t->fresh, x, perm);
}

/* Of what every rank has or makes whole. */
static Node *part_taken(Tensors *t, const Node *node) {
  int64_t one = 1;
  Node *all =
      make_reshape(t->fresh, tensor_get(t, node, WHOLE), tensor_runs(t, node, t->cuts.ranks));
  Node *index = make_reshape(t->fresh, rank_index(t, DT_I32), shape_of(1, &one));
  Node *mine = make_take(t->fresh, all, index, 1);
  return make_reshape(t->fresh, mine, local_type(t, node).shape);
}

/* The numbers of these elements of the whole, without those of the others. */
static Node *part_of_random(Tensors *t, const Node *random) {
  Type type = local_type(t, random);
  int64_t inner = tensor_inner(&random->type.shape, tensor_cut_of(t, random));
  int64_t groups = shape_elements(&type.shape) / inner;
  Node *rank = rank_index(t, DT_I64);
  Node *first = make_binary(t->fresh, OP_MUL, rank, make_like(t->fresh, rank, (double)inner));
  if (random->input_count > 2)
    first = make_binary(t->fresh, OP_ADD, first, tensor_get(t, random->input[2], WHOLE));
  if (groups > 1) {
    Node *group = make_iota(t->fresh, DT_I64, shape_of(2, (int64_t[]){groups, inner}), 0);
    Node *others = make_like(t->fresh, group, (double)(inner * (t->cuts.ranks - 1)));
    first = make_broadcast(t->fresh, make_reshape(t->fresh, first, shape_of(2, (int64_t[]){1, 1})),
                           group->type.shape);
    first = make_binary(t->fresh, OP_ADD, first, make_binary(t->fresh, OP_MUL, group, others));
    first = make_reshape(t->fresh, first, type.shape);
  }
  Node *inputs[] = {tensor_get(t, random->input[0], WHOLE), tensor_get(t, random->input[1], WHOLE),
                    first};
  t->fresh->origin = random->origin;
  return graph_node(t->fresh, OP_RANDOM, inputs, 3, random->attr, random->attr_count, &type);
}

/* Constants belong to no cut. */
static Node *part_of_operand(Tensors *t, const Node *operand, Cut cut) {
  if (!cut.run) return tensor_get(t, operand, WHOLE);
  if (operand->op != OP_CONST) return tensor_get(t, operand, PART);
  Type type = {operand->type.dtype, tensor_local(&operand->type.shape, cut, t->cuts.ranks)};
  return graph_copy_as(t->fresh, operand, NULL, &type);
}

static Node *part_made(Tensors *t, const Node *node) {
  Type type = local_type(t, node);
  Cut cut = tensor_cut_of(t, node);
  Node **inputs = ARENA_ARRAY(t->fresh->arena, Node *, node->input_count);
  for (int k = 0; k < node->input_count; k++) {
    Cut operand;
    tensor_operand(&t->cuts, node, cut, k, &operand);
    inputs[k] = part_of_operand(t, node->input[k], operand);
  }
  const Attr *start = node->op == OP_SLICE ? node_attr(node, ATTR_START) : NULL;
  if (!start) return graph_copy_as(t->fresh, node, inputs, &type);
  int64_t *starts = ARENA_ARRAY(t->fresh->arena, int64_t, start->count);
  memcpy(starts, start->ints, sizeof *starts * (size_t)start->count);
  starts[cut.dim] /= t->cuts.ranks;
  Attr attr = attr_ints(ATTR_START, starts, start->count);
  return graph_copy_with(t->fresh, node, inputs, &type, &attr, 1);
}

static Node *make_joined(Tensors *t, const Node *node);

static Node *make_part(Tensors *t, const Node *node) {
  if (t->cuts.is_taken[node->id]) return part_taken(t, node);
  if (t->cuts.is_joined[node->id]) return make_joined(t, node);
  Type type = local_type(t, node);
  switch (node->op) {
  case OP_PARAM:
    return part_of_param(t, node);
  case OP_CONST:
    return graph_copy_as(t->fresh, node, NULL, &type);
  case OP_IOTA:
    return part_of_iota(t, node);
  case OP_RANDOM:
    return part_of_random(t, node);
  default:
    return part_made(t, node);
  }
}

/* ── whole values ───────────────────────────────────────────────────────────────────────────── */
static Node *tensor_gathered(Tensors *t, const Node *node) {
  Shape runs = tensor_runs(t, node, t->cuts.ranks);
  int64_t first[] = {1, runs.dim[0], runs.dim[2]};
  Node *part = make_reshape(t->fresh, tensor_get(t, node, PART), shape_of(3, first));
  Node *all = make_all_gather(t->fresh, part, t->cuts.ranks);
  name_collective(t, all, node, "parts");
  return make_reshape(t->fresh, ranks_exchanged(t, all), node->type.shape);
}

/* The shares of all ranks, of which each wants its rows only where the value is cut. */
static Node *joined(Tensors *t, Op op, Node *share, const Node *old) {
  Node *made;
  if (!tensor_cut_of(t, old).run || t->cuts.is_taken[old->id]) {
    made = make_all_reduce(t->fresh, op, share);
    name_collective(t, made, old, "shares");
    return made;
  }
  made = ranks_exchanged(t, make_reshape(t->fresh, share, tensor_runs(t, old, t->cuts.ranks)));
  made = make_reduce_scatter(t->fresh, op, made, t->cuts.ranks);
  name_collective(t, made, old, "shares");
  return make_reshape(t->fresh, made, local_type(t, old).shape);
}

static Node *operand_of_join(Tensors *t, const Node *node, int k) {
  Cut cut = tensor_joined_operand(&t->cuts, node, k);
  return tensor_get(t, node->input[k], cut.run ? PART : WHOLE);
}

/* Rows of other ranks are zeros here. */
static Node *joined_gather(Tensors *t, const Node *gather) {
  Node *table = operand_of_join(t, gather, 0), *index = operand_of_join(t, gather, 1);
  t->fresh->origin = gather->origin;
  Node *first = make_binary(
      t->fresh, OP_MUL, rank_index(t, index->type.dtype),
      make_const(t->fresh, index->type.dtype, shape_scalar(), (double)table->type.shape.dim[0]));
  index = make_binary(t->fresh, OP_SUB, index, first);
  Node *rows = graph_copy_node(t->fresh, gather, (Node *[]){table, index});
  return joined(t, OP_SUM, rows, gather);
}

/* The first index at which one of the ranks has what is the extreme of all of them. */
static Node *joined_arg(Tensors *t, const Node *arg) {
  Node *x = operand_of_join(t, arg, 0);
  t->fresh->origin = arg->origin;
  Op reduction = arg->op == OP_ARGMAX ? OP_RMAX : OP_RMIN;
  const Attr *axes = node_attr(arg, ATTR_AXES);
  Node *best = make_reduce(t->fresh, reduction, x, axes->ints, axes->count);
  Node *of_all = joined(t, reduction, best, arg);
  Node *at = graph_copy_node(t->fresh, arg, &x);
  int64_t run = tensor_cut_of(t, arg->input[0]).run;
  Node *first = make_binary(t->fresh, OP_MUL, rank_index(t, at->type.dtype),
                            make_const(t->fresh, at->type.dtype, shape_scalar(), (double)run));
  at = make_binary(t->fresh, OP_ADD, at, first);
  Node *is_best = make_binary(t->fresh, OP_EQ, best, of_all);
  if (dtype_is_float(best->type.dtype)) /* the first NaN */
    is_best = make_binary(t->fresh, OP_OR, is_best, make_binary(t->fresh, OP_NE, best, best));
  at = make_select(t->fresh, is_best, at, make_like(t->fresh, at, INT32_MAX));
  return joined(t, OP_RMIN, at, arg);
}

static Node *make_joined(Tensors *t, const Node *node) {
  if (node->op == OP_GATHER) return joined_gather(t, node);
  if (op_is_arg(node->op)) return joined_arg(t, node);
  Node *inputs[2];
  for (int k = 0; k < node->input_count; k++) inputs[k] = operand_of_join(t, node, k);
  Node *share = graph_copy_node(t->fresh, node, inputs);
  bool is_reduce = op_info[node->op].op_class == CLASS_REDUCE;
  return joined(t, is_reduce ? node->op : OP_SUM, share, node);
}

/* Totals, over the ranks that share a batch. */
static bool joins_batches(const Node *node) {
  return op_has(node->op, TRAIT_RANKS) && node_axis(node) == MESH_ALL;
}

static Node *tensor_whole(Tensors *t, const Node *node) {
  bool is_cut = tensor_cut_of(t, node).run && !t->cuts.is_taken[node->id];
  if (is_cut && (node->op == OP_PARAM || !tensor_is_made_in_parts(node)))
    return tensor_gathered(t, node);
  if (t->cuts.is_joined[node->id]) return make_joined(t, node);
  Node **inputs = ARENA_ARRAY(t->fresh->arena, Node *, node->input_count);
  for (int k = 0; k < node->input_count; k++) inputs[k] = tensor_get(t, node->input[k], WHOLE);
  Node *made = graph_copy_node(t->fresh, node, inputs);
  if (joins_batches(node))
    node_set_attr(t->fresh, made, attr_str(ATTR_OVER, mesh_axis_text(MESH_DATA)));
  return made;
}

static Node *tensor_make(void *pass, const Node *node, int form) {
  Tensors *t = pass;
  t->fresh->origin = node->origin;
  return form == PART ? make_part(t, node) : tensor_whole(t, node);
}

/* ── the pass ───────────────────────────────────────────────────────────────────────────────── */
/* One rank's share of the sum of all ranks' losses. */
static void share_objective(Tensors *t) {
  Node *loss = graph_find_root(t->fresh, ROOT_LOSS, NULL);
  Node *objective = graph_take_root(t->fresh, ROOT_OBJECTIVE);
  if (!objective) objective = loss;
  if (!objective) return;
  t->fresh->origin = objective->origin;
  Node *share = make_like(t->fresh, objective, 1.0 / (double)t->cuts.ranks);
  graph_add_root(t->fresh, ROOT_OBJECTIVE, "loss", make_binary(t->fresh, OP_MUL, objective, share));
}

static void warn_of_nothing(const Tensors *t, Diag *diag) {
  for (int i = 0; i < t->old->nodes.count; i++)
    if (t->old->nodes.at[i]->op == OP_PARAM && t->cuts.cut[i].run && !t->cuts.is_taken[i]) return;
  diag_warning(
      diag, (Loc){0},
      "distributed.tensor = %lld shares no work out: of no two layers in a row the features "
      "between them, or heads, are a multiple of that; all ranks do all",
      (long long)t->cuts.ranks);
}

Graph *pass_tensor(PassContext *context, Graph *graph) {
  int64_t ranks = context->settings ? setting_tensor(context->settings) : 1;
  if (ranks == 1) return graph;
  const Program *program = context->program;
  const Graph *train = program && program->train ? program->train : graph;
  Tensors t = {.cuts = tensor_choose(graph, train, ranks, context->scratch),
               .old = graph,
               .fresh = graph_new(graph->arena, graph->name)};
  t.forms = (Forms){.old = graph, .fresh = t.fresh, .make = tensor_make, .pass = &t};
  t.forms.made.arena = context->scratch;
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    bool is_cheap = node->op == OP_CONST || node->op == OP_IOTA || node->op == OP_RANDOM;
    bool is_cut = tensor_cut_of(&t, node).run && !t.cuts.is_taken[i];
    if (!is_cheap) tensor_get(&t, node, is_cut ? PART : WHOLE);
  }
  if (graph == train) warn_of_nothing(&t, context->diag);
  Graph *made = forms_end(&t.forms, WHOLE);
  if (pass_trains(context)) share_objective(&t);
  return made;
}
