/* plan_window: see plan_window.h. */
#include "plan/plan_window.h"
#include <math.h>
#include <string.h>

bool op_is_conv(Op op) {
  return op == OP_CONV || op == OP_CONV_GRAD_INPUT || op == OP_CONV_GRAD_WEIGHT;
}

bool op_is_pool(Op op) { return op_info[op].op_class == CLASS_WINDOW; }

bool op_is_attention(Op op) { return op == OP_ATTENTION || op == OP_ATTENTION_GRAD; }

/* Are `count` of them between least and MAX_WINDOW? */
static bool window_takes(const int64_t *ints, int count, int64_t least, int64_t *out) {
  for (int i = 0; i < count; i++) {
    if (ints[i] < least || ints[i] > MAX_WINDOW) return false;
    out[i] = ints[i];
  }
  return true;
}

/* How often a window fits. */
static int64_t window_steps(const PlanWindow *w, const int64_t *padding, int axis, int64_t size) {
  int64_t span = w->dilation[axis] * (w->kernel[axis] - 1) + 1;
  int64_t room = size + padding[axis] + padding[axis + 2];
  return room < span ? 0 : (room - span) / w->stride[axis] + 1;
}

/* x and y are images of the window's form. */
static bool is_window_of(PlanWindow *w, const int64_t *padding, const Shape *x, const Shape *y) {
  int channel = w->is_nhwc ? 3 : 1, row = w->is_nhwc ? 1 : 2;
  if (x->rank != 4 || y->rank != 4 || x->dim[0] != y->dim[0]) return false;
  for (int i = 0; i < 4; i++)
    if (x->dim[i] > MAX_WINDOW) return false;
  w->images = x->dim[0], w->channels = x->dim[channel];
  w->height = x->dim[row], w->width = x->dim[row + 1];
  w->outputs = y->dim[channel], w->rows = y->dim[row], w->columns = y->dim[row + 1];
  return w->rows == window_steps(w, padding, 0, w->height) &&
         w->columns == window_steps(w, padding, 1, w->width);
}

bool plan_conv_form(const PlanOp *op, const Type *a, const Type *b, PlanWindow *out) {
  const Type *x = op->op == OP_CONV_GRAD_INPUT ? &op->type : op->op == OP_CONV_GRAD_WEIGHT ? b : a;
  const Type *w = op->op == OP_CONV_GRAD_WEIGHT ? &op->type : b;
  const Type *y = op->op == OP_CONV ? &op->type : a;
  int64_t padding[4], flag;
  *out = (PlanWindow){0};
  if (op->int_count != CONV_INTS || w->shape.rank != 4 || !dtype_is_float(a->dtype) ||
      !dtype_is_float(b->dtype) || !dtype_is_float(op->type.dtype))
    return false;
  if (!window_takes(op->ints, 2, 1, out->stride) || !window_takes(op->ints + 2, 4, 0, padding) ||
      !window_takes(op->ints + 6, 2, 1, out->dilation) ||
      !window_takes(op->ints + 8, 1, 1, &out->groups) || !window_takes(op->ints + 9, 1, 0, &flag))
    return false;
  out->is_nhwc = flag != 0;
  memcpy(out->padding, padding, sizeof out->padding);
  int row = out->is_nhwc ? 1 : 2;
  const int64_t *dim = w->shape.dim;
  return window_takes(dim + row, 2, 1, out->kernel) &&
         is_window_of(out, padding, &x->shape, &y->shape) && dim[0] == out->outputs &&
         out->outputs % out->groups == 0 && out->channels % out->groups == 0 &&
         dim[out->is_nhwc ? 3 : 1] == out->channels / out->groups;
}

bool plan_pool_form(const PlanOp *op, const Type *a, PlanWindow *out) {
  bool is_grad = op->op == OP_POOL_MAX_GRAD || op->op == OP_POOL_AVG_GRAD;
  bool counts = op->op == OP_POOL_INDEX; /* its result is a place in the window */
  int64_t padding[4], flags[2];
  *out = (PlanWindow){.dilation = {1, 1}, .groups = 1};
  if (op->int_count != POOL_INTS || !dtype_is_float(a->dtype) ||
      (counts ? op->type.dtype != DT_U8 : op->type.dtype != a->dtype))
    return false;
  if (!window_takes(op->ints, 2, 1, out->kernel) ||
      !window_takes(op->ints + 2, 2, 1, out->stride) ||
      !window_takes(op->ints + 4, 4, 0, padding) || !window_takes(op->ints + 8, 2, 0, flags))
    return false;
  out->is_nhwc = flags[0] != 0, out->counts_padding = flags[1] != 0;
  memcpy(out->padding, padding, sizeof out->padding);
  return is_window_of(out, padding, is_grad ? &op->type.shape : &a->shape,
                      is_grad ? &a->shape : &op->type.shape) &&
         out->channels == out->outputs;
}

