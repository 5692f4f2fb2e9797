/* heads: attention reads its heads as a model has them, side by side in rows of features, even
 * where q, k and v are parts of one tensor, and writes its result in the same order. What a model
 * writes with transposes and slices around attention then needs no copies; the simplify pass behind
 * this one cancels the transposes. heads_join, behind that, lets the gradients of q, k and v that
 * are only put together be written side by side. */
#include "passes/attention.h"
#include "passes/pass.h"

enum { B, T, FEATURES };

static const int64_t swap_middle[4] = {0, 2, 1, 3};

static bool swaps_middle(const Node *x) {
  if (x->op != OP_TRANSPOSE || x->type.shape.rank != 4) return false;
  const int64_t *perm = node_attr(x, ATTR_PERM)->ints;
  return perm[0] == 0 && perm[1] == 2 && perm[2] == 1;
}

/* [B,H,T,D] as [B,T,H*D]. */
static Node *heads_beside(Graph *graph, Node *x) {
  const int64_t *dim = x->type.shape.dim;
  Shape rows = {3, {dim[0], dim[2], dim[1] * dim[3]}};
  if (x->op == OP_CAST) return make_cast(graph, heads_beside(graph, x->input[0]), x->type.dtype);
  x = swaps_middle(x) ? x->input[0] : make_transpose(graph, x, swap_middle);
  while (x->op == OP_RESHAPE) x = x->input[0];
  return make_reshape(graph, x, rows);
}

/* [B,T,H*D] as [B,H,T,D]. */
static Node *apart(Graph *graph, Node *x, int64_t heads) {
  const int64_t *dim = x->type.shape.dim;
  Shape split = {4, {dim[B], dim[T], heads, dim[FEATURES] / heads}};
  return make_transpose(graph, make_reshape(graph, x, split), swap_middle);
}

static bool is_apart(const Node *x) {
  return swaps_middle(x) && x->input[0]->op == OP_RESHAPE &&
         x->input[0]->input[0]->op == OP_RESULT &&
         node_attr(x->input[0]->input[0]->input[0], ATTR_HEADS);
}

/* Heads of many features have a kernel only where they begin at 16 bytes (passes/attention.c). */
static bool is_aligned(int64_t start, int64_t row, int64_t features) {
  enum { PIECE = 8 };
  return features <= ATTENTION_MOST_GPU || (start % PIECE == 0 && row % PIECE == 0);
}

/* If x only is some features of each row of another tensor: that one, and where they start. */
static Node *whole_rows(Graph *graph, Node *x, int64_t features, int64_t *start) {
  *start = 0;
  if (x->op == OP_CAST)
    return make_cast(graph, whole_rows(graph, x->input[0], features, start), x->type.dtype);
  if (x->op != OP_SLICE) return x;
  const int64_t *from = node_attr(x, ATTR_START)->ints, *step = node_attr(x, ATTR_STEP)->ints;
  Node *whole = x->input[0];
  const int64_t *dim = whole->type.shape.dim;
  if (dim[B] != x->type.shape.dim[B] || dim[T] != x->type.shape.dim[T] || step[FEATURES] != 1)
    return x;
  if (!is_aligned(from[FEATURES], dim[FEATURES], features)) return x;
  *start = from[FEATURES];
  return whole;
}

/* Does the model have the heads side by side? */
static bool is_beside(const Node *v) {
  while (v->op == OP_CAST) v = v->input[0];
  return swaps_middle(v);
}

static Node *make_attention(Graph *graph, const Node *old, Node **inputs) {
  int at = old->op == OP_ATTENTION_GRAD;
  AttentionForm form = attention_form(old);
  int64_t heads[3] = {form.heads, form.groups, form.features}, start[3];
  Node *operand[MOST_INPUTS];
  for (int i = 0; i < old->input_count; i++) operand[i] = inputs[i];
  for (int i = 0; i < 3; i++)
    operand[at + i] = whole_rows(graph, heads_beside(graph, inputs[at + i]), form.features, &start[i]);
  if (at) {
    operand[0] = heads_beside(graph, inputs[0]);
    operand[4] = heads_beside(graph, inputs[4]);
  }
  Attr attrs[] = {attr_ints(ATTR_HEADS, heads, 3), attr_ints(ATTR_START, start, 3)};
  return graph_copy_with(graph, old, operand, NULL, attrs, 2);
}

