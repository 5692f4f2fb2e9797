/* shrink_compare: is the program with other widths the same program, but for what goes? Node by node: op, operands, constants and
 * attributes, shapes as many elements as are kept. Then the small one computes what the large one does, whatever the weights that
 * are left. Nodes that are left out whole are none of it, and where others read them there is the node that has their value. */
#include "passes/shrink.h"
#include <string.h>

/* How a parameter begins may depend on widths. */
static bool is_initial(const Node *node, AttrId id) {
  return id == ATTR_INIT || id == ATTR_INIT_ARGS || id == ATTR_PRUNED || (id == ATTR_KERNEL && node->op == OP_PARAM);
}

/* Those that count elements, by what is kept of them. */
static bool moved_equal(const ShrinkValue *in, const ShrinkValue *weight, const Node *large, const Attr *a, const Attr *b) {
  if (a->id == ATTR_START && large->op == OP_SLICE) {
    for (int d = 0; d < a->count; d++)
      if (shrink_kept(in, d, a->ints[d]) != b->ints[d]) return false;
    return true;
  }
  if (a->id == ATTR_GROUPS && a->i > 1 && large->input[1]->type.shape.dim[1] == 1)
    return shrink_kept(weight, 0, large->input[1]->type.shape.dim[0]) == b->i;
  return attr_equal(a, b);
}

/* Without a round, the dropouts behind it have lower numbers: other random masks, of the same kind. */
static bool is_renumbered(const Shrink *shrink, AttrId id) { return shrink->has_gone && id == ATTR_STREAM; }

static bool attributes_agree(const Shrink *shrink, ShrinkValue *const *values, const Node *large, const Node *small) {
  const ShrinkValue *in = large->input_count ? values[large->input[0]->id] : NULL;
  const ShrinkValue *weight = large->input_count > 1 ? values[large->input[1]->id] : NULL;
  for (int i = 0; i < large->attr_count; i++) {
    const Attr *a = &large->attr[i], *b = node_attr(small, a->id);
    if (is_initial(large, a->id) || is_renumbered(shrink, a->id)) continue;
    if (!b || a->count != b->count || !moved_equal(in, weight, large, a, b)) return false;
  }
  for (int i = 0; i < small->attr_count; i++)
    if (!is_initial(small, small->attr[i].id) && !node_attr(large, small->attr[i].id)) return false;
  return true;
}

/* there: by node of the large one, the small one's that has its value; NULL: there is none. */
static bool is_same_node(const Node *large, const Node *small, Node *const *there) {
  if (large->op != small->op || large->type.dtype != small->type.dtype || large->role != small->role ||
      large->type.shape.rank != small->type.shape.rank || large->input_count != small->input_count)
    return false;
  for (int i = 0; i < large->input_count; i++)
    if (there[large->input[i]->id] != small->input[i]) return false;
  return true;
}

static bool same_roots(const Graph *large, const Graph *small, const bool *gone, Node *const *there) {
  int count = 0;
  for (int i = 0; i < large->roots.count; i++) {
    const Root *a = &large->roots.at[i], *b = count < small->roots.count ? &small->roots.at[count] : NULL;
    if (a->kind == ROOT_ASSIGN && gone[a->node->id]) continue;
    if (!b || a->kind != b->kind || strcmp(a->name, b->name) != 0 || there[a->node->id] != b->node) return false;
    count++;
  }
  return count == small->roots.count;
}

static Node *find_of_all(const Graph *small, const Node *large, Node *const *there) {
  for (int i = 0; i < small->nodes.count; i++) {
    Node *node = small->nodes.at[i];
    if (node->op != large->op || node->type.dtype != large->type.dtype || !shrink_is_of_all(node)) continue;
    bool is_same = node->op == OP_CAST ? there[large->input[0]->id] == node->input[0]
                                       : strcmp(node_str(node, ATTR_NAME), node_str(large, ATTR_NAME)) == 0;
    if (is_same) return node;
  }
  return NULL;
}

static void skip_of_all(const Graph *small, int *at) {
  while (*at < small->nodes.count && shrink_is_of_all(small->nodes.at[*at])) ++*at;
}

ShrinkDifference shrink_compare(const Shrink *shrink, int index, const Graph *small) {
  const Graph *large = shrink->graphs.at[index];
  ShrinkValue *const *values = shrink->values.at[index];
  const bool *gone = shrink->gone.at[index];
  Node **there = ARENA_ARRAY(shrink->arena, Node *, large->nodes.count);
  int at = 0;
  for (int i = 0; i < large->nodes.count; i++) {
    const Node *a = large->nodes.at[i];
    if (shrink_is_of_all(a)) {
      there[i] = find_of_all(small, a, there);
      continue;
    }
    if (gone[i]) {
      const Node *same = shrink->same.at[index][i];
      there[i] = same == a ? NULL : there[same->id];
      continue;
    }
    skip_of_all(small, &at);
    Node *b = at < small->nodes.count ? small->nodes.at[at++] : NULL;
    if (!b || !is_same_node(a, b, there)) return (ShrinkDifference){a, -1, 0, 0};
    there[i] = b;
    if (!shrink->live.at[index][i] && !node_is_leaf(a)) continue;
    for (int d = 0; d < a->type.shape.rank; d++) {
      int64_t kept = shrink_kept(values[i], d, a->type.shape.dim[d]);
      if (kept != b->type.shape.dim[d]) return (ShrinkDifference){a, d, kept, b->type.shape.dim[d]};
    }
    if (!attributes_agree(shrink, values, a, b)) return (ShrinkDifference){a, -1, 0, 0};
  }
  skip_of_all(small, &at);
  if (at != small->nodes.count || !same_roots(large, small, gone, there))
    return (ShrinkDifference){large->nodes.at[large->nodes.count - 1], -1, 0, 0};
  return (ShrinkDifference){0};
}
