/* infer_attention: the shape rules of attention and its gradient. Everything has four dimensions
 * here: batch, heads, positions, features; the front end brings other forms to this one.
 * passes/heads.c makes it three: batch, positions, features of all heads. What is added to scores,
 * and logarithms of sums, are f32 where the rest is narrower. */
#include "ir/infer.h"
#include <float.h>

enum { B, H, T, D };

/* The operands that tell what is drawn for dropout, the last of `behind` ones behind q, k, v and what backward reads besides. */
static int count_draws(bool drops, int behind) {
  enum { OWN = 4 }; /* seed, step, first, stream */
  return !drops ? 0 : behind >= OWN ? OWN : 1;
}

AttentionForm attention_form(const Node *node) {
  int at = node->op == OP_ATTENTION_GRAD, mask_at = at ? 6 : 3;
  int draws = count_draws(node_attr(node, ATTR_DROPOUT) != NULL, node->input_count - mask_at);
  const Shape *q = &node->input[at]->type.shape, *k = &node->input[at + 1]->type.shape;
  const Attr *heads = node_attr(node, ATTR_HEADS), *start = node_attr(node, ATTR_START);
  AttentionForm f = {.batch = q->dim[B], .is_beside = heads != NULL};
  f.heads = heads ? heads->ints[0] : q->dim[H];
  f.groups = heads ? heads->ints[1] : k->dim[H];
  f.rows = q->dim[heads ? 1 : T];
  f.keys = k->dim[heads ? 1 : T];
  f.features = heads ? heads->ints[2] : q->dim[D];
  f.values = heads ? heads->ints[2] : node->input[at + 2]->type.shape.dim[D];
  for (int i = 0; i < 3 && heads; i++) f.start[i] = start->ints[i];
  f.mask = node->input_count - draws > mask_at ? mask_at : -1;
  f.draws = draws ? node->input_count - draws : -1;
  if (f.mask < 0) return f;
  const int64_t *dim = node->input[mask_at]->type.shape.dim;
  f.mask_row = dim[2] > 1 ? f.keys : 0;
  f.mask_head = dim[1] > 1 ? dim[2] * f.keys : 0;
  f.mask_batch = dim[0] > 1 ? dim[1] * dim[2] * f.keys : 0;
  return f;
}

bool attention_draws_itself(const Node *node) {
  AttentionForm form = attention_form(node);
  return form.draws >= 0 && node->input_count - form.draws > 1;
}

int node_step_operand(const Node *node) {
  if (node->op == OP_RANDOM) return 1;
  bool is_attention = node->op == OP_ATTENTION || node->op == OP_ATTENTION_GRAD;
  return is_attention && attention_draws_itself(node) ? attention_form(node).draws + 1 : -1;
}

static HeadPlace head_place(const AttentionForm *f, int argument, const Type *type, int64_t start) {
  const int64_t *dim = type->shape.dim;
  if (f->is_beside) return (HeadPlace){argument, start, dim[1] * dim[2], f->features, dim[2]};
  return (HeadPlace){argument, 0, dim[1] * dim[2] * dim[3], dim[2] * dim[3], dim[3]};
}

void attention_places(const Node *node, HeadPlace place[TENSORS]) {
  AttentionForm f = attention_form(node);
  int at = node->op == OP_ATTENTION_GRAD, results = node->input_count;
  Type y = node_result_type(node, 0);
  for (int i = 0; i < 3; i++)
    place[TENSOR_QUERY + i] = head_place(&f, at + i, &node->input[at + i]->type, f.start[i]);
  if (!at) {
    for (int i = TENSOR_OUT; i < TENSORS; i++) place[i] = head_place(&f, results, &y, 0);
    return;
  }
  bool is_joined = node_int(node, ATTR_JOINED, 0);
  Type dk = is_joined ? y : node_result_type(node, 1);
  int64_t end = is_joined ? f.heads * f.features : 0, more = is_joined ? f.groups * f.features : 0;
  place[TENSOR_SLOPE] = head_place(&f, 0, &node->input[0]->type, 0);
  place[TENSOR_OUT] = head_place(&f, 4, &node->input[4]->type, 0);
  place[TENSOR_QUERY_GRAD] = head_place(&f, results, &y, 0);
  place[TENSOR_KEY_GRAD] = head_place(&f, results + !is_joined, &dk, end);
  place[TENSOR_VALUE_GRAD] = head_place(&f, results + 2 * !is_joined, &dk, end + more);
}

