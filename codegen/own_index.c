/* own_index: see own_index.h. Nodes are in topological order, so one walk from the end of the body
 * to its beginning knows all readers of a node when it comes to it. */
#include "codegen/own_index.h"
#include "passes/fuse.h"

static bool hands_on(const Node *node) {
  return op_info[node->op].op_class == CLASS_POINTWISE || node->op == OP_RESHAPE ||
         node->op == OP_STOP_GRADIENT;
}

static const bool *own_index_walk(const Graph *body, bool *is_own, bool *is_other) {
  for (int i = body->nodes.count - 1; i >= 0; i--) {
    const Node *node = body->nodes.at[i];
    bool is_reduce = op_info[node->op].op_class == CLASS_REDUCE;
    for (int k = 0; k < node->input_count && (is_own[i] || is_other[i]); k++) {
      int input = node->input[k]->id;
      is_own[input] |= is_reduce || (is_own[i] && hands_on(node));
      is_other[input] |= !is_reduce && (is_other[i] || (is_own[i] && !hands_on(node)));
    }
  }
  for (int i = 0; i < body->nodes.count; i++) is_own[i] &= !is_other[i];
  return is_own;
}

const bool *own_index_reads(Arena *scratch, const Node *fused) {
  const Graph *body = fused->body;
  bool *is_own = ARENA_ARRAY(scratch, bool, body->nodes.count),
       *is_other = ARENA_ARRAY(scratch, bool, body->nodes.count);
  for (int i = 0; i < body->roots.count; i++) {
    const Node *root = body->roots.at[i].node;
    *(kernel_is_whole(fused, root) ? &is_own[root->id] : &is_other[root->id]) = true;
  }
  return own_index_walk(body, is_own, is_other);
}

const bool *own_index_reads_of(Arena *scratch, const Graph *body, const Node *root) {
  bool *is_own = ARENA_ARRAY(scratch, bool, body->nodes.count),
       *is_other = ARENA_ARRAY(scratch, bool, body->nodes.count);
  is_own[root->id] = true;
  return own_index_walk(body, is_own, is_other);
}
