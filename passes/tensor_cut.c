/* tensor_cut: see tensor_cut.h. Shoeybi et al., Megatron-LM (2019), cut the products of a
 * transformer by hand so; here a product, or a reduction, tries how far back what it adds up can be
 * cut, and takes that if a product lies on the way. */
#include "passes/tensor_cut.h"
#include <string.h>

static const Cut whole = {0};

bool tensor_cut_equal(Cut a, Cut b) { return a.run == b.run && (!a.run || a.dim == b.dim); }

bool tensor_is_legal(const Shape *shape, Cut cut, int64_t ranks) {
  return cut.run > 0 && cut.dim >= 0 && cut.dim < shape->rank && shape->dim[cut.dim] > 0 &&
         shape->dim[cut.dim] % (cut.run * ranks) == 0;
}

static int64_t share_of(int64_t elements, int64_t ranks) { return (elements + ranks - 1) / ranks; }

/* The last rank has some of it, and of all that is computed no more than a ninth is for nothing. */
bool tensor_is_uneven(const Shape *shape, Cut cut, int64_t ranks) {
  enum { LEAST = 8 };
  if (cut.dim < 0 || cut.dim >= shape->rank) return false;
  int64_t length = shape->dim[cut.dim], behind = cut.run * ranks - length;
  return cut.run == share_of(length, ranks) && behind > 0 && behind < cut.run &&
         behind <= length / LEAST;
}

Shape tensor_local(const Shape *shape, Cut cut, int64_t ranks) {
  Shape local = *shape;
  if (cut.run) local.dim[cut.dim] = share_of(local.dim[cut.dim], ranks);
  return local;
}

int64_t tensor_inner(const Shape *shape, Cut cut) {
  int64_t inner = cut.run;
  for (int i = cut.dim + 1; i < shape->rank; i++) inner *= shape->dim[i];
  return inner;
}

Cut tensor_reshaped(const Shape *from, Cut cut, const Shape *to, int64_t ranks) {
  int64_t inner = tensor_inner(from, cut), stride = 1;
  bool is_uneven = tensor_is_uneven(from, cut, ranks);
  for (int i = to->rank - 1; i >= 0; stride *= to->dim[i--]) {
    Cut found = {i, inner / stride};
    bool is_same = to->dim[i] == from->dim[cut.dim] && inner == cut.run * stride;
    if (is_uneven && is_same) return found;
    if (inner % stride || inner * ranks > stride * to->dim[i]) continue;
    return tensor_is_legal(to, found, ranks) ? found : whole;
  }
  return whole;
}

/* ── operands ───────────────────────────────────────────────────────────────────────────────── */
static bool operand_of_dot(const Node *dot, Cut cut, int k, Cut *out) {
  int rank = dot->type.shape.rank;
  bool ta = node_int(dot, ATTR_TRANS_A, 0) != 0, tb = node_int(dot, ATTR_TRANS_B, 0) != 0;
  *out = cut;
  if (cut.dim < rank - 2) return true; /* products of their own */
  bool is_of_a = cut.dim == rank - 2;
  if (is_of_a != (k == 0))
    *out = whole;
  else
    out->dim = is_of_a ? (ta ? rank - 1 : rank - 2) : tb ? rank - 2 : rank - 1;
  return true;
}

/* By samples; by heads, as many query heads as belong to the cut's heads of keys. */
static bool operand_of_attention(const TensorCuts *t, const Node *attention, Cut cut, int k,
                                 Cut *out) {
  const Shape *shape = &attention->input[k]->type.shape;
  int64_t heads = attention->input[0]->type.shape.dim[1], have = shape->dim[1];
  *out = whole;
  if (cut.dim == 0) {
    if (shape->dim[0] == attention->type.shape.dim[0]) *out = cut;
    return true;
  }
  if (cut.dim != 1 || cut.run * t->ranks != heads || attention->type.shape.rank != 4) return false;
  if (k == 3 && have == 1) return true;
  *out = (Cut){1, have / t->ranks};
  return shape->rank == 4 && have % t->ranks == 0;
}

