/* float8: see float8.h. */
#include "passes/float8.h"
#include <string.h>

/* Below this the scale stays: it and its inverse are finite, where all numbers are 0 too. */
#define LEAST_LARGEST 0x1p-100

typedef struct {
  Node *rounded, *inverse; /* of x: x scaled and rounded, and 1 / scale, of one element and x's rank */
} Float8;

typedef struct {
  PassContext *context;
  Lookup made; /* by number of a node in the fresh graph, and op of its rounding: an index to */
  VEC(Float8) values;
} Float8Pass;

bool float8_is_product(const PassContext *context, const Node *node) {
  if (node->op != OP_DOT || node->type.dtype != DT_F32 || !shape_elements(&node->type.shape) ||
      !shape_elements(&node->input[0]->type.shape))
    return false;
  if (context->of & (PASS_OF_DECODE | PASS_OF_PREFILL)) return false;
  const char *own = node_str(node, ATTR_PRECISION);
  if (!own && context->settings) own = setting_text(context->settings, "train.precision");
  return own && strcmp(own, "fp8") == 0;
}

static Node *largest_size(Graph *graph, Node *x) {
  int64_t axes[MAX_RANK];
  int rank = x->type.shape.rank;
  for (int i = 0; i < rank; i++) axes[i] = i;
  return make_reduce(graph, OP_RMAX, make_unary(graph, OP_ABS, x), axes, rank);
}

static Float8 float8_of(Float8Pass *p, Graph *graph, Node *x) {
  Op op = x->origin.is_backward ? OP_ROUND_E5M2 : OP_ROUND_E4M3;
  int key[2] = {x->id, (int)op};
  int index = lookup_add(&p->made, key, sizeof key, p->values.count);
  if (index < p->values.count) return p->values.at[index];
  Node *largest = largest_size(graph, x);
  largest = make_binary(graph, OP_MAX, largest, make_like(graph, largest, LEAST_LARGEST));
  double end = op == OP_ROUND_E4M3 ? 448 : 57344;
  Node *scale = make_binary(graph, OP_DIV, make_like(graph, largest, end), largest);
  Float8 made = {
      .rounded = make_unary(graph, op, make_binary(graph, OP_MUL, x, scale)),
      .inverse = make_binary(graph, OP_DIV, make_like(graph, scale, 1), scale),
  };
  VEC_PUSH(p->context->scratch, p->values, made);
  return made;
}

static bool is_reordered(const Node *node) {
  return node->op == OP_RESHAPE || node->op == OP_TRANSPOSE;
}

/* A view of `base` as one of what was made of it. */
static Node *view_again(Graph *graph, const Node *view, const Node *base, Node *made) {
  if (view == base) return made;
  Node *input = view_again(graph, view->input[0], base, made);
  return graph_copy_node(graph, view, &input);
}

static Node *float8_visit(Graph *fresh, const Node *old, Node **inputs, void *context) {
  Float8Pass *p = context;
  if (!float8_is_product(p->context, old)) return NULL;
  Node *operand[2], *factor = NULL;
  for (int k = 0; k < 2; k++) {
    Node *base = inputs[k];
    while (is_reordered(base)) base = base->input[0];
    Float8 value = float8_of(p, fresh, base);
    operand[k] = view_again(fresh, inputs[k], base, value.rounded);
    Shape one = {.rank = old->type.shape.rank};
    for (int i = 0; i < one.rank; i++) one.dim[i] = 1;
    Node *inverse = make_reshape(fresh, value.inverse, one);
    factor = factor ? make_binary(fresh, OP_MUL, factor, inverse) : inverse;
  }
  return make_binary(fresh, OP_MUL, graph_copy_node(fresh, old, operand), factor);
}

/* A tensor's scale follows from all of it, and a rank has a part. */
static bool is_refused(const PassContext *context, const Node *node) {
  const SettingValue *settings = context->settings;
  if (!settings || (setting_ranks(settings) == 1 && setting_tensor(settings) == 1 &&
                    setting_pipeline(settings) == 1))
    return false;
  diag_error(context->diag, node->origin.loc,
             "precision = fp8 scales a tensor by the largest of all its numbers, and of several "
             "ranks each sees only its own: leave out `distributed`, or say precision = bf16");
  return true;
}

Graph *float8_scale(PassContext *context, Graph *graph) {
  Float8Pass p = {.context = context, .made = {.arena = context->scratch}};
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    if (!float8_is_product(context, node)) continue;
    if (is_refused(context, node)) return NULL;
    return pass_dce(context, graph_rewrite(graph, float8_visit, &p));
  }
  return graph;
}
