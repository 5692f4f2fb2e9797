/* lifetime: see lifetime.h. */
#include "passes/lifetime.h"
#include "passes/fuse.h"
#include <string.h>

const Node *lifetime_base(const Node *node) {
  while (node->op == OP_RESHAPE) node = node->input[0];
  return node;
}

LifetimeIds *lifetime_leaves_of_states(const Graph *graph, Arena *arena) {
  LifetimeIds *leaves = ARENA_ARRAY(arena, LifetimeIds, graph->nodes.count);
  const Node *whole[] = {graph_find_role(graph, ROLE_PARAMS), graph_find_role(graph, ROLE_NARROW)};
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *leaf = graph->nodes.at[i], *state = NULL;
    if (leaf->op == OP_PARAM && !node_is_frozen(leaf)) state = whole[leaf->role == ROLE_NARROW];
    if (leaf->op == OP_STATE) state = graph_find_state(graph, node_str(leaf, ATTR_NAME));
    if (state) VEC_PUSH(arena, leaves[state->id], i);
  }
  return leaves;
}

bool lifetime_is_step(const Node *node) {
  return !node_is_leaf(node) && node->op != OP_RESHAPE && node->op != OP_RESULT;
}

bool lifetime_is_value(const Node *node) {
  return node->op == OP_RESULT ||
         (lifetime_is_step(node) && !node_has_results(node) && node->op != OP_ASSIGN);
}

/* Does it write over its operands, where they are not read any more? */
static bool lifetime_is_in_place(const Node *node) {
  return node->op == OP_ALL_REDUCE || node->op == OP_BROADCAST_FROM;
}

static void read_at(Lifetimes *times, const Node *value, int step) {
  int base = lifetime_base(value)->id;
  if (times->last[base] < step) times->last[base] = step;
}

/* A collective reads its operand beside the steps that follow, until the first one that reads its
 * result; or until the next collective has begun, so that one operand at a time is kept for that, but
 * for pieces of a batch, of which several are on their way. */
static void keep_under_way(const Graph *graph, Lifetimes *times, Arena *arena) {
  int *read = ARENA_ARRAY(arena, int, graph->nodes.count), next = times->count;
  for (int i = 0; i < graph->nodes.count; i++) read[i] = times->count;
  for (int s = times->count - 1; s >= 0; s--) {
    const Node *node = times->node[s];
    for (int k = 0; k < node->input_count; k++) read[lifetime_base(node->input[k])->id] = s;
    if (!op_has(node->op, TRAIT_RANKS) || !node->input_count) continue;
    bool is_awaited = node->origin.piece && read[node->id] < times->count;
    int until = read[node->id] <= next || is_awaited ? read[node->id] - 1 : next;
    next = s;
    if (lifetime_is_in_place(node)) continue;
    int *last = &times->last[lifetime_base(node->input[0])->id];
    if (*last < until) *last = until;
  }
}

Lifetimes lifetimes_of(const Graph *graph, Arena *arena) {
  int count = graph->nodes.count;
  Lifetimes times = {.node = ARENA_ARRAY(arena, const Node *, count),
                     .step = ARENA_ARRAY(arena, int, count),
                     .first = ARENA_ARRAY(arena, int, count),
                     .last = ARENA_ARRAY(arena, int, count)};
  for (int i = 0; i < count; i++) {
    const Node *node = graph->nodes.at[i];
    times.step[i] = times.first[i] = times.last[i] = -1;
    if (lifetime_is_step(node)) {
      times.node[times.count] = node;
      times.step[i] = times.count++;
    } else if (node->op == OP_RESULT) {
      times.step[i] = times.step[node->input[0]->id];
    }
    if (lifetime_is_value(node)) times.first[i] = times.last[i] = times.step[i];
    for (int k = 0; lifetime_is_step(node) && k < node->input_count; k++)
      read_at(&times, node->input[k], times.step[i]);
  }
  for (int i = 0; i < graph->roots.count; i++)
    read_at(&times, graph->roots.at[i].node, times.count);
  keep_under_way(graph, &times, arena);
  return times;
}

/* ── overwriting an operand ─────────────────────────────────────────────────────────────────── */
/* Does no other operand of a collective lie there, too? */
static bool is_only_operand(const Node *node, int index, const Node *base) {
  for (int k = 0; k < node->input_count; k++)
    if ((lifetime_base(node->input[k]) == base) != (k == index)) return false;
  return true;
}

bool lifetime_may_overwrite(const Node *fused, int index, const Node *base) {
  enum { MANY = 1024 };
  if (fused->op == OP_PUT) /* what it leaves as it is it does not touch */
    return lifetime_base(fused->input[0]) == base && lifetime_base(fused->input[1]) != base;
  if (lifetime_is_in_place(fused)) return is_only_operand(fused, index, base);
  if (fused->op != OP_FUSED) return false;
  const Graph *body = fused->body;
  const Type *result = &body->roots.at[index].node->type;
  KernelKind kind = kernel_kind(fused);
  bool is_full = kernel_is_whole(fused, body->roots.at[index].node);
  bool is_row = kind == KERNEL_ROW && is_full;
  bool is_reduced = kind != KERNEL_LOOP && !is_full;
  /* a product's body looks at its epilogue's operands when the sum of a place is whole */
  bool is_apart = kind == KERNEL_LOOP || kind == KERNEL_DOT || is_reduced || is_row;
  if (!is_apart || body->nodes.count > MANY ||
      dtype_bytes(result->dtype) != dtype_bytes(base->type.dtype))
    return false;
  bool elsewhere[MANY] = {false}; /* is it read at an index other than the result's? */
  bool read[MANY] = {false};      /* by this result, and so loaded before it is stored */
  read[body->roots.at[index].node->id] = true;
  graph_mark_inputs(body, read);
  for (int i = body->nodes.count - 1; i >= 0; i--) {
    const Node *node = body->nodes.at[i];
    bool moves = op_info[node->op].op_class != CLASS_POINTWISE || elsewhere[i];
    /* a row's sums are complete before the first of its elements is stored */
    if (is_row && op_info[node->op].op_class == CLASS_REDUCE) moves = false;
    for (int k = 0; k < node->input_count; k++) elsewhere[node->input[k]->id] |= moves;
    if (node->op == OP_ARG && lifetime_base(fused->input[node_int(node, ATTR_INDEX, 0)]) == base &&
        (elsewhere[i] || !read[i] || !shape_equal(&node->type.shape, &result->shape)))
      return false;
  }
  return true;
}