static bool operand_of_slice(const TensorCuts *t, const Node *slice, Cut cut, Cut *out) {
  int64_t start = node_attr(slice, ATTR_START)->ints[cut.dim], group = cut.run * t->ranks;
  *out = cut;
  if (slice->type.shape.dim[cut.dim] == slice->input[0]->type.shape.dim[cut.dim]) return true;
  return node_attr(slice, ATTR_STEP)->ints[cut.dim] == 1 && start % group == 0;
}

static bool is_conv_cut(const Node *conv, Cut cut) {
  return cut.dim == 1 && node_int(conv, ATTR_GROUPS, 1) == 1 && !node_attr(conv, ATTR_LAYOUT);
}

static bool operand_of_move(const TensorCuts *t, const Node *node, Cut cut, int k, Cut *out) {
  const Shape *from = &node->input[k]->type.shape;
  int axis = (int)node_int(node, ATTR_AXIS, 0);
  switch (node->op) {
  case OP_RESHAPE:
    *out = tensor_reshaped(&node->type.shape, cut, from, t->ranks);
    return out->run > 0;
  case OP_TRANSPOSE:
    out->dim = (int)node_attr(node, ATTR_PERM)->ints[cut.dim];
    return true;
  case OP_BROADCAST:
    if (from->dim[cut.dim] != node->type.shape.dim[cut.dim]) *out = whole;
    return true;
  case OP_SLICE:
    return operand_of_slice(t, node, cut, out);
  case OP_PAD:
    return !node_attr(node, ATTR_LOW)->ints[cut.dim] && !node_attr(node, ATTR_HIGH)->ints[cut.dim];
  case OP_CONCAT:
    return axis != cut.dim || from->dim[axis] % (cut.run * t->ranks) == 0;
  case OP_GATHER:
    if (cut.dim < node->input[1]->type.shape.rank) { /* some of the indices */
      if (k == 0) *out = whole;
      return true;
    }
    out->dim -= node->input[1]->type.shape.rank - 1; /* features of all rows */
    if (k == 1) *out = whole;
    return true;
  default:
    return false;
  }
}

bool tensor_operand(const TensorCuts *t, const Node *node, Cut cut, int k, Cut *out) {
  OpClass op_class = op_info[node->op].op_class;
  *out = cut;
  if (op_class == CLASS_POINTWISE || node->op == OP_STOP_GRADIENT) return true;
  if (op_class == CLASS_MOVE) return operand_of_move(t, node, cut, k, out);
  if (op_class == CLASS_REDUCE) {
    const Attr *axes = node_attr(node, ATTR_AXES);
    for (int i = 0; i < axes->count; i++)
      if (axes->ints[i] == cut.dim) return false;
    return true;
  }
  if (node->op == OP_DOT) return operand_of_dot(node, cut, k, out);
  if (node->op == OP_CONV) {
    *out = k == 1 ? (Cut){0, cut.run} : whole;
    return is_conv_cut(node, cut);
  }
  if (node->op == OP_ATTENTION) return operand_of_attention(t, node, cut, k, out);
  return node->op == OP_RESULT && node->input[0]->op == OP_ATTENTION;
}

/* What a product adds up, a reduction's axis, the rows of a table. */
Cut tensor_joined_operand(const TensorCuts *t, const Node *node, int k) {
  if (node->op == OP_GATHER && k == 1) return whole;
  return t->cut[node->input[k]->id];
}

bool tensor_is_made_in_parts(const Node *node) {
  return node->op == OP_PARAM || node->op == OP_CONST || node->op == OP_IOTA ||
         node->op == OP_RANDOM;
}

