/* gradients: see gradients.h. Where a function is not differentiable (abs at 0, max at a tie, pow
 * at 0) the rules follow PyTorch. Rules reuse the forward value y where that is as exact as going
 * back to x, because y is kept for the next layer more often than x is. */
#include "passes/gradients.h"
#include "ir/match.h"
#include <string.h>

/* ── the notation of the rules ──────────────────────────────────────────────────────────────── */
#define X(i) (g->node->input[i])
#define Y (g->node)
#define DY (g->dy)
#define LOC (g->node->origin.loc)

static Node *unary(Gradient *g, Op op, Node *x) { return make_unary(g->graph, op, x); }
static Node *binary(Gradient *g, Op op, Node *a, Node *b) {
  return make_binary(g->graph, op, a, b);
}
static Node *mul(Gradient *g, Node *a, Node *b) { return binary(g, OP_MUL, a, b); }
static Node *neg(Gradient *g, Node *x) { return unary(g, OP_NEG, x); }
static Node *like(Gradient *g, Node *x, double value) { return make_like(g->graph, x, value); }
static Node *scale(Gradient *g, Node *x, double factor) { return mul(g, x, like(g, x, factor)); }
static Node *shift(Gradient *g, Node *x, double term) {
  return binary(g, OP_ADD, x, like(g, x, term));
}
static Node *zero(Gradient *g) { return like(g, DY, 0); }
static Node *gradient_broadcast(Gradient *g, Node *x, const Node *over) {
  return make_broadcast(g->graph, x, over->type.shape);
}

/* A node with the attributes of the forward node and a given type. */
static Node *mirror(Gradient *g, Op op, Node *const *inputs, int count, const Type *given) {
  return graph_node(g->graph, op, inputs, count, g->node->attr, g->node->attr_count, given);
}

/* ── pointwise, one input ───────────────────────────────────────────────────────────────────── */
static void grad_zero(Gradient *g) { (void)g; }
static void grad_neg(Gradient *g) { g->dx[0] = neg(g, DY); }
static void grad_abs(Gradient *g) { g->dx[0] = mul(g, DY, unary(g, OP_SIGN, X(0))); }
static void grad_exp(Gradient *g) { g->dx[0] = mul(g, DY, Y); }
static void grad_expm1(Gradient *g) { g->dx[0] = mul(g, DY, shift(g, Y, 1)); }
static void grad_log(Gradient *g) { g->dx[0] = binary(g, OP_DIV, DY, X(0)); }
static void grad_log1p(Gradient *g) { g->dx[0] = binary(g, OP_DIV, DY, shift(g, X(0), 1)); }
static void grad_sqrt(Gradient *g) { g->dx[0] = binary(g, OP_DIV, scale(g, DY, 0.5), Y); }
static void grad_rsqrt(Gradient *g) {
  g->dx[0] = mul(g, scale(g, DY, -0.5), mul(g, Y, mul(g, Y, Y)));
}
static void grad_sin(Gradient *g) { g->dx[0] = mul(g, DY, unary(g, OP_COS, X(0))); }
static void grad_cos(Gradient *g) { g->dx[0] = neg(g, mul(g, DY, unary(g, OP_SIN, X(0)))); }
static void grad_tanh(Gradient *g) {
  g->dx[0] = mul(g, DY, binary(g, OP_SUB, like(g, Y, 1), mul(g, Y, Y)));
}
static void grad_sigmoid(Gradient *g) {
  g->dx[0] = mul(g, DY, mul(g, Y, binary(g, OP_SUB, like(g, Y, 1), Y)));
}
static void grad_erf(Gradient *g) {
  const double two_over_root_pi = 1.1283791670955125738961589031215;
  Node *bell = unary(g, OP_EXP, neg(g, mul(g, X(0), X(0))));
  g->dx[0] = mul(g, scale(g, DY, two_over_root_pi), bell);
}
static void grad_cast(Gradient *g) { g->dx[0] = make_cast(g->graph, DY, X(0)->type.dtype); }

/* ── pointwise, two inputs ──────────────────────────────────────────────────────────────────── */
static void grad_add(Gradient *g) { g->dx[0] = g->dx[1] = DY; }
static void grad_sub(Gradient *g) {
  g->dx[0] = DY;
  if (g->needed[1]) g->dx[1] = neg(g, DY);
}
static void grad_mul(Gradient *g) {
  if (g->needed[0]) g->dx[0] = mul(g, DY, X(1));
  if (g->needed[1]) g->dx[1] = mul(g, DY, X(0));
}
static void grad_div(Gradient *g) {
  Node *over = binary(g, OP_DIV, DY, X(1));
  g->dx[0] = over;
  if (g->needed[1]) g->dx[1] = neg(g, mul(g, over, Y));
}

