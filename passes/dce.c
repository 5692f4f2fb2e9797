/* dce: keeps what a root needs, and every input, param and state whether needed or not: the train
 * and eval graphs must agree on the places, and the loader on the batch. */
#include "passes/pass.h"

static bool is_kept(const Node *node) {
  return node->op == OP_INPUT || node->op == OP_PARAM || node->op == OP_STATE;
}

Graph *pass_dce(PassContext *context, Graph *old) {
  bool *live = graph_find_live(old, context->scratch);
  Graph *graph = graph_new(old->arena, old->name);
  Node **map = ARENA_ARRAY(context->scratch, Node *, old->nodes.count);
  for (int i = 0; i < old->nodes.count; i++) {
    const Node *node = old->nodes.at[i];
    if (!live[i] && !is_kept(node)) continue;
    Node **inputs = ARENA_ARRAY(context->scratch, Node *, node->input_count);
    for (int k = 0; k < node->input_count; k++) inputs[k] = map[node->input[k]->id];
    map[i] = graph_copy_node(graph, node, inputs);
  }
  graph_copy_roots(graph, old, map);
  return graph;
}
