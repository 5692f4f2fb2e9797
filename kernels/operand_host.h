/* operand_host: the types in which kernels in machine code take what they compute with in f32. What
 * is narrower they widen while they copy it, which is exact. */
#ifndef FT_KERNELS_OPERAND_HOST_H
#define FT_KERNELS_OPERAND_HOST_H
#include <stdint.h>

enum { OPERAND_F32, OPERAND_BF16, OPERAND_F16 };
static inline int64_t operand_bytes(int64_t type) { return type == OPERAND_F32 ? 4 : 2; }
#endif
