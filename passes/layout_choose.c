/* layout_choose: the layout in which each value of a graph is computed. Of rank 4: NHWC for
 * convolutions, their weights' gradients (OHWI), pooling, and whatever is computed from such values
 * element by element, by reductions, broadcasts, slices, padding, and reshapes of its places alone, which may
 * make it of higher rank (upsampling): channels are last then, too. Of rank 2: a dimension that was
 * an image keeps the image's order through pointwise work, reductions and broadcasts. It ends at a
 * product that sums over it: the other operand is asked for the same order, if it is a parameter,
 * which is cheap to permute (passes/storage.c), or has that order itself. A product with a
 * parameter is computed in the order that its consumers prefer, if they make images of it.
 * Everything else is plain; constants, parameters and what is computed from these alone are
 * free. */
#include "passes/integers.h"
#include "passes/sparse.h"
#include "passes/layout.h"
#include <string.h>

static bool is_image_op(Op op) {
  return op == OP_CONV || op == OP_CONV_GRAD_INPUT || op == OP_CONV_GRAD_WEIGHT ||
         op_info[op].op_class == CLASS_WINDOW;
}

static bool is_same_fold(const Fold *a, const Fold *b) {
  return a->channels == b->channels && a->places == b->places;
}
bool layout_is_same(const Layout *a, const Layout *b) {
  return a->is_nhwc == b->is_nhwc && is_same_fold(&a->fold[0], &b->fold[0]) &&
         is_same_fold(&a->fold[1], &b->fold[1]);
}

bool layout_is_view(const Shape *image) {
  int64_t places = 1;
  for (int d = 2; d < image->rank; d++) places *= image->dim[d];
  return image->dim[1] == 1 || places == 1;
}

static int rank_of(const Node *node) { return node->type.shape.rank; }
static int64_t extent(const Node *node, int d) { return node->type.shape.dim[d]; }

/* Do images, [B, C, H, W], become rows, [B, C*H*W], or the other way round? */
static bool is_flatten(const Node *reshape, Fold *out) {
  const Shape *a = &reshape->type.shape, *b = &reshape->input[0]->type.shape;
  const Shape *image = a->rank == 4 ? a : b, *flat = a->rank == 4 ? b : a;
  if (image->rank != 4 || flat->rank != 2 || image->dim[0] != flat->dim[0]) return false;
  *out = (Fold){image->dim[1], image->dim[2] * image->dim[3]};
  return out->channels > 1 && out->places > 1; /* else both orders are one */
}

/* Are the places of images numbered in another way, and samples and channels as before? */
static bool is_of_places(const Node *reshape) {
  const Node *from = reshape->input[0];
  return rank_of(reshape) >= 4 && rank_of(from) >= 4 && extent(reshape, 0) == extent(from, 0) && extent(reshape, 1) == extent(from, 1);
}

/* Is it computed element by element, so that its layout may be its operands'? */
static bool follows_inputs(const Node *node) {
  OpClass op_class = op_info[node->op].op_class;
  if (op_class == CLASS_POINTWISE || op_class == CLASS_REDUCE || node->op == OP_BROADCAST ||
      node->op == OP_STOP_GRADIENT)
    return true;
  if (node->op == OP_RESHAPE) return is_of_places(node);
  return rank_of(node) >= 4 &&
         (node->op == OP_SLICE || node->op == OP_PAD || node->op == OP_CONCAT);
}

/* ── products ───────────────────────────────────────────────────────────────────────────────── */

/* Which dimension of operand 0 or 1 of a product is summed over, and which is the result's. */
static int inner_of(const Node *dot, int input) {
  return input ? node_int(dot, ATTR_TRANS_B, 0) : !node_int(dot, ATTR_TRANS_A, 0);
}
static int outer_of(const Node *dot, int input) { return !inner_of(dot, input); }

/* The order in which both operands can have the dimension that is summed over. */
static Fold inner_fold(const Layouts *l, const Node *dot) {
  Fold fold[2];
  if (rounded_in_groups(dot) || sparse_has_kernel(dot)) return (Fold){0}; /* a group's numbers, or four, stay neighbours */
  for (int i = 0; i < 2; i++) fold[i] = l->chosen[dot->input[i]->id].fold[inner_of(dot, i)];
  for (int i = 0; i < 2; i++)
    if (fold[i].channels && (l->is_weight[dot->input[!i]->id] || is_same_fold(&fold[0], &fold[1])))
      return fold[i];
  return (Fold){0};
}

static Layout layout_of_product(const Layouts *l, const Node *dot) {
  Layout layout = {0};
  for (int i = 0; i < 2; i++) {
    const Node *operand = dot->input[i];
    layout.fold[i] = l->chosen[operand->id].fold[outer_of(dot, i)];
    if (!layout.fold[i].channels && l->is_weight[operand->id])
      layout.fold[i] = l->preferred[dot->id].fold[i];
  }
  return layout;
}

/* ── layouts of operands ────────────────────────────────────────────────────────────────────── */

