/* sim_path: what instructions cost on a GPU, and how long a warp takes when it waits for nothing but what its
 * instructions depend on: the path. Cycles, from the block's beginning.
 *
 * Within a stretch of code without jumps and barriers, an instruction begins when its operands are there, whatever
 * stands before it (ptxas moves loads up), but for loads behind stores to the same kind of memory that it may not pass;
 * each costs a cycle at least. Stretches follow one another. What works beside a warp (wgmma, copies) is waited for
 * where the code waits. Warps do not hinder each other: that is the business of plan/gpu_model.h. */
#ifndef FT_RUNTIME_SIM_PATH_H
#define FT_RUNTIME_SIM_PATH_H
#include "runtime/device/sim/sim_private.h"

enum { PATH_GROUPS = 64, PATH_BARRIERS = 128 };

/* Of one warp. */
typedef struct SimPath {
  int64_t start, slots, latest; /* of this stretch: its beginning, its instructions, its last issue */
  int64_t stored;               /* when the last store to global memory of this stretch was issued */
  int64_t tensor;               /* when the tensor core has done all that was asked of it */
  int64_t copied;               /* when all cp.async so far have arrived */
  int64_t tensor_group[PATH_GROUPS], copy_group[PATH_GROUPS]; /* the same, of the last groups */
  int tensor_groups, copy_groups;
  int64_t issue; /* of the instruction that runs now */
  int64_t *ready; /* by place of a register */
} SimPath;

/* An mbarrier: when its phases ended. */
typedef struct {
  uint32_t address;
  bool is_used;
  int64_t pending, ended[2];
} SimPhase;

/* Of a block. */
typedef struct SimPaths {
  SimPath *warp;
  int64_t *ready;
  int warp_capacity;
  int64_t ready_capacity;
  int64_t event;               /* when what now happens to an mbarrier does */
  int wavefronts;              /* of the access that runs now */
  bool is_missed;              /* a sector of it was not in the block's cache */
  SimPhase phase[PATH_BARRIERS];
} SimPaths;

/* False: out of memory. */
bool sim_path_begin(SimCta *cta);
void sim_path_free(SimPaths *paths);
/* Before and after an instruction; next: what the handler returned. */
void sim_path_issue(SimWarp *w, const SimInst *in);
void sim_path_done(SimWarp *w, const SimInst *in, const SimInst *next);
/* The warps that wait at barrier `id` go on. */
void sim_path_barrier(SimCta *cta, int id);
/* The warp arrives at its barrier, and does not wait there. */
void sim_path_barrier_arrive(SimWarp *w);
/* An arrival or a copy tells the mbarrier at `address`; it ends phase `ended` (-1: none). */
void sim_path_arrive(SimCta *cta, uint32_t address, int ended);
/* The warp has seen the end of a phase. */
void sim_path_waited(SimWarp *w, uint32_t address, int phase);
/* The barrier of the cluster opens: the cycle in which its last warp has arrived (0: not timed); and a warp that waited
 * goes on. */
int64_t sim_path_cluster(const SimCta *cta);
void sim_path_cluster_waited(SimWarp *w);
/* When a bulk copy that is asked for now arrives. */
int64_t sim_path_arrival(const SimWarp *w, uint32_t bytes);
/* When a bulk store that is asked for now has read shared memory; the warp waits for that. */
int64_t sim_path_stored(const SimWarp *w, uint32_t bytes);
void sim_path_stored_until(SimWarp *w, int64_t cycle);
/* At the end of a block: adds to its counts. */
void sim_path_end(SimCta *cta);
#endif
