/* cuda_private: what the files of the cuda device share.
 * Memory is ONE allocation: the places of the plan, and a ring of slots, each an input batch and
 * the place output. A run takes one slot (a batch from the host) or several in a row (steps on kept
 * data) and is one launch of a CUDA graph captured for just these slots. Batches are filled on the
 * copy stream, steps run on the compute stream, results go back on a stream of their own; events
 * order them, and the host waits only for runs long past.
 * Invariant: slot s is not filled before the last run that used it, and not computed into before
 * the last fetch that reads it. */
#ifndef FT_RUNTIME_CUDA_PRIVATE_H
#define FT_RUNTIME_CUDA_PRIVATE_H
#include "runtime/device/cuda/cuda_driver.h"
#include "runtime/device/cuda/cuda_pieces.h"
#include "runtime/device/dev.h"
#include <stdatomic.h>

enum {
  CUDA_RING = 8,     /* runs whose events are kept */
  CUDA_HOLDS = 3,    /* batches that may still be on their way when run returns */
  CUDA_AHEAD = 4,    /* launches on kept data that may be under way */
  CUDA_STREAMED = 4, /* slots of single runs: three batches ahead of the step */
  CUDA_TICKETS = 64, /* fetches under way */
  CUDA_EXECS = 12,   /* captured graphs kept for a plan graph */
  CUDA_ALIGN = 256,  /* bytes: of what is taken from an allocation */
};

