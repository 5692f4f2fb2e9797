/* plan_window: the forms of convolutions, pooling and attention as a plan tells them (PlanOp.ints). They
 * are checked as they are read, so that whoever goes through windows or heads stays within the tensors.
 *
 *   convolutions   stride (2), padding (4), dilation (2), groups, is it nhwc?
 *   pooling        kernel (2), stride (2), padding (4), is it nhwc?, counts it the padding?
 *   attention      causal?, heads side by side?, heads, groups, features, start (3), joined?; value: the scale;
 *                  with softcap, the bits of that double in one number more; with dropout in two more, the bits of
 *                  the softcap, of 0 where there is none, and of the share that is dropped */
#ifndef FT_PLAN_PLAN_WINDOW_H
#define FT_PLAN_PLAN_WINDOW_H
#include "plan/plan.h"

enum { CONV_INTS = 10, POOL_INTS = 10, ATTENTION_INTS = 9 };

/* An image x, a result y; of a gradient what it is the gradient of. */
typedef struct {
  int64_t images, channels, height, width; /* of x */
  int64_t outputs, rows, columns;          /* of y */
  int64_t kernel[2], stride[2], padding[2], dilation[2], groups;
  bool is_nhwc, counts_padding;
} PlanWindow;
/* False: there is no such op of these operands. */
bool plan_conv_form(const PlanOp *op, const Type *a, const Type *b, PlanWindow *out);
bool plan_pool_form(const PlanOp *op, const Type *a, PlanWindow *out);
bool op_is_conv(Op op);
bool op_is_pool(Op op);

/* Row i of head h of sample b of a tensor begins at start + b * batch + h * head + i * row. */
typedef struct {
  int64_t start, batch, head, row;
} PlanHeads;
typedef struct {
  int64_t batch, heads, groups, rows, keys, features, values;
  PlanHeads q, k, v, out, dq, dk, dv;      /* in their tensors */
  int64_t mask_batch, mask_head, mask_row; /* from one to the next */
  int first, mask, draws;                  /* operands: q; -1: there is none; seed, and behind it step, the heads' first, stream */
  int result_count, dk_result, dv_result;
  bool is_causal, is_grad;
  double cap; /* a scaled score s becomes cap * tanh(s / cap); 0: it stays */
  double share; /* of the softmax's results that dropout makes 0 */
} PlanAttention;
/* in: the operands' types, as many as the op has. */
bool plan_attention_form(const PlanOp *op, const Type *const *in, PlanAttention *out);
/* The type of a result. */
Type plan_attention_result(const PlanOp *op, const Type *const *in, const PlanAttention *form,
                           int result);
bool op_is_attention(Op op);
#endif
