/* float8: see float8.h. */
#include "passes/float8.h"
#include "passes/float8_delayed.h"
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
  Histories *histories; /* NULL: the scales are of the tensors themselves */
} Float8Pass;

static bool is_delayed(const SettingValue *settings) {
  return settings && !strcmp(setting_text(settings, "train.fp8.scaling"), "delayed");
}

bool float8_is_product(const PassContext *context, const Node *node) {
  if (node->op != OP_DOT || node->type.dtype != DT_F32 || !shape_elements(&node->type.shape) ||
      !shape_elements(&node->input[0]->type.shape))
    return false;
  if (context->of & (PASS_OF_DECODE | PASS_OF_PREFILL)) return false;
  const char *own = node_str(node, ATTR_PRECISION);
  if (!own && context->settings) own = setting_text(context->settings, "train.precision");
  bool has_scales = !is_delayed(context->settings) || node_attr(node, ATTR_STREAM);
  return own && strcmp(own, "fp8") == 0 && has_scales;
}

static bool is_reordered(const Node *node) {
  return node->op == OP_RESHAPE || node->op == OP_TRANSPOSE;
}

const Node *float8_operand(const Node *node) {
  while (is_reordered(node)) node = node->input[0];
  return node;
}

Node *float8_largest(Graph *graph, Node *x) {
  int64_t axes[MAX_RANK];
  int rank = x->type.shape.rank;
  for (int i = 0; i < rank; i++) axes[i] = i;
  Node *size = make_unary(graph, OP_ABS, x);
  node_set_attr(graph, size, attr_str(ATTR_KIND, "scale"));
  return make_reduce(graph, OP_RMAX, size, axes, rank);
}

static Node *current_scale(Graph *graph, Node *x, Op rounding) {
  Node *largest = float8_largest(graph, x);
  largest = make_binary(graph, OP_MAX, largest, make_like(graph, largest, LEAST_LARGEST));
  double end = rounding == OP_ROUND_E4M3 ? FLOAT8_LARGEST_E4M3 : FLOAT8_LARGEST_E5M2;
  return make_binary(graph, OP_DIV, make_like(graph, largest, end), largest);
}

/* x stands in the new graph for `old`. */
static Float8 float8_of(Float8Pass *p, Graph *graph, const Node *old, Node *x) {
  bool is_gradient = p->histories ? histories_is_gradient(p->histories, old) : x->origin.is_backward;
  Op op = is_gradient ? OP_ROUND_E5M2 : OP_ROUND_E4M3;
  int key[2] = {x->id, (int)op};
  int index = lookup_add(&p->made, key, sizeof key, p->values.count);
  if (index < p->values.count) return p->values.at[index];
  Node *scale = p->histories ? histories_scale(p->histories, graph, old, x) : current_scale(graph, x, op);
  Float8 made = {
      .rounded = make_unary(graph, op, make_binary(graph, OP_MUL, x, scale)),
      .inverse = make_binary(graph, OP_DIV, make_like(graph, scale, 1), scale),
  };
  VEC_PUSH(p->context->scratch, p->values, made);
  return made;
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
    Float8 value = float8_of(p, fresh, float8_operand(old->input[k]), base);
    operand[k] = view_again(fresh, inputs[k], base, value.rounded);
    Shape one = {.rank = old->type.shape.rank};
    for (int i = 0; i < one.rank; i++) one.dim[i] = 1;
    Node *inverse = make_reshape(fresh, value.inverse, one);
    factor = factor ? make_binary(fresh, OP_MUL, factor, inverse) : inverse;
  }
  return make_binary(fresh, OP_MUL, graph_copy_node(fresh, old, operand), factor);
}

/* A tensor's scale follows from all of it, and a rank has a part: only of delayed scaling is it a number that ranks can
 * agree on behind the step. */
static bool is_refused(const PassContext *context, const Node *node) {
  const SettingValue *settings = context->settings;
  if (!settings) return false;
  bool is_cut = setting_tensor(settings) > 1 || setting_pipeline(settings) > 1;
  if (!is_cut && (setting_ranks(settings) == 1 || is_delayed(settings))) return false;
  if (is_cut && is_delayed(settings))
    diag_error(context->diag, node->origin.loc,
               "precision = fp8 goes with distributed.data, and not with distributed.%s, where a rank has a part of the "
               "layers: say precision = bf16",
               setting_tensor(settings) > 1 ? "tensor" : "pipeline");
  else
    diag_error(context->diag, node->origin.loc,
               "precision = fp8 scales a tensor by the largest of all its numbers, and of several ranks each sees only its "
               "own: say fp8(scaling=delayed)%s, or precision = bf16, or leave out `distributed`",
               is_cut ? " and distributed.data alone" : "");
  return true;
}

Graph *float8_scale(PassContext *context, Graph *graph) {
  const Node *first = NULL;
  for (int i = graph->nodes.count - 1; i >= 0; i--)
    if (float8_is_product(context, graph->nodes.at[i])) first = graph->nodes.at[i];
  if (!first) return graph;
  if (is_refused(context, first)) return NULL;
  Float8Pass p = {.context = context, .made = {.arena = context->scratch}, .histories = histories_find(context, graph)};
  Graph *scaled = graph_rewrite(graph, float8_visit, &p);
  if (p.histories) histories_update(p.histories, scaled);
  return pass_dce(context, scaled);
}