/* Muon makes whole matrices of what ranks have, and heads and channels are not filled up. */
static bool can_be_uneven(const Node *node, Cut cut) {
  OpClass op_class = op_info[node->op].op_class;
  switch (node->op) {
  case OP_PARAM:
    return !node_int(node, ATTR_AS_MATRIX, 0);
  case OP_GATHER:
    return cut.dim >= node->input[1]->type.shape.rank;
  case OP_CONST:
  case OP_IOTA:
  case OP_RANDOM:
  case OP_DOT:
  case OP_STOP_GRADIENT:
    return true;
  default:
    return op_class == CLASS_POINTWISE || op_class == CLASS_MOVE || op_class == CLASS_REDUCE;
  }
}

/* ── trying ─────────────────────────────────────────────────────────────────────────────────── */
static int64_t flops_of(const Node *node) {
  if (node->op == OP_DOT) {
    DotForm form = dot_form(node);
    return 2 * form.batch * form.m * form.n * form.k;
  }
  bool is_product = node->op == OP_CONV || node->op == OP_ATTENTION;
  return is_product ? shape_elements(&node->type.shape) : 0;
}

static bool try_cut(TensorCuts *t, const Node *node, Cut cut) {
  enum { DEEPEST = 2000 };
  Cut *mine = &t->cut[node->id];
  const Shape *shape = &node->type.shape;
  bool is_legal = tensor_is_legal(shape, cut, t->ranks) ||
                  (tensor_is_uneven(shape, cut, t->ranks) && can_be_uneven(node, cut));
  if (!is_legal || t->is_joined[node->id]) return false;
  if (t->is_fixed[node->id]) return tensor_cut_equal(*mine, cut);
  if (mine->run) {
    bool is_new = false; /* of this trial: that is no reason for it */
    for (int i = t->trail.count - 1; i >= 0 && !is_new; i--) is_new = t->trail.at[i] == node->id;
    t->goes_on |= !is_new;
    return tensor_cut_equal(*mine, cut);
  }
  *mine = cut;
  VEC_PUSH(t->arena, t->trail, node->id);
  if (tensor_is_made_in_parts(node)) return true;
  if (node->input_count == 0 || t->depth == DEEPEST) return false;
  t->saved += flops_of(node);
  t->depth++;
  bool fine = true;
  for (int k = 0; k < node->input_count && fine; k++) {
    Cut operand;
    fine = tensor_operand(t, node, cut, k, &operand) &&
           (!operand.run || try_cut(t, node->input[k], operand));
  }
  t->depth--;
  return fine;
}

/* All operands in these cuts, or nothing. */
static bool try_operands(TensorCuts *t, const Node *node, const Cut *cuts, int count) {
  t->trail.count = 0, t->saved = 0, t->goes_on = false, t->depth = 0;
  bool fine = true;
  for (int k = 0; k < count && fine; k++) fine = try_cut(t, node->input[k], cuts[k]);
  /* a table is shared out for its memory */
  bool pays = t->saved > 0 || t->goes_on || node->op == OP_GATHER;
  for (int i = 0; i < t->trail.count && !(fine && pays); i++) t->cut[t->trail.at[i]] = whole;
  t->is_joined[node->id] = fine && pays;
  return fine && pays;
}

/* Its operand's own cut along this dimension, or in one group. */
static Cut along(const TensorCuts *t, const Node *operand, int dim) {
  Cut have = t->cut[operand->id];
  if (have.run && have.dim == dim) return have;
  return (Cut){dim, share_of(operand->type.shape.dim[dim], t->ranks)};
}

static void try_dot(TensorCuts *t, const Node *dot) {
  int rank = dot->type.shape.rank;
  bool ta = node_int(dot, ATTR_TRANS_A, 0) != 0, tb = node_int(dot, ATTR_TRANS_B, 0) != 0;
  Cut cuts[2] = {along(t, dot->input[0], ta ? rank - 2 : rank - 1),
                 along(t, dot->input[1], tb ? rank - 1 : rank - 2)};
  if (t->cut[dot->input[0]->id].run) cuts[1].run = cuts[0].run;
  if (t->cut[dot->input[1]->id].run) cuts[0].run = cuts[1].run;
  if (cuts[0].run == cuts[1].run) try_operands(t, dot, cuts, 2);
}

