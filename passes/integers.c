/* integers: in evaluation, prediction and generation a product of two operands that were rounded
 * to a scale times an integer of at most 8 bits (fake_quant of frontend/std/quant.ft) becomes the
 * product of the integers, with the attribute `integers`, times the scales:
 *
 *   dot(n_a s_a, n_b s_b)  ->  (dot(n_a, n_b) s_a) s_b
 *
 * where s_a and s_b are one number, or one for each row of a, each column of b; a convolution
 * likewise, with a number for each output channel. All sums of integers fit into 32 bits, so that
 * the product is exact and is rounded to f32 once; the kernel is kernels/integer_x86.c. Where an
 * operand is select(is_known, n s, x), as FakeQuant has it before it has seen a value, the product
 * is that of select(is_known, n, x), and the scale select(is_known, s, 1): the attribute says what
 * the operands are as a rule, and the kernel computes what else it finds as it is.
 *
 * The largest values of a convolution are those of the largest sums, so a max-pooling right behind
 * one comes before its scales, and the kernel gives the pooled values only (integers_have_pool).
 *
 * Where only the second operand is rounded, and is weights, the product gets the attribute `rounded`, and the
 * graph stays as it is: kernels/rounded_x86.c, or rounded_ptx.c, packs the weights to 4 or 8 bits, from which it has the same values
 * (--disable=rounded leaves that out). On the CPU a product of bf16 or f16 by such weights takes them as they were before they
 * became narrow. Where the first operand was rounded too, but is no operand of integers as above, since weights have several scales
 * along what is summed up, it becomes its whole numbers, which the attribute tells, and its scale comes behind the product.
 *
 * What stays a rounded value loses what a straight-through gradient has left of itself.
 *
 * Training is left as it is: its gradients need the rounded values in f32. A product of integers of more steps
 * than there is room for, or whose sums might not fit, is none (passes/integers.h). */
#include "passes/integers.h"
#include "ir/match.h"
#include "passes/fuse.h"
#include "passes/pass.h"
#include "passes/prepare.h"
#include "passes/sparse.h"
#include <string.h>

enum {
  ROUNDED_LEAST_GROUP = 8, /* with fewer, scales are more bytes than numbers of 4 bits */
  MOST_MOVES = 4,          /* reshapes and transposes between the rounding and the product */
  MOST_STEPS = 8           /* that a scale is computed in */
};

/* An operand of a product that was rounded. */
typedef struct {
  Node *whole;     /* of integers */
  Node *scale;     /* one number, or of the operand's rank, and then 1 along what is summed over */
  Node *is_known;  /* bool, one; or NULL: always */
  Node *otherwise; /* where it is not known */
  int64_t low, high;
  const Node *move[MOST_MOVES]; /* from the product on */
  int moves;
  bool is_settled; /* the scale is behind the moves, too */
} Rounded;

/* A convolution that the pass has made, and its values. */
typedef struct {
  Node *values, *product;
  Rounded operand[2];
} Scaled;
typedef struct {
  Arena *arena;
  const bool *is_weight; /* by old node: it is made of weights alone */
  bool for_gpu, has_rounded;
  VEC(Scaled) scaled;    /* those whose values have the order of their sums */
} IntegersPass;

/* One number, however often: what it is a broadcast of, or a const; NULL: it is none. */
static Node *single(Node *node) {
  while (node->op == OP_BROADCAST) node = node->input[0];
  return shape_elements(&node->type.shape) == 1 || node->op == OP_CONST ? node : NULL;
}
static Node *one_number(Graph *graph, Node *single) {
  if (single->op == OP_CONST)
    return make_const(graph, single->type.dtype, shape_scalar(), node_float(single, ATTR_VALUE, 0));
  return make_reshape(graph, single, shape_scalar());
}

