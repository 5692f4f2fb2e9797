/* cost: see cost.h. */
#include "codegen/cost.h"

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
