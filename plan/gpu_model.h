/* gpu_model: how long a kernel would take on a GPU that is not here, reckoned from what it does: its blocks and what
 * they execute and move (the simulator counts that), and the rates in gpus.def and machines.def.
 *
 * A multiprocessor holds as many blocks as its warps, registers and shared memory allow (gpu_resident). They run in
 * rounds, of which the last may be a part of one. A round takes u, what its blocks need of the unit that they need most
 * together, and p, the path of one of them: the cycles in which its slowest warp goes through its instructions when it
 * waits for nothing but what they depend on (of the longest block in the last round, else of the mean). Blocks hide each
 * other's paths only in part, as they do not take turns by plan: the round takes sqrt(u^2 + p^2), a form that was chosen since it fits published points (docs/sim.md). L2 and
 * memory, which all blocks share, take part in the same way. A launch comes on top. So loads too few in flight, the end
 * of a tile that nothing overlaps, and blocks that do not fill the GPU all appear as a path or as rounds.
 * After Hong and Kim 2009 (warps that wait against warps that compute) and the roofline.
 *
 * Not modelled: units that hinder each other below their peaks, second readings of memory that L2 no longer holds,
 * clusters, kernels that overlap, instruction caches, ptxas's own choices beyond registers. docs/sim.md has the errors
 * on published points. */
#ifndef FT_PLAN_GPU_MODEL_H
#define FT_PLAN_GPU_MODEL_H
#include "plan/machine.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct {
  const Machine *machine;
  const char *name;
  int schedulers, f32_lanes, multiply_lanes, integer_lanes, special_lanes, shared_width; /* a cycle */
  int warps, registers, shared_bytes, blocks; /* a multiprocessor holds */
  double l2_bytes, l2_rate;                   /* bytes, bytes/s */
  double memory_share, mma_share;             /* of the peaks */
  double busy_clock;                          /* Hz, with tensor cores busy */
  int l1_cycles, shared_cycles, l2_cycles, memory_cycles;
  double launch, early_launch; /* seconds */
} Gpu;
const Gpu *gpu_find(const char *name);    /* NULL: no such GPU, or a machine that is none */
const char *gpu_nearest(const char *name); /* for "did you mean", or NULL */
const Gpu *gpu_at(int index);              /* NULL behind the last */
/* 16-bit operations of one multiprocessor's tensor cores in a cycle; by mma.sync. */
double gpu_tensor_rate(const Gpu *gpu);
double gpu_mma_rate(const Gpu *gpu);

/* What a launch does, all blocks together. Instructions are those of warps. */
typedef struct {
  int64_t blocks;
  int warps, registers;  /* of a block; of a thread */
  int64_t shared_bytes;  /* of a block */
  double issued;         /* instructions, as the GPU's own would be */
  double f32, multiply, integer, special; /* of them: by unit */
  double wgmma, mma;     /* operations of tensor cores, as of 16 bits: tf32 counts twice */
  double wavefronts;     /* of 128 bytes through shared memory and L1 */
  double l2, memory;     /* bytes */
  double path, longest_path; /* cycles of a block, at the mean and of the longest; 0: not known */
  double flops, bytes;   /* the least, as the plan has it; 0: not known */
  bool is_half, is_tf32; /* tensor cores may do the flops, of such operands */
  bool is_early;         /* it begins before the kernel before it has ended (plan_begins_early) */
  bool is_float8;        /* is_half, of operands of 8 bits: twice the rate */
} GpuWork;

typedef enum {
  GPU_ISSUE,
  GPU_F32,
  GPU_INTEGER,
  GPU_SPECIAL,
  GPU_TENSOR,
  GPU_SHARED,
  GPU_PATH,
  GPU_L2,
  GPU_MEMORY,
  GPU_LAUNCH,
  GPU_BOUNDS
} GpuBound;
const char *gpu_bound_text(GpuBound bound); /* "tensor" */

typedef struct {
  double seconds;          /* with the launch */
  double part[GPU_BOUNDS]; /* what each bound alone takes, rounds of blocks included */
  GpuBound bound;          /* the longest of them */
  int resident;            /* blocks that a multiprocessor holds; 0: not one fits */
  double rounds;           /* blocks / (resident * multiprocessors) */
  double floor;            /* the least for flops and bytes at the rates reached, without launch */
} GpuTime;
/* Work without a launch's worth (blocks 0) takes nothing. */
void gpu_time(const Gpu *gpu, const GpuWork *work, GpuTime *out);
/* Blocks of this shape on one multiprocessor. */
int gpu_resident(const Gpu *gpu, int warps, int registers, int64_t shared_bytes);
#endif