/* ── attention ────────────────────────────────────────────────────────────────────────────── */
static PlanHeads plan_heads(const PlanAttention *a, bool is_beside, const Shape *x, int64_t start) {
  const int64_t *dim = x->dim;
  if (is_beside) return (PlanHeads){start, dim[1] * dim[2], a->features, dim[2]};
  return (PlanHeads){0, dim[1] * dim[2] * dim[3], dim[2] * dim[3], dim[3]};
}

/* Do so many heads stand in the features of the tensor? */
static bool heads_fit(const Shape *x, int64_t start, int64_t heads, int64_t features) {
  return start >= 0 && start <= x->dim[2] && heads * features <= x->dim[2] - start;
}

static bool beside_fits(const PlanOp *op, const Type *const *qkv, PlanAttention *a) {
  const Shape *q = &qkv[0]->shape, *k = &qkv[1]->shape, *v = &qkv[2]->shape;
  int64_t sizes[3];
  if (q->rank != 3 || k->rank != 3 || v->rank != 3 || !window_takes(op->ints + 2, 3, 1, sizes))
    return false;
  a->heads = sizes[0], a->groups = sizes[1], a->features = a->values = sizes[2];
  a->batch = q->dim[0], a->rows = q->dim[1], a->keys = k->dim[1];
  const int64_t *start = op->ints + 5;
  return k->dim[0] == a->batch && v->dim[0] == a->batch && v->dim[1] == a->keys &&
         heads_fit(q, start[0], a->heads, a->features) &&
         heads_fit(k, start[1], a->groups, a->features) &&
         heads_fit(v, start[2], a->groups, a->features);
}

static bool apart_fits(const Type *const *qkv, PlanAttention *a) {
  const Shape *q = &qkv[0]->shape, *k = &qkv[1]->shape, *v = &qkv[2]->shape;
  if (q->rank != 4 || k->rank != 4 || v->rank != 4) return false;
  a->batch = q->dim[0], a->heads = q->dim[1], a->rows = q->dim[2], a->features = q->dim[3];
  a->groups = k->dim[1], a->keys = k->dim[2], a->values = v->dim[3];
  return k->dim[0] == a->batch && k->dim[3] == a->features && v->dim[0] == a->batch &&
         v->dim[1] == a->groups && v->dim[2] == a->keys;
}

static bool mask_fits(const Type *mask, PlanAttention *a) {
  const int64_t *dim = mask->shape.dim, want[] = {a->batch, a->heads, a->rows};
  if (mask->shape.rank != 4 || dim[3] != a->keys ||
      (mask->dtype != DT_BOOL && !dtype_is_float(mask->dtype)))
    return false;
  for (int i = 0; i < 3; i++)
    if (dim[i] != 1 && dim[i] != want[i]) return false;
  a->mask_row = dim[2] > 1 ? a->keys : 0;
  a->mask_head = dim[1] > 1 ? dim[2] * a->keys : 0;
  a->mask_batch = dim[0] > 1 ? dim[1] * dim[2] * a->keys : 0;
  return true;
}

static Type heads_type(const PlanAttention *a, bool is_beside, DType dtype, int64_t heads,
                       int64_t rows, int64_t features) {
  return is_beside ? (Type){dtype, {3, {a->batch, rows, heads * features}}}
                   : (Type){dtype, {4, {a->batch, heads, rows, features}}};
}

static bool is_lse(const PlanAttention *a, const Type *type) {
  const Shape want = {4, {a->batch, a->heads, a->rows, 1}};
  return dtype_is_float(type->dtype) && shape_equal(&type->shape, &want);
}

Type plan_attention_result(const PlanOp *op, const Type *const *in, const PlanAttention *a,
                           int result) {
  bool is_beside = op->ints[1] != 0;
  DType dtype = op->type.dtype;
  if (!a->is_grad && result)
    return (Type){dtype_bytes(dtype) < 4 ? DT_F32 : dtype, {4, {a->batch, a->heads, a->rows, 1}}};
  if (!a->is_grad) return heads_type(a, is_beside, dtype, a->heads, a->rows, a->values);
  if (!is_beside) return (Type){dtype, in[a->first + result]->shape};
  if (a->result_count == 1)
    return heads_type(a, true, dtype, a->heads + 2 * a->groups, a->rows, a->features);
  return result ? heads_type(a, true, dtype, a->groups, a->keys, a->features)
                : heads_type(a, true, dtype, a->heads, a->rows, a->features);
}

