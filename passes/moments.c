/* moments: on a GPU, mean and variance of the columns of a product's or convolution's result, as a
 * batch norm wants them, come from one reading of it. As written, the variance sums squares of the
 * deviations from a mean that must be there first: two kernels, each of which reads everything.
 * Here both sums are of x - k, where k is the column's first element: mean = k + s1 / n        sum
 * of (x - mean)^2 = s2 - s1^2 / n k is as far from the mean as any element, so nothing cancels as
 * it would with k = 0; a constant column has variance 0 exactly (Chan, Golub, LeVeque 1983). Rows
 * keep theirs in registers and need none of this. */
#include "passes/pass.h"

typedef struct {
  const Node *x, *mean, *squares;
  Node *shifted, *sum; /* when mean has been made */
} Moments;

typedef struct {
  VEC(Moments) all;
  Node **made; /* by old node */
} Rewrite;

static bool is_contraction(const Node *x) {
  while (x->op == OP_CAST || x->op == OP_RESHAPE ||
         (x->op == OP_ADD && x->input[1]->op == OP_BROADCAST))
    x = x->input[0];
  return op_info[x->op].op_class == CLASS_CONTRACT;
}

static bool is_same_axes(const Attr *a, const Attr *b) {
  if (a->count != b->count) return false;
  for (int i = 0; i < a->count; i++)
    if (a->ints[i] != b->ints[i]) return false;
  return true;
}

/* Columns, of some elements: the last dimension stays. */
static bool is_by_columns(const Node *sum) {
  const Attr *axes = node_attr(sum, ATTR_AXES);
  int last = sum->type.shape.rank - 1;
  for (int i = 0; i < axes->count; i++)
    if (axes->ints[i] == last) return false;
  return sum->type.shape.dim[last] > 1 && shape_elements(&sum->input[0]->type.shape) > 0;
}

/* squares = sum((x - mean)^2), mean = sum(x) / n */
static bool find(const Node *squares, Moments *out) {
  if (squares->op != OP_SUM || !dtype_is_float(squares->type.dtype)) return false;
  const Node *square = squares->input[0];
  if (square->op != OP_MUL || square->input[0] != square->input[1]) return false;
  const Node *deviation = square->input[0];
  if (deviation->op != OP_SUB || deviation->input[1]->op != OP_BROADCAST) return false;
  const Node *mean = deviation->input[1]->input[0], *x = deviation->input[0];
  if (mean->op != OP_MUL || mean->input[0]->op != OP_SUM || mean->input[1]->op != OP_CONST)
    return false;
  const Node *total = mean->input[0];
  *out = (Moments){.x = x, .mean = mean, .squares = squares};
  return total->input[0] == x && is_contraction(x) && is_by_columns(total) &&
         is_same_axes(node_attr(total, ATTR_AXES), node_attr(squares, ATTR_AXES));
}

static Node *sum_like(Graph *fresh, const Node *like, Node *x) {
  return graph_node(fresh, OP_SUM, &x, 1, like->attr, like->attr_count, NULL, like->loc);
}

static Node *first_of(Graph *fresh, const Node *sum, Node *x) {
  int64_t start[MAX_RANK] = {0}, step[MAX_RANK];
  for (int d = 0; d < MAX_RANK; d++) step[d] = 1;
  int rank = x->type.shape.rank;
  Attr attrs[] = {attr_ints(ATTR_START, start, rank), attr_ints(ATTR_STEP, step, rank)};
  return graph_node(fresh, OP_SLICE, &x, 1, attrs, 2, &sum->type, sum->loc);
}

static Node *make_mean(Graph *fresh, Moments *m, Node *x, Node *share) {
  const Node *total = m->mean->input[0];
  Loc loc = m->mean->loc;
  Node *first = first_of(fresh, total, x);
  Node *wide = make_broadcast(fresh, first, x->type.shape, loc);
  m->shifted = make_binary(fresh, OP_SUB, x, wide, loc);
  m->sum = sum_like(fresh, total, m->shifted);
  return make_binary(fresh, OP_ADD, first, make_binary(fresh, OP_MUL, m->sum, share, loc), loc);
}

/* Not below 0, whatever rounding does; NaN stays. */
static Node *make_squares(Graph *fresh, const Moments *m, Node *share) {
  Loc loc = m->squares->loc;
  Node *square = make_binary(fresh, OP_MUL, m->shifted, m->shifted, loc);
  Node *much =
      make_binary(fresh, OP_MUL, m->sum, make_binary(fresh, OP_MUL, m->sum, share, loc), loc);
  Node *rest = make_binary(fresh, OP_SUB, sum_like(fresh, m->squares, square), much, loc);
  Node *zero = make_like(fresh, rest, 0, loc);
  return make_select(fresh, make_binary(fresh, OP_LE, rest, zero, loc), zero, rest, loc);
}

static Node *rewritten(Graph *fresh, const Node *old, Node **inputs, Rewrite *rewrite) {
  for (int i = 0; i < rewrite->all.count; i++) {
    Moments *m = &rewrite->all.at[i];
    if (m->mean == old) return make_mean(fresh, m, rewrite->made[m->x->id], inputs[1]);
    if (m->squares == old) return make_squares(fresh, m, rewrite->made[m->mean->input[1]->id]);
  }
  return NULL;
}

/* Remembers what every node has become: the rules need more than their own inputs. */
static Node *visit(Graph *fresh, const Node *old, Node **inputs, void *context) {
  Rewrite *rewrite = context;
  int first = fresh->nodes.count;
  Node *made = rewritten(fresh, old, inputs, rewrite);
  if (!made) made = graph_copy_node(fresh, old, inputs);
  for (int i = first; i < fresh->nodes.count; i++)
    fresh->nodes.at[i]->is_backward = old->is_backward;
  rewrite->made[old->id] = made;
  return made;
}

Graph *pass_moments(PassContext *context, Graph *graph) {
  if (!context->for_gpu) return graph;
  Rewrite rewrite = {.made = ARENA_ARRAY(context->arena, Node *, graph->nodes.count)};
  for (int i = 0; i < graph->nodes.count; i++) {
    Moments found;
    bool is_new = find(graph->nodes.at[i], &found);
    for (int k = 0; is_new && k < rewrite.all.count; k++)
      is_new = rewrite.all.at[k].mean != found.mean;
    if (is_new) VEC_PUSH(context->arena, rewrite.all, found);
  }
  if (!rewrite.all.count) return graph;
  return graph_rewrite(graph, visit, &rewrite);
}