/* d a^b / da = b a^(b-1), and 0 where b is 0 though a^(b-1) may be infinite there.
 * d a^b / db = a^b log a, and 0 where a is 0 and b is not negative. */
static void grad_pow(Gradient *g) {
  Node *a = X(0), *b = X(1), *none = zero(g);
  if (g->needed[0]) {
    Node *slope = mul(g, b, binary(g, OP_POW, a, shift(g, b, -1)));
    Node *flat = binary(g, OP_EQ, b, like(g, b, 0));
    g->dx[0] = make_select(g->graph, flat, none, mul(g, DY, slope));
  }
  if (g->needed[1]) {
    Node *flat =
        binary(g, OP_AND, binary(g, OP_EQ, a, like(g, a, 0)), binary(g, OP_GE, b, like(g, b, 0)));
    g->dx[1] = make_select(g->graph, flat, none, mul(g, DY, mul(g, Y, unary(g, OP_LOG, a))));
  }
}

/* The winner takes the gradient, at a tie each takes half. `losing` is the comparison under which
 * the first input lost; with a NaN neither lost and both get it all, as in PyTorch. */
static void grad_extreme(Gradient *g, Op losing) {
  Node *tie = binary(g, OP_EQ, X(0), X(1));
  Node *share = make_select(g->graph, tie, scale(g, DY, 0.5), DY);
  for (int i = 0; i < 2; i++)
    if (g->needed[i])
      g->dx[i] = make_select(g->graph, binary(g, losing, X(i), X(1 - i)), zero(g), share);
}
static void grad_max(Gradient *g) { grad_extreme(g, OP_LT); }
static void grad_min(Gradient *g) { grad_extreme(g, OP_GT); }

/* Is `part` 0, or x times something positive? */
static bool is_flat_part(const Node *part, const Node *x) {
  if (match_value(part, 0)) return true;
  Node *scaled;
  double slope;
  return match_with_const(part, OP_MUL, &scaled, &slope) && scaled == x && slope > 0;
}

/* select(x <= 0, 0, x) and select(x > 0, x, 0) are relu, or leaky relu with c*x for 0: there the
 * sign of the result tells as much as the sign of x, and taking the mask from the result lets go of
 * x (the result is kept anyway for the next layer, and x then never leaves the kernel that computes
 * it). */
static Node *mask_of_select(Gradient *g) {
  Node *cond = X(0), *a = X(1), *b = X(2);
  bool is_relu = (cond->op == OP_LE && is_flat_part(a, b) && cond->input[0] == b) ||
                 (cond->op == OP_GT && is_flat_part(b, a) && cond->input[0] == a);
  if (!is_relu || !match_value(cond->input[1], 0)) return cond;
  return binary(g, cond->op, Y, cond->input[1]);
}
static void grad_select(Gradient *g) {
  Node *mask = mask_of_select(g);
  if (g->needed[1]) g->dx[1] = make_select(g->graph, mask, DY, zero(g));
  if (g->needed[2]) g->dx[2] = make_select(g->graph, mask, zero(g), DY);
}

/* ── reductions ─────────────────────────────────────────────────────────────────────────────── */
static void grad_sum(Gradient *g) { g->dx[0] = gradient_broadcast(g, DY, X(0)); }

static Node *reduce_like(Gradient *g, Op op, Node *x) { return mirror(g, op, &x, 1, NULL); }

/* The product of the other elements. With no zero among them that is y / x; with one, it is the
 * product of all the non-zero ones at the zero and 0 elsewhere; with more, 0 everywhere. */
static void grad_prod(Gradient *g) {
  Node *x = X(0);
  Node *is_zero = binary(g, OP_EQ, x, like(g, x, 0));
  Node *safe = make_select(g->graph, is_zero, like(g, x, 1), x);
  Node *product = reduce_like(g, OP_PROD, safe);
  Node *zeros = reduce_like(g, OP_SUM, make_cast(g->graph, is_zero, x->type.dtype));
  Node *base = mul(g, DY, product), *nothing = zero(g);
  Node *at_zero = make_select(g->graph, binary(g, OP_EQ, zeros, like(g, zeros, 1)), base, nothing);
  Node *elsewhere =
      make_select(g->graph, binary(g, OP_EQ, zeros, like(g, zeros, 0)), base, nothing);
  g->dx[0] = make_select(g->graph, is_zero, gradient_broadcast(g, at_zero, x),
                         binary(g, OP_DIV, gradient_broadcast(g, elsewhere, x), safe));
}

