/* shrink: see shrink.h. */
#include "passes/shrink.h"
#include <string.h>

enum { MOST_RESHAPED = 1 << 26 }; /* elements of a reshape that are looked at one by one */

static ShrinkValue *shrink_value_of(Arena *arena, const Type *type) {
  ShrinkValue *value = ARENA_NEW(arena, ShrinkValue);
  for (int d = 0; d < type->shape.rank; d++) {
    int64_t size = type->shape.dim[d];
    value->zero[d] = ARENA_ARRAY(arena, bool, size);
    value->keep[d] = ARENA_ARRAY(arena, bool, size);
    if (size == 1) value->keep[d][0] = true;
  }
  return value;
}

const Node *shrink_leaf(const Shrink *shrink, const char *name) {
  for (int i = 0; i < shrink->leaves.count; i++)
    if (strcmp(node_str(shrink->leaves.at[i], ATTR_NAME), name) == 0) return shrink->leaves.at[i];
  return NULL;
}

ShrinkValue *shrink_value(const Shrink *shrink, const Node *node) {
  for (int g = 0; g < shrink->graphs.count; g++) {
    const Graph *graph = shrink->graphs.at[g];
    if (node->id < graph->nodes.count && graph->nodes.at[node->id] == node) return shrink->values.at[g][node->id];
  }
  return NULL;
}

static bool shrink_is_leaf(const Node *node) { return node->op == OP_PARAM || node->op == OP_STATE; }

Shrink *shrink_new(Arena *arena, Graph *const *graphs, int count) {
  Shrink *shrink = ARENA_NEW(arena, Shrink);
  shrink->arena = arena;
  for (int g = 0; g < count; g++) {
    ShrinkValue **values = ARENA_ARRAY(arena, ShrinkValue *, graphs[g]->nodes.count);
    for (int i = 0; i < graphs[g]->nodes.count; i++) {
      const Node *node = graphs[g]->nodes.at[i];
      const Node *known = shrink_is_leaf(node) ? shrink_leaf(shrink, node_str(node, ATTR_NAME)) : NULL;
      /* its own graph's values are not in the list yet */
      values[i] = !known                                              ? shrink_value_of(arena, &node->type)
                  : known->id < i && graphs[g]->nodes.at[known->id] == known ? values[known->id]
                                                                             : shrink_value(shrink, known);
      if (shrink_is_leaf(node) && !known) VEC_PUSH(arena, shrink->leaves, node);
    }
    VEC_PUSH(arena, shrink->graphs, graphs[g]);
    VEC_PUSH(arena, shrink->values, values);
    VEC_PUSH(arena, shrink->live, graph_find_live(graphs[g], arena));
    VEC_PUSH(arena, shrink->gone, ARENA_ARRAY(arena, bool, graphs[g]->nodes.count));
  }
  return shrink;
}

int64_t shrink_kept(const ShrinkValue *value, int dim, int64_t count) {
  int64_t kept = 0;
  for (int64_t i = 0; i < count; i++) kept += value->keep[dim][i];
  return kept;
}

/* ── what must stay ─────────────────────────────────────────────────────────────────────────── */
static void keep_one(Shrink *s, bool *keep) {
  if (*keep) return;
  *keep = s->has_changed = true;
}

static void keep_dim(Shrink *s, const Node *node, ShrinkValue *value, int dim) {
  for (int64_t i = 0; i < node->type.shape.dim[dim]; i++) keep_one(s, &value->keep[dim][i]);
}

static void keep_whole(Shrink *s, const Node *node, ShrinkValue *value) {
  for (int d = 0; d < node->type.shape.rank; d++) keep_dim(s, node, value, d);
}

void shrink_keep_all(Shrink *shrink, const Node *node, int dim) {
  keep_dim(shrink, node, shrink_value(shrink, node), dim);
}

/* Elements x[0], x[step], … are those of y. */
static void tie(Shrink *s, bool *x, int64_t step, bool *y, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (x[i * step] != y[i]) x[i * step] = y[i] = s->has_changed = true;
}

typedef struct {
  Shrink *s;
  ShrinkValue **values; /* of the graph */
  const Node *node;
  ShrinkValue *out;
} Tying;

static ShrinkValue *in_value(const Tying *t, int input) { return t->values[t->node->input[input]->id]; }

/* Dimension `from` of an input is dimension `to` of the result. */
static void tie_dim(const Tying *t, int input, int from, int to) {
  tie(t->s, in_value(t, input)->keep[from], 1, t->out->keep[to], t->node->type.shape.dim[to]);
}

static void keep_input(const Tying *t, int input, int dim) {
  keep_dim(t->s, t->node->input[input], in_value(t, input), dim);
}

static void keep_everything(const Tying *t) {
  keep_whole(t->s, t->node, t->out);
  for (int i = 0; i < t->node->input_count; i++) keep_whole(t->s, t->node->input[i], in_value(t, i));
}

