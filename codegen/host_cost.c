/* host_cost: rough costs, from which follow how finely work is cut. They steer speed only; no
 * result depends on them. */
#include "codegen/host_private.h"

bool host_is_expensive(Op op) { return op_has(op, TRAIT_ELEMENTARY) || op == OP_RANDOM; }

bool host_has_expensive(const Graph *body) {
  for (int i = 0; i < body->nodes.count; i++)
    if (host_is_expensive(body->nodes.at[i]->op)) return true;
  return false;
}

static bool is_window(const Node *node) { return op_info[node->op].op_class == CLASS_WINDOW; }

double host_cost(const HostKernel *kernel) {
  const double byte = 0.06, cheap = 0.04, expensive = 1.0; /* nanoseconds, one core with AVX2 */
  if (!kernel->body) return 1;
  double elements = (double)(kernel->elements ? kernel->elements : 1), cost = 0;
  for (int i = 0; i < kernel->body->nodes.count; i++) {
    const Node *node = kernel->body->nodes.at[i];
    double share = (double)shape_elements(&node->type.shape) / elements;
    if (node->op == OP_ARG)
      cost += byte * dtype_bytes(node->type.dtype) * share;
    else if (is_window(node))
      cost +=
          cheap * 2 * share *
          (double)(node_attr(node, ATTR_KERNEL)->ints[0] * node_attr(node, ATTR_KERNEL)->ints[1]);
    else
      cost += (host_is_expensive(node->op) ? expensive : cheap) * (share < 1 ? share : 1);
  }
  for (int i = 0; i < kernel->body->roots.count; i++) {
    const Type *type = &kernel->body->roots.at[i].node->type;
    cost += byte * (double)type_bytes(type) / elements;
  }
  return cost;
}

int64_t host_grain(const HostKernel *kernel, int64_t elements_per_item) {
  const double worth = 8000; /* nanoseconds: several times the cost of waking a thread */
  double item = host_cost(kernel) * (double)elements_per_item;
  double grain = item > 0 ? worth / item : 1;
  return grain < 1 ? 1 : grain > 1e9 ? 1000000000 : (int64_t)(grain + 0.5);
}
