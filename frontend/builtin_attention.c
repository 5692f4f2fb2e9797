/* builtin_attention: attention(q, k, v, causal, mask, scale, softcap, bias, dropout). The graph's operation has
 * exactly four dimensions: leading ones become one batch, missing heads become one head. With a bias,
 * which no kernel has, attention is written in products (attention_written.c). */
#include "frontend/attention_written.h"
#include <float.h>
#include <math.h>

enum { Q, K, V, CAUSAL, MASK, SCALE, CAP, BIAS, DROPOUT };

static const char *show_shape(Call *call, const Node *x) {
  char text[TYPE_TEXT];
  return arena_strdup(call->b->arena, type_text(&x->type, text));
}

/* [..., H, T, D] -> [B, H, T, D]; [T, D] has one head. */
static Shape four(const Shape *shape) {
  Shape out = {4, {1, 1, 1, 1}};
  for (int i = 0; i < shape->rank; i++) {
    int at = 4 - shape->rank + i;
    if (at <= 0)
      out.dim[0] *= shape->dim[i];
    else
      out.dim[at] = shape->dim[i];
  }
  return out;
}

static bool check_shapes(Call *call, const Node *q, const Node *k, const Node *v) {
  const Shape *a = &q->type.shape, *b = &k->type.shape, *c = &v->type.shape;
  int rank = a->rank;
  if (k->type.dtype != q->type.dtype || v->type.dtype != q->type.dtype)
    return builder_fail(call->b, call->loc, "attention() needs q, k and v of one type: %s, %s, %s",
                        show_shape(call, q), show_shape(call, k), show_shape(call, v));
  bool fit = rank >= 2 && b->rank == rank && c->rank == rank;
  for (int i = 0; i + 3 < rank && fit; i++) fit = b->dim[i] == a->dim[i] && c->dim[i] == a->dim[i];
  fit = fit && b->dim[rank - 1] == a->dim[rank - 1] && c->dim[rank - 2] == b->dim[rank - 2];
  if (fit && rank > 2) fit = c->dim[rank - 3] == b->dim[rank - 3];
  if (!fit)
    return builder_fail(call->b, call->loc,
                        "shapes do not agree: attention() of q %s, k %s, v %s; they are "
                        "[..., heads, T, D], [..., kv heads, S, D], [..., kv heads, S, E]",
                        show_shape(call, q), show_shape(call, k), show_shape(call, v));
  int64_t heads = rank > 2 ? a->dim[rank - 3] : 1, groups = rank > 2 ? b->dim[rank - 3] : 1;
  return (groups ? heads % groups == 0 : heads == 0) ||
         builder_fail(call->b, call->loc,
                      "%lld heads of q cannot share %lld heads of k and v: not a multiple",
                      (long long)heads, (long long)groups);
}

/* The mask or bias with four dimensions, each 1 or that of the scores; its last is always whole. */
static Node *read_mask(Call *call, int index, const Node *q, const Node *k) {
  Node *mask = builtin_tensor(call, index);
  const char *what = index == MASK ? "mask" : "bias";
  if (!mask) return NULL;
  Shape scores = q->type.shape, have = mask->type.shape, whole = {.rank = 0};
  int rank = scores.rank;
  scores.dim[rank - 1] = k->type.shape.dim[rank - 2];
  bool is_flag = mask->type.dtype == DT_BOOL;
  if (index == BIAS && mask->type.dtype != q->type.dtype) {
    builder_fail(call->b, call->at[BIAS], "a bias is %s, as q is, not %s", dtype_text(q->type.dtype),
                 show_shape(call, mask));
    return NULL;
  }
  if (!is_flag && mask->type.dtype != q->type.dtype) {
    builder_fail(call->b, call->at[MASK],
                 "a mask is bool (true: look at it) or %s (added to the scores), not %s",
                 dtype_text(q->type.dtype), show_shape(call, mask));
    return NULL;
  }
  bool fits = have.rank <= rank, is_lead_whole = true, is_lead_one = true;
  whole.rank = rank;
  for (int i = 0; i < rank && fits; i++) {
    int at = i - (rank - have.rank);
    whole.dim[i] = at < 0 ? 1 : have.dim[at];
    fits = whole.dim[i] == 1 || whole.dim[i] == scores.dim[i];
    if (i + 3 < rank) {
      is_lead_whole &= whole.dim[i] == scores.dim[i];
      is_lead_one &= whole.dim[i] == 1;
    }
  }
  if (!fits) {
    char text[TYPE_TEXT];
    builder_fail(call->b, call->at[index], "a %s %s does not broadcast to the scores %s", what,
                 show_shape(call, mask), shape_text(&scores, text));
    return NULL;
  }
  if (!is_flag && dtype_bytes(mask->type.dtype) < 4) /* scores are f32 */
    mask = tensor_cast(call->b, mask, DT_F32, call->loc);
  if (mask) mask = tensor_reshape(call->b, mask, whole, call->loc);
  for (int i = 0; i + 3 < rank && !is_lead_whole && !is_lead_one; i++) whole.dim[i] = scores.dim[i];
  whole.dim[rank - 1] = scores.dim[rank - 1];
  mask = mask ? tensor_broadcast(call->b, mask, whole, call->loc) : NULL;
  return mask ? tensor_reshape(call->b, mask, four(&whole), call->loc) : NULL;
}

