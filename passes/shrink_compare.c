/* shrink_compare: is the program with other widths the same program, but for what goes? Node by node: op, operands, constants and
 * attributes, shapes as many elements as are kept. Then the small one computes what the large one does, whatever the weights that
 * are left. */
#include "passes/shrink.h"
#include <string.h>

/* How a parameter begins may depend on widths. */
static bool is_initial(AttrId id) { return id == ATTR_INIT || id == ATTR_INIT_ARGS || id == ATTR_PRUNED; }

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

static bool attributes_agree(ShrinkValue *const *values, const Node *large, const Node *small) {
  const ShrinkValue *in = large->input_count ? values[large->input[0]->id] : NULL;
  const ShrinkValue *weight = large->input_count > 1 ? values[large->input[1]->id] : NULL;
  for (int i = 0; i < large->attr_count; i++) {
    const Attr *a = &large->attr[i], *b = node_attr(small, a->id);
    if (is_initial(a->id)) continue;
    if (!b || a->count != b->count || !moved_equal(in, weight, large, a, b)) return false;
  }
  for (int i = 0; i < small->attr_count; i++)
    if (!is_initial(small->attr[i].id) && !node_attr(large, small->attr[i].id)) return false;
  return true;
}

static bool is_same_node(const Node *large, const Node *small) {
  if (large->op != small->op || large->type.dtype != small->type.dtype || large->role != small->role ||
      large->type.shape.rank != small->type.shape.rank || large->input_count != small->input_count)
    return false;
  for (int i = 0; i < large->input_count; i++)
    if (large->input[i]->id != small->input[i]->id) return false;
  return true;
}

static bool same_roots(const Graph *large, const Graph *small) {
  if (large->roots.count != small->roots.count) return false;
  for (int i = 0; i < large->roots.count; i++) {
    const Root *a = &large->roots.at[i], *b = &small->roots.at[i];
    if (a->kind != b->kind || strcmp(a->name, b->name) != 0 || a->node->id != b->node->id) return false;
  }
  return true;
}

ShrinkDifference shrink_compare(const Shrink *shrink, int index, const Graph *small) {
  const Graph *large = shrink->graphs.at[index];
  ShrinkValue *const *values = shrink->values.at[index];
  int count = large->nodes.count < small->nodes.count ? large->nodes.count : small->nodes.count;
  for (int i = 0; i < count; i++) {
    const Node *a = large->nodes.at[i], *b = small->nodes.at[i];
    if (!is_same_node(a, b)) return (ShrinkDifference){a, -1, 0, 0};
    if (!shrink->live.at[index][i] && !node_is_leaf(a)) continue;
    for (int d = 0; d < a->type.shape.rank; d++) {
      int64_t kept = shrink_kept(values[i], d, a->type.shape.dim[d]);
      if (kept != b->type.shape.dim[d]) return (ShrinkDifference){a, d, kept, b->type.shape.dim[d]};
    }
    if (!attributes_agree(values, a, b)) return (ShrinkDifference){a, -1, 0, 0};
  }
  if (large->nodes.count != small->nodes.count || !same_roots(large, small))
    return (ShrinkDifference){large->nodes.at[count - 1], -1, 0, 0};
  return (ShrinkDifference){0};
}
