/* sim: a GPU in software, for PTX text: memory with a record of its writers, modules, launches.
 * Runs warp by warp, 32 lanes at a time, several blocks at once on the threads of a pool; checks
 * every access (docs/sim.md says what is supported and what is checked). Device addresses are host
 * addresses: the host may read and write simulated memory directly, between launches.
 *
 *   SimMachine *machine; SimModule *module; char *x;
 *   sim_machine_new(0, &machine);
 *   sim_module_load("model.ptx", text, length, &module);       // text need not end with NUL
 *   sim_alloc(machine, 4096, &x);                              // zero, but "never written"
 *   memcpy(x, values, 4096); sim_mark(machine, x, 4096, true);
 *   uint64_t params[1] = {(uint64_t)(uintptr_t)x};
 *   SimLaunch launch = {.grid = {4, 1, 1}, .block = {256, 1, 1}, .params = params,
 *                       .param_bytes = sizeof params};
 *   sim_launch(machine, sim_module_kernel(module, "scale"), &launch);   // returns when it is done
 *
 * Errors: STATUS_USER with one line for bad PTX and for what the checker finds; STATUS_FAULT for
 * lack of memory. One thread drives a machine; modules may be shared. */
#ifndef FT_RUNTIME_SIM_H
#define FT_RUNTIME_SIM_H
#include "runtime/common/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ── the machine and its memory ───────────────────────────────────────────────────────────── */
typedef struct SimMachine SimMachine;
/* threads as for pool_new: 0 means FT_THREADS, then OMP_NUM_THREADS, then the cores we may use. */
STATUS_CHECKED Status sim_machine_new(int threads, SimMachine **out);
void sim_machine_free(SimMachine *machine); /* NULL is fine; frees its memory too */
int sim_machine_threads(const SimMachine *machine);
/* From the next launch on, the warps of a block run in an order that follows from `schedule` (see
 * docs/sim.md); 0, as a machine begins unless FT_SIM_SEED is set: in turn. */
void sim_machine_seed(SimMachine *machine, uint64_t schedule);
/* Approximations and the sums of matrix products err as PTX lets hardware err, in a way that
 * follows from `seed`; 0, as a machine begins unless FT_SIM_ROUNDING is set: as little as they
 * can. */
void sim_machine_rounding(SimMachine *machine, uint64_t seed);

/* From now on nothing is recorded of who wrote and read what, so that launches of a sample of their
 * blocks find no fault with what other blocks would have written, and memory costs no more than
 * itself. Before anything is allocated. */
void sim_machine_unchecked(SimMachine *machine);

/* Zeroed, 256-byte aligned; 0 bytes gives a valid address. Its bytes count as never written until a
 * kernel writes them or sim_mark says so: reading them before is reported. */
STATUS_CHECKED Status sim_alloc(SimMachine *machine, int64_t bytes, char **out);
/* An address that sim_alloc gave, or NULL. False if it is no such address. */
bool sim_free(SimMachine *machine, char *at);
/* From now on these bytes count as written (a copy from the host) or not. */
void sim_mark(SimMachine *machine, const char *at, int64_t bytes, bool is_written);

/* ── modules ──────────────────────────────────────────────────────────────────────────────── */
typedef struct SimModule SimModule;
typedef struct SimKernel SimKernel;
/* Parses and decodes PTX, hostile input allowed. `path` is how messages name the text:
 * "model.ptx:123: ...". Instructions that the simulator lacks are refused here, by name. */
STATUS_CHECKED Status sim_module_load(const char *path, const char *text, size_t length,
                                      SimModule **out);
void sim_module_free(SimModule *module); /* NULL is fine */
/* NULL if there is none of that name. Lives as long as the module. */
const SimKernel *sim_module_kernel(const SimModule *module, const char *name);
int sim_module_kernel_count(const SimModule *module);
const SimKernel *sim_module_kernel_at(const SimModule *module, int index);
/* The memory of a .global variable of the module, zeros at first; NULL: there is none of that name.
 * In a module that has ft_waits (plan/waits.h) kernels bound their waits themselves: where no warp of
 * a block can go on, polls say that the phase is not over, until a kernel gives up. */
char *sim_module_variable(const SimModule *module, const char *name, int64_t *bytes);

typedef struct {
  const char *name;
  int line;             /* of the .entry */
  int params;           /* how many */
  int64_t param_bytes;  /* of all, aligned as PTX says */
  int64_t shared_bytes; /* static; a launch may add dynamic ones */
  int64_t local_bytes;  /* per thread */
  int64_t max_threads;  /* .maxntid, or 1024 */
  int cluster;          /* blocks of a cluster (.reqnctapercluster); 1: none */
  int instructions;     /* in the text */
  int registers;        /* 32-bit ones alive at once, at most: an estimate of what ptxas needs */
  int launch_registers; /* what ptxas gives a thread, at a guess: these and 8 more, within the
                           kernel's limits, in eights; all of the limit if it uses setmaxnreg */
} SimKernelInfo;
SimKernelInfo sim_kernel_info(const SimKernel *kernel);
/* Where parameter `index` lies in the parameter bytes, and its size. */
void sim_kernel_param(const SimKernel *kernel, int index, int64_t *offset, int64_t *bytes);

