/* cost: see cost.h. */
#include "codegen/cost.h"

/* Two products forward, five backward, of which the causal order hides half. */
static int64_t attention_flops(const Node *node) {
  bool is_grad = node->op == OP_ATTENTION_GRAD;
  AttentionForm f = attention_form(node);
  int64_t flops = (is_grad ? 10 : 4) * f.batch * f.heads * f.rows * f.keys * f.features;
  return node_int(node, ATTR_CAUSAL, 0) ? flops / 2 : flops;
}

static int64_t contraction_flops(const Node *node) {
  int64_t out = shape_elements(&node->type.shape);
  const Shape *a = &node->input[0]->type.shape, *b = &node->input[1]->type.shape;
  switch (node->op) {
  case OP_ATTENTION:
  case OP_ATTENTION_GRAD:
    return attention_flops(node);
  case OP_DOT:
    return 2 * out * a->dim[a->rank - (node_int(node, ATTR_TRANS_A, 0) ? 2 : 1)];
  case OP_CONV: /* each output element: a filter's elements */
    return b->dim[0] ? 2 * out * (shape_elements(b) / b->dim[0]) : 0;
  case OP_CONV_GRAD_INPUT: /* each element of dy meets a filter */
    return b->dim[0] ? 2 * shape_elements(a) * (shape_elements(b) / b->dim[0]) : 0;
  case OP_CONV_GRAD_WEIGHT:
    return node->type.shape.dim[0] ? 2 * shape_elements(a) * (out / node->type.shape.dim[0]) : 0;
  default:
    return 0;
  }
}

int64_t cost_flops(const Node *node) {
  int64_t flops = 0;
  switch (op_info[node->op].op_class) {
  case CLASS_POINTWISE:
    return shape_elements(&node->type.shape);
  case CLASS_REDUCE:
    return shape_elements(&node->input[0]->type.shape);
  case CLASS_CONTRACT:
    return contraction_flops(node);
  default:
    for (int i = 0; node->op == OP_FUSED && i < node->body->nodes.count; i++)
      flops += cost_flops(node->body->nodes.at[i]);
    return flops;
  }
}
