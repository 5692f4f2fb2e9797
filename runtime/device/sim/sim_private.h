/* sim_private: what the files of the simulator share: decoded instructions, kernels, warps.
 *
 * A register is an array of 32 lanes: 4 bytes a lane for 32-bit and 16-bit values and predicates
 * (0 or all ones), 8 for 64-bit ones. An instruction names a register by its byte offset in the
 * warp's registers; bit 0 set means the kernel's constants instead. Between decoding and sim_fit
 * (which gives registers places) args are numbers of virtual registers, or -1 - constant.
 *
 * Handlers (SimOp) are compiled several times, for the vector units that x86 processors have: all
 * of sim_lanes.inc, through sim_lanes_*.c. */
#ifndef FT_RUNTIME_SIM_PRIVATE_H
#define FT_RUNTIME_SIM_PRIVATE_H
#include "base/arena.h"
#include "base/text.h"
#include "runtime/common/pool.h"
#include "runtime/device/sim/sim.h"
#include <stdatomic.h>

enum { SIM_LANES = 32, SIM_ARGS = 8, SIM_VECTOR = 8, SIM_OPERANDS = 8 };
enum { SIM_CLUSTER = 8 /* most blocks of a cluster (PTX ISA: more are not portable) */ };

/* ── types of values ──────────────────────────────────────────────────────────────────────── */
/* X(name, bytes of the value, bytes of a lane): names as in PTX. */
#define SIM_TYPES(X)                                                                               \
  X(none, 0, 4)                                                                                    \
  X(pred, 1, 4)                                                                                    \
  X(u16, 2, 4) X(s16, 2, 4) X(u32, 4, 4) X(s32, 4, 4) X(u64, 8, 8) X(s64, 8, 8) X(f16, 2, 4)       \
      X(bf16, 2, 4) X(f32, 4, 4) X(f64, 8, 8)
typedef enum {
#define X(name, bytes, lane) SIM_TYPE_##name,
  SIM_TYPES(X)
#undef X
} SimType;

/* Classes of registers, by how they are declared. */
typedef enum { CLASS_PRED, CLASS_16, CLASS_32, CLASS_64, CLASS_COUNT } SimClass;

/* ── instructions ─────────────────────────────────────────────────────────────────────────── */
typedef struct SimWarp SimWarp;
typedef struct SimInst SimInst;
typedef struct SimClock SimClock;
/* Does one instruction for the active lanes; the next one, or NULL: the warp's state says why. */
typedef const SimInst *SimOp(SimWarp *warp, const SimInst *inst);

/* Pointwise ones are in sim_ops.def; these move data, control, or need the whole warp. */
#define SIM_SPECIAL_OPS(X)                                                                         \
  X(block)                                                                                         \
  X(bra)                                                                                           \
  X(bra_if) X(guard) X(end) X(trap) X(bar) X(bar_arrive) X(bar_warp) X(nothing) X(data) X(ld_param) X(ld) X(st)  \
      X(ld_local) X(st_local) X(ld_generic) X(st_generic) X(atom) X(shfl) X(vote) X(activemask)    \
          X(match) X(redux) X(split64) X(join64) X(split32) X(join32) X(cp_async) X(cp_commit)     \
              X(cp_wait) X(ldmatrix) X(stmatrix) X(proxy) X(wgmma_fence) X(wgmma_commit)           \
                  X(wgmma_wait) X(wgmma) X(registers) X(mbar) X(bulk) X(tensor) X(elect) X(mapa)          \
                      X(tensor_store) X(bulk_store) X(bulk_commit) X(bulk_wait) X(cluster) X(grid_wait) X(mma_sparse) X(mma)
typedef enum {
#define X(name) SIM_##name,
  SIM_SPECIAL_OPS(X)
#undef X
#define OP(id, text, D, A, B, C, E, expression) SIM_##id,
#include "runtime/device/sim/sim_ops.def"
      SIM_OP_COUNT
} SimCode;

typedef enum {
  SPACE_GENERIC,
  SPACE_GLOBAL,
  SPACE_SHARED,
  SPACE_LOCAL,
  SPACE_PARAM,
  SPACE_CONST,
} SimSpace;

