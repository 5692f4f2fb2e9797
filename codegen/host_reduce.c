/* host_reduce: which accumulators a kernel needs, and in which pass over its domain each is ready.
 * A pass sees the values of reductions of earlier passes only: that is the depth. */
#include "codegen/host_private.h"

static void add_reduction(HostReductions *all, HostReduction reduction) {
  if (reduction.depth > all->depth) all->depth = reduction.depth;
  all->at[all->count++] = reduction;
}

static void add_node(HostReductions *all, const Node *node, int depth) {
  DType dtype = node->input[0]->type.dtype;
  if (dtype == DT_F16 || dtype == DT_BF16) dtype = DT_F32; /* sums of short floats are kept long */
  if (!op_is_arg(node->op)) {
    all->node_depth[node->id] = depth;
    add_reduction(all, (HostReduction){node, node->op, dtype, depth, -1, true, NULL});
    return;
  }
  Op op = node->op == OP_ARGMAX ? OP_RMAX : OP_RMIN;
  all->node_depth[node->id] = depth + 1;
  add_reduction(all, (HostReduction){node, op, dtype, depth, -1, false, NULL});
  add_reduction(all, (HostReduction){node, OP_RMIN, DT_I32, depth + 1, all->count - 1, true, NULL});
}

void host_find_reductions(HostKernel *kernel, HostReductions *out) {
  const Graph *body = kernel->body;
  *out = (HostReductions){.node_depth = ARENA_ARRAY(kernel->scratch, int, body->nodes.count)};
  for (int i = 0; i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    int depth = 0;
    for (int k = 0; k < node->input_count; k++)
      if (out->node_depth[node->input[k]->id] > depth) depth = out->node_depth[node->input[k]->id];
    out->node_depth[i] = depth;
    if (op_info[node->op].op_class == CLASS_REDUCE) add_node(out, node, depth + 1);
  }
}

LLVMValueRef host_reduction_input(HostKernel *kernel, HostReductions *all, int i,
                                  const Index *index) {
  Emitter *e = &kernel->emitter;
  const HostReduction *reduction = &all->at[i];
  const Node *input = reduction->node->input[0];
  LLVMValueRef value = emit_value(e, input, index);
  if (reduction->extreme < 0) return value;
  int axis = (int)node_attr(reduction->node, ATTR_AXES)->ints[0];
  LLVMValueRef position = index_dim(e, index, &input->type.shape, axis);
  return emit_arg_candidate(e, input->type.dtype, value, all->at[reduction->extreme].value,
                            position);
}
