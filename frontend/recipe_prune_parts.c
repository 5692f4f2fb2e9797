/* recipe_prune_parts: structure=head and structure=layer, whose units are found on the graph.
 *
 * A head of attention is 0 where the weights are that read it: columns of the matrix behind, as many as a head has features. A layer is
 * what a residual sum x + f(x) adds to x, and is 0 where the last matrix of f is, with the vectors that are added to its products or
 * multiplied with them. */
#include "frontend/recipe.h"
#include "ir/scalar.h"
#include "plan/prune_structure.h"
#include <math.h>
#include <string.h>

typedef struct {
  Builder *b;
  Graph *graph;
  Arena *arena;
  const Node **source; /* by node, see find_sources, and the next two are its own */
  double *value;
  bool *is_of;
  int64_t (*block)[2]; /* by node: rows and columns of a unit of this param; 0: it is none of those meant */
} Parts;

static bool is_pruned_by_itself(const Node *param) {
  const char *by = node_str(param, ATTR_PRUNED);
  return param->op == OP_PARAM && by && strcmp(by, node_str(param, ATTR_NAME)) == 0;
}

static bool is_leader_of_itself(const Node *param) { return is_pruned_by_itself(param) && param->type.shape.rank >= 2; }

static void set_block(const Parts *p, const Node *param, int64_t rows, int64_t columns) {
  p->block[param->id][0] = rows;
  p->block[param->id][1] = columns;
}

static int64_t columns_of(const Node *param) { return shape_elements(&param->type.shape) / param->type.shape.dim[0]; }

static const Node *viewed_param(const Node *node) {
  while (node->op == OP_RESHAPE || node->op == OP_TRANSPOSE || node->op == OP_CAST || node->op == OP_BROADCAST) node = node->input[0];
  return node->op == OP_PARAM && !node_is_frozen(node) ? node : NULL;
}

/* What each element of the node is where those of a matrix are 0; NAN: that is not known. value: of the nodes before. */
static double value_of_zeros(const Node *node, const double *value) {
  double of[3] = {NAN, NAN, NAN};
  for (int k = 0; k < node->input_count && k < 3; k++) of[k] = value[node->input[k]->id];
  if (node->op == OP_CONST) return node_attr(node, ATTR_SAMPLES) || node_attr(node, ATTR_BATCH) ? NAN : node_float(node, ATTR_VALUE, NAN);
  if (node->op == OP_RESHAPE || node->op == OP_TRANSPOSE || node->op == OP_BROADCAST || node->op == OP_STOP_GRADIENT) return of[0];
  if (node->op == OP_MUL && (of[0] == 0 || of[1] == 0)) return 0;
  if (node->op == OP_SELECT) return of[0] == 1 || of[1] == of[2] ? of[1] : of[0] == 0 ? of[2] : NAN;
  if (op_info[node->op].op_class != CLASS_POINTWISE || !node->input_count || node->input_count > 2) return NAN;
  Scalar in[3];
  memset(in, 0, sizeof in);
  DType from = node->input[0]->type.dtype;
  for (int k = 0; k < node->input_count; k++) {
    if (isnan(of[k])) return NAN;
    if (dtype_is_float(from)) in[k].f = of[k];
    else in[k].i = (int64_t)of[k];
  }
  Scalar out = scalar_eval(node->op, from, node->type.dtype, in);
  return dtype_is_float(node->type.dtype) ? out.f : (double)out.i;
}

/* By node: the matrix of weights that it is, or is made of so that it is 0 where that is, as rounded weights are. */
static void find_sources(const Parts *p, const Node *matrix) {
  for (int i = 0; i < p->graph->nodes.count; i++) {
    const Node *node = p->graph->nodes.at[i];
    p->is_of[i] = node == matrix;
    for (int k = 0; k < node->input_count; k++) p->is_of[i] |= p->is_of[node->input[k]->id];
    p->value[i] = node == matrix ? 0 : value_of_zeros(node, p->value);
    if (p->is_of[i] && p->value[i] == 0) p->source[i] = matrix;
  }
}