/* select(x < low, low, select(x > high, high, x)) of what was rounded. */
static bool match_integers(const Node *node, int64_t *low, int64_t *high) {
  double bound[2], again[2];
  if (node->op != OP_SELECT || node->input[2]->op != OP_SELECT) return false;
  const Node *inner = node->input[2], *below = node->input[0], *above = inner->input[0];
  const Node *x = inner->input[2];
  if (x->op != OP_ROUND || below->op != OP_LT || above->op != OP_GT || below->input[0] != x ||
      above->input[0] != x || !match_const(below->input[1], &bound[0]) ||
      !match_const(above->input[1], &bound[1]) || !match_const(node->input[1], &again[0]) ||
      !match_const(inner->input[1], &again[1]) || bound[0] != again[0] || bound[1] != again[1])
    return false;
  for (int i = 0; i < 2; i++)
    if (bound[i] < -128 || bound[i] > 255 || bound[i] != (double)(int64_t)bound[i]) return false;
  *low = (int64_t)bound[0];
  *high = (int64_t)bound[1];
  return integers_fit_byte(*low, *high);
}

/* What a scale is a broadcast of; NULL: it is no such thing. */
static Node *match_scale(Node *node) {
  if (single(node)) return single(node);
  return node->op == OP_BROADCAST ? node->input[0] : NULL;
}

/* n s, or n s + (t - t), which is what a straight-through gradient leaves of itself: fake_quant's t
 * is NaN only where n is, and so 0 is added. */
static bool match_rounded(Node *node, Rounded *r) {
  if (node->op == OP_ADD && node->input[1]->op == OP_SUB &&
      node->input[1]->input[0] == node->input[1]->input[1])
    node = node->input[0];
  if (node->op != OP_MUL) return false;
  for (int i = 0; i < 2; i++) {
    r->whole = node->input[i];
    r->scale = match_scale(node->input[1 - i]);
    if (r->scale && match_integers(r->whole, &r->low, &r->high)) return true;
  }
  return false;
}

static bool match_operand(Node *node, Rounded *r) {
  *r = (Rounded){0};
  while ((node->op == OP_RESHAPE || node->op == OP_TRANSPOSE) && r->moves < MOST_MOVES) {
    r->move[r->moves++] = node;
    node = node->input[0];
  }
  if (node->op == OP_SELECT && single(node->input[0]) && match_rounded(node->input[1], r)) {
    r->is_known = single(node->input[0]);
    r->otherwise = node->input[2];
  } else {
    return match_rounded(node, r);
  }
  return true;
}

/* Has the scale one number for all that is added up? `depth`: the dimension that is. */
static bool scales_sums(const Rounded *r, int depth) {
  return single(r->scale) || (!r->is_known && r->scale->type.shape.dim[depth] == 1);
}
/* The same for a convolution's weights, OIHW. */
static bool scales_channels(const Rounded *r) {
  const Shape *shape = &r->scale->type.shape;
  return single(r->scale) || (!r->is_known && shape->dim[1] * shape->dim[2] * shape->dim[3] == 1);
}

/* A scale for each row, whose last dimension is what is summed up, brought behind reshapes that keep rows as they are: [B, T, 1] of
 * what became [B T, k]. */
static void settle_scale(Graph *graph, Rounded *r) {
  Node *scale = r->scale;
  const Shape *rows = &r->whole->type.shape;
  if (!r->moves || single(scale) || scale->type.shape.rank != rows->rank || !rows->rank) return;
  for (int i = 0; i < rows->rank - 1; i++)
    if (scale->type.shape.dim[i] != rows->dim[i]) return;
  int64_t k = rows->dim[rows->rank - 1];
  if (scale->type.shape.dim[rows->rank - 1] != 1) return;
  for (int i = 0; i < r->moves; i++) {
    const Shape *to = &r->move[i]->type.shape;
    if (r->move[i]->op != OP_RESHAPE || !to->rank || to->dim[to->rank - 1] != k || !k) return;
  }
  Shape settled = r->move[0]->type.shape;
  settled.dim[settled.rank - 1] = 1;
  r->scale = make_reshape(graph, scale, settled);
  r->is_settled = true;
}

