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
#include <math.h>
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

/* ── what lies behind the end of an uneven cut ──────────────────────────────────────────────── */
static bool is_uneven(const Tensors *t, const Node *node) {
  return tensor_is_uneven(&node->type.shape, tensor_cut_of(t, node), t->cuts.ranks);
}

/* Of the part of a value that is cut so: bool, as large as the part. */
static Node *tensor_has_element(Tensors *t, const Node *whole, Cut cut, Shape part) {
  DType dtype = whole->type.shape.dim[cut.dim] < INT32_MAX / 2 ? DT_I32 : DT_I64;
  int64_t run = cut.run;
  Node *index = make_iota(t->fresh, dtype, shape_of(1, &run), 0);
  Node *first = rank_index(t, dtype);
  first = make_binary(t->fresh, OP_MUL, first, make_like(t->fresh, first, (double)run));
  index = make_binary(t->fresh, OP_ADD, index, first);
  Node *end = make_like(t->fresh, index, (double)whole->type.shape.dim[cut.dim]);
  Node *within = make_binary(t->fresh, OP_LT, index, end);
  Shape line = part;
  for (int i = 0; i < line.rank; i++) line.dim[i] = i == cut.dim ? run : 1;
  return make_broadcast(t->fresh, make_reshape(t->fresh, within, line), part);
}

/* The same, but for no gradient from what lies behind the end: where a derivative is infinite there,
 * zero times it would not be zero. */
static Node *without_gradient_behind(Tensors *t, const Node *whole, Cut cut, Node *part) {
  if (!dtype_is_float(part->type.dtype)) return part;
  Node *within = tensor_has_element(t, whole, cut, part->type.shape);
  Node *same = make_unary(t->fresh, OP_STOP_GRADIENT, part);
  return make_select(t->fresh, within, part, same);
}

/* A param that is cut so and only moved: zeros lie behind its end. */
static bool is_of_uneven_param(const Tensors *t, const Node *node) {
  while (is_uneven(t, node) && (node->op == OP_RESHAPE || node->op == OP_TRANSPOSE ||
                                node->op == OP_BROADCAST || node->op == OP_SLICE))
    node = node->input[0];
  return node->op == OP_PARAM && is_uneven(t, node);
}

/* What changes nothing in a sum, an extreme or a product. */
static double nothing_of(Op op, DType dtype) {
  double most = dtype_is_float(dtype) ? INFINITY : (double)INT32_MAX;
  switch (op) {
  case OP_RMAX:
  case OP_ARGMAX:
    return dtype_is_float(dtype) ? -most : -most - 1;
  case OP_RMIN:
  case OP_ARGMIN:
    return most;
  default:
    return op == OP_PROD;
  }
}

static Node *without_behind(Tensors *t, const Node *whole, Cut cut, Node *part, Op op) {
  Node *nothing = make_like(t->fresh, part, nothing_of(op, part->type.dtype));
  return make_select(t->fresh, tensor_has_element(t, whole, cut, part->type.shape), part, nothing);
}

/* ── parts ──────────────────────────────────────────────────────────────────────────────────── */
static Type local_type(const Tensors *t, const Node *node) {
  return (Type){node->type.dtype,
                tensor_local(&node->type.shape, tensor_cut_of(t, node), t->cuts.ranks)};
}

static Node *part_of_param(Tensors *t, const Node *param) {
  Type type = local_type(t, param);
  Cut cut = tensor_cut_of(t, param);
  int64_t numbers[] = {cut.dim, cut.run, param->type.shape.dim[cut.dim]};
  Node *made = graph_copy_as(t->fresh, param, NULL, &type);
  node_set_attr(t->fresh, made, attr_ints(ATTR_CUT, numbers, is_uneven(t, param) ? 3 : 2));
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
  Shape local = local_type(t, node).shape;
  int64_t dims[] = {shape_elements(&local) / inner, ranks, inner};
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
    int64_t whole = shape_elements(&random->type.shape) / groups; /* uneven: of one group each */
    if (!is_uneven(t, random)) whole = inner * t->cuts.ranks;
    Node *others = make_like(t->fresh, group, (double)(whole - inner));
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
static Node *part_of_operand(Tensors *t, const Node *node, const Node *operand, Cut cut) {
  if (!cut.run) return tensor_get(t, operand, WHOLE);
  if (operand->op == OP_CONST) {
    Type type = {operand->type.dtype, tensor_local(&operand->type.shape, cut, t->cuts.ranks)};
    return graph_copy_as(t->fresh, operand, NULL, &type);
  }
  Node *part = tensor_get(t, operand, PART);
  OpClass op_class = op_info[node->op].op_class;
  bool computes = op_class == CLASS_POINTWISE || op_class == CLASS_REDUCE;
  bool is_clean = !computes || !is_of_uneven_param(t, operand);
  return is_clean ? part : without_gradient_behind(t, operand, cut, part);
}

/* What lies behind the end begins here: in backward a sum goes over it too, or a param gets it. */
static bool begins_behind(const Tensors *t, const Node *node) {
  return node->op == OP_DOT || node->op == OP_GATHER ||
         (node->op == OP_BROADCAST && !is_uneven(t, node->input[0]));
}

static Node *part_made(Tensors *t, const Node *node) {
  Type type = local_type(t, node);
  Cut cut = tensor_cut_of(t, node);
  Node **inputs = ARENA_ARRAY(t->fresh->arena, Node *, node->input_count);
  for (int k = 0; k < node->input_count; k++) {
    Cut operand;
    tensor_operand(&t->cuts, node, cut, k, &operand);
    inputs[k] = part_of_operand(t, node, node->input[k], operand);
  }
  const Attr *start = node->op == OP_SLICE ? node_attr(node, ATTR_START) : NULL;
  if (!start) {
    Node *made = graph_copy_as(t->fresh, node, inputs, &type);
    bool is_behind = is_uneven(t, node) && begins_behind(t, node);
    return is_behind ? without_gradient_behind(t, node, cut, made) : made;
  }
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
  all = ranks_exchanged(t, all);
  if (is_uneven(t, node)) {
    int64_t length = shape_elements(&node->type.shape) / runs.dim[0], start[] = {0, 0};
    int64_t filled[] = {runs.dim[0], t->cuts.ranks * runs.dim[2]}, there[] = {runs.dim[0], length};
    all = make_slice(t->fresh, make_reshape(t->fresh, all, shape_of(2, filled)), start,
                     shape_of(2, there));
  }
  return make_reshape(t->fresh, all, node->type.shape);
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
  const Node *operand = node->input[k];
  Node *own = tensor_get(t, operand, cut.run ? PART : WHOLE);
  bool has_zeros = is_of_uneven_param(t, operand) && op_info[node->op].op_class != CLASS_REDUCE;
  bool is_clean = !cut.run || has_zeros || !is_uneven(t, operand);
  return is_clean ? own : without_behind(t, operand, cut, own, node->op);
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