/* q, k and v stand at inputs `at` and following. */
static bool check_operands(Infer *in, int at) {
  const Type *q = infer_operand(in, at), *k = infer_operand(in, at + 1),
             *v = infer_operand(in, at + 2);
  if (!dtype_is_float(q->dtype) || k->dtype != q->dtype || v->dtype != q->dtype)
    return infer_fail(in,
                      "attention needs floating-point q, k and v of one type, not %s, %s and %s",
                      infer_show(in, q), infer_show(in, k), infer_show(in, v));
  const Shape *a = &q->shape, *b = &k->shape, *c = &v->shape;
  if (a->rank != 4 || b->rank != 4 || c->rank != 4)
    return infer_fail(in, "attention needs q, k and v of four dimensions, not %s, %s and %s",
                      infer_show_shape(in, a), infer_show_shape(in, b), infer_show_shape(in, c));
  if (b->dim[B] != a->dim[B] || c->dim[B] != a->dim[B] || c->dim[H] != b->dim[H] ||
      c->dim[T] != b->dim[T])
    return infer_fail(in, "the shapes of attention disagree: q %s, k %s, v %s",
                      infer_show_shape(in, a), infer_show_shape(in, b), infer_show_shape(in, c));
  if (b->dim[D] != a->dim[D])
    return infer_fail(in, "q and k of attention have %lld and %lld features", (long long)a->dim[D],
                      (long long)b->dim[D]);
  if (b->dim[H] ? a->dim[H] % b->dim[H] != 0 : a->dim[H] != 0)
    return infer_fail(in, "%lld heads of q cannot share %lld heads of k and v",
                      (long long)a->dim[H], (long long)b->dim[H]);
  return true;
}

static DType type_of_scores(const Infer *in, int q) {
  DType dtype = infer_operand(in, q)->dtype;
  return dtype_bytes(dtype) < 4 ? DT_F32 : dtype;
}

/* The draws, or from what they are drawn. */
static bool check_draws(Infer *in, int at, int count, double share, const Shape *scores) {
  Type want[] = {{DT_I64, shape_scalar()}, {DT_I64, shape_scalar()}, {DT_I64, *scores}, {DT_I64, shape_scalar()}};
  if (count == 1) want[0] = (Type){DT_F32, *scores};
  want[2].shape.dim[T] = want[2].shape.dim[D] = 1;
  if (!(share > 0 && share < 1))
    return infer_fail(in, "'dropout' of %s is %g, not between 0 and 1", in->name, share);
  for (int i = 0; i < count; i++)
    if (!type_equal(infer_operand(in, at + i), &want[i]))
      return infer_fail(in, "operand %d of %s must be %s, not %s", at + i, in->name, infer_show(in, &want[i]),
                        infer_show(in, infer_operand(in, at + i)));
  return true;
}

/* A mask of dimensions that are 1 or those of the scores [B,H,T,S]; S is always whole. */
static bool check_mask(Infer *in, int q, const Shape *scores) {
  int at = q ? 6 : 3;
  const Attr *dropout = infer_attr(in, ATTR_DROPOUT);
  int draws = count_draws(dropout != NULL, in->input_count - at), left = in->input_count - draws;
  if (left < at || left > at + 1)
    return infer_fail(in, "%s cannot have %d operands", in->name, in->input_count);
  if (draws && !check_draws(in, left, draws, dropout->f, scores)) return false;
  if (left == at) return true;
  const Type *mask = infer_operand(in, at);
  if (mask->dtype != DT_BOOL && mask->dtype != type_of_scores(in, q))
    return infer_fail(in, "the mask of attention must be bool or %s, not %s",
                      dtype_text(type_of_scores(in, q)), dtype_text(mask->dtype));
  bool fits = mask->shape.rank == 4 && mask->shape.dim[3] == scores->dim[3];
  for (int i = 0; i < 3 && fits; i++)
    fits = mask->shape.dim[i] == 1 || mask->shape.dim[i] == scores->dim[i];
  return fits || infer_fail(in, "the mask of attention, %s, does not fit scores %s",
                            infer_show_shape(in, &mask->shape), infer_show_shape(in, scores));
}

static bool check_apart_mask(Infer *in, int q) {
  Shape scores = infer_operand(in, q)->shape;
  scores.dim[D] = infer_operand(in, q + 1)->shape.dim[T];
  return check_mask(in, q, &scores);
}

/* ── heads side by side ──────────────────────────────────────────────────────────────────────── */
/* The attributes heads and start, and whether q, k and v have what they say; shape: of the scores
 * and so of the mask, [B,H,T,S]. */