/* The operand of integers, behind the same moves. */
static Node *whole_operand(Graph *graph, const Rounded *r) {
  Node *x = r->whole;
  if (r->is_known) {
    x = make_select(graph, one_number(graph, r->is_known), x, r->otherwise);
  }
  for (int i = r->moves; i-- > 0;) {
    Node *input = x;
    x = graph_copy_node(graph, r->move[i], &input);
  }
  return x;
}

/* The product's values times the scale of one of its operands, whose dimensions `from` and `to`
 * change places in the result: one of them is 1. from = to: they stay. */
static Node *times_scale(Graph *graph, Node *product, const Rounded *r, int from, int to) {
  Node *scale = r->scale;
  if (single(scale)) {
    scale = one_number(graph, scale);
    if (r->is_known)
      scale = make_select(graph, one_number(graph, r->is_known), scale, make_like(graph, scale, 1));
  } else if (from != to) {
    Shape shape = scale->type.shape;
    shape.dim[from] = scale->type.shape.dim[to];
    shape.dim[to] = scale->type.shape.dim[from];
    scale = make_reshape(graph, scale, shape);
  }
  return make_binary(graph, OP_MUL, product, scale);
}

/* Has the scale the dimensions of the product's operand, or one number? */
static bool scale_is_in_place(const Rounded *r) { return !r->moves || r->is_settled || single(r->scale); }

/* Has the target a kernel for such a convolution, apart from its layout? A GPU's takes any window, and weights without
 * a sign, too; groups of few channels would leave it idle. */
static bool conv_is_of_kind(const ConvForm *f, const int64_t range[4], bool for_gpu) {
  bool is_kind = for_gpu ? f->groups == 1 || f->in >= INTEGERS_LEAST_CHANNELS
                         : f->groups == 1 && f->dilation[1] == 1 && range[3] <= 127;
  return is_kind && integers_suit(f->kernel_height * f->kernel_width * f->in, range);
}

/* Is there a kernel for such operands of the product? */
static bool may_be_integers(const Node *product, const Rounded r[2], bool for_gpu) {
  for (int i = 0; i < 2; i++)
    if (!scale_is_in_place(&r[i])) return false;
  int64_t range[4] = {r[0].low, r[0].high, r[1].low, r[1].high};
  if (product->op == OP_CONV) {
    ConvForm form = conv_form(product);
    return !form.is_nhwc && conv_is_of_kind(&form, range, for_gpu) && single(r[0].scale) && scales_channels(&r[1]);
  }
  DotForm form = dot_form(product);
  int rank = product->type.shape.rank;
  return integers_suit(form.k, range) && scales_sums(&r[0], form.ta ? rank - 2 : rank - 1) &&
         scales_sums(&r[1], form.tb ? rank - 1 : rank - 2);
}

/* ── pooling ────────────────────────────────────────────────────────────────────────────────── */
static Node *scale_base(Node *node) {
  while (node->op == OP_RESHAPE || node->op == OP_BROADCAST) node = node->input[0];
  return node;
}

/* Is it 0 or above, or NaN? */
static bool is_not_negative(Node *node, int steps) {
  double value;
  node = scale_base(node);
  if (match_const(node, &value)) return value >= 0;
  if (!steps) return false;
  Node *const *input = node->input;
  if (node->op == OP_MAX)
    return is_not_negative(input[0], steps - 1) || is_not_negative(input[1], steps - 1);
  if (node->op == OP_DIV)
    return is_not_negative(input[0], steps - 1) && is_not_negative(input[1], steps - 1);
  if (node->op != OP_SELECT || !is_not_negative(input[2], steps - 1)) return false;
  Node *test = scale_base(input[0]); /* where(x > 0, x, y) */
  return is_not_negative(input[1], steps - 1) ||
         (test->op == OP_GT && match_const(test->input[1], &value) && value >= 0 &&
          scale_base(test->input[0]) == scale_base(input[1]));
}