static inline int64_t cuda_aligned(int64_t bytes) {
  return (bytes + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
}

typedef struct CudaBlas CudaBlas; /* cuda_blas.h */
typedef struct CudaCall CudaCall;

typedef struct {
  CudaModule at[CUDA_PIECES];
  int count;
} CudaModules;

typedef struct {
  int64_t last_run;   /* number of the last run that used it, 0: none */
  int64_t last_fetch; /* ticket of the last fetch that reads its outputs, 0: none */
} CudaSlot;

/* What a run is, for messages. */
typedef struct {
  const PlanGraph *graph;
  int64_t first, last; /* numbers of its steps or batches, from 1; 0: not known */
} CudaRunNote;

struct Device {
  const CudaDriver *driver;
  const Artifact *artifact;
  CudaDevice device;
  CudaContext context;
  CudaModules modules; /* of the artifact */
  CudaModule gather_module, round_module;
  CudaFunction gather, round; /* the runtime's own, loaded when needed */
  CudaStream compute, copy, back, communicate;
  CudaStream aside;  /* of the thread that reads copies; */
  CudaEvent copied;  /* … behind the last of them */
  CudaAddress block; /* the one allocation */
  int64_t block_bytes, block_used;
  CudaAddress input_slots, output_slots;
  int batch_place, result_place; /* of the plan; -1: it has none */
  int64_t input_stride, output_stride;
  CudaAddress output_base; /* the place that the host reads, as exec knows it */
  CudaSlot *slot;
  int slot_count, most_steps;
  int64_t runs; /* so far; run r (from 1) has events r % CUDA_RING */
  CudaEvent filled[CUDA_RING], done[CUDA_RING];
  int64_t tickets;
  CudaEvent back_done[CUDA_TICKETS];
  CudaEvent timer[2];
  int last_slot, last_steps; /* of the last run, whichever graph */
  CudaBlas *blas;            /* NULL: no cuBLASLt here */
  int major, minor, processors;
  Comm *comm;          /* NULL: alone, or the ranks have left each other */
  struct Nccl *nccl;   /* NULL: nothing of the plan goes between ranks */
  DeviceGraph *graphs; /* all that are bound */
  CudaEvent forked;
  _Atomic int64_t recorded; /* runs whose event `done` is recorded */
  bool is_joined;
  atomic_bool is_lost; /* the ranks' job has failed, or the GPU does not end its work: nothing is
                          waited for or freed any more */
  int64_t deadline;    /* nanoseconds that the host waits at most; 0: as long as it takes */
  int64_t first, last; /* what the next run is: DeviceType.tell */
  CudaRunNote note[CUDA_RING];
  char *waits; /* what kernels say of endless waits (plan/waits.h), the host's memory, */
  CudaAddress waits_address; /* … and where the GPU has it; NULL, 0: these say nothing */
  bool is_plain; /* launch one by one: FT_CUDA_NO_GRAPH, for debuggers, or a graph that could not be made */
  bool is_waited; /* … and wait for each launch */
  bool begins_early; /* launches of CUDA graphs, as plan_begins_early says */
  bool is_chain; /* the driver takes no edges of ours: each launch after the one before */
  char text[224];
};

/* One thing to enqueue: a launch or call of the plan, or a library call in place of some launches.
 */
typedef struct {
  int first, end;          /* steps of the plan */
  CudaFunction function;   /* of a launch */
  CudaCall *call;          /* in place of them */
  int *after, after_count; /* items of the same run that must be over before it starts */
  bool is_awaited;         /* another one waits for it */
} CudaItem;

typedef struct {
  CudaGraphExec exec;
  int first_slot, steps;
} CudaCaptured;

/* A BEGIN of the plan. */
typedef struct {
  CommWork work;
  CudaEvent over;   /* where it is on a stream of its own */
  CudaAddress copy; /* of its input, where NCCL cannot do it in place; 0: it can */
} CudaBegin;

struct DeviceGraph {
  Device *device;
  DeviceGraph *next; /* of the device's */
  const PlanGraph *plan;
  Arena *arena;
  CudaAddress *base; /* by place */
  CudaItem *item;
  int item_count;
  CudaFunction *function; /* by step of the plan, */
  CudaTensorMap **map;    /* and its maps; */
  CudaBegin **begin;      /* NULL: it begins nothing */
  int begin_count, ranks;
  const CudaBegin *first_begin, *last_begin;
  const char *begin_label;
  CudaCaptured captured[CUDA_EXECS];
  int captured_count, oldest;
};

struct DeviceKept {
  Device *device;
  CudaAddress memory;
  int64_t bytes;
  int64_t *offset, *row; /* by input: place in memory, bytes of a row */
  DeviceData data;
};

#define CUDA_TRY(device, call, ...)                                                                \
  STATUS_TRY(cuda_say(device, (device)->driver->call, __VA_ARGS__))

/* ── cuda_wait.c: how the host waits, and what it says of work that does not end ── */
/* cuda_check; where a kernel has given up a wait, that is what is said. */
Status cuda_say(Device *device, CudaResult result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Memory for what kernels say of endless waits, if the artifact's do; after the streams are made. */
Status cuda_wait_open(Device *device);
void cuda_wait_close(Device *device);
/* Run number `run` (device->runs + 1) is about to be enqueued. */
Status cuda_wait_note(DeviceGraph *graph, int64_t run);
void cuda_tell(Device *device, int64_t first, int64_t last);
/* Until the GPU has come to the event, or has nothing more in the stream. The thread sleeps; after
 * the deadline the device is lost, and the failure says which step has not ended. `what` is what
 * another failure is called: "reading results". */
Status cuda_wait_event(Device *device, CudaEvent event, const char *what);
Status cuda_wait_stream(Device *device, CudaStream stream, const char *what);
/* Before something is freed: waits without a word. False: it has not ended, and nothing may be
 * freed. event NULL: for the stream. */
bool cuda_settle(Device *device, CudaEvent event, CudaStream stream);

/* ── dev_cuda.c ── */
/* A piece of the one allocation; cuda_open has counted it. */
CudaAddress cuda_take(Device *device, int64_t bytes);
/* Bytes that are left free, where there is a choice, for what the driver and libraries will take. */
int64_t cuda_headroom(const Device *device);
/* ── cuda_module.c: PTX to functions ── */
Status cuda_module_check(const Artifact *artifact, int major, int minor);
Status cuda_module_load(const CudaDriver *driver, const char *path, const char *ptx,
                        CudaModule *out);
/* Its cubin, where that is for this GPU and whole; else its PTX, a large one in pieces that the driver compiles side by side.
 * FT_CUDA_CUBIN=0: its PTX; FT_CUDA_MODULES: how many pieces at most. */
Status cuda_modules_load(const CudaDriver *driver, const Artifact *artifact, int major, int minor, CudaModules *out,
                         bool *is_cubin);
/* The kernel of this name, of whichever module has it. */
CudaResult cuda_modules_function(const CudaDriver *driver, const CudaModules *modules, const char *name,
                                 CudaFunction *out);
void cuda_modules_unload(const CudaDriver *driver, CudaModules *modules);
/* ── cuda_map.c: tensor maps ── */
/* Makes the maps of a launch; *out in the graph's arena. */
Status cuda_map_make(DeviceGraph *graph, const PlanStep *step, CudaTensorMap **out);
/* ── cuda_graph.c: what a step enqueues, in which order; capture ── */
/* Sets device->begins_early: can the driver do it, and has the plan such launches? */
void cuda_graph_open(Device *device);
Status cuda_graph_items(DeviceGraph *graph);
/* Enqueues one item on a stream, with the batch and outputs of a slot. */
Status cuda_graph_enqueue(DeviceGraph *graph, const CudaItem *item, int slot, CudaStream stream);
Status cuda_graph_launch(DeviceGraph *graph, int first_slot, int steps);
/* There is no CUDA graph of this, and the last failure says why: from now on kernels of all graphs are
 * launched one by one, and a warning says so. Where the GPU itself or another rank has failed, that
 * is returned. */
Status cuda_graph_go_on_plainly(Device *device, const char *of);
/* Captures what that would capture, if it has not been, and there is a place for it. Runs nothing. */
Status cuda_graph_make_ready(DeviceGraph *graph, int first_slot, int steps);
CudaAddress cuda_graph_address(const DeviceGraph *graph, int buffer, int slot);
void cuda_graph_forget(DeviceGraph *graph); /* destroys what was captured */
/* ── cuda_run.c: runs, fetches ── */
Status cuda_run(DeviceGraph *graph, const char *batch);
Status cuda_run_kept(DeviceGraph *graph, const DeviceKept *kept, int64_t first_step, int steps);
Status cuda_make_ready(DeviceGraph *graph, int ahead, int steps);
Status cuda_run_part(DeviceGraph *graph, const char *batch, int first, int end, int64_t *time);
Status cuda_fetch(DeviceGraph *graph, const DevicePiece *piece, int count, char *to,
                  int64_t *ticket);
Status cuda_fetched(Device *device, int64_t ticket, bool wait, bool *is_done);
int cuda_most_steps(const DeviceGraph *graph);
/* ── cuda_ranks.c: what goes on between ranks ── */
void cuda_ranks_open(Device *device, Comm *comm);
/* Joins the GPUs of the ranks, if the plan has something for them. */
Status cuda_ranks_join_all(Device *device);
/* False: after a failure, and the device must stay as it is until the process has ended. */
bool cuda_ranks_close(Device *device);
/* Of a result that may be the GPU's answer to the end of the job. */
Status cuda_ranks_check(Device *device, CudaResult result, const char *what);
Status cuda_ranks_bind(DeviceGraph *graph, int step);
void cuda_ranks_bound(DeviceGraph *graph); /* all steps are */
void cuda_ranks_forget(DeviceGraph *graph);
Status cuda_ranks_enqueue(DeviceGraph *graph, const CudaItem *item, int slot, CudaStream stream);
/* The same beside the compute stream, and where that waits for it. */
Status cuda_ranks_fork(DeviceGraph *graph, const CudaItem *item, int slot);
Status cuda_ranks_join(DeviceGraph *graph, const CudaItem *item);
/* The event `done` of this run is recorded. */
Status cuda_ranks_launched(DeviceGraph *graph, int64_t run);
/* ── cuda_time.c ── */
typedef Status CudaEnqueue(void *context, CudaStream stream);
/* The time that `enqueue`'s work takes, the best of some rounds of so many repeats. */
Status cuda_time(Device *device, CudaEnqueue *enqueue, void *context, int repeats, int rounds,
                 double *microseconds);
Status cuda_time_part(DeviceGraph *graph, int first, int end, int64_t *time, const char **by);
/* ── cuda_data.c: splits kept on the device ── */
Status cuda_keep(Device *device, const DeviceData *data, DeviceKept **out);
void cuda_drop(DeviceKept *kept);
/* Enqueues on the copy stream: the batches of `steps` steps into slots from first_slot. */
Status cuda_data_gather(const DeviceKept *kept, int64_t first_step, int steps, int first_slot);
/* ── cuda_round.c ── */
Status cuda_round(Device *device, char *to, const char *from, int64_t count, DType dtype);
/* ── cuda_speed.c ── */
Status cuda_speed(Device *device, DeviceSpeed *out);
#endif