/* size, count, space, mode: of memory instructions: bytes of an element, elements of a vector; mode
 * of a SIM_ld: .nc, of a SIM_bar: .aligned.
 * imm: the address's offset, a jump's target (index, then address), an immediate operand. Of a
 * SIM_block: arg[0] how many instructions follow, arg[1] its rank (sim_order). */
struct SimInst {
  SimOp *op;
  union {
    int64_t imm;
    const SimInst *target;
  };
  int32_t arg[SIM_ARGS];
  int32_t line;
  uint16_t code;
  uint8_t defs, uses; /* which args are written, read */
  uint8_t size, count, space, mode;
  uint8_t is_signed, is_wide, is_store, sub;
};

/* Which operation an atom or red does. */
typedef enum {
  ATOM_ADD,
  ATOM_MIN,
  ATOM_MAX,
  ATOM_INC,
  ATOM_DEC,
  ATOM_AND,
  ATOM_OR,
  ATOM_XOR,
  ATOM_EXCH,
  ATOM_CAS,
  ATOM_NONE, /* an mbarrier's */
} SimAtom;
enum { SHFL_UP, SHFL_DOWN, SHFL_BFLY, SHFL_IDX };
enum { VOTE_ALL, VOTE_ANY, VOTE_UNI, VOTE_BALLOT };
enum {
  MBAR_INIT,
  MBAR_INVAL,
  MBAR_ARRIVE,
  MBAR_EXPECT,
  MBAR_ARRIVE_EXPECT,
  MBAR_WAIT, /* for the phase of a state, */
  MBAR_WAIT_PARITY,
};
/* What a SIM_proxy makes visible to the async proxy: bits of mode. */
enum { PROXY_SHARED = 1, PROXY_GLOBAL = 2, PROXY_MBARRIER = 4 };
enum { WGMMA_F16, WGMMA_BF16, WGMMA_TF32, WGMMA_FLOAT8 /* and three more: 1 if b is of e5m2, 2 if a is */ };
enum { MMA_F16_16816, MMA_BF16_16816, MMA_TF32_1688, MMA_F16_1688, MMA_BF16_1688, MMA_TF32_1684,
       MMA_FLOAT8 /* and three more: 1 if b is of e5m2, 2 if a is */,
       MMA_INTEGER = MMA_FLOAT8 + 4 /* the same: 1 if b is unsigned, 2 if a is */ };

/* ── modules ──────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  uint64_t bits;
  bool is_wide;
} SimConstant;

/* X(name, PTX): special registers. */
#define SIM_SPECIALS(X)                                                                            \
  X(tid_x, "%tid.x")                                                                               \
  X(tid_y, "%tid.y")                                                                               \
  X(tid_z, "%tid.z") X(ntid_x, "%ntid.x") X(ntid_y, "%ntid.y") X(ntid_z, "%ntid.z")                \
      X(ctaid_x, "%ctaid.x") X(ctaid_y, "%ctaid.y") X(ctaid_z, "%ctaid.z")                         \
          X(nctaid_x, "%nctaid.x") X(nctaid_y, "%nctaid.y") X(nctaid_z, "%nctaid.z")               \
              X(laneid, "%laneid") X(warpid, "%warpid") X(nwarpid, "%nwarpid")                     \
                  X(mask_eq, "%lanemask_eq") X(mask_le, "%lanemask_le") X(mask_lt, "%lanemask_lt") \
                      X(mask_ge, "%lanemask_ge") X(mask_gt, "%lanemask_gt") X(smid, "%smid")       \
                          X(nsmid, "%nsmid") X(dynamic_shared, "%dynamic_smem_size")               \
                              X(cluster_rank, "%cluster_ctarank")                                  \
                                  X(cluster_size, "%cluster_nctarank")                             \
              X(cluster_ctaid_x, "%cluster_ctaid.x") X(cluster_ctaid_y, "%cluster_ctaid.y")        \
              X(cluster_ctaid_z, "%cluster_ctaid.z") X(cluster_nctaid_x, "%cluster_nctaid.x")      \
              X(cluster_nctaid_y, "%cluster_nctaid.y") X(cluster_nctaid_z, "%cluster_nctaid.z")    \
              X(clusterid_x, "%clusterid.x") X(clusterid_y, "%clusterid.y")                        \
              X(clusterid_z, "%clusterid.z") X(nclusterid_x, "%nclusterid.x")                      \
              X(nclusterid_y, "%nclusterid.y") X(nclusterid_z, "%nclusterid.z")                    \
                                      X(dynamic_at, "[dynamic shared]")
