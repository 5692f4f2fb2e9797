/* emit_private: what the files of the emitter share. Private to codegen/emit*.c. */
#ifndef FT_CODEGEN_EMIT_PRIVATE_H
#define FT_CODEGEN_EMIT_PRIVATE_H
#include "codegen/emit.h"

/* One element of a node's value in a kernel's body: pull_<emitter> for the rows of ir/ops.def, in
 * emit.c, emit_move.c (what is found elsewhere) and emit_window.c (pooling and its gradients). */
typedef LLVMValueRef Pull(Emitter *emitter, const Node *node, const Index *index);
#define OP(ID, text, min, max, class, first, last, traits, attrs, rule, gradient, eval, emitter)   \
  Pull IF_POINTWISE_##class(pull_pointwise, pull_##emitter);
#include "ir/ops.def"
#undef OP

/* The digit of dimension d, and the digits of dimensions [from, to) appended to *out. */
Digit emit_index_digit(Emitter *emitter, const Index *index, const Shape *shape, int d);
void emit_index_run(Emitter *emitter, const Index *index, const Shape *shape, int from, int to,
                    Index *out);

/* f32 to f32, through f16 or bf16. */
LLVMValueRef emit_round(Emitter *emitter, DType dtype, LLVMValueRef value);
LLVMValueRef emit_flagged(Emitter *emitter, LLVMValueRef instruction, LLVMFastMathFlags more);
LLVMValueRef emit_float_extreme(Emitter *emitter, bool is_max, DType dtype, LLVMValueRef a,
                                LLVMValueRef b);

/* A value under a condition: where the condition is the same for neighbouring lanes the body is
 * emitted straight on and its result selected (the body must be safe either way); where it varies,
 * a branch, which LLVM turns into masked loads. `condition` NULL or constant true: no guard at all.
 */
typedef struct {
  LLVMValueRef condition;
  bool is_branch, is_closed; /* closed: never true, the body must not be emitted */
  LLVMBasicBlockRef before, after;
} Guard;
Guard emit_guard_open(Emitter *emitter, LLVMValueRef condition, bool varies);
LLVMValueRef emit_guard_close(Emitter *emitter, Guard *guard, LLVMValueRef value,
                              LLVMValueRef otherwise);
/* value in [0, extent)? NULL if it surely is, given that it lies in [low, high]. */
LLVMValueRef emit_in_range(Emitter *emitter, LLVMValueRef value, int64_t extent, int64_t low,
                           int64_t high);
/* Under a guard that does not branch the input is read in any case. The index to read it at:
 * `value` where `inside` holds, else 0. */
LLVMValueRef emit_keep_inside(Emitter *emitter, LLVMValueRef inside, LLVMValueRef value);
/* A number that a value which is never negative does not fall below: 0, or more, where it is a digit of tiles. */
int64_t emit_least(LLVMValueRef value);
LLVMValueRef emit_both(Emitter *emitter, LLVMValueRef a, LLVMValueRef b); /* NULL: true */

/* ── emit_check.c ── */
void emit_check(Emitter *emitter, LLVMValueRef pointer, LLVMValueRef element, bool is_store);

/* ── emit_memory.c ── */
/* Are so many neighbours moved as one integer? Eight bytes are: LLVM would move a vector of them in
 * two accesses. */
bool emit_is_one_number(DType dtype, unsigned width);
#endif