/* Does multiplying with the scale keep the order of sums? It is not negative. Where it is infinite, all
 * numbers, rounded from x (1 / scale), are 0 or NaN, and so are the sums. */
static bool scale_keeps_order(const Rounded *r) {
  double value;
  Node *scale = scale_base(r->scale);
  if (match_const(scale, &value)) return value >= 0 && value <= 3e38;
  const Node *x = r->whole->input[2]->input[2]->input[0];
  bool is_inverse = false;
  for (int i = 0; x->op == OP_MUL && i < 2; i++) {
    const Node *factor = scale_base(x->input[i]);
    is_inverse |= factor->op == OP_DIV && match_value(factor->input[0], 1) &&
                  scale_base(factor->input[1]) == scale;
  }
  return is_inverse && is_not_negative(scale, MOST_STEPS);
}

/* The pooling of values that the pass has made: their scales come behind it. NULL: it stays. */
static Node *pool_sums_first(IntegersPass *pass, Graph *fresh, const Node *old, Node *values) {
  for (int i = 0; i < pass->scaled.count; i++) {
    const Scaled *s = &pass->scaled.at[i];
    if (s->values != values) continue;
    Node *product = s->product;
    Node *pool = graph_copy_with(fresh, old, &product, &old->type, NULL, 0);
    return times_scale(fresh, times_scale(fresh, pool, &s->operand[0], 0, 0), &s->operand[1], 0, 1);
  }
  return NULL;
}

/* ── rounded weights ─────────────────────────────────────────────────────────────────────────── */

/* How many neighbours of what the product sums up share a scale of its second operand; 0: that is not seen. */
static int64_t steps_of_scale(const Rounded *r, const Node *product) {
  DotForm f = dot_form(product);
  bool is_inner = f.tb; /* is what is summed up the last dimension? */
  int last = r->whole->type.shape.rank - 1, moves = r->moves;
  const Shape *scales = &r->scale->type.shape;
  if (single(r->scale)) return f.k;
  if (moves && r->move[moves - 1]->op == OP_RESHAPE) moves--;
  for (int i = 0; i < moves; i++) {
    if (!match_swap_of_last_two(r->move[i])) return 0;
    is_inner = !is_inner;
  }
  if (moves == r->moves) return last > 0 && scales->dim[is_inner ? last : last - 1] == 1 ? f.k : 0;
  int64_t run = 1;
  while (last >= 0 && scales->dim[last] == 1) run *= r->whole->type.shape.dim[last--];
  if (!is_inner || !run || !f.k) return 0;
  return f.k % run == 0 ? run : run % f.k == 0 ? f.k : 0;
}

/* What became bf16 or f16 here, behind the same moves; NULL: it did not. */
static Node *before_narrow(Graph *fresh, const Node *node) {
  bool is_cast = node->op == OP_CAST && dtype_is_narrow(node->type.dtype);
  if (is_cast) return node->input[0]->type.dtype == DT_F32 ? node->input[0] : NULL;
  if (node->op != OP_RESHAPE && node->op != OP_TRANSPOSE) return NULL;
  Node *input = before_narrow(fresh, node->input[0]);
  return input ? graph_copy_as(fresh, node, &input, &(Type){DT_F32, node->type.shape}) : NULL;
}

/* The product with the attribute, where its second operand is such weights; NULL: it is not. */
static Node *with_rounded(Graph *fresh, const Node *old, Node **inputs, const Rounded *weights, int first) {
  if (old->op != OP_DOT || weights->is_known || weights->high > 127 ||
      !shape_elements(&old->type.shape))
    return NULL;
  int64_t numbers[ROUNDED_COUNT] = {weights->low, weights->high, steps_of_scale(weights, old), first};
  if (numbers[ROUNDED_GROUP] < ROUNDED_LEAST_GROUP) return NULL;
  Attr rounded = attr_ints(ATTR_ROUNDED, numbers, ROUNDED_COUNT);
  Node *made = graph_copy_with(fresh, old, inputs, &old->type, &rounded, 1);
  node_drop_attr(made, ATTR_RESULT); /* that of its operands */
  return made;
}