typedef enum {
#define X(name, text) SPECIAL_##name,
  SIM_SPECIALS(X)
#undef X
      SPECIAL_COUNT
} SimSpecial;

typedef struct {
  int64_t offset, bytes;
} SimParam;

struct SimKernel {
  const SimModule *module;
  const char *name;
  int line, text_instructions;
  VEC(SimParam) params;
  int64_t param_bytes, shared_bytes, local_bytes, max_threads;
  VEC(SimInst) code;
  VEC(SimConstant) constants;
  VEC(uint8_t) classes;       /* of virtual registers */
  int special[SPECIAL_COUNT]; /* its register, then its offset; -1: not used */
  int64_t register_bytes;     /* of a warp */
  int live_registers;         /* most 32-bit ones at once */
  int64_t max_registers;      /* .maxnreg, 0: none */
  int cluster;                /* blocks of a cluster, by .reqnctapercluster; 1: none, or as the launch says */
  bool has_thread_limit;      /* .maxntid or .reqntid: ptxas keeps room for such a block */
  bool sets_registers;        /* setmaxnreg */
  int64_t dynamic_align;      /* of dynamic shared memory */
  bool is_hopper;             /* has instructions of the async proxy: see sim_lanes_wgmma.inc */
  bool has_bulk;              /* copies by the async proxy */
  bool is_partly_ordered;     /* has mbarriers, or barriers of some threads: see sim_clock.h */
  char *constant_lanes;       /* what bit 0 of an arg leads to */
};

typedef struct {
  const char *name;
  char *at;
  int64_t bytes;
  bool is_writable;
} SimVariable; /* of the module: .global, .const */

struct SimModule {
  Arena *arena;
  const char *path;
  VEC(SimKernel *) kernels;
  VEC(SimVariable) variables;
  char *lane_memory; /* constants of all kernels, 64-byte aligned */
};

/* Generic addresses of shared memory, local memory and parameters lie in windows that no host
 * address lies in. */
#define SIM_SHARED_WINDOW (UINT64_C(0x7e) << 56)
#define SIM_LOCAL_WINDOW (UINT64_C(0x7f) << 56)
#define SIM_PARAM_WINDOW (UINT64_C(0x7d) << 56) /* for tensor maps only */
#define SIM_WINDOW_MASK (UINT64_C(0xff) << 56)
/* What mapa makes, an address of shared memory in a block of the cluster: rank + 1 from this bit
 * on. Without that it is the block's own. */
enum { SIM_CLUSTER_AT = 24 };

/* ── memory ───────────────────────────────────────────────────────────────────────────────── */
/* Which thread touched a 4-byte word last:
 *   63..34 owner    global: launch and block; shared: the run of a block
 *   33..19 epoch    barriers that the block had passed (saturates)
 *   18..15 sync     bar.warp.sync since (saturates)
 *   14..4  thread   or one of the TOUCH values
 *   3..0   bytes    written since the owner came */
typedef uint64_t SimTouch;
enum {
  TOUCH_OWNER = 34,
  TOUCH_EPOCH = 19,
  TOUCH_SYNC = 15,
  TOUCH_THREAD = 4,
  TOUCH_EPOCHS = 1 << (TOUCH_OWNER - TOUCH_EPOCH),
  TOUCH_SYNCS = 1 << (TOUCH_EPOCH - TOUCH_SYNC),
  TOUCH_MANY = 1024,   /* several threads */
  TOUCH_ATOMIC = 1025, /* by atomic instructions of several warps */
  TOUCH_ASYNC = 1026,  /* a cp.async that is in flight */
  TOUCH_BLOCKS = 18,   /* bits of the block in the owner */
};

typedef struct {
  char *at;
  int64_t bytes;
  uint8_t *written;          /* a byte for each byte: 0 or 1 */
  SimTouch *writer, *reader; /* for each word */
} SimAllocation;

struct SimMachine {
  Arena *arena;
  Pool *pool;
  VEC(SimAllocation) allocations;
  struct SimCta **cta; /* one a thread */
  uint32_t launch;     /* counts; the upper part of owners */
  uint64_t launches;   /* counts, for ever */
  uint64_t schedule_seed, rounding_seed;
  bool is_unchecked;
};