/* All elements that are equal to the extreme share the gradient equally. In a row that holds NaN
 * these are the NaNs, as for argmax. */
static void grad_rmax(Gradient *g) {
  Node *x = X(0);
  Node *is_extreme =
      binary(g, OP_OR, binary(g, OP_EQ, x, gradient_broadcast(g, Y, x)), binary(g, OP_NE, x, x));
  Node *count = reduce_like(g, OP_SUM, make_cast(g->graph, is_extreme, x->type.dtype));
  Node *share = gradient_broadcast(g, binary(g, OP_DIV, DY, count), x);
  g->dx[0] = make_select(g->graph, is_extreme, share, like(g, share, 0));
}
static void grad_rmin(Gradient *g) { grad_rmax(g); }

/* ── contractions and pooling ───────────────────────────────────────────────────────────────── */
static void grad_dot(Gradient *g) {
  Node *a = X(0), *b = X(1);
  bool ta = node_int(Y, ATTR_TRANS_A, 0), tb = node_int(Y, ATTR_TRANS_B, 0);
  if (g->needed[0])
    g->dx[0] = ta ? make_dot(g->graph, b, DY, tb, true) : make_dot(g->graph, DY, b, false, !tb);
  if (g->needed[1])
    g->dx[1] = tb ? make_dot(g->graph, DY, a, true, ta) : make_dot(g->graph, a, DY, !ta, false);
}

/* Backward reads q, k, v, the result and one number for each row of scores, and computes the scores
 * again. */
static void grad_attention(Gradient *g) {
  Node *out = make_result(g->graph, Y, 0), *lse = make_result(g->graph, Y, 1);
  Node *inputs[MOST_INPUTS] = {DY, X(0), X(1), X(2), out, lse};
  int count = 6;
  if (attention_form(Y).mask >= 0 && g->needed[3])
    diag_error(g->diag, LOC,
               "the mask of attention has no gradient, and the loss depends on a parameter "
               "through it: stop_gradient(mask), or write softmax(q @ transpose(k) + mask) @ v");
  for (int i = 3; i < Y->input_count; i++) inputs[count++] = X(i);
  Node *grad = mirror(g, OP_ATTENTION_GRAD, inputs, count, NULL);
  for (int i = 0; i < 3; i++)
    if (g->needed[i]) g->dx[i] = make_result(g->graph, grad, i);
}
/* ── collectives ────────────────────────────────────────────────────────────────────────────── */
/* What is differentiated is the sum over all ranks of each one's objective. This is a collective of
 * the same ranks as the node's. */
static Node *together(Gradient *g, Op op, Op reduction, Node *x) {
  Attr attrs[3];
  int count = 0;
  if (op != OP_ALL_GATHER) attrs[count++] = attr_str(ATTR_REDUCTION, op_info[reduction].text);
  const Attr *ranks = node_attr(Y, ATTR_RANKS), *over = node_attr(Y, ATTR_OVER);
  if (op != OP_ALL_REDUCE) attrs[count++] = *ranks;
  if (over) attrs[count++] = *over;
  Node *made = graph_node(g->graph, op, &x, 1, attrs, count, NULL);
  return node_has_results(made) ? make_result(g->graph, made, 0) : made;
}

/* The gradient of an extreme goes to those that attain it, as in grad_rmax. */
static Node *attains(Gradient *g, Node *x, Node *y) {
  return binary(g, OP_OR, binary(g, OP_EQ, x, y), binary(g, OP_NE, x, x));
}