static void find_gradient_heads(const PlanOp *op, const Type *const *in, PlanAttention *a) {
  bool is_beside = op->ints[1] != 0, is_joined = op->ints[8] != 0;
  a->result_count = is_joined ? 1 : 3;
  a->dk_result = is_joined ? 0 : 1, a->dv_result = is_joined ? 0 : 2;
  int64_t end = is_joined ? a->heads * a->features : 0;
  Type dq = plan_attention_result(op, in, a, 0);
  Type dk = plan_attention_result(op, in, a, a->dk_result);
  Type dv = plan_attention_result(op, in, a, a->dv_result);
  a->dq = plan_heads(a, is_beside, &dq.shape, 0);
  a->dk = plan_heads(a, is_beside, &dk.shape, end);
  a->dv = plan_heads(a, is_beside, &dv.shape, end + (is_joined ? a->groups * a->features : 0));
}

/* What is told behind the first numbers. */
static bool attention_tells_more(const PlanOp *op, PlanAttention *a) {
  int more = op->int_count - ATTENTION_INTS;
  if (more < 0 || more > 2) return false;
  const int64_t *at = op->ints + ATTENTION_INTS;
  if (more > 0) memcpy(&a->cap, at, sizeof a->cap);
  if (more > 1) memcpy(&a->share, at + 1, sizeof a->share);
  bool has_no_cap = more == 0 || (more == 2 && a->cap == 0);
  return (has_no_cap || (a->cap > 0 && isfinite(a->cap))) && (more < 2 || (a->share > 0 && a->share < 1));
}

static bool draws_fit(const Type *const *in, const PlanAttention *a) {
  const Shape first = {4, {a->batch, a->heads, 1, 1}};
  return a->draws < 0 || (in[0]->dtype == DT_I64 && in[1]->dtype == DT_I64 && in[2]->dtype == DT_I64 && in[3]->dtype == DT_I64 && in[0]->shape.rank == 0 &&
                          in[1]->shape.rank == 0 && shape_equal(&in[2]->shape, &first) && in[3]->shape.rank == 0);
}

bool plan_attention_form(const PlanOp *op, const Type *const *in, PlanAttention *out) {
  int first = op->op == OP_ATTENTION_GRAD, mask = first ? 6 : 3;
  *out = (PlanAttention){.first = first, .mask = -1, .draws = -1, .is_grad = first, .result_count = 2};
  if (!attention_tells_more(op, out)) return false;
  int count = op->input_count - (out->share > 0 ? 4 : 0);
  if (count != mask && count != mask + 1) return false;
  if (out->share > 0) out->draws = count;
  bool is_beside = op->ints[1] != 0, is_joined = op->ints[8] != 0;
  const Type *const *qkv = in + first;
  for (int i = 0; i < 3; i++)
    if (!dtype_is_float(qkv[i]->dtype)) return false;
  if (!(is_beside ? beside_fits(op, qkv, out) : apart_fits(qkv, out)) ||
      (out->groups ? out->heads % out->groups != 0 : out->heads != 0) ||
      (is_joined && (!is_beside || out->rows != out->keys)))
    return false;
  out->is_causal = op->ints[0] != 0;
  if (count > mask) {
    out->mask = mask;
    if (!mask_fits(in[mask], out)) return false;
  }
  if (!draws_fit(in + count, out)) return false;
  const int64_t *start = op->ints + 5;
  out->q = plan_heads(out, is_beside, &qkv[0]->shape, start[0]);
  out->k = plan_heads(out, is_beside, &qkv[1]->shape, start[1]);
  out->v = plan_heads(out, is_beside, &qkv[2]->shape, start[2]);
  Type y = heads_type(out, is_beside, op->type.dtype, out->heads, out->rows, out->values);
  out->out = plan_heads(out, is_beside, &y.shape, 0);
  if (first) find_gradient_heads(op, in, out);
  Type made = plan_attention_result(op, in, out, 0);
  if (!type_equal(&made, &op->type)) return false;
  return !first ||
         (shape_equal(&in[0]->shape, &y.shape) && shape_equal(&in[4]->shape, &y.shape) &&
          dtype_is_float(in[0]->dtype) && dtype_is_float(in[4]->dtype) && is_lse(out, in[5]));
}
