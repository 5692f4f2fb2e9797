/* mbarrier: barriers in shared memory by which the warps of a block wait for each other's work, or
 * for bytes that an asynchronous copy writes (PTX ISA 8.0: mbarrier; sm_90). An mbarrier counts
 * arrivals; when all arrivals of a phase have come, the next phase begins. A wait names the parity
 * of the phase that must be over, which is 0 for the first phase. */
#ifndef FT_KERNELS_MBARRIER_H
#define FT_KERNELS_MBARRIER_H
#include "kernels/wait_record.h"
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
/* Arrives if `does`. Predicated, since ptxas lets no two wgmma overlap across a branch. */
MBARRIER_INLINE void mbarrier_arrive_if(Mbarrier at, int does) {
  __asm__ volatile(
      "{\n\t.reg .pred does;\n\tsetp.ne.b32 does, %1, 0;\n\t"
      "@does mbarrier.arrive.shared::cta.b64 _, [%0];\n\t}" ::"r"(mbarrier_address(at)),
      "r"(does)
      : "memory");
}
/* One poll: is the phase of this parity over? It may take a while to say no. of_cluster: other blocks
 * of the cluster arrive there, too. */
MBARRIER_INLINE int mbarrier_is_over(Mbarrier at, int parity, int of_cluster) {
  int is_over;
#define MBARRIER_POLL(how)                                                                         \
  __asm__ volatile("{\n\t.reg .pred over;\n\t"                                                     \
                   "mbarrier.try_wait.parity" how "shared::cta.b64 over, [%1], %2;\n\t"            \
                   "selp.b32 %0, 1, 0, over;\n\t}"                                                 \
                   : "=r"(is_over)                                                                 \
                   : "r"(mbarrier_address(at)), "r"(parity)                                        \
                   : "memory")
  if (of_cluster)
    MBARRIER_POLL(".acquire.cluster.");
  else
    MBARRIER_POLL(".");
#undef MBARRIER_POLL
  return is_over;
}

/* How long a wait may take, and whose it is. */
typedef struct {
  int polls; /* at most; 0: as many as it takes */
  int kernel, barrier, stage; /* kernels/wait_record.h */
  int of_cluster; /* as in mbarrier_is_over */
} Wait;

/* The first of the lanes that are here tells what they wait for; then all of them end the kernel. */
MBARRIER_INLINE void mbarrier_give_up(int parity, Wait wait) {
  typedef __attribute__((address_space(1))) volatile unsigned *Words;
  uint64_t place;
  unsigned lanes, lane, number;
  __asm__ volatile("activemask.b32 %0;" : "=r"(lanes));
  __asm__ volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  __asm__ volatile("ld.global.u64 %0, [ft_waits];" : "=l"(place));
  if (place && lane == (unsigned)__builtin_ctz(lanes)) {
    __asm__ volatile("atom.global.add.u32 %0, [%1], 1;" : "=r"(number) : "l"(place) : "memory");
    if (number < WAIT_RECORDS) {
      Words record = (Words)(place + (number + 1) * WAIT_WORDS * sizeof(unsigned));
      record[WAIT_KERNEL] = (unsigned)wait.kernel;
      record[WAIT_BARRIER] = (unsigned)wait.barrier;
      record[WAIT_STAGE] = (unsigned)wait.stage;
      record[WAIT_PARITY] = (unsigned)parity;
      record[WAIT_BLOCK] = (unsigned)__nvvm_read_ptx_sreg_ctaid_x();
      record[WAIT_BLOCK + 1] = (unsigned)__nvvm_read_ptx_sreg_ctaid_y();
      record[WAIT_BLOCK + 2] = (unsigned)__nvvm_read_ptx_sreg_ctaid_z();
      record[WAIT_THREAD] = (unsigned)__nvvm_read_ptx_sreg_tid_x();
      __asm__ volatile("membar.sys;" ::: "memory");
      record[WAIT_WHOLE] = 1;
      __asm__ volatile("membar.sys;" ::: "memory");
    }
  }
  __nvvm_bar_warp_sync(lanes);
  __asm__ volatile("trap;");
}