/* The same, of the whole numbers of a first operand that was rounded for each row; NULL: it was not. */
static Node *with_whole_rows(Graph *fresh, const Node *old, Node **inputs, const Rounded r[2]) {
  int last = old->type.shape.rank - 1;
  bool is_byte = r[0].high > 127;
  if (old->op != OP_DOT || node_int(old, ATTR_TRANS_A, 0) || !integers_fit_byte(r[0].low, r[0].high) || !scale_is_in_place(&r[0]) ||
      !scales_sums(&r[0], last))
    return NULL;
  Node *rows[] = {whole_operand(fresh, &r[0]), inputs[1]};
  Node *product = with_rounded(fresh, old, rows, &r[1], (is_byte ? ROUNDED_BYTE : ROUNDED_WHOLE) + (r[0].is_known ? 1 : 0));
  return product ? times_scale(fresh, product, &r[0], last, last) : NULL;
}

/* The same of a product of narrow operands, whose sums are f32. */
static Node *with_narrow_rounded(const IntegersPass *pass, Graph *fresh, const Node *old, Node **inputs) {
  DType dtype = inputs[0]->type.dtype;
  Rounded r[2];
  if (!pass->has_rounded || pass->for_gpu || old->op != OP_DOT || !pass->is_weight[old->input[1]->id] || inputs[1]->type.dtype != dtype)
    return NULL;
  Node *wide[] = {before_narrow(fresh, inputs[0]), before_narrow(fresh, inputs[1])}, *made = NULL;
  if (!wide[1] || !match_operand(wide[1], &r[1])) return NULL;
  if (wide[0] && match_operand(wide[0], &r[0])) {
    settle_scale(fresh, &r[0]);
    made = with_whole_rows(fresh, old, wide, r);
  }
  wide[0] = make_cast(fresh, inputs[0], DT_F32);
  return made ? made : with_rounded(fresh, old, wide, &r[1], dtype == DT_BF16 ? ROUNDED_BF16 : ROUNDED_ANY);
}

bool rounded_has_kernel(const Node *contraction) {
  return node_attr(contraction, ATTR_ROUNDED) && contraction->op == OP_DOT &&
         contraction->type.dtype == DT_F32 && contraction->input[0]->type.dtype == DT_F32 &&
         contraction->input[1]->type.dtype == DT_F32 && shape_elements(&contraction->type.shape);
}

bool rounded_in_groups(const Node *contraction) {
  const Attr *rounded = node_attr(contraction, ATTR_ROUNDED);
  return rounded && rounded->ints[ROUNDED_GROUP] < dot_form(contraction).k;
}

/* By node: is it made of parameters, states of the model that the graph does not write, and constants alone? */
static bool *mark_weights(const Graph *graph, Arena *arena) {
  bool *is_weight = ARENA_ARRAY(arena, bool, graph->nodes.count + 1);
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    bool is = node_is_leaf(node) ? node->op == OP_CONST || prepare_is_weight(graph, node)
                                 : node->op != OP_RANDOM && node->op != OP_ASSIGN;
    for (int k = 0; k < node->input_count && is; k++) is = is_weight[node->input[k]->id];
    is_weight[i] = is;
  }
  return is_weight;
}

/* ── values that no product takes as integers ───────────────────────────────────────────────── */
/* Is it what fake_quant's gradients go through, where(inside, x, 0) + scale where(inside, n - v, n)? Within the range x is finite, and n is; beyond
 * it n is the end of the range. So it is finite, unless n or n scale is not. */
