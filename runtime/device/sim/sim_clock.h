/* sim_clock: happens-before among the threads of a block, or of a cluster's blocks, by vector clocks, for kernels in which not
 * every barrier is for all of the block: mbarriers, and bar.sync of some of the threads. There "how
 * many barriers has the block passed" (sim_touch.h) says too little. Lamport (1978); Flanagan and
 * Freund, "FastTrack" (2009). Edges are what PTX ISA's memory model promises: barrier.sync among
 * its threads; bar.warp.sync among its lanes; mbarrier.arrive (.release) to a wait (.acquire) that
 * saw its phase over; a bulk copy to such a wait. shfl, vote and wgmma order nothing.
 *
 * A record is of a word of shared memory: its last writer, and for each warp when its lanes read it
 * last. Accesses of 1 and 2 bytes and atomics are not looked at here. */
#ifndef FT_RUNTIME_SIM_CLOCK_H
#define FT_RUNTIME_SIM_CLOCK_H
#include "runtime/device/sim/sim_private.h"

/* For the block that begins: cta->clock, NULL if its kernel needs none; the first of a cluster comes
 * first. False: out of memory. */
bool sim_clock_begin(SimCta *cta);
void sim_clock_free(SimClock *clock); /* NULL is fine */

/* ── edges ────────────────────────────────────────────────────────────────────────────────── */
/* The warps that wait at barrier `id` pass it. */
void sim_clock_barrier(SimCta *cta, int id);
/* The warp arrives at its barrier, and does not wait there. */
void sim_clock_arrive(SimWarp *warp);
void sim_clock_warp(SimWarp *warp, uint32_t lanes);
/* Of one lane, at an mbarrier; after the lanes of an instruction sim_clock_tick. */
void sim_clock_release(SimWarp *warp, int lane, const SimCta *of, uint32_t mbarrier);
void sim_clock_acquire(SimWarp *warp, int lane, uint32_t mbarrier, bool is_cluster);
void sim_clock_tick(SimWarp *warp);
void sim_clock_init(SimCta *cta, uint32_t mbarrier);
void sim_clock_phase(SimCta *cta, uint32_t mbarrier); /* it is over */
/* A bulk copy has filled its place, and tells its mbarrier. */
void sim_clock_copied(SimCta *cta, const SimBulk *copy);
/* The barrier of a cluster. */
void sim_clock_cluster_arrive(SimWarp *warp);
void sim_clock_cluster_over(SimCta *cta);
void sim_clock_cluster_wait(SimWarp *warp);
/* The warp uses memory of `of`, another block, which then may not end before that. At its end: the
 * rank of a block that used it so late that none of its threads knows of it; -1: none. */
void sim_clock_touch(SimWarp *warp, const SimCta *of);
int sim_clock_unknown(const SimCta *cta);

/* ── accesses: false, with a finding: a race ──────────────────────────────────────────────── */
/* Of `lanes` neighbours from `first` on: each `bytes` at `at`, and `step` bytes further. */
bool sim_clock_run(SimWarp *warp, const SimInst *inst, int first, int lanes, int64_t at, int step,
                   int bytes, bool is_store);
/* A lane asks for a copy to there, which is recorded when it has arrived; or uses an mbarrier. */
bool sim_clock_target(SimWarp *warp, const SimInst *inst, int lane, const SimCta *of, int64_t at,
                      int64_t bytes);
bool sim_clock_uses(SimWarp *warp, const SimInst *inst, int lane, const SimCta *of, int64_t at);
/* wgmma by all lanes reads a word until the warp waits for it. */
bool sim_clock_begin_read(SimWarp *warp, const SimInst *inst, int64_t word);
void sim_clock_end_read(SimWarp *warp, int64_t word);
#endif