/* Dimension a of input 0 and b of input 1 are summed over together: what is 0 in one of them adds nothing. */
static void tie_summed(const Tying *t, int a, int b) {
  ShrinkValue *x = in_value(t, 0), *y = in_value(t, 1);
  int64_t count = t->node->input[0]->type.shape.dim[a];
  for (int64_t i = 0; i < count; i++) {
    bool is_zero = x->is_zero || y->is_zero || x->zero[a][i] || y->zero[b][i];
    if (!is_zero) keep_one(t->s, &x->keep[a][i]);
  }
  tie(t->s, x->keep[a], 1, y->keep[b], count);
}

static void tie_dot(const Tying *t) {
  int last = t->node->type.shape.rank - 1;
  bool ta = node_int(t->node, ATTR_TRANS_A, 0), tb = node_int(t->node, ATTR_TRANS_B, 0);
  for (int d = 0; d < last - 1; d++) {
    tie_dim(t, 0, d, d);
    tie_dim(t, 1, d, d);
  }
  tie_dim(t, 0, ta ? last : last - 1, last - 1);
  tie_dim(t, 1, tb ? last - 1 : last, last);
  tie_summed(t, ta ? last - 1 : last, tb ? last : last - 1);
}

static bool is_channels_first(const Node *node) {
  const char *layout = node_str(node, ATTR_LAYOUT);
  return !layout || strcmp(layout, "nchw") == 0;
}

/* x [N,C,H,W], w [O,C/groups,kh,kw]; of the transposed convolution w [C,O/groups,kh,kw]. */
static void tie_conv(const Tying *t) {
  bool is_transposed = t->node->op == OP_CONV_GRAD_INPUT;
  int64_t groups = node_int(t->node, ATTR_GROUPS, 1);
  const int64_t *w = t->node->input[1]->type.shape.dim;
  bool is_depthwise = groups > 1 && w[0] == groups && w[1] == 1 && !is_transposed;
  if (!is_channels_first(t->node) || (groups > 1 && !is_depthwise)) {
    keep_everything(t);
    return;
  }
  tie_dim(t, 0, 0, 0);
  for (int d = 2; d < 4; d++) {
    keep_input(t, 0, d);
    keep_input(t, 1, d);
    keep_dim(t->s, t->node, t->out, d);
  }
  tie_dim(t, 1, is_transposed, 1);
  if (is_depthwise)
    tie_dim(t, 0, 1, 1);
  else
    tie_summed(t, 1, !is_transposed);
}

/* q [B,H,T,D], k [B,G,S,D], v [B,G,S,E], out [B,H,T,E]: heads go. The scores are scaled by a number that is made of D; E is mostly the
 * same, by a split into three equal parts. */
static void tie_attention(const Tying *t) {
  const Node *const *in = (const Node *const *)t->node->input;
  if (node_attr(t->node, ATTR_HEADS) || in[0]->type.shape.dim[1] != in[1]->type.shape.dim[1]) {
    keep_everything(t);
    return;
  }
  for (int i = 0; i < 3; i++)
    for (int d = 0; d < 2; d++) tie_dim(t, i, d, d);
  for (int d = 2; d < 4; d++) keep_dim(t->s, t->node, t->out, d);
  for (int i = 0; i < 3; i++)
    for (int d = 2; d < 4; d++) keep_input(t, i, d);
  AttentionForm form = attention_form(t->node);
  if (form.mask >= 0) keep_whole(t->s, in[form.mask], in_value(t, form.mask));
  for (int d = 0; d < 4 && form.draws >= 0; d++) {
    if (d < 2)
      tie_dim(t, form.draws, d, d);
    else
      keep_input(t, form.draws, d);
  }
}

/* ── moves ──────────────────────────────────────────────────────────────────────────────────── */
/* Dimensions [from, to) of a shape. */
typedef struct {
  const int64_t *dim;
  bool **keep;
  int from, to;
} Digits;

static int64_t digits_count(const Digits *x) {
  int64_t count = 1;
  for (int d = x->from; d < x->to; d++) count *= x->dim[d];
  return count;
}

/* Element `at` of these dimensions in row-major order: does it stay? Where it goes from them although it must stay (`stays`), it
 * does no more. */
static bool digits_visit(Shrink *s, const Digits *x, int64_t at, bool stays) {
  bool is_kept = true;
  for (int d = x->to - 1; d >= x->from; at /= x->dim[d--]) {
    bool *keep = &x->keep[d][at % x->dim[d]];
    if (stays) keep_one(s, keep);
    is_kept = is_kept && *keep;
  }
  return is_kept;
}

