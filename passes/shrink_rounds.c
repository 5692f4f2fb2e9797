/* shrink_rounds: can nodes of a graph be left out, since all that becomes of them is what was there before? x + f(x) is x where f(x) is 0
 * by its last weights; and relu(relu(x)) is relu(x). */
#include "ir/match.h"
#include "passes/shrink.h"

static bool is_zero_value(const Shrink *s, int index, const Node *node) { return s->values.at[index][node->id]->is_zero; }

/* The operand that has the node's value; NULL: none is known to. first: by node, the first one that is known to have its value. */
static const Node *equal_operand(const Shrink *s, int index, const Node *node, const Node *const *first) {
  if (node->op == OP_ADD || node->op == OP_SUB) {
    if (is_zero_value(s, index, node->input[1])) return node->input[0];
    if (node->op == OP_ADD && is_zero_value(s, index, node->input[0])) return node->input[1];
  }
  const Node *x = match_relu(node);
  return x && match_relu(first[x->id]) ? x : NULL;
}

/* By node: the operand that has its value, or itself. */
static const Node **find_same(const Shrink *s, int index) {
  const Graph *graph = s->graphs.at[index];
  const Node **same = ARENA_ARRAY(s->arena, const Node *, graph->nodes.count);
  const Node **first = ARENA_ARRAY(s->arena, const Node *, graph->nodes.count);
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *operand = equal_operand(s, index, graph->nodes.at[i], first);
    same[i] = operand ? operand : graph->nodes.at[i];
    first[i] = operand ? first[operand->id] : graph->nodes.at[i];
  }
  return same;
}

bool shrink_is_of_all(const Node *node) {
  while (node->op == OP_CAST) node = node->input[0];
  return node->op == OP_SETTING || (node->op == OP_STATE && node->role == ROLE_STEP);
}

static bool is_between(const Node *node, int begin, int end) { return node->id >= begin && node->id < end; }

/* Without nodes [begin, end), too: is the value still there? */
static bool is_still_there(const Shrink *s, int index, const Node *node, int begin, int end) {
  while (!shrink_is_of_all(node) && (is_between(node, begin, end) || s->gone.at[index][node->id])) {
    const Node *same = s->same.at[index][node->id];
    if (same == node) return false;
    node = same;
  }
  return true;
}

bool shrink_can_leave_out(const Shrink *shrink, int index, int begin, int end) {
  const Graph *graph = shrink->graphs.at[index];
  const bool *gone = shrink->gone.at[index];
  for (int i = end; i < graph->nodes.count; i++)
    for (int k = 0; k < graph->nodes.at[i]->input_count && !gone[i]; k++)
      if (!is_still_there(shrink, index, graph->nodes.at[i]->input[k], begin, end)) return false;
  for (int i = 0; i < graph->roots.count; i++) {
    const Root *root = &graph->roots.at[i];
    bool is_left_out = root->kind == ROOT_ASSIGN && is_between(root->node, begin, end);
    if (!is_left_out && !(root->kind == ROOT_ASSIGN && gone[root->node->id]) && !is_still_there(shrink, index, root->node, begin, end))
      return false;
  }
  return true;
}

void shrink_leave_out(Shrink *shrink, int index, int begin, int end) {
  for (int i = begin; i < end; i++) shrink->gone.at[index][i] = true;
  shrink->has_gone = true;
}

void shrink_leave_nothing_out(Shrink *shrink) {
  for (int g = 0; g < shrink->graphs.count; g++)
    for (int i = 0; i < shrink->graphs.at[g]->nodes.count; i++) shrink->gone.at[g][i] = false;
  shrink->has_gone = false;
}

bool shrink_is_gone(const Shrink *shrink, const Node *node) {
  for (int g = 0; g < shrink->graphs.count; g++)
    if (node->id < shrink->graphs.at[g]->nodes.count && shrink->graphs.at[g]->nodes.at[node->id] == node) return shrink->gone.at[g][node->id];
  return false;
}

void shrink_find_same(Shrink *shrink) {
  for (int g = 0; g < shrink->graphs.count; g++) VEC_PUSH(shrink->arena, shrink->same, find_same(shrink, g));
}
