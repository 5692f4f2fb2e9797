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
  struct Frame *frame; /* the graph or body that it stands in: private to interp.c */
} Eval;

/* The evaluators that ir/ops.def names; pointwise ops have interp_pointwise. False: an error was
 * reported. */
typedef bool Evaluator(const Eval *eval);
#define OP(ID, text, min, max, class, first, last, traits, attrs, rule, gradient, evaluator, ...)  \
  bool IF_POINTWISE_##class(interp_pointwise, interp_##evaluator)(const Eval *eval);
#include "ir/ops.def"
#undef OP

extern Evaluator *const interp_evaluator[OP_COUNT];

/* Places for all results of a node with several, the first of which is eval->out. NULL: there is no
 * room, which was reported. */
Tensor **interp_results(const Eval *eval);
/* How many ranks do this collective, and which of them this is; 1 and 0: it is alone. */
int interp_ranks(const Eval *eval);
int interp_rank(const Eval *eval);
/* Operand k of this node on the r-th of them. */
const Tensor *interp_operand(const Eval *eval, int r, int k);
/* What the rank at the other end sends to this receive; NULL: nothing. */
const Tensor *interp_message(const Eval *eval);
/* A random number in [0,1): Philox4x32-10 (interp_point.c). */
double interp_draw(uint64_t seed, uint64_t step, uint32_t stream, uint64_t element);
bool interp_refuse(const Eval *eval, const char *why); /* reports it, and returns false */
/* The index of element `linear` of a row-major tensor, and back. */
void interp_unravel(const Shape *shape, int64_t linear, int64_t index[MAX_RANK]);
int64_t interp_ravel(const Shape *shape, const int64_t index[MAX_RANK]);
#endif