/* ── tensor maps ──────────────────────────────────────────────────────────────────────────── */
/* What a parameter of 128 bytes (.param .align 64 .b8 map[128]) holds for cp.async.bulk.tensor.
 * NVIDIA keeps a GPU's format to itself; this is ours. Dimensions begin with the fastest. */
enum { SIM_MAP_RANK = 5 };
#define SIM_TENSOR_MAP UINT64_C(0x70616d2d6d697366)
typedef struct {
  uint64_t magic; /* SIM_TENSOR_MAP */
  uint64_t address;
  uint64_t dim[SIM_MAP_RANK], stride[SIM_MAP_RANK]; /* elements; bytes, [0] that of an element */
  uint32_t box[SIM_MAP_RANK];                       /* elements */
  uint16_t rank, swizzle;                           /* bytes: 0 (none), 32, 64, 128 */
} SimTensorMap;
_Static_assert(sizeof(SimTensorMap) <= 128, "a tensor map has 128 bytes");

/* ── launches ─────────────────────────────────────────────────────────────────────────────── */
/* Memory that a launch may touch. Plain host memory may be one too, if it is only read. */
typedef struct {
  const char *name; /* for messages: "work+4096 f32[64,128]" */
  char *at;
  int64_t bytes;
  bool is_writable;
} SimRegion;

/* What a launch did; added to, never reset. Sectors are of 32 bytes. */
typedef struct {
  int64_t launches, warps, instructions; /* executed by warps */
  int64_t thread_instructions;           /* by active lanes of them */
  int64_t load_sectors, store_sectors;   /* global: moved between a block and memory, see docs */
  int64_t load_requests, store_requests; /* global: instructions that asked for them */
  int64_t wide_loads, narrow_loads; /* of load_requests: of 16 bytes a lane; of fewer where the next
                                       bytes of the row were asked for by a neighbouring lane */
  int64_t shared_accesses; /* wavefronts that shared accesses need without conflicts */
  int64_t bank_conflicts;  /* wavefronts on top of them */
  int64_t branches, divergent_branches;
  int64_t blocks;
  /* Only with SimLaunch.timing. In a GPU's own instructions, an estimate (sim_cost.h): all, and by
   * unit; operations of tensor cores, as of 16 bits (tf32 counts twice); wavefronts of 128 bytes of
   * shared memory and L1, conflicts included; and paths (sim_path.h): the sum over blocks and the
   * longest, in cycles. */
  int64_t issued, f32, multiply, integer, special, wgmma, mma, wavefronts, path, longest_path;
} SimCounts;

/* The GPU whose cycles are counted. */
typedef struct {
  int l1_cycles, shared_cycles, memory_cycles; /* until a load is there */
  double wgmma, mma; /* 16-bit operations of a scheduler's tensor core in a cycle */
  double copied;     /* bytes of bulk copies that come to a multiprocessor in a cycle */
} SimTiming;

typedef struct {
  int64_t grid[3], block[3], shared; /* dynamic shared bytes */
  int cluster;                       /* blocks of a cluster, along x; 0: what the kernel says */
  const void *params;                /* laid out as the kernel's .param list */
  int64_t param_bytes;
  const SimRegion *regions; /* NULL: every allocation of the machine, all writable */
  int region_count;
  const char *source, *label; /* for messages: the .ft file and the plan's label; NULL: none */
  uint32_t line;              /* in source; 0: none */
  bool is_early;              /* begun before the launch that it waits for has ended: each thread must
                                 execute griddepcontrol.wait before it touches global memory or ends */
  int64_t sample;             /* run only so many blocks, drawn evenly over the grid; 0: all */
  /* A 32-bit counter from which blocks draw the numbers of their work, by atom.add of 1, or NULL. A sample's blocks draw
   * what they would if all of the grid's drew in turn: as the first to come each would draw everything. */
  const void *counter;
  int64_t step_limit;         /* instructions of a warp before it counts as endless; 0: 2^36 */
  SimCounts *counts;          /* NULL: not wanted; counting makes a launch slower */
  const SimTiming *timing;    /* with counts; NULL: no units and no paths; else no seed's order */
} SimLaunch;
/* Runs it to the end. STATUS_USER with the checker's first finding, of the lowest block. */
STATUS_CHECKED Status sim_launch(SimMachine *machine, const SimKernel *kernel,
                                 const SimLaunch *launch);
#endif