/* The same elements in rows of other lengths: one that stays on one side stays on the other. */
static void tie_digits(Shrink *s, const Digits *x, const Digits *y) {
  int64_t count = digits_count(x);
  for (int64_t i = 0; i < count; i++) {
    bool in_x = digits_visit(s, x, i, false), in_y = digits_visit(s, y, i, false);
    if (in_x && !in_y) digits_visit(s, y, i, true);
    if (in_y && !in_x) digits_visit(s, x, i, true);
  }
}

/* Dimensions of as many elements are tied to one another, [B,C,H,W] and [B,C·H·W] as B and B, C, H, W and C·H·W. */
static void tie_reshape(const Tying *t) {
  const Shape *a = &t->node->input[0]->type.shape, *b = &t->node->type.shape;
  if (shape_elements(b) > MOST_RESHAPED || shape_elements(b) == 0) {
    keep_everything(t);
    return;
  }
  for (int i = 0, k = 0; i < a->rank || k < b->rank;) {
    Digits x = {a->dim, in_value(t, 0)->keep, i, i}, y = {b->dim, t->out->keep, k, k};
    do {
      bool first = digits_count(&x) <= digits_count(&y);
      if ((first && x.to < a->rank) || y.to >= b->rank)
        x.to++;
      else
        y.to++;
    } while (digits_count(&x) != digits_count(&y));
    tie_digits(t->s, &x, &y);
    i = x.to, k = y.to;
  }
}

static void tie_slice(const Tying *t) {
  const Attr *start = node_attr(t->node, ATTR_START), *step = node_attr(t->node, ATTR_STEP);
  for (int d = 0; d < t->node->type.shape.rank; d++) {
    int64_t by = step ? step->ints[d] : 1;
    tie(t->s, in_value(t, 0)->keep[d] + (start ? start->ints[d] : 0), by, t->out->keep[d], t->node->type.shape.dim[d]);
    if (by != 1) keep_input(t, 0, d);
  }
}

static void tie_pad(const Tying *t) {
  const int64_t *low = node_attr(t->node, ATTR_LOW)->ints;
  for (int d = 0; d < t->node->type.shape.rank; d++) {
    int64_t size = t->node->input[0]->type.shape.dim[d], all = t->node->type.shape.dim[d];
    tie(t->s, t->out->keep[d] + low[d], 1, in_value(t, 0)->keep[d], size);
    for (int64_t i = 0; i < all; i++)
      if (i < low[d] || i >= low[d] + size) keep_one(t->s, &t->out->keep[d][i]);
  }
}

static void tie_concat(const Tying *t) {
  int axis = (int)node_int(t->node, ATTR_AXIS, 0);
  int64_t at = 0;
  for (int i = 0; i < t->node->input_count; i++) {
    int64_t size = t->node->input[i]->type.shape.dim[axis];
    for (int d = 0; d < t->node->type.shape.rank; d++)
      if (d != axis) tie_dim(t, i, d, d);
    tie(t->s, t->out->keep[axis] + at, 1, in_value(t, i)->keep[axis], size);
    at += size;
  }
}

/* table [V,…], index […] */
static void tie_gather(const Tying *t) {
  int ahead = t->node->input[1]->type.shape.rank, rank = t->node->type.shape.rank;
  keep_input(t, 0, 0);
  for (int d = 0; d < ahead; d++) tie_dim(t, 1, d, d);
  for (int d = ahead; d < rank; d++) tie_dim(t, 0, d - ahead + 1, d);
}

static void tie_move(const Tying *t) {
  const Node *node = t->node;
  const Attr *perm = node_attr(node, ATTR_PERM);
  switch (node->op) {
  case OP_RESHAPE:
    tie_reshape(t);
    break;
  case OP_TRANSPOSE:
    for (int d = 0; d < node->type.shape.rank; d++) tie_dim(t, 0, (int)perm->ints[d], d);
    break;
  case OP_BROADCAST:
    for (int d = 0; d < node->type.shape.rank; d++)
      if (node->input[0]->type.shape.dim[d] == node->type.shape.dim[d]) tie_dim(t, 0, d, d);
    break;
  case OP_SLICE:
    tie_slice(t);
    break;
  case OP_PAD:
    tie_pad(t);
    break;
  case OP_CONCAT:
    tie_concat(t);
    break;
  case OP_GATHER:
    tie_gather(t);
    break;
  default:
    keep_everything(t);
  }
}

/* ── the rest ───────────────────────────────────────────────────────────────────────────────── */
static void tie_leaf(const Tying *t) {
  const Node *node = t->node;
  if (node->op == OP_INPUT || node->role == ROLE_GIVEN) keep_whole(t->s, node, t->out);
  if (node->op == OP_IOTA) keep_dim(t->s, node, t->out, (int)node_int(node, ATTR_AXIS, 0));
}