MBARRIER_INLINE void mbarrier_wait(Mbarrier at, int parity, Wait wait) {
  if (!wait.polls) {
    while (!mbarrier_is_over(at, parity, wait.of_cluster)) {
    }
    return;
  }
  for (int left = wait.polls; !mbarrier_is_over(at, parity, wait.of_cluster); left--)
    if (left <= 0) mbarrier_give_up(parity, wait);
}

/* ── boxes of tensors (TMA) ── */
/* Arrives, and announces so many bytes of asynchronous copies that belong to this phase. */
MBARRIER_INLINE void mbarrier_arrive_expect(Mbarrier at, int bytes) {
  __asm__ volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mbarrier_address(at)),
      "r"(bytes)
      : "memory");
}
/* The same if `does`: predicated, as mbarrier_arrive_if. */
MBARRIER_INLINE void mbarrier_arrive_expect_if(Mbarrier at, int bytes, int does) {
  __asm__ volatile(
      "{\n\t.reg .pred does;\n\tsetp.ne.b32 does, %2, 0;\n\t"
      "@does mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n\t}" ::"r"(mbarrier_address(at)),
      "r"(bytes), "r"(does)
      : "memory");
}
/* Starts the copy of a box of a three-dimensional tensor to shared memory; the box begins at x, y,
 * z (fastest first), and `at` counts its bytes as they arrive. By one thread. */
MBARRIER_INLINE void mbarrier_box(Mbarrier at, __attribute__((address_space(3))) void *to,
                                  const void *map, int x, int y, int z) {
  __asm__ volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3, %4}], [%5];" ::"r"((unsigned)(uintptr_t)to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(mbarrier_address(at))
      : "memory");
}
/* The same if `does`. */
MBARRIER_INLINE void mbarrier_box_if(Mbarrier at, __attribute__((address_space(3))) void *to,
                                     const void *map, int x, int y, int z, int does) {
  __asm__ volatile(
      "{\n\t.reg .pred does;\n\tsetp.ne.b32 does, %6, 0;\n\t"
      "@does cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3, %4}], [%5];\n\t}" ::"r"((unsigned)(uintptr_t)to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(mbarrier_address(at)), "r"(does)
      : "memory");
}
/* As mbarrier_box for `bytes` of memory side by side; both places are multiples of 16 bytes, as is `bytes`. */
MBARRIER_INLINE void mbarrier_copy(Mbarrier at, __attribute__((address_space(3))) void *to,
                                   const void *from, int bytes) {
  __asm__ volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          (unsigned)(uintptr_t)to),
      "l"((const __attribute__((address_space(1))) void *)from), "r"(bytes),
      "r"(mbarrier_address(at))
      : "memory");
}
/* ── clusters: blocks on neighbouring multiprocessors that see each other's shared memory ── */
MBARRIER_INLINE int cluster_rank(void) {
  int rank;
  __asm__("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/* All threads of the cluster's blocks meet, but for those that have ended. By whole warps. */
MBARRIER_INLINE void cluster_meet(void) {
  __asm__ volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  __asm__ volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/* Arrives, if `does`, at the mbarrier that has the place of `at` in block `rank` of the cluster. */
MBARRIER_INLINE void mbarrier_arrive_far_if(Mbarrier at, int rank, int does) {
  __asm__ volatile("{\n\t.reg .pred does;\n\t.reg .b32 far;\n\tsetp.ne.b32 does, %2, 0;\n\t"
                   "mapa.shared::cluster.u32 far, %0, %1;\n\t"
                   "@does mbarrier.arrive.release.cluster.shared::cluster.b64 _, [far];\n\t}" ::"r"(
                       mbarrier_address(at)),
                   "r"(rank), "r"(does)
                   : "memory");
}
/* As mbarrier_box, to the same place of each block of the cluster in the mask `blocks`, and to that
 * block's mbarrier. */
MBARRIER_INLINE void mbarrier_box_cast(Mbarrier at, __attribute__((address_space(3))) void *to,
                                       const void *map, int x, int y, int z, short blocks) {
  __asm__ volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
      "cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"((unsigned)(uintptr_t)to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(mbarrier_address(at)), "h"(blocks)
      : "memory");
}
MBARRIER_INLINE void mbarrier_map(const void *map) { /* prefetches it */
  __asm__ volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
#endif
