/* layout: images become channels-last (NHWC) around convolutions, forward and backward alike, which
 * is what convolution libraries, coalesced loads and batch norm's reductions want; weights of
 * convolutions become OHWI, and rows that were images keep the images' order up to a product with a
 * parameter, which is permuted instead. layout_choose.c chooses each value's layout.
 *
 * A value that is needed in a second layout is transposed once, or only viewed if no two dimensions
 * of more than one element change places. So transposes remain only where images enter and leave:
 * at inputs of several channels, at outputs, and at consumers that count the elements of a row; and
 * right behind parameters, and before their gradients are packed, where pass storage removes
 * them. */
#include "passes/forms.h"
#include "passes/layout.h"
#include <string.h>

static const Layout plain = {0};

/* Where a dimension of an image [N, C, ...] stands when channels are last, and the order in which these dimensions are then. */
static int layout_place(int rank, int d) { return d == 0 ? 0 : d == 1 ? rank - 1 : d - 1; }
static void layout_order(int rank, bool is_back, int64_t *perm) {
  for (int d = 0; d < rank; d++) perm[is_back ? d : layout_place(rank, d)] = is_back ? layout_place(rank, d) : d;
}

typedef struct {
  Graph *fresh;
  Layouts layouts;
  Arena *arena;
  VEC(Layout) met; /* those that were asked for; their numbers are the forms of: */
  Forms values;
} LayoutPass;

static Node *value(LayoutPass *l, const Node *node, const Layout *layout) {
  int number = 0;
  while (number < l->met.count && !layout_is_same(&l->met.at[number], layout)) number++;
  if (number == l->met.count) VEC_PUSH(l->arena, l->met, *layout);
  return forms_get(&l->values, node, number);
}

/* ── from one layout to another ─────────────────────────────────────────────────────────────── */

static Shape permuted(const Shape *shape, const int64_t *perm) {
  Shape out = {.rank = shape->rank};
  for (int i = 0; i < shape->rank; i++) out.dim[i] = shape->dim[perm[i]];
  return out;
}

/* An image from NCHW to NHWC, or back: a transpose, or a view if that is all it takes. */
static Node *turned_image(LayoutPass *l, Node *image, bool is_back, const Node *old) {
  int64_t perm[MAX_RANK];
  layout_order(image->type.shape.rank, is_back, perm);
  l->fresh->origin = old->origin;
  if (!layout_is_view(&old->type.shape)) return make_transpose(l->fresh, image, perm);
  return make_reshape(l->fresh, image, permuted(&image->type.shape, perm));
}

/* A matrix of which dimensions are folded, or unfolded again. */
static Node *turned_matrix(LayoutPass *l, Node *matrix, const Layout *layout, bool is_back,
                           const Node *old) {
  l->fresh->origin = old->origin;
  Shape split = {0};
  int64_t perm[4];
  for (int d = 0; d < 2; d++) {
    const Fold *fold = &layout->fold[d];
    int at = split.rank;
    split.rank += fold->channels ? 2 : 1;
    perm[at] = split.rank - 1;
    perm[split.rank - 1] = at;
    split.dim[at] = !fold->channels ? matrix->type.shape.dim[d]
                    : is_back       ? fold->places
                                    : fold->channels;
    if (fold->channels) split.dim[at + 1] = is_back ? fold->channels : fold->places;
  }
  Node *seen = make_reshape(l->fresh, matrix, split);
  Node *turned = make_transpose(l->fresh, seen, perm);
  return make_reshape(l->fresh, turned, old->type.shape);
}

/* From plain to `layout`, or back. */
static Node *turned(LayoutPass *l, Node *from, const Layout *layout, bool is_back,
                    const Node *old) {
  return layout->is_nhwc ? turned_image(l, from, is_back, old)
                         : turned_matrix(l, from, layout, is_back, old);
}

/* ── nodes in NHWC ──────────────────────────────────────────────────────────────────────────── */
static Attr permuted_attr(Arena *arena, const Attr *attr, int rank) {
  int64_t *ints = ARENA_ARRAY(arena, int64_t, rank);
  for (int d = 0; d < rank; d++) ints[layout_place(rank, d)] = attr->ints[d];
  return attr_ints(attr->id, ints, rank);
}