/* The arguments that few calls have: an absent cap is 0, an absent bias NULL. */
static bool read_more(Call *call, const Node *q, const Node *k, AttentionMore *out) {
  for (int i = CAP; i <= DROPOUT; i++)
    if (call->arg[i].kind == VALUE_NONE) call->arg[i].kind = VALUE_ABSENT;
  if (!builtin_number(call, CAP, 0, &out->cap) || !builtin_number(call, DROPOUT, 0, &out->dropout))
    return false;
  if (call->arg[CAP].kind != VALUE_ABSENT && !(out->cap >= FLT_MIN && out->cap <= FLT_MAX))
    return builder_fail(call->b, call->at[CAP], "softcap is a number above 0 that f32 can hold, not %s",
                        value_text(call->b->arena, &call->arg[CAP]));
  if (!(out->dropout >= 0 && out->dropout < 1))
    return builder_fail(call->b, call->at[DROPOUT], "dropout must be from 0 to below 1, not %s",
                        value_text(call->b->arena, &call->arg[DROPOUT]));
  if (!builder_trains(call->b)) out->dropout = 0;
  return call->arg[BIAS].kind == VALUE_ABSENT || (out->bias = read_mask(call, BIAS, q, k)) != NULL;
}

/* The graph's operation, of four dimensions; inputs: q, k, v, and the mask or NULL. */
static Node *attention_whole(Builder *b, Node *const inputs[4], const AttentionMore *more, Loc loc) {
  Node *operands[5] = {inputs[0], inputs[1], inputs[2], inputs[3]};
  Attr attrs[4] = {attr_bool(ATTR_CAUSAL, more->causal), attr_float(ATTR_SCALE, more->scale)};
  int count = inputs[3] ? 4 : 3, attr_count = 2;
  Shape scores = inputs[0]->type.shape;
  scores.dim[3] = inputs[1]->type.shape.dim[2];
  if (more->cap > 0) attrs[attr_count++] = attr_float(ATTR_SOFTCAP, more->cap);
  if (more->dropout > 0) {
    attrs[attr_count++] = attr_float(ATTR_DROPOUT, more->dropout);
    if (!(operands[count++] = tensor_uniform(b, scores, loc))) return NULL;
  }
  Node *whole = tensor_node(b, OP_ATTENTION, operands, count, attrs, attr_count, NULL, loc);
  Attr index = attr_int(ATTR_INDEX, 0);
  return whole ? tensor_node(b, OP_RESULT, &whole, 1, &index, 1, &whole->type, loc) : NULL;
}

static Value run_attention(Call *call) {
  Node *q = builtin_float_tensor(call, Q), *k = builtin_float_tensor(call, K);
  Node *v = builtin_float_tensor(call, V), *mask = NULL;
  bool causal;
  double scale;
  if (!q || !k || !v || !check_shapes(call, q, k, v)) return value_error();
  Builder *b = call->b;
  Shape shape = q->type.shape;
  int64_t features = shape.dim[shape.rank - 1];
  if (call->arg[SCALE].kind == VALUE_NONE) call->arg[SCALE].kind = VALUE_ABSENT;
  if (!builtin_bool(call, CAUSAL, false, &causal) ||
      !builtin_number(call, SCALE, features > 0 ? 1 / sqrt((double)features) : 1, &scale))
    return value_error();
  if (value_is_given(&call->arg[MASK]) && !(mask = read_mask(call, MASK, q, k)))
    return value_error();
  AttentionMore more = {.causal = causal, .scale = scale};
  if (!read_more(call, q, k, &more)) return value_error();
  Node *inputs[4] = {tensor_reshape(b, q, four(&shape), call->loc),
                     tensor_reshape(b, k, four(&k->type.shape), call->loc),
                     tensor_reshape(b, v, four(&v->type.shape), call->loc), mask};
  if (!inputs[0] || !inputs[1] || !inputs[2]) return value_error();
  Shape result = shape;
  result.dim[shape.rank - 1] = v->type.shape.dim[shape.rank - 1];
  b->is_in_attention = more.bias != NULL;
  Node *out = (more.bias ? attention_written : attention_whole)(b, inputs, &more, call->loc);
  b->is_in_attention = false;
  return out ? value_tensor(tensor_reshape(b, out, result, call->loc)) : value_error();
}

const Builtin builtin_attention[] = {
    {"attention", "q k v causal= mask= scale= softcap= bias= dropout=", run_attention, 0},
    {0},
};
