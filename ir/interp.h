/* interp: what the parts of the interpreter share; for ir/interp*.c and codegen/recognise.c.
 * Invariant: an element of an integer tensor always lies in its dtype's range. */
#ifndef FT_IR_INTERP_H
#define FT_IR_INTERP_H
#include "ir/graph.h"

/* One node at work: inputs are done, the output is zeroed. */
typedef struct {
  const Node *node;
  const Tensor *const *in;
  Tensor *out;
} Eval;

void interp_pointwise(const Eval *eval);
void interp_reduce(const Eval *eval);
void interp_random(const Eval *eval);
void interp_move(const Eval *eval); /* also pack */
void interp_dot(const Eval *eval);
void interp_conv(const Eval *eval);                             /* and its gradients */
void interp_attention(const Eval *eval, Tensor **results);      /* out, lse */
void interp_attention_grad(const Eval *eval, Tensor **results); /* dq, dk, dv */
void interp_pool(const Eval *eval);                             /* all of pooling */

/* The index of element `linear` of a row-major tensor, and back. */
void interp_unravel(const Shape *shape, int64_t linear, int64_t index[MAX_RANK]);
int64_t interp_ravel(const Shape *shape, const int64_t index[MAX_RANK]);
/* The value as the dtype holds it: integers wrap, floats round. */
int64_t interp_wrap(DType dtype, int64_t value);
double interp_round(DType dtype, double value);
void interp_lowest(DType dtype, int64_t *lowest, int64_t *highest); /* of an integer dtype */
#endif