/* A region of a launch with what is recorded about it. */
typedef struct {
  const char *name;
  char *at, *end;
  bool is_writable;
  /* Of address p: written[p - at], writer[(p - first_word) >> 2]; NULL: nothing to check. */
  uint8_t *written;
  SimTouch *writer, *reader;
  char *first_word;
} SimPlace;

/* ── running ──────────────────────────────────────────────────────────────────────────────── */
typedef enum { WARP_RUNS, WARP_WAITS, WARP_DONE, WARP_FAULT } SimWarpState;

typedef struct {
  const SimInst *at; /* the beginning of a block of code */
  uint32_t mask;
  bool is_waiting; /* for more of the warp's lanes */
} SimGroup;

/* A 4, 8 or 16 byte copy to shared memory that was asked for but not waited for. */
typedef struct {
  uint32_t to;
  uint8_t lane, bytes, wanted; /* wanted: bytes of the source, the others are zero */
  int32_t group;
  const char *from; /* read only when it arrives; NULL: was read when it was asked for */
  char data[16];
} SimAsync;

/* A wgmma that was issued but not waited for. */
typedef struct {
  const SimInst *in;
  int group;
  uint64_t descriptor[2]; /* of a (if it is in shared memory) and b */
  uint64_t stamp;         /* of the writers of what it reads */
} SimFlight;

/* A store to global memory after which its lanes have made no proxy fence. */
typedef struct {
  uint64_t at;
  uint32_t mask;  /* lanes without a fence, of those of a run: */
  uint8_t first;  /* its first lane */
  uint8_t bytes;  /* of each lane */
  bool is_unit;   /* each lane `bytes` further; else all at the same address */
} SimStore;

/* What a wgmma still does with a register, for each place of registers. */
enum { PLACE_WRITTEN = 1, PLACE_READ = 2, PLACE_SUM = 4 /* has been written by one */ };

struct SimWarp {
  char *base[2];            /* registers, constants */
  uint32_t mask, live, all; /* active now; not ended; that exist */
  uint32_t unready;         /* of a launch that was begun early: lanes without griddepcontrol.wait so far */
  bool is_partial;          /* mask is not all of live */
  SimWarpState state;
  int index, sync;
  struct SimCta *cta;
  const SimInst *at; /* where to go on */
  int barrier;       /* that it waits at, */
  int64_t barrier_threads;
  int group_count;
  SimGroup group[SIM_LANES];
  int64_t steps, thread_steps; /* instructions */
  SimAsync *async;
  int async_count, async_capacity, async_groups[SIM_LANES];
  int stored_groups[SIM_LANES]; /* of bulk stores, committed */
  SimFlight *flight;
  uint8_t *places; /* NULL: no wgmma yet */
  int flight_count, flight_capacity, flight_groups, place_capacity;
  int32_t dirty_low, dirty_high; /* words that it wrote since its last proxy fence lie between */
  int registers, register_sets;  /* of a thread; how often setmaxnreg changed that, */
  const SimInst *register_set;   /* and by which instruction the last time */
  SimStore *stores;              /* only of kernels with bulk copies */
  int store_count, store_capacity;
  bool is_polling; /* stopped at an mbarrier whose phase is not over */
  bool is_fenced;  /* wgmma.fence, and no sum touched since */
  bool has_arrived, cluster_waits; /* at the cluster's barrier, in this phase; and not waited since */
  int cluster_phase;               /* in which it arrived */
  struct SimPath *path; /* NULL: no timing */
};

/* A bulk copy to shared memory under way: it arrives when a warp waits for its mbarrier. */
typedef struct {
  uint32_t to, bytes, mbarrier;
  int line;
  bool has_arrived; /* and no warp has waited for it since */
  const char *from; /* read only when it arrives; NULL: was read when it was asked for */
  char *data;
  int64_t arrives; /* cycle: see sim_path.h */
  /* A store of a box to a tensor, or of a row that is described as one, the other way: `to` is where it lies in shared memory, which is read when the
   * thread waits for its group, or with a seed when the schedule says so. */
  bool is_store, is_sum; /* is_sum: adds to what is there, of f32 */
  int thread, group; /* of the block; of those that the thread has committed and will */
  SimTensorMap map;
  int64_t start[SIM_MAP_RANK];
} SimBulk;