static bool is_slope(const Node *slope, const Rounded *r) {
  const Node *n = r->whole, *rounded = n->input[2]->input[2], *v = rounded->input[0];
  if (slope->op != OP_ADD || slope->input[0]->op != OP_SELECT || slope->input[1]->op != OP_MUL || v->op != OP_MUL) return false;
  const Node *x = slope->input[0], *inside = x->input[0];
  if (!match_value(x->input[2], 0) || inside->op != OP_EQ || inside->input[0] != n || inside->input[1] != rounded ||
      (x->input[1] != v->input[0] && x->input[1] != v->input[1]))
    return false;
  for (int i = 0; i < 2; i++) {
    const Node *part = slope->input[1]->input[i];
    if (part->op == OP_SELECT && part->input[0] == inside && part->input[1]->op == OP_SUB && part->input[1]->input[0] == n &&
        part->input[1]->input[1] == v && part->input[2] == n)
      return scale_base(slope->input[1]->input[1 - i]) == scale_base(r->scale);
  }
  return false;
}

/* n s, for n s + (slope - slope): nothing is left of it but the arithmetic. */
static Node *without_slope(Node **inputs) {
  Rounded r;
  bool is_rest = inputs[1]->op == OP_SUB && inputs[1]->input[0] == inputs[1]->input[1] && inputs[0]->op == OP_MUL;
  return is_rest && match_rounded(inputs[0], &r) && is_slope(inputs[1]->input[0], &r) ? inputs[0] : NULL;
}

static Node *integers_visit(Graph *fresh, const Node *old, Node **inputs, void *context) {
  IntegersPass *pass = context;
  Rounded r[2];
  if (old->op == OP_ADD) return without_slope(inputs);
  if (old->op == OP_POOL_MAX) return pool_sums_first(pass, fresh, old, inputs[0]);
  if ((old->op != OP_DOT && old->op != OP_CONV) || old->type.dtype != DT_F32 ||
      node_attr(old, ATTR_INTEGERS))
    return NULL;
  if (dtype_is_narrow(inputs[0]->type.dtype)) return with_narrow_rounded(pass, fresh, old, inputs);
  bool is_rounded[2];
  for (int i = 0; i < 2; i++)
    is_rounded[i] = inputs[i]->type.dtype == DT_F32 && match_operand(inputs[i], &r[i]);
  if (is_rounded[0]) settle_scale(fresh, &r[0]);
  if (!is_rounded[0] || !is_rounded[1] || !may_be_integers(old, r, pass->for_gpu)) {
    if (!is_rounded[1] || inputs[0]->type.dtype != DT_F32 || !pass->has_rounded || !pass->is_weight[old->input[1]->id]) return NULL;
    Node *made = is_rounded[0] ? with_whole_rows(fresh, old, inputs, r) : NULL;
    return made ? made : with_rounded(fresh, old, inputs, &r[1], ROUNDED_ANY);
  }
  int64_t numbers[INTEGERS_COUNT] = {r[0].low, r[0].high, r[1].low, r[1].high, !r[1].is_known};
  Node *operand[] = {whole_operand(fresh, &r[0]), whole_operand(fresh, &r[1])};
  Attr integers = attr_ints(ATTR_INTEGERS, numbers, INTEGERS_COUNT);
  Node *product = graph_copy_with(fresh, old, operand, &old->type, &integers, 1);
  int last = old->type.shape.rank - 1;
  if (old->op == OP_CONV) { /* [O,1,1,1] of the weights is [1,O,1,1] of images */
    Scaled made = {NULL, product, {r[0], r[1]}};
    made.values = times_scale(fresh, times_scale(fresh, product, &r[0], 0, 0), &r[1], 0, 1);
    if (scale_keeps_order(&r[0]) && scale_keeps_order(&r[1]))
      VEC_PUSH(pass->arena, pass->scaled, made);
    return made.values;
  }
  product =
      times_scale(fresh, product, &r[0], last, node_int(old, ATTR_TRANS_A, 0) ? last - 1 : last);
  return times_scale(fresh, product, &r[1], last, node_int(old, ATTR_TRANS_B, 0) ? last - 1 : last);
}

/* On the CPU a row of a window is read as one run, and there must be room for what an output row sees; oneDNN has the
 * others. */
