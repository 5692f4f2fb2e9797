/* masks: on a GPU, backward recomputes the mask of a relu behind a batch norm from the norm's
 * input. The gradient of relu(v) is dz where v > 0, and autodiff takes v > 0 from relu's result,
 * which is in memory for the next convolution. But v is computed from the norm's input y by a few
 * numbers for each channel, and the norm's gradient reads y twice anyway: for its sums, and for dy.
 * So both kernels recompute v and mask dz themselves. The masked gradient is then never written,
 * and relu's result is not read: of the seven images that the two kernels moved, five are left.
 *
 * A v that is so small that bf16 rounds it to zero keeps its gradient, which the rounded result
 * would hide. f16 has fewer small numbers, so there the mask stays as it is. */
#include "passes/pass.h"
#include "ir/match.h"

enum { CONE_NODES = 12 };

typedef struct {
  const Graph *old;
  bool *read_back;    /* by old node: backward reads it */
  const Node **value; /* of a mask: v; NULL: no such mask */
  bool *is_masked;    /* a masked gradient, which each of its users makes for itself */
  Node **made;        /* by old node */
} Masks;

static const Node *strip_casts(const Node *node) {
  while (node->op == OP_CAST && node->type.dtype != DT_F16 &&
         (node->input[0]->type.dtype == DT_F32 || node->input[0]->type.dtype == DT_BF16))
    node = node->input[0];
  return node;
}

/* Walks what v is computed from, element by element: is that one image and numbers for its
 * channels, and does backward read that image, or a value of this walk, without the mask too? */
typedef struct {
  int64_t elements;
  int nodes;
  const Node *source;
  bool is_simple, is_read;
} Cone;

static void masks_walk_cone(const Masks *m, const Node *node, const Node *top, Cone *cone) {
  if (shape_elements(&node->type.shape) * 2 <= cone->elements || node->op == OP_CONST) return;
  if (node->op == OP_BROADCAST && shape_elements(&node->input[0]->type.shape) < cone->elements)
    return;
  if (++cone->nodes > CONE_NODES) cone->is_simple = false;
  cone->is_read |= node != top && m->read_back[node->id];
  if (op_info[node->op].op_class != CLASS_POINTWISE) {
    cone->is_simple &= !cone->source || cone->source == node;
    cone->source = node;
    return;
  }
  cone->is_simple &= !op_has(node->op, TRAIT_ELEMENTARY);
  for (int i = 0; i < node->input_count && cone->is_simple; i++)
    masks_walk_cone(m, node->input[i], top, cone);
}

static bool is_made_of_what_is_read(const Masks *m, const Node *v) {
  Cone cone = {.elements = shape_elements(&v->type.shape), .is_simple = true};
  masks_walk_cone(m, v, v, &cone);
  return cone.is_simple && cone.is_read && cone.source && !cone.source->origin.is_backward;
}

static void masks_find(Masks *m, const Node *node) {
  if (!node->origin.is_backward || node->op != OP_LE || !match_value(node->input[1], 0)) return;
  const Node *v = match_relu(strip_casts(node->input[0]));
  if (v && !v->origin.is_backward && is_made_of_what_is_read(m, v)) m->value[node->id] = v;
}

/* Users pull it into kernels: else it would be written once for each. */
static bool is_pulled_by(const Node *user) {
  OpClass op_class = op_info[user->op].op_class;
  return op_class == CLASS_POINTWISE || op_class == CLASS_REDUCE;
}

static void find_masks(Masks *m) {
  for (int i = 0; i < m->old->nodes.count; i++) {
    const Node *node = m->old->nodes.at[i];
    for (int k = 0; node->origin.is_backward && k < node->input_count; k++)
      m->read_back[node->input[k]->id] = true;
  }
  for (int i = 0; i < m->old->nodes.count; i++) {
    const Node *node = m->old->nodes.at[i];
    masks_find(m, node);
    m->is_masked[i] = (node->op == OP_SELECT && m->value[node->input[0]->id]) ||
                      (node->op == OP_CAST && m->is_masked[node->input[0]->id]);
  }
  for (int i = m->old->nodes.count - 1; i >= 0; i--) {
    const Node *node = m->old->nodes.at[i];
    for (int k = 0; k < node->input_count; k++)
      if (!is_pulled_by(node) || (node->op == OP_CAST && !m->is_masked[i]))
        m->is_masked[node->input[k]->id] = false;
  }
}

/* A masked gradient for one user. */
static Node *masked_again(Masks *m, Graph *fresh, const Node *old) {
  Node *inputs[3];
  for (int i = 0; i < old->input_count; i++) inputs[i] = m->made[old->input[i]->id];
  if (old->op == OP_CAST) {
    inputs[0] = masked_again(m, fresh, old->input[0]);
  } else {
    Node *v = m->made[m->value[old->input[0]->id]->id];
    fresh->origin = old->origin;
    inputs[0] = make_binary(fresh, OP_LE, v, make_like(fresh, v, 0));
  }
  return graph_copy_node(fresh, old, inputs);
}

static Node *masks_visit(Graph *fresh, const Node *old, Node **inputs, void *context) {
  Masks *m = context;
  for (int i = 0; i < old->input_count && !m->is_masked[old->id]; i++)
    if (m->is_masked[old->input[i]->id]) inputs[i] = masked_again(m, fresh, old->input[i]);
  return m->made[old->id] = graph_copy_node(fresh, old, inputs);
}

Graph *pass_masks(PassContext *context, Graph *graph) {
  int count = graph->nodes.count;
  Arena *arena = context->scratch;
  Masks masks = {.old = graph,
                 .read_back = ARENA_ARRAY(arena, bool, count),
                 .value = ARENA_ARRAY(arena, const Node *, count),
                 .is_masked = ARENA_ARRAY(arena, bool, count),
                 .made = ARENA_ARRAY(arena, Node *, count)};
  find_masks(&masks);
  bool is_any = false;
  for (int i = 0; i < count; i++) is_any |= masks.is_masked[i];
  return is_any ? graph_rewrite(graph, masks_visit, &masks) : graph;
}