static void grad_all_reduce(Gradient *g) {
  Op op;
  bool known = op_parse(node_str(Y, ATTR_REDUCTION), &op) && Y->input_count == 1;
  Node *x = X(0), *y = make_result(g->graph, Y, 0);
  Node *dy = together(g, OP_ALL_REDUCE, OP_SUM, DY);
  if (!known || op == OP_PROD) {
    diag_error(g->diag, LOC, "a product over ranks has no gradient");
  } else if (op == OP_SUM) {
    g->dx[0] = dy;
  } else {
    Node *is_extreme = attains(g, x, y), *count = make_cast(g->graph, is_extreme, x->type.dtype);
    Node *share = binary(g, OP_DIV, dy, together(g, OP_ALL_REDUCE, OP_SUM, count));
    g->dx[0] = make_select(g->graph, is_extreme, share, like(g, share, 0));
  }
}
/* Each rank's part is read by all of them. */
static void grad_all_gather(Gradient *g) { g->dx[0] = together(g, OP_REDUCE_SCATTER, OP_SUM, DY); }
static void grad_all_to_all(Gradient *g) { g->dx[0] = mirror(g, OP_ALL_TO_ALL, &DY, 1, NULL); }
/* What the other ranks have is not read. */
static void grad_broadcast_from(Gradient *g) {
  Node *dy = together(g, OP_ALL_REDUCE, OP_SUM, DY), *rank = make_rank(g->graph, node_axis(Y));
  Node *is_root = binary(g, OP_EQ, rank, like(g, rank, (double)node_int(Y, ATTR_ROOT, 0)));
  g->dx[0] = make_select(g->graph, is_root, dy, like(g, dy, 0));
}
static void grad_transfer(Gradient *g) {
  Attr attrs[3] = {attr_int(ATTR_FROM, node_int(Y, ATTR_TO, 0)),
                   attr_int(ATTR_TO, node_int(Y, ATTR_FROM, 0))};
  const Attr *over = node_attr(Y, ATTR_OVER);
  if (over) attrs[2] = *over;
  g->dx[0] = graph_node(g->graph, OP_TRANSFER, &DY, 1, attrs, 2 + (over != NULL), NULL);
}
/* Each part is read by one rank. */
static void grad_reduce_scatter(Gradient *g) {
  Op op;
  if (!op_parse(node_str(Y, ATTR_REDUCTION), &op) || op == OP_PROD) {
    diag_error(g->diag, LOC, "a product over ranks has no gradient");
  } else if (op == OP_SUM) {
    g->dx[0] = together(g, OP_ALL_GATHER, OP_SUM, DY);
  } else {
    Node *x = X(0), *is_extreme = attains(g, x, together(g, OP_ALL_GATHER, OP_SUM, Y));
    Node *count = make_cast(g->graph, is_extreme, x->type.dtype);
    Node *share = binary(g, OP_DIV, DY, together(g, OP_REDUCE_SCATTER, OP_SUM, count));
    share = together(g, OP_ALL_GATHER, OP_SUM, share);
    g->dx[0] = make_select(g->graph, is_extreme, share, like(g, share, 0));
  }
}

/* The gradient of a node with several results is that of its result 0. */
static void grad_result(Gradient *g) {
  if (node_int(Y, ATTR_INDEX, 0) == 0)
    g->dx[0] = DY;
  else
    diag_error(g->diag, LOC, "the log-sum-exp of attention has no gradient");
}
static void grad_conv(Gradient *g) {
  Node *x = X(0), *w = X(1);
  if (g->needed[0]) g->dx[0] = mirror(g, OP_CONV_GRAD_INPUT, (Node *[]){DY, w}, 2, &x->type);
  if (g->needed[1]) g->dx[1] = mirror(g, OP_CONV_GRAD_WEIGHT, (Node *[]){DY, x}, 2, &w->type);
}
/* A convolution turned around, (y, w) -> x, is linear in both, as the convolution is. */
static void grad_conv_grad_input(Gradient *g) {
  Node *y = X(0), *w = X(1);
  if (g->needed[0]) g->dx[0] = mirror(g, OP_CONV, (Node *[]){DY, w}, 2, NULL);
  if (g->needed[1]) g->dx[1] = mirror(g, OP_CONV_GRAD_WEIGHT, (Node *[]){y, DY}, 2, &w->type);
}
static void grad_pool_max(Gradient *g) {
  const Attr *kernel = node_attr(Y, ATTR_KERNEL);
  if (kernel->ints[0] * kernel->ints[1] > 256) {
    diag_error(
        g->diag, LOC,
        "max pooling over %lldx%lld cannot be trained through: a window may hold at most 256 "
        "elements",
        (long long)kernel->ints[0], (long long)kernel->ints[1]);
    return;
  }
  Node *index = mirror(g, OP_POOL_INDEX, &X(0), 1, NULL);
  g->dx[0] = mirror(g, OP_POOL_MAX_GRAD, (Node *[]){DY, index}, 2, &X(0)->type);
}
static void grad_pool_avg(Gradient *g) {
  g->dx[0] = mirror(g, OP_POOL_AVG_GRAD, &DY, 1, &X(0)->type);
}
static void grad_pool_avg_grad(Gradient *g) { g->dx[0] = mirror(g, OP_POOL_AVG, &DY, 1, NULL); }

