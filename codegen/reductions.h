/* reductions: the accumulators that a kernel's body needs, in stages: a stage is a pass over the
 * domain, and sees the values of reductions of earlier stages only. */
#ifndef FT_CODEGEN_REDUCTIONS_H
#define FT_CODEGEN_REDUCTIONS_H
#include "codegen/emit.h"
#include "passes/fuse.h"

/* Mean and spread of x are made of two sums: of the differences from some element of the column
 * (the shift), and of their squares. */
typedef enum { MOMENT_NONE, MOMENT_SUM, MOMENT_SQUARES } Moment;
typedef struct {
  /* SUM PROD RMAX RMIN; ARGMAX, ARGMIN: two of these in following stages, the extreme and the
   * position; MEAN, SPREAD: one of those of this input, with both sums, MOMENT_SUM first */
  const Node *node;
  Op op;         /* how partial values combine */
  DType dtype;   /* of the accumulator: sums of short floats are kept long */
  int stage;     /* 1, 2, ... */
  int extreme;   /* of a position: which reduction gives the extreme; else -1 */
  bool is_final; /* its value is the node's */
  Moment moment;
  LLVMValueRef value; /* when finished */
} Reduction;
/* A sum that has one term at most: sum(select(eq(iota, place), value, 0)) over the iota's dimension
 * alone, where all of a row share the integer `place`. So the value there is all of it. */
typedef struct {
  const Node *place, *value; /* of the rows' shape; of the domain's */
} Pick;
typedef struct {
  Reduction at[KERNEL_MOST_ACCUMULATORS];
  int count, stages;
  int *level; /* by node id: how many stages must have run before it can be computed */
} Reductions;
/* Those of a fused node, without sums of columns beside a row's (kernel_is_beside). */
void reductions_find(Arena *scratch, const Node *fused, Reductions *out);

bool reduction_is_pick(const Reduction *one, Pick *out);

LLVMValueRef reduction_identity(Emitter *emitter, const Reduction *one);
LLVMValueRef reduction_step(Emitter *emitter, const Reduction *one, LLVMValueRef a, LLVMValueRef b);
/* What one element contributes; `valid` NULL: it is there. Of a moment: with this shift. */
LLVMValueRef reduction_element(Emitter *emitter, const Reductions *all, const Reduction *one,
                               const Index *index, LLVMValueRef shift, LLVMValueRef valid);
/* Makes the finished value known to the emitter; moments come in their order. */
void reduction_finish(Emitter *emitter, Reduction *one, LLVMValueRef shift, LLVMValueRef value);
#endif