static bool conv_has_kernel(const Node *conv, const int64_t *range, bool for_gpu) {
  ConvForm f = conv_form(conv);
  if (!f.is_nhwc || !conv_is_of_kind(&f, range, for_gpu)) return false;
  if (for_gpu) return true;
  int64_t length = f.kernel_width * f.in, height = (f.kernel_height - 1) * f.dilation[0] + 1;
  int64_t width = ((f.out_width - 1) * f.stride[1] * f.in + length) * 2;
  return height <= INTEGERS_MOST_HEIGHT && height * width <= INTEGERS_ROOM;
}

bool integers_have_kernel(const Node *contraction, bool for_gpu) {
  const Attr *range = node_attr(contraction, ATTR_INTEGERS);
  if (!range || range->count != INTEGERS_COUNT || contraction->type.dtype != DT_F32 ||
      contraction->input[0]->type.dtype != DT_F32 || contraction->input[1]->type.dtype != DT_F32 ||
      !shape_elements(&contraction->type.shape))
    return false;
  return contraction->op == OP_CONV ? conv_has_kernel(contraction, range->ints, for_gpu)
                                    : integers_suit(dot_form(contraction).k, range->ints);
}

bool integers_have_pool(const Node *pool) {
  const Node *conv = pool->input[0];
  if (pool->op != OP_POOL_MAX || conv->op != OP_CONV || !integers_have_kernel(conv, false)) return false;
  const int64_t *kernel = node_attr(pool, ATTR_KERNEL)->ints;
  const int64_t *stride = node_attr(pool, ATTR_STRIDE)->ints;
  const int64_t *padding = node_attr(pool, ATTR_PADDING)->ints;
  if (strcmp(node_str(pool, ATTR_LAYOUT), "nhwc")) return false;
  for (int i = 0; i < 2; i++)
    if (kernel[i] != stride[i] || kernel[i] > INTEGERS_MOST_POOL || padding[i] || padding[i + 2])
      return false;
  ConvForm f = conv_form(conv);
  int64_t height = (kernel[0] - 1) * f.stride[0] + (f.kernel_height - 1) * f.dilation[0] + 1;
  int64_t width = ((f.out_width - 1) * f.stride[1] * f.in + f.kernel_width * f.in) * 2;
  return kernel[0] * kernel[1] > 1 && f.out_height >= kernel[0] && f.out_width >= kernel[1] &&
         height <= INTEGERS_MOST_HEIGHT && height * width <= INTEGERS_ROOM;
}

int integers_packed_operand(const Node *step, bool for_gpu) {
  const Node *contraction = kernel_contraction(step);
  if (!contraction) return -1;
  bool is_sure = integers_have_kernel(contraction, for_gpu) &&
                 node_attr(contraction, ATTR_INTEGERS)->ints[INTEGERS_SURE];
  if (!is_sure && !rounded_has_kernel(contraction) && !sparse_has_kernel(contraction)) return -1;
  int packed = kernel_operand(step, 1);
  if (step->op != OP_FUSED && step->input[0] == step->input[1]) return -1;
  for (int i = 0; step->op == OP_FUSED && i < step->body->nodes.count; i++) {
    const Node *node = step->body->nodes.at[i];
    for (int k = 0; k < node->input_count; k++) {
      const Node *operand = node->input[k];
      if (operand->op == OP_ARG && node_int(operand, ATTR_INDEX, 0) == packed &&
          (node != contraction || k != 1))
        return -1; /* the epilogue, or the first operand, reads it too */
    }
  }
  return packed;
}

Graph *pass_integers(PassContext *context, Graph *graph) {
  if (!graph_find_op(graph, OP_ROUND)) return graph;
  IntegersPass pass = {.arena = context->scratch,
                       .for_gpu = context->for_gpu,
                       .has_rounded = !text_has_word(context->left_out, "rounded"),
                       .is_weight = mark_weights(graph, context->scratch)};
  return graph_rewrite(graph, integers_visit, &pass);
}