static Node *make_new(Graph *graph, const Node *old, Node **inputs) {
  bool is_attention = old->op == OP_ATTENTION || old->op == OP_ATTENTION_GRAD;
  if (is_attention && is_beside(inputs[2 + (old->op == OP_ATTENTION_GRAD)])) {
    AttentionForm form = attention_form(old);
    bool is_empty = !form.batch || !form.rows || !form.keys || !form.features || !form.groups;
    return form.features == form.values && !is_empty ? make_attention(graph, old, inputs) : NULL;
  }
  if (old->op == OP_CAST && is_apart(inputs[0])) {
    Node *rows = inputs[0]->input[0]->input[0];
    Node *made = make_cast(graph, rows, old->type.dtype);
    return apart(graph, made, old->type.shape.dim[1]);
  }
  if (old->op != OP_RESULT || !node_attr(inputs[0], ATTR_HEADS)) return NULL;
  int64_t index = node_int(old, ATTR_INDEX, 0);
  Node *made = make_result(graph, inputs[0], (int)index);
  bool is_grad = inputs[0]->op == OP_ATTENTION_GRAD;
  if (!is_grad && index == 1) return made;
  AttentionForm form = attention_form(inputs[0]);
  return apart(graph, made, is_grad && index > 0 ? form.groups : form.heads);
}

static Node *heads_visit(Graph *fresh, const Node *old, Node **inputs, void *context) {
  (void)context;
  return make_new(fresh, old, inputs);
}

Graph *pass_heads(PassContext *context, Graph *graph) {
  (void)context;
  return graph_find_op(graph, OP_ATTENTION) ? graph_rewrite(graph, heads_visit, NULL) : graph;
}

/* ── joined gradients ───────────────────────────────────────────────────────────────────────── */
/* The attention_grad whose results are all that `concat` puts together; NULL if it is none. */
static Node *joined_in(const Node *concat, const int *uses) {
  if (concat->op != OP_CONCAT || concat->input_count != 3) return NULL;
  for (int i = 0; i < 3; i++) {
    const Node *part = concat->input[i];
    if (part->op != OP_RESULT || part->input[0] != concat->input[0]->input[0] ||
        node_int(part, ATTR_INDEX, 0) != i || uses[part->id] != 1)
      return NULL;
  }
  Node *grad = concat->input[0]->input[0];
  bool is_beside = grad->op == OP_ATTENTION_GRAD && node_attr(grad, ATTR_HEADS);
  return is_beside && uses[grad->id] == 3 && node_int(concat, ATTR_AXIS, 0) == FEATURES ? grad
                                                                                        : NULL;
}

/* context, by node: an attention_grad that is joined, its results, the concat of them. */
static Node *visit_joined(Graph *fresh, const Node *old, Node **inputs, void *context) {
  const bool *is_joined = context;
  if (!is_joined[old->id]) return NULL;
  if (old->op == OP_CONCAT || (old->op == OP_RESULT && node_int(old, ATTR_INDEX, 0) > 0))
    return inputs[0];
  if (old->op == OP_RESULT) return make_result(fresh, inputs[0], 0);
  Attr joined = attr_bool(ATTR_JOINED, true);
  return graph_copy_with(fresh, old, inputs, NULL, &joined, 1);
}

Graph *pass_heads_join(PassContext *context, Graph *graph) {
  if (!graph_find_op(graph, OP_ATTENTION)) return graph;
  bool *is_joined = ARENA_ARRAY(context->scratch, bool, graph->nodes.count);
  const int *uses = graph_use_counts(graph, context->scratch);
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i], *grad = joined_in(node, uses);
    if (!grad) continue;
    is_joined[i] = is_joined[grad->id] = true;
    for (int k = 0; k < 3; k++) is_joined[node->input[k]->id] = true;
  }
  return graph_rewrite(graph, visit_joined, is_joined);
}
