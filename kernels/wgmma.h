/* wgmma: what products by Hopper's tensor cores (wgmma.mma_async, sm_90a) have in common: the
 * descriptor of an operand in shared memory, and the order of instructions that are asynchronous
 * (PTX ISA 8.0: wgmma). */
#ifndef FT_KERNELS_WGMMA_H
#define FT_KERNELS_WGMMA_H
#include <stdint.h>

#define WGMMA_INLINE static inline __attribute__((always_inline))

/* The descriptor of a panel of rows of 128 bytes in the 128-byte swizzle. Its fields, of 14 bits,
 * in units of 16 bytes: at bit 0 the address; at bit 16 the distance, `block` bytes, from 64
 * neighbours to the next 64 where the panel is read across its rows; at bit 32 the distance from
 * eight rows to the next eight. At bit 62: the swizzle. */
WGMMA_INLINE uint64_t wgmma_descriptor(__attribute__((address_space(3))) const void *panel,
                                       int block) {
  uint32_t at = (uint32_t)(uintptr_t)panel, bytes = (uint32_t)block, eight_rows = 8 * 128;
  uint32_t low = (at & 0x3ffff) >> 4 | bytes >> 4 << 16, high = eight_rows >> 4 | (uint32_t)1 << 30;
  return (uint64_t)high << 32 | low;
}

/* The fence before the first instruction, after its registers were written. */
WGMMA_INLINE void wgmma_begin(void) { __asm__ volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
WGMMA_INLINE void wgmma_commit(void) {
  __asm__ volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits for all groups but the last `open`, 0 or 1. */
WGMMA_INLINE void wgmma_wait(int open) {
  if (open)
    __asm__ volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
  else
    __asm__ volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
/* Makes what this thread wrote to shared memory visible to wgmma, after a barrier. */
WGMMA_INLINE void show_to_wgmma(void) {
  __asm__ volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
#endif
