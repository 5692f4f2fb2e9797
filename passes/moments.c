/* moments: on a GPU, mean and variance of the columns of a product's or convolution's result, as a
 * batch norm wants them, come from one reading of it. As written, the variance sums squares of the
 * deviations from a mean that must be there first: two kernels, each of which reads everything.
 * Here they become the reductions `mean` and `spread`, which code generation makes together: of
 * sums of x - k and of (x - k)^2, where k is some element of the column, as far from the mean as
 * any, so that nothing cancels as it would with k = 0 (Chan, Golub, LeVeque 1983). Rows keep theirs
 * in registers and need none of this. */
#include "passes/pass.h"
#include "ir/match.h"

typedef struct {
  const Node *mean, *squares;
} Moments;
typedef VEC(Moments) MomentsList;

static bool is_of_contraction(const Node *x) {
  while (x->op == OP_CAST || x->op == OP_RESHAPE ||
         (x->op == OP_ADD && x->input[1]->op == OP_BROADCAST))
    x = x->input[0];
  return op_info[x->op].op_class == CLASS_CONTRACT;
}

/* Columns, of several elements: the last dimension stays. */
static bool is_by_columns(const Node *sum) {
  const Shape *all = &sum->input[0]->type.shape, *kept = &sum->type.shape;
  int last = kept->rank - 1;
  return last >= 0 && kept->dim[last] > 1 && kept->dim[last] == all->dim[last] &&
         shape_elements(all) > shape_elements(kept);
}

/* squares = sum((x - mean)^2), mean = sum(x) / n */
static bool find_moments(const Node *squares, Moments *out) {
  DType dtype = squares->type.dtype;
  if (squares->op != OP_SUM || (dtype != DT_F32 && dtype != DT_F64)) return false;
  const Node *square = squares->input[0];
  if (square->op != OP_MUL || square->input[0] != square->input[1]) return false;
  const Node *deviation = square->input[0];
  if (deviation->op != OP_SUB || deviation->input[1]->op != OP_BROADCAST) return false;
  const Node *mean = deviation->input[1]->input[0], *x = deviation->input[0];
  const Node *total = match_mean(mean);
  if (!total) return false;
  *out = (Moments){mean, squares};
  return total->input[0] == x && is_of_contraction(x) && is_by_columns(total) &&
         attr_equal(node_attr(total, ATTR_AXES), node_attr(squares, ATTR_AXES));
}

typedef struct {
  MomentsList all;
  Node **made; /* by old node: the rules need more than their own inputs */
} Rewrite;

static Node *moments_visit(Graph *fresh, const Node *old, Node **inputs, void *context) {
  Rewrite *rewrite = context;
  Node *made = NULL;
  for (int i = 0; !made && i < rewrite->all.count; i++) {
    const Moments *m = &rewrite->all.at[i];
    if (m->mean != old && m->squares != old) continue;
    const Node *total = m->mean->input[0];
    made = graph_node(fresh, m->mean == old ? OP_MEAN : OP_SPREAD,
                      &rewrite->made[total->input[0]->id], 1, total->attr, total->attr_count, NULL);
  }
  if (!made) made = graph_copy_node(fresh, old, inputs);
  return rewrite->made[old->id] = made;
}

Graph *pass_moments(PassContext *context, Graph *graph) {
  Rewrite rewrite = {.made = ARENA_ARRAY(context->scratch, Node *, graph->nodes.count)};
  for (int i = 0; i < graph->nodes.count; i++) {
    Moments found;
    if (find_moments(graph->nodes.at[i], &found)) VEC_PUSH(context->scratch, rewrite.all, found);
  }
  if (!rewrite.all.count) return graph;
  return graph_rewrite(graph, moments_visit, &rewrite);
}
