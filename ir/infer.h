/* infer: what the shape rules share. Private to ir/infer*.c. */
#ifndef FT_IR_INFER_H
#define FT_IR_INFER_H
#include "ir/graph.h"

typedef struct {
  Arena *arena;
  Op op;
  const char *name; /* the op's text, or what people call it */
  Node *const *input;
  int input_count;
  const Attr *attrs;
  int attr_count;
  const Type *given;
  Type *out;
  const char *why;
} Infer;

static inline const Type *infer_operand(const Infer *in, int i) { return &in->input[i]->type; }
/* Sets the reason and returns false. */
bool infer_fail(Infer *in, const char *format, ...) __attribute__((format(printf, 2, 3)));
const Attr *infer_attr(const Infer *in, AttrId id); /* NULL if absent */
const Attr *infer_need_attr(Infer *in, AttrId id);  /* NULL and a reason if absent */
const Attr *infer_need_ints(Infer *in, AttrId id, int count);
bool infer_need_given(Infer *in);
bool infer_take_given(Infer *in); /* the result has the given type */
const char *infer_show(Infer *in, const Type *type);
const char *infer_show_shape(Infer *in, const Shape *shape);

/* Whether a value of the attribute `value` exists in the dtype. */
bool infer_value(Infer *in, DType dtype, double value);

/* The dtype of a contraction's result: that of its operands, or f32 if the attribute says so. */
bool infer_result_dtype(Infer *in, DType operands, DType *out);

/* ir/infer_move.c */
bool infer_reshape(Infer *in);
bool infer_transpose(Infer *in);
bool infer_broadcast(Infer *in);
bool infer_slice(Infer *in);
bool infer_pad(Infer *in);
bool infer_concat(Infer *in);
bool infer_gather(Infer *in);
bool infer_scatter_add(Infer *in);
bool infer_put(Infer *in);

/* ir/infer_ranks.c */
bool infer_all_reduce(Infer *in);
bool infer_all_gather(Infer *in);
bool infer_reduce_scatter(Infer *in);
bool infer_all_to_all(Infer *in);
bool infer_broadcast_from(Infer *in);
bool infer_send(Infer *in);
bool infer_receive(Infer *in);
bool infer_transfer(Infer *in);

/* ir/infer_attention.c */
bool infer_attention(Infer *in);
bool infer_attention_grad(Infer *in);

/* ir/infer_window.c */
bool infer_conv(Infer *in);
bool infer_conv_grad(Infer *in);
bool infer_pool(Infer *in);
bool infer_pool_index(Infer *in);
bool infer_pool_grad(Infer *in);
#endif
