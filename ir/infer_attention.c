/* infer_attention: the shape rules of attention and its gradient. Everything has four dimensions
 * here: batch, heads, positions, features; the front end brings other forms to this one. What is
 * added to scores, and logarithms of sums, are f32 where the rest is narrower. */
#include "ir/infer.h"

enum { B, H, T, D };

static const Type *type_of(const Infer *in, int input) { return &in->input[input]->type; }

/* q, k and v stand at inputs `at` and following. */
static bool check_operands(Infer *in, int at) {
  const Type *q = type_of(in, at), *k = type_of(in, at + 1), *v = type_of(in, at + 2);
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
  DType dtype = type_of(in, q)->dtype;
  return dtype_bytes(dtype) < 4 ? DT_F32 : dtype;
}

/* A mask of dimensions that are 1 or those of the scores [B,H,T,S]; S is always whole. */
static bool check_mask(Infer *in, int at, int q) {
  if (in->input_count <= at) return true;
  const Type *mask = type_of(in, at);
  const Shape *a = &type_of(in, q)->shape, *b = &type_of(in, q + 1)->shape;
  if (mask->dtype != DT_BOOL && mask->dtype != type_of_scores(in, q))
    return infer_fail(in, "the mask of attention must be bool or %s, not %s",
                      dtype_text(type_of_scores(in, q)), dtype_text(mask->dtype));
  bool fits = mask->shape.rank == 4 && mask->shape.dim[D] == b->dim[T];
  for (int i = 0; i < 3 && fits; i++)
    fits = mask->shape.dim[i] == 1 || mask->shape.dim[i] == a->dim[i];
  Shape scores = *a;
  scores.dim[D] = b->dim[T];
  return fits || infer_fail(in, "the mask of attention, %s, does not fit scores %s",
                            infer_show_shape(in, &mask->shape), infer_show_shape(in, &scores));
}

bool infer_attention(Infer *in) {
  if (!check_operands(in, 0) || !check_mask(in, 3, 0) || !infer_need_attr(in, ATTR_SCALE))
    return false;
  *in->out = *type_of(in, 0);
  in->out->shape.dim[D] = type_of(in, 2)->shape.dim[D];
  return true;
}

bool infer_attention_grad(Infer *in) {
  if (!check_operands(in, 1) || !check_mask(in, 6, 1) || !infer_need_attr(in, ATTR_SCALE))
    return false;
  Type out = *type_of(in, 1);
  out.shape.dim[D] = type_of(in, 3)->shape.dim[D];
  Type lse = {type_of_scores(in, 1), out.shape};
  lse.shape.dim[D] = 1;
  if (!type_equal(type_of(in, 0), &out) || !type_equal(type_of(in, 4), &out))
    return infer_fail(in, "the result of attention and its gradient must be %s",
                      infer_show(in, &out));
  if (!type_equal(type_of(in, 5), &lse))
    return infer_fail(in, "the log-sum-exp of attention must be %s, not %s", infer_show(in, &lse),
                      infer_show(in, type_of(in, 5)));
  *in->out = *type_of(in, 1);
  return true;
}