/* Dimension numbers in the attributes, as they are in NHWC. */
static Attr *nhwc_attrs(LayoutPass *l, const Node *old) {
  int rank = old->type.shape.rank;
  Arena *arena = l->fresh->arena;
  Attr *attrs = ARENA_ARRAY(arena, Attr, old->attr_count);
  for (int i = 0; i < old->attr_count; i++) {
    attrs[i] = old->attr[i];
    switch (old->attr[i].id) {
    case ATTR_START:
    case ATTR_STEP:
    case ATTR_LOW:
    case ATTR_HIGH:
      attrs[i] = permuted_attr(arena, &old->attr[i], rank);
      break;
    case ATTR_AXIS:
      attrs[i].i = layout_place(rank, (int)old->attr[i].i);
      break;
    case ATTR_LAYOUT:
      attrs[i].s = "nhwc";
      break;
    case ATTR_AXES: {
      bool reduced[MAX_RANK] = {false};
      int64_t *axes = ARENA_ARRAY(arena, int64_t, rank);
      int count = 0;
      for (int k = 0; k < old->attr[i].count; k++) reduced[layout_place(rank, (int)old->attr[i].ints[k])] = true;
      for (int k = 0; k < rank; k++)
        if (reduced[k]) axes[count++] = k;
      attrs[i] = attr_ints(ATTR_AXES, axes, count);
      break;
    }
    default:
      break;
    }
  }
  return attrs;
}

/* ── making ─────────────────────────────────────────────────────────────────────────────────── */

static Node *layout_computed(LayoutPass *l, const Node *old, const Layout *layout) {
  Node **inputs = ARENA_ARRAY(l->fresh->arena, Node *, old->input_count);
  for (int k = 0; k < old->input_count; k++) {
    Layout wanted = layout_of_input(&l->layouts, old, k, layout);
    inputs[k] = value(l, old->input[k], &wanted);
  }
  if (!layout->is_nhwc) return graph_copy_node(l->fresh, old, inputs);
  int64_t perm[MAX_RANK];
  layout_order(old->type.shape.rank, false, perm);
  Type type = {old->type.dtype, permuted(&old->type.shape, perm)};
  l->fresh->origin = old->origin;
  return graph_node(l->fresh, old->op, inputs, old->input_count, nhwc_attrs(l, old),
                    old->attr_count, &type);
}

static bool can_make(const LayoutPass *l, const Node *node, const Layout *layout) {
  if (layout_is_same(layout, &l->layouts.chosen[node->id])) return true;
  if (!l->layouts.is_free[node->id] || node->op == OP_PARAM || node->op == OP_RESHAPE) return false;
  bool counts_folded = node->op == OP_IOTA && node->type.shape.rank == 2 &&
                       layout->fold[node_int(node, ATTR_AXIS, 0)].channels;
  return !counts_folded;
}

static Node *layout_make(void *pass, const Node *node, int number) {
  LayoutPass *l = pass;
  const Layout layout = l->met.at[number], *chosen = &l->layouts.chosen[node->id];
  if (can_make(l, node, &layout)) return layout_computed(l, node, &layout);
  if (layout_is_same(&layout, &plain)) return turned(l, value(l, node, chosen), chosen, true, node);
  return turned(l, value(l, node, &plain), &layout, false, node);
}

/* Computes the value in its layout. A free one waits until a consumer asks for it, but a parameter
 * stays in the graph though nothing reads it. */
static void layout_visit(LayoutPass *l, const Node *node) {
  if (!l->layouts.is_free[node->id] || node->op == OP_PARAM)
    value(l, node, &l->layouts.chosen[node->id]);
}

/* Is there a convolution to gain from, all in NCHW as the front end makes them? */
static bool is_worthwhile(const Graph *graph) {
  bool found = false;
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    const char *layout = node_str(node, ATTR_LAYOUT);
    if (layout && strcmp(layout, "nchw") != 0) return false;
    found |= layout && op_info[node->op].op_class == CLASS_CONTRACT;
  }
  return found;
}

Graph *pass_layout(PassContext *context, Graph *graph) {
  if (!is_worthwhile(graph)) return graph;
  int count = graph->nodes.count;
  Graph *fresh = graph_new(graph->arena, graph->name);
  LayoutPass l = {.fresh = fresh,
                  .layouts = layout_choose(graph, context->scratch),
                  .arena = context->scratch,
                  .values = {graph, fresh, layout_make, &l, {.arena = context->scratch}}};
  VEC_PUSH(l.arena, l.met, plain);
  for (int i = 0; i < count; i++) layout_visit(&l, graph->nodes.at[i]);
  return forms_end(&l.values, 0);
}
