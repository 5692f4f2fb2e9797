/* layout: images become channels-last (NHWC) around convolutions, forward and backward alike, which
 * is what convolution libraries, coalesced loads and batch norm's reductions want.
 *
 * Every image-like value (rank 4) has a home, the layout in which it is computed: NHWC for
 * convolutions, their weights' gradients (OHWI), pooling and whatever is computed from such values
 * element by element, by reductions, broadcasts, slices, padding; NCHW for what comes from
 * elsewhere; none for constants, parameters and what is computed of these alone, which are made in
 * the layout that is asked for. A value asked for in the other layout is transposed once, or only
 * viewed if no two dimensions of more than one element change places. So transposes remain only
 * where images enter and leave: at inputs of several channels, at flatten, at outputs; and right
 * behind parameters, and before their gradients are packed. */
#include "passes/pass.h"
#include <string.h>

typedef enum { HOME_NONE, HOME_NCHW, HOME_NHWC } Home;

static const int64_t to_nhwc[4] = {0, 2, 3, 1}, to_nchw[4] = {0, 3, 1, 2};

typedef struct {
  Graph *fresh;
  const Graph *old;
  Home *home;
  Node **nchw, **nhwc; /* by old node: the value in each layout, as far as made */
} Layout;

static Node *in_nchw(Layout *l, const Node *node);
static Node *in_nhwc(Layout *l, const Node *node);

static bool is_image_op(Op op) {
  return op == OP_CONV || op == OP_CONV_GRAD_INPUT || op == OP_CONV_GRAD_WEIGHT ||
         op_info[op].op_class == CLASS_WINDOW;
}

static bool is_rank4(const Node *node) { return node->type.shape.rank == 4; }

static Shape permuted(const Shape *shape, const int64_t perm[4]) {
  Shape out = {.rank = 4};
  for (int i = 0; i < 4; i++) out.dim[i] = shape->dim[perm[i]];
  return out;
}

/* Does the permutation keep the order of the dimensions that are not 1? */
static bool is_view(const Shape *shape, const int64_t perm[4]) {
  int64_t last = -1;
  for (int i = 0; i < 4; i++) {
    if (shape->dim[perm[i]] == 1) continue;
    if (perm[i] < last) return false;
    last = perm[i];
  }
  return true;
}

/* A transpose, or a view if that is all it takes. */
static Node *turned(Layout *l, Node *value, const int64_t perm[4], const Node *old) {
  Shape shape = permuted(&value->type.shape, perm);
  Node *made = is_view(&value->type.shape, perm) ? make_reshape(l->fresh, value, shape, old->loc)
                                                 : make_transpose(l->fresh, value, perm, old->loc);
  if (made != value) made->is_backward = old->is_backward;
  return made;
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

static Node *make_nhwc(Layout *l, const Node *old) {
  Node **inputs = ARENA_ARRAY(l->fresh->arena, Node *, old->input_count);
  for (int i = 0; i < old->input_count; i++) inputs[i] = in_nhwc(l, old->input[i]);
  Type type = {old->type.dtype, permuted(&old->type.shape, to_nhwc)};
  Node *node = graph_node(l->fresh, old->op, inputs, old->input_count, nhwc_attrs(l, old),
                          old->attr_count, &type, old->loc);
  node->is_backward = old->is_backward;
  return node;
}

/* ── homes ──────────────────────────────────────────────────────────────────────────────────── */
static bool follows_inputs(const Node *node) {
  switch (node->op) {
  case OP_BROADCAST:
  case OP_SLICE:
  case OP_PAD:
  case OP_CONCAT:
  case OP_STOP_GRADIENT:
    return true;
  default:
    return op_info[node->op].op_class == CLASS_POINTWISE ||
           op_info[node->op].op_class == CLASS_REDUCE;
  }
}

static Home choose_home(const Layout *l, const Node *node) {
  if (!is_rank4(node)) return HOME_NCHW;
  if (is_image_op(node->op)) return HOME_NHWC;
  if (node->op == OP_CONST || node->op == OP_IOTA || node->op == OP_PARAM) return HOME_NONE;
  if (node->op == OP_RESHAPE) return is_view(&node->type.shape, to_nhwc) ? HOME_NONE : HOME_NCHW;
  if (!follows_inputs(node)) return HOME_NCHW;
  Home home = HOME_NONE;
  for (int i = 0; i < node->input_count; i++)
    if (l->home[node->input[i]->id] > home) home = l->home[node->input[i]->id];
  return home;
}

static Node *make_nchw(Layout *l, const Node *old) {
  Node **inputs = ARENA_ARRAY(l->fresh->arena, Node *, old->input_count);
  for (int i = 0; i < old->input_count; i++) inputs[i] = in_nchw(l, old->input[i]);
  return graph_copy_node(l->fresh, old, inputs);
}

static Node *in_nchw(Layout *l, const Node *node) {
  Node **made = &l->nchw[node->id];
  if (!*made && l->home[node->id] == HOME_NHWC) *made = turned(l, in_nhwc(l, node), to_nchw, node);
  if (!*made) *made = make_nchw(l, node);
  return *made;
}

static Node *in_nhwc(Layout *l, const Node *node) {
  Node **made = &l->nhwc[node->id];
  if (*made) return *made;
  bool is_turned = node->op == OP_RESHAPE || node->op == OP_PARAM;
  if (l->home[node->id] == HOME_NHWC || (l->home[node->id] == HOME_NONE && !is_turned))
    *made = make_nhwc(l, node);
  else
    *made = turned(l, in_nchw(l, node), to_nhwc, node);
  return *made;
}

/* Makes the value in its home; what has none waits until it is asked for, but for parameters, which
 * stay though nothing reads them. */
static void visit(Layout *l, const Node *node) {
  l->home[node->id] = choose_home(l, node);
  if (l->home[node->id] == HOME_NHWC)
    in_nhwc(l, node);
  else if (l->home[node->id] == HOME_NCHW || node->op == OP_PARAM)
    in_nchw(l, node);
}

/* Is there a convolution to gain from, all in NCHW as the front end makes them? */
static bool is_worthwhile(const Graph *graph) {
  bool found = false;
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    if (!is_image_op(node->op)) continue;
    const char *layout = node_str(node, ATTR_LAYOUT);
    if (layout && strcmp(layout, "nchw") != 0) return false;
    found |= op_info[node->op].op_class == CLASS_CONTRACT;
  }
  return found;
}

Graph *pass_layout(PassContext *context, Graph *graph) {
  if (!is_worthwhile(graph)) return graph;
  int count = graph->nodes.count;
  Arena *arena = context->arena;
  Layout l = {.fresh = graph_new(graph->arena, graph->name),
              .old = graph,
              .home = ARENA_ARRAY(arena, Home, count),
              .nchw = ARENA_ARRAY(arena, Node *, count),
              .nhwc = ARENA_ARRAY(arena, Node *, count)};
  for (int i = 0; i < count; i++) visit(&l, graph->nodes.at[i]);
  for (int i = 0; i < graph->roots.count; i++) {
    const Root *root = &graph->roots.at[i];
    graph_add_root(l.fresh, root->kind, root->name, in_nchw(&l, root->node));
  }
  return l.fresh;
}
