/* round: floats to f16 or bf16, one a thread, with the code of the host. CMake compiles this file
 * to PTX text, which ftrun holds as a string. */
#include "runtime/common/round_half.h"

#define SPECIAL(name) __nvvm_read_ptx_sreg_##name()
#define GLOBAL __attribute__((address_space(1)))

__attribute__((nvptx_kernel)) void ft_round(GLOBAL const float *from, GLOBAL uint16_t *to,
                                            int64_t count, int64_t is_half) {
  int64_t i = (int64_t)SPECIAL(ctaid_x) * SPECIAL(ntid_x) + SPECIAL(tid_x);
  if (i < count) to[i] = is_half ? round_to_half(from[i]) : round_to_bfloat(from[i]);
}