static bool check_beside(Infer *in, int at, Shape *scores) {
  const Attr *heads = infer_need_ints(in, ATTR_HEADS, 3),
             *start = infer_need_ints(in, ATTR_START, 3);
  if (!heads || !start) return false;
  const Type *q = infer_operand(in, at);
  for (int i = 0; i < 3; i++) {
    const Type *x = infer_operand(in, at + i);
    const int64_t *dim = x->shape.dim, most = (int64_t)1 << 20;
    if (!dtype_is_float(x->dtype) || x->dtype != q->dtype || x->shape.rank != 3 ||
        dim[0] != q->shape.dim[0] || (i == 2 && dim[1] != infer_operand(in, at + 1)->shape.dim[1]))
      return infer_fail(in, "attention cannot have %s as its operand %d", infer_show(in, x),
                        at + i);
    if (heads->ints[i] < 1 || heads->ints[i] > most || start->ints[i] < 0 ||
        start->ints[i] > dim[2] || heads->ints[i != 0] * heads->ints[2] > dim[2] - start->ints[i])
      return infer_fail(in, "the heads of attention are not in its operand %d, %s", at + i,
                        infer_show(in, x));
  }
  if (heads->ints[0] % heads->ints[1])
    return infer_fail(in, "%lld heads of q cannot share %lld heads of k and v",
                      (long long)heads->ints[0], (long long)heads->ints[1]);
  const int64_t *dim = q->shape.dim;
  *scores = (Shape){4, {dim[0], heads->ints[0], dim[1], infer_operand(in, at + 1)->shape.dim[1]}};
  return check_mask(in, at, scores);
}

static bool infer_beside(Infer *in) {
  Shape scores;
  if (!check_beside(in, 0, &scores)) return false;
  const int64_t *heads = infer_attr(in, ATTR_HEADS)->ints;
  *in->out = *infer_operand(in, 0);
  in->out->shape.dim[2] = heads[0] * heads[2];
  return true;
}

static bool infer_grad_beside(Infer *in) {
  Shape scores;
  if (!check_beside(in, 1, &scores)) return false;
  const int64_t *heads = infer_attr(in, ATTR_HEADS)->ints;
  const Attr *joined = infer_attr(in, ATTR_JOINED);
  Type out = *infer_operand(in, 1), lse = out;
  out.shape.dim[2] = heads[0] * heads[2];
  lse = (Type){type_of_scores(in, 1), scores};
  lse.shape.dim[3] = 1;
  if (!type_equal(infer_operand(in, 0), &out) || !type_equal(infer_operand(in, 4), &out) ||
      !type_equal(infer_operand(in, 5), &lse))
    return infer_fail(in, "the result of attention and its gradient must be %s, its log-sum-exp %s",
                      infer_show(in, &out), infer_show(in, &lse));
  *in->out = out;
  if (!joined || !joined->i) return true;
  in->out->shape.dim[2] = (heads[0] + 2 * heads[1]) * heads[2];
  return scores.dim[2] == scores.dim[3] ||
         infer_fail(in, "gradients of %lld rows and %lld keys cannot be joined",
                    (long long)scores.dim[2], (long long)scores.dim[3]);
}

static bool check_apart(Infer *in) {
  return (!infer_attr(in, ATTR_JOINED) && !infer_attr(in, ATTR_START)) ||
         infer_fail(in, "'start' and 'joined' of %s need the attribute 'heads'", in->name);
}

static bool check_scale_and_cap(Infer *in) {
  const Attr *cap = infer_attr(in, ATTR_SOFTCAP);
  if (!infer_need_attr(in, ATTR_SCALE)) return false;
  return !cap || (cap->f >= FLT_MIN && cap->f <= FLT_MAX) ||
         infer_fail(in, "'softcap' of %s is %g, not a number above 0 that f32 can hold", in->name, cap->f);
}

bool infer_attention(Infer *in) {
  if (infer_attr(in, ATTR_HEADS)) return check_scale_and_cap(in) && infer_beside(in);
  if (!check_apart(in) || !check_operands(in, 0) || !check_apart_mask(in, 0) ||
      !check_scale_and_cap(in))
    return false;
  *in->out = *infer_operand(in, 0);
  in->out->shape.dim[D] = infer_operand(in, 2)->shape.dim[D];
  return true;
}

bool infer_attention_grad(Infer *in) {
  if (infer_attr(in, ATTR_HEADS)) return check_scale_and_cap(in) && infer_grad_beside(in);
  if (!check_apart(in) || !check_operands(in, 1) || !check_apart_mask(in, 1) ||
      !check_scale_and_cap(in))
    return false;
  Type out = *infer_operand(in, 1);
  out.shape.dim[D] = infer_operand(in, 3)->shape.dim[D];
  Type lse = {type_of_scores(in, 1), out.shape};
  lse.shape.dim[D] = 1;
  if (!type_equal(infer_operand(in, 0), &out) || !type_equal(infer_operand(in, 4), &out))
    return infer_fail(in, "the result of attention and its gradient must be %s",
                      infer_show(in, &out));
  if (!type_equal(infer_operand(in, 5), &lse))
    return infer_fail(in, "the log-sum-exp of attention must be %s, not %s", infer_show(in, &lse),
                      infer_show(in, infer_operand(in, 5)));
  *in->out = *infer_operand(in, 1);
  return true;
}
