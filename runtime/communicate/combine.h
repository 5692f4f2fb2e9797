/* combine: what an all_reduce does with two ranks' values. The result does not depend on which
 * operand comes first, down to the bits: a NaN is one and the same NaN, and -0 is less than 0.
 * Integers wrap. f16 and bf16 are added in f32 and rounded once. */
#ifndef FT_RUNTIME_COMBINE_H
#define FT_RUNTIME_COMBINE_H
#include "runtime/communicate/comm.h"

/* y = x op y, by element; they do not overlap. */
typedef void Combine(const void *x, void *y, int64_t count);
Combine *combine_find(DType dtype, CommOp op);
#endif