/* ── data movement ──────────────────────────────────────────────────────────────────────────── */
static void grad_reshape(Gradient *g) { g->dx[0] = make_reshape(g->graph, DY, X(0)->type.shape); }
static void grad_transpose(Gradient *g) {
  const Attr *perm = node_attr(Y, ATTR_PERM);
  int64_t inverse[MAX_RANK] = {0};
  for (int i = 0; i < perm->count; i++) inverse[perm->ints[i]] = i;
  g->dx[0] = make_transpose(g->graph, DY, inverse);
}
static void grad_broadcast(Gradient *g) {
  g->dx[0] = make_unbroadcast(g->graph, DY, X(0)->type.shape);
}

/* Puts step-1 zeros behind every element of x along one axis: [n] -> [n, 1] -> [n, step] ->
 * [n*step], on a view of rank 4 whatever the rank of x. */
static Node *stretch(Gradient *g, Node *x, int axis, int64_t step) {
  Shape shape = x->type.shape;
  int64_t n = shape.dim[axis], outer = shape_elements_between(&shape, 0, axis);
  int64_t inner = shape_elements_between(&shape, axis + 1, shape.rank);
  Node *view = make_reshape(g->graph, x, shape_of(4, (int64_t[]){outer, n, 1, inner}));
  Node *wide = make_pad(g->graph, view, (int64_t[4]){0}, (int64_t[]){0, 0, step - 1, 0});
  shape.dim[axis] = n * step;
  return make_reshape(g->graph, wide, shape);
}

static void grad_slice(Gradient *g) {
  const Attr *start = node_attr(Y, ATTR_START), *step = node_attr(Y, ATTR_STEP);
  Shape whole = X(0)->type.shape, fits;
  int64_t origin[MAX_RANK] = {0}, high[MAX_RANK] = {0};
  Node *dx = DY;
  for (int i = 0; i < whole.rank; i++)
    if (step && step->ints[i] > 1) dx = stretch(g, dx, i, step->ints[i]);
  fits = dx->type.shape;
  for (int i = 0; i < whole.rank; i++) {
    int64_t room = whole.dim[i] - start->ints[i];
    if (fits.dim[i] > room) /* the zeros behind the last element reach over the end */
      fits.dim[i] = room;
    high[i] = room - fits.dim[i];
  }
  dx = make_slice(g->graph, dx, origin, fits);
  g->dx[0] = make_pad(g->graph, dx, start->ints, high);
}
static void grad_pad(Gradient *g) {
  g->dx[0] = make_slice(g->graph, DY, node_attr(Y, ATTR_LOW)->ints, X(0)->type.shape);
}
static void grad_concat(Gradient *g) {
  int64_t start[MAX_RANK] = {0}, axis = node_int(Y, ATTR_AXIS, 0);
  for (int i = 0; i < Y->input_count; i++) {
    if (g->needed[i]) g->dx[i] = make_slice(g->graph, DY, start, X(i)->type.shape);
    start[axis] += X(i)->type.shape.dim[axis];
  }
}
static void grad_gather(Gradient *g) {
  g->dx[0] = graph_node(g->graph, OP_SCATTER_ADD, (Node *[]){DY, X(1)}, 2, NULL, 0, &X(0)->type);
}
static void grad_put(Gradient *g) {
  Graph *graph = g->graph;
  int axis = (int)node_int(Y, ATTR_AXIS, 0);
  Node *zeros = make_const(graph, X(1)->type.dtype, X(1)->type.shape, 0);
  if (g->needed[0])
    g->dx[0] =
        graph_node(graph, OP_PUT, (Node *[]){DY, zeros, X(2)}, 3, Y->attr, Y->attr_count, NULL);
  if (!g->needed[1]) return;
  Shape line = shape_of(1, &X(1)->type.shape.dim[axis]);
  Node *places = make_iota(graph, X(2)->type.dtype, line, 0);
  g->dx[1] = make_take(graph, DY, make_binary(graph, OP_ADD, places, X(2)), axis);
}
static void grad_scatter_add(Gradient *g) {
  g->dx[0] = graph_node(g->graph, OP_GATHER, (Node *[]){DY, X(1)}, 2, NULL, 0, NULL);
}

/* ── the table ──────────────────────────────────────────────────────────────────────────────── */
#define grad_none NULL
GradientRule *const gradient_rule[OP_COUNT] = {
#define OP(ID, text, min, max, class, first, last, traits, attrs, rule, gradient, ...)             \
  [OP_##ID] = grad_##gradient,
#include "ir/ops.def"
#undef OP
};