/* ── heads ──────────────────────────────────────────────────────────────────────────────────── */
/* Where a value has the heads of an attention. */
typedef enum { HEADS_NONE, HEADS_APART /* [B,H,T,E] */, HEADS_LAST /* [...,H,E] */, HEADS_JOINED /* [...,H*E] */ } HeadsForm;
typedef struct {
  HeadsForm form;
  int64_t heads, size;
} HeadsAt;

/* Arithmetic on the features, each by itself, as rounding them: they stay where they are. */
static HeadsAt heads_through(const Node *node, const HeadsAt *at) {
  HeadsAt all = {0}, none = {0};
  for (int k = 0; k < node->input_count; k++) {
    const Node *in = node->input[k];
    if (in->op == OP_CONST || in->op == OP_BROADCAST) continue;
    HeadsAt of = at[in->id];
    bool is_other = all.form && (of.form != all.form || of.heads != all.heads || of.size != all.size);
    if (!of.form || is_other) return none;
    all = of;
  }
  return all;
}

static HeadsAt heads_at_node(const Node *node, const HeadsAt *at) {
  const Shape *shape = &node->type.shape;
  int last = shape->rank - 1;
  bool is_weighted_sum = node->op == OP_DOT && !viewed_param(node->input[0]) && !viewed_param(node->input[1]); /* softmax(q k') v */
  if ((node->op == OP_ATTENTION || is_weighted_sum) && shape->rank == 4) return (HeadsAt){HEADS_APART, shape->dim[1], shape->dim[3]};
  HeadsAt in = node->input_count ? at[node->input[0]->id] : (HeadsAt){0}, none = {0};
  const Attr *perm = node_attr(node, ATTR_PERM);
  if (node->op == OP_RESULT) return node_int(node, ATTR_INDEX, 0) == 0 ? in : none;
  if (node->op == OP_STOP_GRADIENT) return in;
  if (op_info[node->op].op_class == CLASS_POINTWISE) return heads_through(node, at);
  if (node->op == OP_TRANSPOSE && in.form == HEADS_APART && perm->ints[last - 1] == 1 && perm->ints[last] == 3) in.form = HEADS_LAST;
  else if (node->op == OP_RESHAPE && in.form >= HEADS_LAST && shape->rank && shape->dim[last] == in.heads * in.size) in.form = HEADS_JOINED;
  else return none;
  return in;
}

/* Behind arithmetic that leaves 0 where the matrix is: the operand that comes from it. */
static const Node *operand_behind(const Parts *p, const Node *node) {
  for (int k = 0; p->source[node->id] && k < node->input_count; k++)
    if (p->source[node->input[k]->id] == p->source[node->id] && shape_equal(&node->input[k]->type.shape, &node->type.shape)) return node->input[k];
  return NULL;
}

/* The param of rank 2 that an operand is, or is rounded of, seen from the last two dimensions; *is_turned: the other way round. */
static const Node *matrix_behind(const Parts *p, const Node *node, bool *is_turned) {
  const Shape *whole = NULL; /* within groups of its elements: what shape it had outside */
  *is_turned = false;
  while (node) {
    int rank = node->type.shape.rank;
    if (node->op == OP_PARAM) return rank == 2 && !whole ? node : NULL;
    const Attr *perm = node_attr(node, ATTR_PERM);
    bool is_view = node->op == OP_RESHAPE || node->op == OP_BROADCAST, is_same = true;
    if (node->op == OP_TRANSPOSE) {
      if (rank != 2 || perm->ints[0] != 1 || whole) return NULL;
      *is_turned = !*is_turned;
    } else if (!is_view && node->op != OP_CAST) {
      node = operand_behind(p, node);
      continue;
    }
    const Shape *in = &node->input[0]->type.shape;
    for (int d = 1; is_view && d <= 2; d++) is_same &= in->rank >= 2 && rank >= 2 && in->dim[in->rank - d] == node->type.shape.dim[rank - d];
    if (!is_same && (node->op != OP_RESHAPE || (whole && !shape_equal(in, whole)))) return NULL;
    if (!is_same) whole = whole ? NULL : &node->type.shape;
    node = node->input[0];
  }
  return NULL;
}