/* Of bar.sync and bar.arrive: who has come without waiting for the others. */
typedef struct {
  int64_t arrived, threads; /* threads: that it is for, as they said */
  int64_t last;             /* the cycle in which the last one came */
} SimBarrier;

enum { STORED_BITS = 1 << 16, STORED_PIECE = 256 };
enum { DIRTY_MBARRIER = 1 << 15, DIRTY_THREAD = DIRTY_MBARRIER - 1 };
enum { SIM_CACHE_LINES = 512 };
typedef struct {
  uint64_t tags[SIM_CACHE_LINES]; /* sectors in a small cache, see sim_count.c */
} SimCache;

/* The launch as its blocks see it. */
typedef struct SimRun {
  SimMachine *machine;
  const SimKernel *kernel;
  const SimLaunch *launch;
  SimPlace *places;
  int place_count;
  int warps; /* of a block */
  int64_t blocks;   /* of the grid, */
  int64_t taken;    /* and clusters of them to run: block_of_run says which */
  int cluster;      /* blocks of a cluster; 1: none */
  int64_t step_limit;
  int64_t shared_bytes, dynamic_at;         /* of a block; where the dynamic part begins */
  _Atomic int64_t next_block, failed_block; /* INT64_MAX: none */
  uint64_t seed;                            /* of the schedule; 0: none */
  uint32_t rounding;                        /* seed of what PTX leaves open; 0: none */
} SimRun;

/* A block being run, with memory that serves one block after the other. */
typedef struct SimCta {
  const SimRun *run;
  int64_t block; /* linear */
  uint32_t id[3];
  uint64_t owner_global, owner_shared; /* shifted into place */
  uint64_t random; /* state of the schedule's chance; 0: warps run in turn */
  uint32_t slow;   /* warps that seldom run now */
  int epoch;
  int rank;                 /* in its cluster, whose blocks are: */
  struct SimCta **peer, *own_peers[SIM_CLUSTER]; /* peer: the first one's own_peers */
  bool has_ended;
  int cluster_phase;        /* of the cluster's barrier, */
  int64_t cluster_over;     /* and the cycle in which the last one ended */
  char *shared;
  SimTouch *shared_writer, *shared_reader;
  uint16_t *dirty; /* word: thread + 1 that wrote it and made no proxy fence since, and whether
                      that was an mbarrier's initialisation (DIRTY_MBARRIER); NULL: not needed */
  int64_t dirty_capacity;
  uint8_t *stored; /* bits: of pieces of global memory, modulo STORED_BITS, which a SimStore may
                      have written */
  SimBulk *bulk;
  int bulk_count, bulk_capacity;
  SimClock *clock, *clock_memory; /* NULL: barriers are for all; what is kept for other blocks */
  int64_t drawn;    /* how often from SimLaunch.counter */
  int64_t progress; /* counts what can end a warp's waiting at an mbarrier or for registers */
  int64_t free_registers; /* that setmaxnreg.dec gave back, of all threads */
  SimBarrier barrier[16];
  bool polls_fail; /* of mbarriers: nobody can go on, and the kernel counts them (fail_polls) */
  int64_t shared_capacity;
  uint64_t shared_runs;
  char *local;
  uint8_t *local_written;
  int64_t local_capacity;
  SimWarp *warps;
  int warp_capacity;
  char *registers;
  int64_t register_capacity;
  int fault_line; /* of the PTX */
  char fault[640];
  int64_t failed_block;
  bool out_of_memory;
  SimCounts counts;
  SimCache cache;
  struct SimPaths *paths; /* NULL: never timed */
} SimCta;

/* False: races, fences and what nobody wrote are not looked for. */
static inline bool sim_is_checked(const SimWarp *w) { return !w->cta->run->machine->is_unchecked; }

/* A table of handlers for each kind of processor. */
typedef struct {
  const char *name;
  SimOp *const *op; /* [SIM_OP_COUNT] */
} SimLanes;

/* ── between the files ────────────────────────────────────────────────────────────────────── */
/* sim_parse: text -> kernels with virtual registers. */
STATUS_CHECKED Status sim_parse(SimModule *module, const char *text, size_t length);
/* sim_fit: virtual registers -> offsets; jumps -> addresses; constants -> lanes. */
void sim_fit(SimModule *module, const SimLanes *lanes);

