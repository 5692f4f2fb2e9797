/* folds: which weights can take in factors of a layer's input features, so that nothing multiplies the input at run time (Xiao et al.,
 * SmoothQuant, 2023): those of a norm or of a layer before it. From the input backward each node is scaled along one dimension: both
 * sides of a sum, one of a product, the rows of a weight. Invariant: whatever reads a scaled node is scaled with it, is a product that
 * sums over the dimension and reads what the layer reads (a reader, whose weights undo the factors), or asks only for the sign, which factors above 0 leave. */
#include "frontend/builder.h"
#include "ir/match.h"
#include <string.h>

enum { MOST_CHOICES_OF_FOLD = 4 }; /* products of which either side may be scaled */

typedef struct {
  Builder *b;
  const Graph *graph;
  int *axis;        /* by node: which dimension is scaled; -1: it is not */
  uint8_t *edges;   /* by node: which operands are scaled with it, a bit each */
  bool *is_input;   /* by node: it is what the layer reads, moved or not */
  const bool *is_live; /* by node: a root needs it */
  int choices, choice; /* products met so far; which sides of them to take, a bit each */
  TapFold *fold;
} Folding;

static bool fold_fail(Folding *f, const char *why) {
  if (!f->fold->why) f->fold->why = why;
  return false;
}

/* ── dimensions ─────────────────────────────────────────────────────────────────────────────── */
/* The dimension of `to` that is dimension `axis` of `from`, which has the same elements in the same order; -1: none is. */
static int reshaped_axis(const Shape *from, const Shape *to, int axis) {
  int64_t before = 1, there = 1;
  for (int i = 0; i < axis; i++) before *= from->dim[i];
  for (int i = 0; i < to->rank; there *= to->dim[i++])
    if (there == before && to->dim[i] == from->dim[axis]) return i;
  return -1;
}

/* Of an operand that is moved: its dimension that becomes dimension `axis` of the node; -1: none does. */
static int moved_axis(const Node *node, int axis) {
  const Shape *in = &node->input[0]->type.shape, *out = &node->type.shape;
  if (node->op == OP_TRANSPOSE) return (int)node_attr(node, ATTR_PERM)->ints[axis];
  if (node->op == OP_RESHAPE) return reshaped_axis(out, in, axis);
  return in->dim[axis] == out->dim[axis] ? axis : -1; /* a broadcast */
}

/* And of the node that moves it: the dimension that its operand's dimension becomes. */
static int moves_axis_to(const Node *node, int axis) {
  if (node->op == OP_RESHAPE) return reshaped_axis(&node->input[0]->type.shape, &node->type.shape, axis);
  for (int i = 0; i < node->type.shape.rank; i++)
    if (node_attr(node, ATTR_PERM)->ints[i] == axis) return i;
  return -1;
}

static bool moves_only(const Node *node) { return node->op == OP_RESHAPE || node->op == OP_TRANSPOSE; }

/* What is moved or seen in a larger shape, in the end. */
static const Node *moved_from(const Node *node) {
  while (moves_only(node) || node->op == OP_BROADCAST) node = node->input[0];
  return node;
}

/* ── readers ────────────────────────────────────────────────────────────────────────────────── */
/* Operand `side` of a product: which of its dimensions is summed over; -1: it is no product. */
static int summed_axis(const Node *node, int side) {
  int rank = node->input_count ? node->input[side]->type.shape.rank : 0;
  if (node->op == OP_CONV) return node_int(node, ATTR_GROUPS, 1) == 1 ? 1 : -1;
  if (node->op != OP_DOT) return -1;
  bool is_turned = node_int(node, side ? ATTR_TRANS_B : ATTR_TRANS_A, 0) != 0;
  return rank - (is_turned == (side == 1) ? 1 : 2);
}

/* The weight [out, in, ...] that the product multiplies operand `side` by, as a param; NULL: it is another product. */
static const Node *read_weight(const Node *node, int side) {
  if (node->op != OP_DOT && node->op != OP_CONV) return NULL;
  const Node *weight = node->input[1 - side];
  int axis = node->op == OP_CONV ? 1 : summed_axis(node, 1 - side);
  for (; moves_only(weight) && axis >= 0; weight = weight->input[0]) axis = moved_axis(weight, axis);
  return weight->op == OP_PARAM && axis == 1 ? weight : NULL;
}

/* What the layer with this weight reads, and its dimension of features, before it is moved for the product. */
static const Node *find_input(const Graph *graph, const bool *live, const char *weight, int *axis) {
  for (int i = 0; i < graph->nodes.count; i++)
    for (int side = 0; live[i] && side < 2; side++) {
      const Node *node = graph->nodes.at[i], *param = node->input_count == 2 ? read_weight(node, side) : NULL;
      if (!param || strcmp(node_str(param, ATTR_NAME), weight) != 0) continue;
      const Node *x = node->input[side];
      *axis = summed_axis(node, side);
      while (*axis >= 0 && moves_only(x) && moved_axis(x, *axis) >= 0) {
        *axis = moved_axis(x, *axis);
        x = x->input[0];
      }
      return *axis >= 0 ? x : NULL;
    }
  return NULL;
}

