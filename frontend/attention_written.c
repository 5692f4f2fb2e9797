/* attention_written: see attention_written.h. */
#include "frontend/attention_written.h"
#include <math.h>

typedef struct {
  Builder *b;
  Loc loc;
} At;

static Node *calculate(const At *at, Op op, const char *name, Node *x, Node *y) {
  return tensor_binary(at->b, op, name, x, y, at->loc);
}

static Node *by_number(const At *at, Op op, const char *name, Node *x, double number) {
  return x ? calculate(at, op, name, x, tensor_const(at->b, x->type.dtype, number, at->loc)) : NULL;
}

/* [B,H,T,X] as [B,G,H/G*T,X]: the heads that share keys are rows of one product. */
static Node *rows_of_groups(const At *at, Node *x, int64_t groups) {
  if (!x) return NULL;
  Shape shape = x->type.shape;
  if (groups) shape.dim[2] *= shape.dim[1] / groups;
  shape.dim[1] = groups;
  return tensor_reshape(at->b, x, shape, at->loc);
}

/* bool [1,1,T,S]: the keys that a row sees. */
static Node *causal_mask(const At *at, const Shape *scores) {
  int64_t rows = scores->dim[2], keys = scores->dim[3];
  Type type = {DT_I64, {4, {1, 1, rows, keys}}};
  Attr of_rows = attr_int(ATTR_AXIS, 2), of_keys = attr_int(ATTR_AXIS, 3);
  Node *row = tensor_node(at->b, OP_IOTA, NULL, 0, &of_rows, 1, &type, at->loc);
  Node *key = tensor_node(at->b, OP_IOTA, NULL, 0, &of_keys, 1, &type, at->loc);
  return calculate(at, OP_LE, "<=", key, by_number(at, OP_ADD, "+", row, (double)(keys - rows)));
}

/* x, but `instead` where keep is false. */
static Node *where_kept(const At *at, Node *keep, Node *x, double instead) {
  if (!keep || !x) return NULL;
  return tensor_select(at->b, keep, x, tensor_const(at->b, x->type.dtype, instead, at->loc),
                       at->loc);
}

static Node *unless_it_is(const At *at, Node *x, double odd, double instead) {
  return where_kept(at, by_number(at, OP_NE, "!=", x, odd), x, instead);
}

static Node *softmax_of_rows(const At *at, Node *s) {
  const int64_t keys = 3;
  Node *most = tensor_reduce(at->b, OP_RMAX, s, &keys, 1, true, at->loc);
  if (!most) return NULL;
  most = unless_it_is(at, tensor_unary(at->b, OP_STOP_GRADIENT, most, at->loc), -INFINITY, 0);
  Node *e = calculate(at, OP_SUB, "-", s, most);
  if (!e) return NULL;
  e = tensor_unary(at->b, OP_EXP, e, at->loc);
  Node *sum = tensor_reduce(at->b, OP_SUM, e, &keys, 1, true, at->loc);
  return calculate(at, OP_DIV, "/", e, unless_it_is(at, sum, 0, 1));
}

static Node *dropped_out(const At *at, Node *p, double share) {
  if (!p || share == 0) return p;
  Node *draw = tensor_uniform(at->b, p->type.shape, at->loc);
  Node *keep = by_number(at, OP_GE, ">=", draw, share);
  return where_kept(at, keep, by_number(at, OP_MUL, "*", p, 1 / (1 - share)), 0);
}

Node *attention_written(Builder *b, Node *const inputs[4], const AttentionMore *more, Loc loc) {
  At at = {b, loc};
  Node *q = inputs[0], *k = inputs[1], *v = inputs[2], *mask = inputs[3];
  Shape scores = q->type.shape, out = q->type.shape;
  DType dtype = q->type.dtype;
  int64_t groups = k->type.shape.dim[1];
  scores.dim[3] = k->type.shape.dim[2];
  out.dim[3] = v->type.shape.dim[3];
  Node *turned = tensor_transpose(b, k, (int64_t[]){0, 1, 3, 2}, loc);
  Node *s = tensor_matmul(b, rows_of_groups(&at, q, groups), turned, loc);
  if (s && dtype_bytes(dtype) < 4) s = tensor_cast(b, s, DT_F32, loc); /* as the kernels do */
  s = by_number(&at, OP_MUL, "*", tensor_reshape(b, s, scores, loc), more->scale);
  if (more->cap > 0 && s) {
    s = by_number(&at, OP_MUL, "*", s, 1 / more->cap);
    s = by_number(&at, OP_MUL, "*", s ? tensor_unary(b, OP_TANH, s, loc) : NULL, more->cap);
  }
  if (more->bias) s = calculate(&at, OP_ADD, "+", s, more->bias);
  if (mask && mask->type.dtype != DT_BOOL) s = calculate(&at, OP_ADD, "+", s, mask);
  if (mask && mask->type.dtype == DT_BOOL) s = where_kept(&at, mask, s, -INFINITY);
  if (more->causal) s = where_kept(&at, causal_mask(&at, &scores), s, -INFINITY);
  Node *p = dropped_out(&at, softmax_of_rows(&at, s), more->dropout);
  p = rows_of_groups(&at, tensor_cast(b, p, dtype, loc), groups);
  return tensor_reshape(b, tensor_matmul(b, p, v, loc), out, loc);
}
