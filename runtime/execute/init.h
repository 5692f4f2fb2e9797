/* init: initial values of parameters and states, PyTorch's distributions. Element i of a tensor
 * depends on (seed, stream, i) only, by Philox4x32-10: never on the device or the thread count.
 *   zeros; const(v); uniform(low, high); normal(mean, std); trunc_normal(mean, std), cut at two
 *   standard deviations; orthogonal(gain): rows (or columns) orthonormal, of the matrix
 *   [dim 0, the rest]; identity: 1 where the first two indices agree (and the rest are central) */
#ifndef FT_RUNTIME_INIT_H
#define FT_RUNTIME_INIT_H
#include "plan/plan.h"
#include "runtime/common/status.h"

/* Fills `values`, type_bytes of it. init->text NULL is zeros. */
STATUS_CHECKED Status init_fill(const Init *init, const Type *type, uint64_t seed, uint32_t stream,
                                void *values);
#endif
