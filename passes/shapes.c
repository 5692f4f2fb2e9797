/* shapes: every type is inferred again (graph_node does, and asserts), and moves that move nothing
 * go. What simplify and autodiff meet afterwards changes a shape, an order or a dtype for real. */
#include "passes/pass.h"

static bool moves_nothing(const Node *node, const Node *input) {
  switch (node->op) {
  case OP_RESHAPE:
  case OP_BROADCAST:
  case OP_CAST:
    return type_equal(&node->type, &input->type);
  case OP_SLICE: /* a slice of everything cannot have a start or a step */
  case OP_PAD:
    return shape_equal(&node->type.shape, &input->type.shape);
  case OP_CONCAT:
    return node->input_count == 1;
  case OP_TRANSPOSE: {
    const Attr *perm = node_attr(node, ATTR_PERM);
    for (int i = 0; i < perm->count; i++)
      if (perm->ints[i] != i) return false;
    return true;
  }
  default:
    return false;
  }
}

static Node *shapes_visit(Graph *fresh, const Node *old, Node **inputs, void *context) {
  (void)fresh, (void)context;
  return old->input_count > 0 && moves_nothing(old, inputs[0]) ? inputs[0] : NULL;
}

Graph *pass_shapes(PassContext *context, Graph *graph) {
  (void)context;
  return graph_rewrite(graph, shapes_visit, NULL);
}