/* ── backward ───────────────────────────────────────────────────────────────────────────────── */
static bool scale_node(Folding *f, const Node *node, int axis);

static bool scale_side(Folding *f, const Node *node, int side, int axis) {
  f->edges[node->id] |= (uint8_t)(1 << side);
  return scale_node(f, node->input[side], axis);
}

static const char *function_of(Folding *f, const Node *node) {
  return arena_printf(f->b->arena, "%s before it gives no multiple of what it reads", node_called(node));
}

static bool scale_moved(Folding *f, const Node *node, int axis) {
  int inner = moved_axis(node, axis);
  if (inner >= 0) return scale_side(f, node, 0, inner);
  return fold_fail(f, node->op == OP_BROADCAST ? "all its features are of one number" : "its features are several dimensions of what is before it");
}

/* One side: that of a weight, that which is no constant, or what the choice says. */
static bool scale_product(Folding *f, const Node *node, int axis) {
  double value;
  for (int side = 0; side < 2; side++)
    if (moved_from(node->input[side])->op == OP_PARAM) return scale_side(f, node, side, axis);
  for (int side = 0; side < 2; side++)
    if (match_const(node->input[side], &value)) return scale_side(f, node, 1 - side, axis);
  if (f->choices == MOST_CHOICES_OF_FOLD) return fold_fail(f, function_of(f, node));
  return scale_side(f, node, f->choice >> f->choices++ & 1, axis);
}

static bool scale_contraction(Folding *f, const Node *node, int axis) {
  int rank = node->type.shape.rank;
  if (node->op == OP_CONV) return axis == 1 ? scale_side(f, node, 1, 0) : fold_fail(f, function_of(f, node));
  if (axis < rank - 2) return fold_fail(f, function_of(f, node));
  int side = axis == rank - 1, summed = summed_axis(node, side);
  return scale_side(f, node, side, summed == rank - 1 ? rank - 2 : rank - 1);
}

static bool scale_weight(Folding *f, const Node *node, int axis) {
  TapFoldWeight weight = {node_str(node, ATTR_NAME), axis};
  VEC_PUSH(f->b->arena, f->fold->weights, weight);
  return true;
}

static bool scale_reduced(Folding *f, const Node *node, int axis) {
  const Attr *axes = node_attr(node, ATTR_AXES);
  for (int i = 0; i < axes->count; i++)
    if (axes->ints[i] == axis) return fold_fail(f, function_of(f, node));
  return scale_side(f, node, 0, axis);
}

static bool scale_operands(Folding *f, const Node *node, int axis) {
  switch (node->op) {
  case OP_PARAM:
    return scale_weight(f, node, axis);
  case OP_ADD:
  case OP_SUB:
  case OP_MAX:
  case OP_MIN:
    return scale_side(f, node, 0, axis) && scale_side(f, node, 1, axis);
  case OP_SELECT: /* its condition is looked at with all that reads what is scaled */
    return scale_side(f, node, 1, axis) && scale_side(f, node, 2, axis);
  case OP_MUL:
    return scale_product(f, node, axis);
  case OP_DIV:
  case OP_NEG:
    return scale_side(f, node, 0, axis);
  case OP_RESHAPE:
  case OP_TRANSPOSE:
  case OP_BROADCAST:
    return scale_moved(f, node, axis);
  case OP_SUM:
  case OP_RMAX:
  case OP_RMIN:
    return scale_reduced(f, node, axis);
  case OP_POOL_MAX:
  case OP_POOL_AVG:
    return axis == 1 ? scale_side(f, node, 0, axis) : fold_fail(f, function_of(f, node));
  case OP_DOT:
  case OP_CONV:
    return scale_contraction(f, node, axis);
  default:
    return fold_fail(f, function_of(f, node));
  }
}

static bool scale_node(Folding *f, const Node *node, int axis) {
  if (match_value(node, 0)) return true; /* whatever it is multiplied by */
  if (f->axis[node->id] == axis) return true;
  if (f->axis[node->id] >= 0) return fold_fail(f, "it reads the same values along two dimensions");
  f->axis[node->id] = axis;
  return scale_operands(f, node, axis);
}

/* ── all that reads it ──────────────────────────────────────────────────────────────────────── */
/* The input, moved for one product or another. */
static void scale_forward(Folding *f, const Node *input) {
  f->is_input[input->id] = true;
  for (int i = input->id + 1; i < f->graph->nodes.count; i++) {
    const Node *node = f->graph->nodes.at[i];
    int axis = moves_only(node) && f->is_input[node->input[0]->id] ? moves_axis_to(node, f->axis[node->input[0]->id]) : -1;
    if (axis < 0) continue;
    f->axis[node->id] = axis;
    f->edges[node->id] = 1;
    f->is_input[node->id] = true;
  }
}

static bool asks_for_sign(const Node *node, int side) {
  bool compares = node->op == OP_LT || node->op == OP_LE || node->op == OP_GT || node->op == OP_GE || node->op == OP_EQ || node->op == OP_NE;
  return compares && match_value(node->input[1 - side], 0);
}

