/* permute: a parameter between files, where its elements stand in row-major order, and memory,
 * where they may lie in another (ir/type.h, Storage). Both buffers have all its elements and do not
 * overlap; a storage of rank 0 is a copy. */
#ifndef FT_RUNTIME_PERMUTE_H
#define FT_RUNTIME_PERMUTE_H
#include "plan/plan.h"
#include "runtime/common/status.h"

/* The tensor's elements are of 2 or 4 bytes. */
void permute_to_memory(const PlanTensor *tensor, const void *from, void *to);
void permute_from_memory(const PlanTensor *tensor, const void *from, void *to);
/* Where what lies in `values` is to lie in the other order. */
STATUS_CHECKED Status permute_in_place(const PlanTensor *tensor, bool to_memory, void *values);
#endif
