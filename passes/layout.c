/* layout: images become channels-last (NHWC) around convolutions, forward and backward alike, which
 * is what convolution libraries, coalesced loads and batch norm's reductions want; weights of
 * convolutions become OHWI, and rows that were images keep the images' order up to a product with a
 * parameter, of which the order is asked instead. layout_form.c says where each value is at home.
 *
 * A value asked for in another form is turned once, or only viewed if no two dimensions of more
 * than one element change places. So transposes remain only where images enter and leave: at inputs
 * of several channels, at outputs and whatever asks for places in a row by number; and right behind
 * parameters, and before their gradients are packed, where the pass storage takes them away. */
#include "passes/forms.h"
#include "passes/layout.h"
#include <string.h>

static const int64_t to_nhwc[4] = {0, 2, 3, 1}, to_nchw[4] = {0, 3, 1, 2};
static const Form plain = {0};

typedef struct {
  Graph *fresh;
  Homes forms;
  Arena *arena;
  VEC(Form) met; /* the forms that were asked for; their numbers in: */
  Forms values;
} Layout;

static Node *value(Layout *l, const Node *node, const Form *form) {
  int number = 0;
  while (number < l->met.count && !layout_is_same(&l->met.at[number], form)) number++;
  if (number == l->met.count) VEC_PUSH(l->arena, l->met, *form);
  return forms_get(&l->values, node, number);
}

/* ── turning ────────────────────────────────────────────────────────────────────────────────── */

static Shape permuted(const Shape *shape, const int64_t *perm) {
  Shape out = {.rank = shape->rank};
  for (int i = 0; i < shape->rank; i++) out.dim[i] = shape->dim[perm[i]];
  return out;
}

/* An image from NCHW to NHWC, or back: a transpose, or a view if that is all it takes. */
static Node *turned_image(Layout *l, Node *image, bool is_back, const Node *old) {
  const int64_t *perm = is_back ? to_nchw : to_nhwc;
  l->fresh->origin = old->origin;
  if (!layout_is_view(&old->type.shape)) return make_transpose(l->fresh, image, perm);
  return make_reshape(l->fresh, image, permuted(&image->type.shape, perm));
}

/* A matrix of which dimensions are folded, or unfolded again. */
static Node *turned_matrix(Layout *l, Node *matrix, const Form *form, bool is_back,
                           const Node *old) {
  l->fresh->origin = old->origin;
  Shape split = {0};
  int64_t perm[4];
  for (int d = 0; d < 2; d++) {
    const Fold *fold = &form->fold[d];
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

/* From plain to `form`, or back. */
static Node *turned(Layout *l, Node *from, const Form *form, bool is_back, const Node *old) {
  return form->is_nhwc ? turned_image(l, from, is_back, old)
                       : turned_matrix(l, from, form, is_back, old);
}

/* ── nodes in NHWC ──────────────────────────────────────────────────────────────────────────── */
static Attr permuted_attr(Arena *arena, const Attr *attr) {
  int64_t *ints = ARENA_ARRAY(arena, int64_t, 4);
  for (int i = 0; i < 4; i++) ints[i] = attr->ints[to_nhwc[i]];
  return attr_ints(attr->id, ints, 4);
}

/* Dimension numbers in the attributes, as they are in NHWC. */
static Attr *nhwc_attrs(Layout *l, const Node *old) {
  static const int64_t place[4] = {0, 3, 1, 2}; /* where a dimension of NCHW stands in NHWC */
  Arena *arena = l->fresh->arena;
  Attr *attrs = ARENA_ARRAY(arena, Attr, old->attr_count);
  for (int i = 0; i < old->attr_count; i++) {
    attrs[i] = old->attr[i];
    switch (old->attr[i].id) {
    case ATTR_START:
    case ATTR_STEP:
    case ATTR_LOW:
    case ATTR_HIGH:
      attrs[i] = permuted_attr(arena, &old->attr[i]);
      break;
    case ATTR_AXIS:
      attrs[i].i = place[old->attr[i].i];
      break;
    case ATTR_LAYOUT:
      attrs[i].s = "nhwc";
      break;
    case ATTR_AXES: {
      bool reduced[4] = {false};
      int64_t *axes = ARENA_ARRAY(arena, int64_t, 4);
      int count = 0;
      for (int k = 0; k < old->attr[i].count; k++) reduced[place[old->attr[i].ints[k]]] = true;
      for (int k = 0; k < 4; k++)
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

static Node *computed(Layout *l, const Node *old, const Form *form) {
  Node **inputs = ARENA_ARRAY(l->fresh->arena, Node *, old->input_count);
  for (int k = 0; k < old->input_count; k++) {
    Form wanted = layout_of_input(&l->forms, old, k, form);
    inputs[k] = value(l, old->input[k], &wanted);
  }
  if (!form->is_nhwc) return graph_copy_node(l->fresh, old, inputs);
  Type type = {old->type.dtype, permuted(&old->type.shape, to_nhwc)};
  l->fresh->origin = old->origin;
  return graph_node(l->fresh, old->op, inputs, old->input_count, nhwc_attrs(l, old),
                    old->attr_count, &type);
}

static bool can_make(const Layout *l, const Node *node, const Form *form) {
  if (layout_is_same(form, &l->forms.home[node->id])) return true;
  if (!l->forms.is_free[node->id] || node->op == OP_PARAM || node->op == OP_RESHAPE) return false;
  bool counts_folded = node->op == OP_IOTA && node->type.shape.rank == 2 &&
                       form->fold[node_int(node, ATTR_AXIS, 0)].channels;
  return !counts_folded;
}

static Node *make(void *layout, const Node *node, int number) {
  Layout *l = layout;
  const Form form = l->met.at[number], *home = &l->forms.home[node->id];
  if (can_make(l, node, &form)) return computed(l, node, &form);
  if (layout_is_same(&form, &plain)) return turned(l, value(l, node, home), home, true, node);
  return turned(l, value(l, node, &plain), &form, false, node);
}

/* Makes the value in its home; what has none waits until it is asked for, but for parameters, which
 * stay though nothing reads them. */
static void visit(Layout *l, const Node *node) {
  if (!l->forms.is_free[node->id] || node->op == OP_PARAM) value(l, node, &l->forms.home[node->id]);
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
  Layout l = {.fresh = fresh,
              .forms = layout_forms(graph, context->scratch),
              .arena = context->scratch,
              .values = {graph, fresh, make, &l, {.arena = context->scratch}}};
  VEC_PUSH(l.arena, l.met, plain);
  for (int i = 0; i < count; i++) visit(&l, graph->nodes.at[i]);
  return forms_end(&l.values, 0);
}