static bool add_reader(Folding *f, const Node *weight) {
  const char *name = node_str(weight, ATTR_NAME);
  for (int i = 0; i < f->fold->readers.count; i++)
    if (!strcmp(f->fold->readers.at[i], name)) return fold_fail(f, "a layer reads it twice");
  VEC_PUSH(f->b->arena, f->fold->readers, name);
  return true;
}

static bool is_fine_edge(Folding *f, const Node *node, int side) {
  const Node *x = node->input[side];
  if (f->axis[x->id] < 0 || (f->axis[node->id] >= 0 && f->edges[node->id] >> side & 1) || asks_for_sign(node, side)) return true;
  const Node *weight = f->is_input[x->id] && summed_axis(node, side) == f->axis[x->id] ? read_weight(node, side) : NULL;
  if (weight) return add_reader(f, weight);
  const char *where = node_called(node), *layer = node->origin.layer;
  if (layer && *layer) where = arena_printf(f->b->arena, "%s of %s", where, layer);
  return fold_fail(f, arena_printf(f->b->arena, "%s reads %s, too", where, x->op == OP_PARAM ? node_str(x, ATTR_NAME) : "what is before it"));
}

static bool check_edges(Folding *f) {
  for (int i = 0; i < f->graph->nodes.count; i++)
    for (int side = 0; f->is_live[i] && side < f->graph->nodes.at[i]->input_count; side++)
      if (!is_fine_edge(f, f->graph->nodes.at[i], side)) return false;
  for (int i = 0; i < f->graph->roots.count; i++) {
    const Root *root = &f->graph->roots.at[i];
    bool is_tap = root->kind == ROOT_OUTPUT && (!strncmp(root->name, "in.", 3) || !strncmp(root->name, "out.", 4));
    if (f->axis[root->node->id] >= 0 && !is_tap) return fold_fail(f, arena_printf(f->b->arena, "'%s' is what is before it", root->name));
  }
  return true;
}

/* ── a layer ────────────────────────────────────────────────────────────────────────────────── */
static bool fold_with(Folding *f, const Node *input, int axis, int choice, TapFold *out) {
  *out = (TapFold){0};
  f->fold = out;
  f->choices = 0;
  f->choice = choice;
  for (int i = 0; i < f->graph->nodes.count; i++) f->axis[i] = -1, f->edges[i] = 0, f->is_input[i] = false;
  if (!scale_node(f, input, axis)) return false;
  if (!out->weights.count) return fold_fail(f, "there are no weights before it");
  scale_forward(f, input);
  return check_edges(f);
}

/* Of a layer in one graph. */
static TapFold fold_in(Builder *b, const Graph *graph, const char *weight) {
  int axis = -1;
  bool *live = graph_find_live(graph, b->arena); /* the front end leaves nodes behind that nothing reads */
  const Node *input = find_input(graph, live, weight, &axis);
  TapFold first = {.why = "it is no product of its input"}, fold;
  if (!input) return first;
  Folding f = {.b = b, .graph = graph, .axis = ARENA_ARRAY(b->arena, int, graph->nodes.count), .edges = ARENA_ARRAY(b->arena, uint8_t, graph->nodes.count),
               .is_input = ARENA_ARRAY(b->arena, bool, graph->nodes.count), .is_live = live};
  for (int choice = 0; choice < 1 << MOST_CHOICES_OF_FOLD; choice++) {
    bool fine = fold_with(&f, input, axis, choice, &fold);
    if (fine) return fold;
    if (!choice) first = fold;
    if (choice + 1 >= 1 << f.choices) break;
  }
  return first;
}

static bool same_folds(const TapFold *a, const TapFold *b) {
  int same = 0;
  if (a->readers.count != b->readers.count || a->weights.count != b->weights.count) return false;
  for (int i = 0; i < a->readers.count; i++)
    for (int k = 0; k < b->readers.count; k++) same += !strcmp(a->readers.at[i], b->readers.at[k]);
  for (int i = 0; i < a->weights.count; i++)
    for (int k = 0; k < b->weights.count; k++) same += !strcmp(a->weights.at[i].name, b->weights.at[k].name) && a->weights.at[i].axis == b->weights.at[k].axis;
  return same == a->readers.count + a->weights.count;
}

void folds_find(Builder *b) {
  for (int i = 0; i < b->program->taps.count; i++) {
    const LayerTap *tap = &b->program->taps.at[i];
    if (tap->number) continue;
    const char *weight = arena_printf(b->arena, "%s.weight", tap->path);
    TapFold fold = fold_in(b, b->program->eval, weight);
    if (!fold.why) {
      TapFold trained = fold_in(b, b->program->train, weight);
      if (!trained.why && !same_folds(&fold, &trained)) trained.why = "other weights are before it in training";
      fold.why = trained.why;
    }
    fold.path = tap->path;
    VEC_PUSH(b->arena, b->program->folds, fold);
  }
}