static void find_heads(const Parts *p) {
  HeadsAt *at = ARENA_ARRAY(p->arena, HeadsAt, p->graph->nodes.count);
  for (int i = 0; i < p->graph->nodes.count; i++) {
    const Node *node = p->graph->nodes.at[i];
    at[i] = heads_at_node(node, at);
    HeadsAt in = node->op == OP_DOT ? at[node->input[0]->id] : (HeadsAt){0};
    if (in.form != HEADS_JOINED || node_int(node, ATTR_TRANS_A, 0)) continue;
    bool is_turned, summed_is_last = node_int(node, ATTR_TRANS_B, 0);
    const Node *matrix = matrix_behind(p, node->input[1], &is_turned);
    if (!matrix || !is_leader_of_itself(matrix)) continue;
    if (is_turned != summed_is_last)
      set_block(p, matrix, matrix->type.shape.dim[0], in.size); /* [outputs, H*E] */
    else
      set_block(p, matrix, in.size, columns_of(matrix)); /* [H*E, outputs] */
  }
}

/* ── layers ─────────────────────────────────────────────────────────────────────────────────── */
static bool is_product_with(const Parts *p, const Node *node, const Node *matrix) {
  bool is_product = node->op == OP_DOT || node->op == OP_CONV || node->op == OP_CONV_GRAD_INPUT;
  return is_product && (p->source[node->input[0]->id] == matrix || p->source[node->input[1]->id] == matrix);
}

/* A vector beside zeros: it becomes 0 with the layer. */
static bool takes_vector(const Node *node, Node **vectors, int *count) {
  const Node *param = viewed_param(node);
  if (!param || param->type.shape.rank != 1 || *count == MAX_RANK) return false;
  for (int i = 0; i < *count; i++)
    if (vectors[i] == param) return true;
  vectors[(*count)++] = (Node *)param;
  return true;
}

/* Is the node 0 if `matrix` is, and the vectors beside it? zero: by node, of those before. */
static bool becomes_zero(const Parts *p, const Node *node, const Node *matrix, const bool *zero, Node **vectors, int *count) {
  Node *const *in = node->input;
  switch (node->op) {
  case OP_DOT:
  case OP_CONV:
  case OP_CONV_GRAD_INPUT:
    return is_product_with(p, node, matrix);
  case OP_ADD:
    return (zero[in[0]->id] && (zero[in[1]->id] || takes_vector(in[1], vectors, count))) ||
           (zero[in[1]->id] && takes_vector(in[0], vectors, count));
  case OP_SUB:
    return zero[in[0]->id] && zero[in[1]->id];
  case OP_MUL:
    if (!zero[in[0]->id] && !zero[in[1]->id]) return false;
    takes_vector(in[zero[in[0]->id]], vectors, count);
    return true;
  case OP_SELECT:
    for (int k = 1; k < 3; k++)
      if (!zero[in[k]->id] && !(in[k]->op == OP_CONST && node_float(in[k], ATTR_VALUE, 1) == 0)) return false;
    return true;
  case OP_DIV:
  case OP_SUM:
    return zero[in[0]->id];
  default:
    return op_passes_on(node->op) && zero[in[0]->id];
  }
}

static bool is_product_of(const Parts *p, const Node *node, const Node *part) {
  bool *is = ARENA_ARRAY(p->arena, bool, p->graph->nodes.count);
  is[part->id] = true;
  for (int i = part->id + 1; i <= node->id; i++)
    for (int k = 0; k < p->graph->nodes.at[i]->input_count; k++) is[i] |= is[p->graph->nodes.at[i]->input[k]->id];
  return is[node->id];
}

/* x + f(x): the zeros are added to what they are made of. */
static bool adds_residual(const Parts *p, const Node *node, const bool *zero, const Node *product) {
  if (node->op != OP_ADD || !product) return false;
  bool is_first = zero[node->input[0]->id];
  if (is_first == zero[node->input[1]->id]) return false;
  return is_product_of(p, product, node->input[is_first]);
}