static void try_conv(TensorCuts *t, const Node *conv) {
  if (node_int(conv, ATTR_GROUPS, 1) != 1 || node_attr(conv, ATTR_LAYOUT)) return;
  Cut cuts[2] = {along(t, conv->input[0], 1), {0}};
  if (!tensor_is_legal(&conv->input[0]->type.shape, cuts[0], t->ranks)) return;
  cuts[1] = (Cut){1, cuts[0].run};
  try_operands(t, conv, cuts, 2);
}

static void try_reduce(TensorCuts *t, const Node *reduce) {
  const Attr *axes = node_attr(reduce, ATTR_AXES);
  const Type *type = &reduce->input[0]->type;
  bool can_leave_out = dtype_is_float(type->dtype) || type->dtype == DT_I32 || reduce->op == OP_SUM;
  if (!op_joins_ranks(reduce->op) && !op_is_arg(reduce->op)) return;
  for (int i = 0; i < axes->count; i++) {
    Cut cut = along(t, reduce->input[0], (int)axes->ints[i]);
    if (op_is_arg(reduce->op) &&
        cut.run != share_of(type->shape.dim[axes->ints[i]], t->ranks))
      continue; /* the first of equals is by index */
    if (!can_leave_out && tensor_is_uneven(&type->shape, cut, t->ranks)) continue;
    if (try_operands(t, reduce, &cut, 1)) return;
  }
}

static void try_gather(TensorCuts *t, const Node *gather) {
  Cut cut = {0, share_of(gather->input[0]->type.shape.dim[0], t->ranks)};
  if (gather->input[0]->op == OP_PARAM) try_operands(t, gather, &cut, 1);
}

Cut tensor_cut_of_param(const Node *param) {
  const Attr *cut = node_attr(param, ATTR_CUT);
  return cut ? (Cut){(int)cut->ints[0], cut->ints[1]} : whole;
}

int64_t tensor_length_of_param(const Node *param) {
  const Attr *cut = node_attr(param, ATTR_CUT);
  Shape local = node_file_shape(param);
  if (!cut) return 0;
  return cut->count > 2 ? cut->ints[2] : local.dim[cut->ints[0]] * node_int(param, ATTR_TENSOR, 1);
}

static void fix_params(TensorCuts *t, const Graph *train) {
  for (int i = 0; i < t->graph->nodes.count && t->graph != train; i++) {
    const Node *param = t->graph->nodes.at[i];
    const Node *like =
        param->op == OP_PARAM ? graph_find_leaf(train, OP_PARAM, node_str(param, ATTR_NAME)) : NULL;
    if (!like) continue;
    t->is_fixed[i] = true;
    t->cut[i] = tensor_cut_of_param(like);
  }
}

TensorCuts tensor_choose(const Graph *graph, const Graph *train, int64_t ranks, Arena *arena) {
  TensorCuts t = {.graph = graph,
                  .arena = arena,
                  .ranks = ranks,
                  .cut = ARENA_ARRAY(arena, Cut, graph->nodes.count),
                  .is_fixed = ARENA_ARRAY(arena, bool, graph->nodes.count),
                  .is_joined = ARENA_ARRAY(arena, bool, graph->nodes.count),
                  .is_taken = ARENA_ARRAY(arena, bool, graph->nodes.count)};
  fix_params(&t, train);
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    if (t.cut[i].run) continue;
    if (node->op == OP_DOT) try_dot(&t, node);
    if (node->op == OP_CONV) try_conv(&t, node);
    if (node->op == OP_GATHER) try_gather(&t, node);
    if (op_info[node->op].op_class == CLASS_REDUCE) try_reduce(&t, node);
  }
  tensor_cut_rows(&t);
  return t;
}