/* Sums and extremes are the same in any order of what they run over; argmax and argmin are not. */
static Fold fold_of_input(const Layouts *l, const Node *node, int input, int d,
                          const Layout *layout) {
  const Node *operand = node->input[input];
  if (node->op == OP_DOT)
    return d == inner_of(node, input) ? inner_fold(l, node) : layout->fold[input];
  if (!follows_inputs(node)) return (Fold){0};
  if (extent(operand, d) == extent(node, d)) return layout->fold[d];
  bool is_any_order =
      node->op == OP_SUM || node->op == OP_PROD || node->op == OP_RMAX || node->op == OP_RMIN;
  return is_any_order ? l->chosen[operand->id].fold[d] : (Fold){0};
}

Layout layout_of_input(const Layouts *l, const Node *node, int input, const Layout *layout) {
  Layout out = {0};
  Fold flat;
  if (node->op == OP_RESHAPE && is_flatten(node, &flat)) {
    if (layout->is_nhwc) out.fold[1] = flat;
    out.is_nhwc = layout->fold[1].channels > 0;
  } else if (rank_of(node) == 2 && rank_of(node->input[input]) == 2) {
    for (int d = 0; d < 2; d++) out.fold[d] = fold_of_input(l, node, input, d, layout);
  } else {
    out.is_nhwc = layout->is_nhwc;
  }
  return out;
}

/* ── from the end: what consumers prefer ────────────────────────────────────────────────────── */

static void pass_preferred_on(Layouts *l, const Node *node, const Node *input) {
  const Layout *own = &l->preferred[node->id];
  Layout *preferred = &l->preferred[input->id];
  Fold flat;
  if (is_image_op(node->op)) preferred->is_nhwc = true;
  if (node->op == OP_RESHAPE && own->is_nhwc && is_flatten(node, &flat)) preferred->fold[1] = flat;
  if (!follows_inputs(node)) return;
  preferred->is_nhwc |= own->is_nhwc;
  for (int d = 0; d < 2; d++)
    if (own->fold[d].channels && extent(input, d) == extent(node, d))
      preferred->fold[d] = own->fold[d];
}

/* ── from the beginning: the layout in which a value is computed ────────────────────────────── */

static Layout layout_of_follower(const Layouts *l, const Node *node) {
  Layout layout = {0};
  for (int k = 0; k < node->input_count; k++) {
    const Layout *input = &l->chosen[node->input[k]->id];
    layout.is_nhwc |= input->is_nhwc;
    for (int d = 0; d < 2 && rank_of(node) == 2; d++)
      if (!layout.fold[d].channels && extent(node->input[k], d) == extent(node, d))
        layout.fold[d] = input->fold[d];
  }
  return layout;
}

static Layout choose_layout(const Layouts *l, const Node *node) {
  Layout layout = {0};
  Fold flat;
  if (is_image_op(node->op)) return (Layout){.is_nhwc = true};
  if (node->op == OP_DOT) return layout_of_product(l, node);
  if (node->op == OP_RESHAPE && is_flatten(node, &flat)) {
    const Layout *input = &l->chosen[node->input[0]->id];
    layout.is_nhwc = is_same_fold(&input->fold[1], &flat);
    if (input->is_nhwc) layout.fold[1] = flat;
  }
  return follows_inputs(node) ? layout_of_follower(l, node) : layout;
}

static bool are_all(const bool *known, const Node *node) {
  for (int k = 0; k < node->input_count; k++)
    if (!known[node->input[k]->id]) return false;
  return node->input_count > 0;
}

static bool is_leaf_of_weights(Op op) { return op == OP_PARAM || op == OP_CONST || op == OP_IOTA; }

/* A reshape is free if no two dimensions of more than one element would change places, or if it is
 * of a parameter; a broadcast is the same in any order of the elements that it fills. */
static bool choose_free(const Layouts *l, const Node *node) {
  int rank = rank_of(node);
  if (rank != 2 && rank < 4) return false;
  if (is_leaf_of_weights(node->op)) return true;
  if (node->op == OP_RESHAPE)
    return rank >= 4 ? layout_is_view(&node->type.shape) : l->is_weight[node->id];
  if (node->op == OP_BROADCAST && rank == 2) return true;
  return follows_inputs(node) && are_all(l->is_free, node);
}

Layouts layout_choose(const Graph *graph, Arena *arena) {
  int count = graph->nodes.count;
  Layouts l = {.chosen = ARENA_ARRAY(arena, Layout, count),
               .is_free = ARENA_ARRAY(arena, bool, count),
               .is_weight = ARENA_ARRAY(arena, bool, count),
               .preferred = ARENA_ARRAY(arena, Layout, count)};
  for (int i = count - 1; i >= 0; i--)
    for (int k = 0; k < graph->nodes.at[i]->input_count; k++)
      pass_preferred_on(&l, graph->nodes.at[i], graph->nodes.at[i]->input[k]);
  for (int i = 0; i < count; i++) {
    const Node *node = graph->nodes.at[i];
    l.is_weight[i] = is_leaf_of_weights(node->op) || are_all(l.is_weight, node);
    l.is_free[i] = choose_free(&l, node);
    l.chosen[i] = choose_layout(&l, node);
  }
  return l;
}