/* Registers of a thread when the kernel begins: what .maxnreg allows, or all that a block of
 * .maxntid threads may have, in eights, as ptxas does. */
int sim_kernel_registers(const SimKernel *kernel);

/* sim_order: rank[b] of blocks of code that lead to next[b] (-1: none); the first is 0. */
void sim_order(Arena *arena, const int (*next)[2], int count, int *rank);

extern const SimLanes sim_lanes_base;
#if defined(__x86_64__) && !defined(FT_SIM_ONE) /* sanitized builds have one, for the machine that builds */
#define SIM_LEVELS
extern const SimLanes sim_lanes_v3, sim_lanes_v4;
#endif

/* ── sim_report: findings end the warp; each returns NULL, so that a handler can too ──────── */
const SimInst *sim_fault(SimWarp *warp, const SimInst *inst, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
const SimInst *sim_fault_global(SimWarp *warp, const SimInst *inst, int lane, uint64_t address,
                                int bytes);
/* A lane of an early launch ends without having waited. */
const SimInst *sim_fault_unready(SimWarp *warp, const SimInst *inst);
const SimInst *sim_fault_shared(SimWarp *warp, const SimInst *inst, int lane, uint64_t address,
                                int bytes);
const SimInst *sim_fault_local(SimWarp *warp, const SimInst *inst, int lane, uint64_t address,
                               int bytes);
const SimInst *sim_fault_local_unwritten(SimWarp *warp, const SimInst *inst, int lane,
                                         uint64_t address, int bytes);
/* The first of `lanes` neighbours, from `lane` on, that reads a byte never written. */
const SimInst *sim_fault_unwritten(SimWarp *warp, const SimInst *inst, int lane,
                                   const SimPlace *place, const char *at, int bytes, int lanes);
/* clash: a Clash of sim_touch.h; at: an offset in shared memory, or an address. */
const SimInst *sim_fault_clash(SimWarp *warp, const SimInst *inst, int lane, bool is_shared,
                               int64_t at, int clash, SimTouch other);
/* `what` (a verb, for example "wgmma reads") meets a byte that thread `who` wrote without a
 * fence. */
const SimInst *sim_fault_proxy(SimWarp *warp, const SimInst *inst, const char *what, bool is_shared,
                               uint64_t at, int who);
/* The finding of a launch as a status. */
Status sim_report(const SimRun *run, const SimCta *cta);

/* ── sim_count: what is counted when a launch asks for it ─────────────────────────────────── */
void sim_count_global(SimWarp *warp, const uint64_t *address, uint32_t mask, int bytes,
                      bool is_store);
void sim_count_shared(SimWarp *warp, const uint64_t *address, uint32_t mask, int bytes);
void sim_count_add(SimCounts *to, const SimCounts *from);

/* The allocation in which the bytes lie; NULL: none. */
SimAllocation *sim_allocation(const SimMachine *machine, const char *at, int64_t bytes);

/* ── sim_block: the memory of blocks ──────────────────────────────────────────────────────── */
/* Makes the memory of a block, and of the others of its cluster, large enough for the run. */
bool sim_cta_prepare(SimCta *cta, const SimRun *run);
bool sim_cta_begin(SimCta *cta, int64_t block); /* false: out of memory */
void sim_cta_free(SimCta *cta);
/* Room for a copy by each lane; false: out of memory. */
bool sim_async_reserve(SimWarp *warp);
/* Remembers a store to global memory; false: out of memory. */
bool sim_store_push(SimWarp *warp, SimStore store);
/* Room for one more wgmma; false: out of memory. */
bool sim_flight_reserve(SimWarp *warp);

/* ── sim_schedule ─────────────────────────────────────────────────────────────────────────── */
/* The cluster whose first block is number `block`, or that block alone. */
void sim_cta_run(SimCta *first, int64_t block);
/* bar.arrive: the warp has come to its barrier (w->barrier, barrier_threads) and goes on. */
void sim_barrier_arrive(SimWarp *warp);
/* Opens barrier `id` if all that it is for have come: whoever comes now is there for its next time. For how many threads
 * it is, as those who are there say; 0: for all, or nobody is there. */
int64_t sim_barrier_settle(SimCta *cta, int id);
/* The next of a sequence of numbers. */
uint64_t sim_random(uint64_t *state);

#endif
