/* mbarrier: barriers in shared memory by which the warps of a block wait for each other's work, or
 * for bytes that arrive by themselves (PTX ISA 8.0: mbarrier; sm_90). An mbarrier counts arrivals;
 * when all of a phase have come, the next phase begins. Who waits names the parity of a phase, 0
 * for the first, and goes on when that phase is over. */
#ifndef FT_KERNELS_MBARRIER_H
#define FT_KERNELS_MBARRIER_H
#include <stdint.h>

#define MBARRIER_INLINE static inline __attribute__((always_inline))
typedef __attribute__((address_space(3))) uint64_t *Mbarrier;

MBARRIER_INLINE unsigned mbarrier_address(Mbarrier at) { return (unsigned)(uintptr_t)at; }

/* By one thread; the others may use it after a barrier of the block. */
MBARRIER_INLINE void mbarrier_open(Mbarrier at, int arrivals) {
  __asm__ volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(mbarrier_address(at)),
                   "r"(arrivals)
                   : "memory");
}
MBARRIER_INLINE void mbarrier_arrive(Mbarrier at) {
  uint64_t state;
  __asm__ volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];"
                   : "=l"(state)
                   : "r"(mbarrier_address(at))
                   : "memory");
}
MBARRIER_INLINE void mbarrier_wait(Mbarrier at, int parity) {
  int is_over;
  do
    __asm__ volatile("{\n\t.reg .pred over;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n\t"
                     "selp.b32 %0, 1, 0, over;\n\t}"
                     : "=r"(is_over)
                     : "r"(mbarrier_address(at)), "r"(parity)
                     : "memory");
  while (!is_over);
}
#endif