static void tie_reduce(const Tying *t) {
  const Attr *axes = node_attr(t->node, ATTR_AXES);
  for (int d = 0; d < t->node->type.shape.rank; d++) {
    bool is_reduced = false;
    for (int i = 0; i < axes->count; i++) is_reduced = is_reduced || axes->ints[i] == d;
    if (is_reduced)
      keep_input(t, 0, d);
    else
      tie_dim(t, 0, d, d);
  }
}

static void tie_same(const Tying *t) {
  for (int i = 0; i < t->node->input_count; i++)
    for (int d = 0; d < t->node->type.shape.rank; d++) tie_dim(t, i, d, d);
}

static void tie_struct(const Tying *t, const Graph *graph) {
  const Node *node = t->node;
  if (node->op == OP_STOP_GRADIENT || (node->op == OP_RESULT && node->input[0]->op == OP_ATTENTION &&
                                       node_int(node, ATTR_INDEX, 0) == 0)) {
    tie_same(t);
  } else if (node->op == OP_ASSIGN) {
    const Node *state = graph_find_state(graph, node_str(node, ATTR_TARGET));
    tie_same(t);
    for (int d = 0; state && d < node->type.shape.rank; d++)
      tie(t->s, t->values[state->id]->keep[d], 1, t->out->keep[d], node->type.shape.dim[d]);
  } else {
    keep_everything(t);
  }
}

static void tie_node(const Tying *t, const Graph *graph) {
  const Node *node = t->node;
  switch (op_info[node->op].op_class) {
  case CLASS_LEAF:
    tie_leaf(t);
    break;
  case CLASS_POINTWISE:
    tie_same(t);
    break;
  case CLASS_REDUCE:
    tie_reduce(t);
    break;
  case CLASS_CONTRACT:
    if (node->op == OP_DOT)
      tie_dot(t);
    else if (node->op == OP_CONV || node->op == OP_CONV_GRAD_INPUT)
      tie_conv(t);
    else if (node->op == OP_ATTENTION)
      tie_attention(t);
    else
      keep_everything(t);
    break;
  case CLASS_WINDOW:
    if ((node->op != OP_POOL_MAX && node->op != OP_POOL_AVG) || !is_channels_first(node)) {
      keep_everything(t);
      break;
    }
    for (int d = 0; d < 2; d++) tie_dim(t, 0, d, d), keep_input(t, 0, d + 2), keep_dim(t->s, node, t->out, d + 2);
    break;
  case CLASS_MOVE:
    tie_move(t);
    break;
  default:
    tie_struct(t, graph);
  }
}

static bool shrink_is_read(const Shrink *s, const Node *leaf) {
  for (int g = 0; g < s->graphs.count; g++) {
    const Node *node = graph_find_leaf(s->graphs.at[g], leaf->op, node_str(leaf, ATTR_NAME));
    if (node && s->live.at[g][node->id]) return true;
  }
  return false;
}

/* What roots are made of; and leaves that nothing reads, of which nothing is known. */
static void keep_roots(Shrink *s) {
  for (int i = 0; i < s->leaves.count; i++)
    if (!shrink_is_read(s, s->leaves.at[i])) keep_whole(s, s->leaves.at[i], shrink_value(s, s->leaves.at[i]));
  for (int g = 0; g < s->graphs.count; g++) {
    const Graph *graph = s->graphs.at[g];
    for (int i = 0; i < graph->roots.count; i++) {
      const Node *node = graph->roots.at[i].node;
      if (graph->roots.at[i].kind != ROOT_ASSIGN) keep_whole(s, node, s->values.at[g][node->id]);
    }
  }
}

static void tie_all(Shrink *s) {
  do {
    s->has_changed = false;
    for (int g = 0; g < s->graphs.count; g++) {
      const Graph *graph = s->graphs.at[g];
      int count = graph->nodes.count;
      for (int i = 0; i < 2 * count; i++) { /* forward, and back */
        int at = i < count ? i : 2 * count - 1 - i;
        if (s->live.at[g][at]) tie_node(&(Tying){s, s->values.at[g], graph->nodes.at[at], s->values.at[g][at]}, graph);
      }
    }
  } while (s->has_changed);
}

void shrink_settle(Shrink *s) {
  keep_roots(s);
  for (bool is_done = false; !is_done;) {
    tie_all(s);
    is_done = true;
    for (int g = 0; g < s->graphs.count && is_done; g++)
      for (int i = 0; i < s->graphs.at[g]->nodes.count && is_done; i++) {
        const Shape *shape = &s->graphs.at[g]->nodes.at[i]->type.shape;
        ShrinkValue *value = s->values.at[g][i];
        for (int d = 0; d < shape->rank && s->live.at[g][i]; d++)
          if (shape->dim[d] && !shrink_kept(value, d, shape->dim[d])) keep_one(s, &value->keep[d][0]), is_done = false;
      }
  }
}