static void find_pruned_layer(const Parts *p, const Node *matrix) {
  bool *zero = ARENA_ARRAY(p->arena, bool, p->graph->nodes.count);
  Node *vectors[MAX_RANK];
  int count = 0;
  const Node *product = NULL;
  for (int i = matrix->id + 1; i < p->graph->nodes.count; i++) {
    const Node *node = p->graph->nodes.at[i];
    if (adds_residual(p, node, zero, product)) {
      set_block(p, matrix, matrix->type.shape.dim[0], columns_of(matrix));
      for (int k = 0; k < count; k++)
        node_set_attr(p->graph, vectors[k], attr_str(ATTR_PRUNED, node_str(matrix, ATTR_NAME)));
      return;
    }
    if (!product && is_product_with(p, node, matrix)) product = node;
    zero[i] = product && becomes_zero(p, node, matrix, zero, vectors, &count);
  }
}

/* The step says what is pruned: in an evaluation a batch norm is not made of the batch. */
static bool copy_parts(Graph *graph, const Graph *train) {
  for (int i = 0; i < graph->nodes.count; i++) {
    Node *node = graph->nodes.at[i];
    const Node *same = node->op == OP_PARAM ? graph_find_leaf(train, OP_PARAM, node_str(node, ATTR_NAME)) : NULL;
    if (!same) continue;
    const Attr *pruned = node_attr(same, ATTR_PRUNED), *block = node_attr(same, ATTR_KERNEL);
    node_drop_attr(node, ATTR_PRUNED);
    if (pruned) node_set_attr(graph, node, *pruned);
    if (block) node_set_attr(graph, node, *block);
  }
  return true;
}

/* ── both ───────────────────────────────────────────────────────────────────────────────────── */
bool recipe_prune_parts(Builder *b, Graph *graph) {
  const SettingValue *settings = b->program->settings, *prune = &settings[setting_find(recipe_prune_key)];
  PruneStructure structure = {.kind = PRUNE_ELEMENT};
  prune_structure_read(setting_text(settings, "train.prune.structure"), &structure);
  bool is_head = structure.kind == PRUNE_HEAD;
  if (strcmp(prune->text, "none") == 0 || strcmp(prune->text, "zeros") == 0 || (!is_head && structure.kind != PRUNE_LAYER)) return true;
  if (!b->training && b->program->train) return copy_parts(graph, b->program->train);
  int count = graph->nodes.count, found = 0;
  Parts p = {.b = b, .graph = graph, .arena = b->arena, .source = ARENA_ARRAY(b->arena, const Node *, count),
             .value = ARENA_ARRAY(b->arena, double, count), .is_of = ARENA_ARRAY(b->arena, bool, count),
             .block = arena_alloc(b->arena, sizeof(int64_t[2]) * (size_t)count)};
  memset(p.block, 0, sizeof(int64_t[2]) * (size_t)count);
  for (int i = 0; i < count; i++)
    if (is_leader_of_itself(graph->nodes.at[i])) find_sources(&p, graph->nodes.at[i]);
  if (is_head) find_heads(&p);
  for (int i = 0; i < count && !is_head; i++)
    if (is_leader_of_itself(graph->nodes.at[i])) find_pruned_layer(&p, graph->nodes.at[i]);
  for (int i = 0; i < count; i++) {
    Node *node = graph->nodes.at[i];
    if (!is_pruned_by_itself(node)) continue;
    found += p.block[i][0] > 0;
    if (p.block[i][0])
      node_set_attr(graph, node, attr_ints(ATTR_KERNEL, p.block[i], 2));
    else
      node_drop_attr(node, ATTR_PRUNED);
  }
  if (found) return true;
  return builder_fail(b, prune->loc,
                      is_head ? "structure=head prunes nothing: no trained matrix%s is multiplied with what attention(...) gives, its heads side by side"
                              : "structure=layer prunes nothing: no trained matrix%s is the last one of what a residual sum x + f(x) adds",
                      b->prune_has_rule ? " named behind `on`" : "");
}
