/* dev: what a device is: memory, copies, and graphs bound once and run many times. cpu is here;
 * sim and cuda join by another table. A device pointer is a `char *` that only the device's own
 * functions may follow, unless is_host_memory says that the host can too. */
#ifndef FT_RUNTIME_DEV_H
#define FT_RUNTIME_DEV_H
#include "plan/gpu_model.h"
#include "runtime/artifact/artifact.h"
#include "runtime/common/spans.h"
#include "runtime/communicate/comm.h"

typedef struct Device Device;           /* each device's own */
typedef struct DeviceGraph DeviceGraph; /* a graph bound to addresses, ready to run */

typedef struct {
  int threads;  /* cpu: 0 means FT_THREADS, then OMP_NUM_THREADS, then the cores we may use */
  int reserved; /* cpu: of these, for the queues communicate and host and for loading; no step waits
                   for one that has not begun: others do its work then */
  int index;    /* cuda:N */
  bool is_deterministic; /* the same bits in every run: nothing that is chosen by timing */
  bool is_unchecked;     /* sim: for DeviceCounting.sample; nothing is checked */
  Comm *comm;            /* the ranks that BEGINs of the plan go to; NULL: this process is alone */
} DeviceOptions;

/* A split of the data for a device that keeps all of it: row r of input i is what the input's part
 * of a batch holds for sample r. */
typedef struct {
  int64_t samples, batch; /* a step takes `batch` samples; the rest of an epoch is left out */
  bool shuffle;
  uint64_t seed; /* of runtime/common/order.h; the epoch is the step / (samples / batch) */
  const PlanTensor *inputs;
  int input_count;
  int64_t batch_bytes; /* of the place input */
  /* Fills a batch with samples [first, first + batch), the last ones repeated beyond the end. */
  Status (*fill)(void *context, int64_t first, void *batch);
  void *context;
} DeviceData;
typedef struct DeviceKept DeviceKept; /* a split on the device */

/* A part of the place output. */
typedef struct {
  int64_t offset, bytes;
} DevicePiece;

/* What the device can do at best. 0: not known. */
typedef struct {
  double copy_bytes; /* per second, read and written, measured with a large copy */
  double flops;      /* per second: f32 multiply-adds outside of tensor cores, from its data */
  double tf32_flops, half_flops; /* of tensor cores, sums in f32; 0: not known of this GPU */
  const char *basis;             /* one line: how the numbers were had */
} DeviceSpeed;

/* What one kernel did, on a device that counts. Sectors are of 32 bytes. */
typedef struct {
  bool is_kernel; /* false: a library call, of which nothing is known */
  int64_t instructions, load_sectors, store_sectors; /* instructions: of warps */
  int64_t shared_accesses, bank_conflicts; /* wavefronts without conflicts, and those on top */
  int64_t branches, divergent_branches;
  int64_t wide_loads, narrow_loads; /* of 16 bytes a lane; of fewer, where lanes read neighbours */
  int registers; /* of a thread */
  bool registers_are_exact;
  int64_t shared_bytes; /* of a block */
  double occupancy;     /* share of a multiprocessor's warps that fit at once */
  GpuWork work;         /* with DeviceCounting.gpu */
} DeviceCounts;

typedef struct {
  const Gpu *gpu; /* whose cycles to count for DeviceCounts.work; NULL: of none */
  int64_t sample; /* run only so many blocks of a launch, and count as many times more; 0: all */
} DeviceCounting;

typedef void DeviceIdle(void *context);
typedef struct DeviceType {
  const char *name;
  bool is_host_memory;
  Status (*open)(const Artifact *artifact, const DeviceOptions *options, Device **out);
  void (*close)(Device *device);
  const char *(*describe)(const Device *device); /* "cpu, 2 threads" */
  /* For a thread that is not the device's own, as those of a program that embeds ft: between these
   * two, which are cheap, it may call the functions here, and behind leave its own state of the driver
   * is as it was. After open the thread has entered; close leaves. NULL: any thread may call. */
  void (*enter)(Device *device);
  void (*leave)(Device *device);
  /* Zeroed, at least 64-byte aligned; 0 bytes gives a valid address. */
  Status (*alloc)(Device *device, int64_t bytes, char **out);
  /* The same for what ranks work on together. NULL: alloc does */
  Status (*alloc_shared)(Device *device, int64_t bytes, char **out);
  void (*free)(Device *device, char *memory, int64_t bytes);
  /* Batches live here: host memory the device reads fast (pinned on a GPU). */
  Status (*alloc_host)(Device *device, int64_t bytes, char **out);
  void (*free_host)(Device *device, char *memory, int64_t bytes);
  Status (*write)(Device *device, char *to, const void *from, int64_t bytes);
  Status (*read)(Device *device, void *to, const char *from, int64_t bytes);
  /* Rounds `count` f32 to f16 or bf16, as element_round does, behind all runs so far. */
  Status (*round)(Device *device, char *to, const char *from, int64_t count, DType dtype);
  /* Binds plan->graphs.at[which]; base[]: by place of the plan; that
   * of batches is NULL. */
  Status (*bind)(Device *device, const Artifact *artifact, int which, char *const *base,
                 DeviceGraph **out);
  void (*unbind)(DeviceGraph *graph); /* NULL is fine */
  /* Joins the devices of DeviceOptions.comm's ranks: all of them call it, when all have opened
   * their device and bound their graphs. STATUS_USER is told to all alike. NULL: there is nothing
   * to do. */
  Status (*join)(Device *device);
  /* For messages: the next run is of the training steps, or batches, of these numbers, from 1.
   * NULL: the device says no numbers. */
  void (*tell)(Device *device, int64_t first, int64_t last);
  /* Makes ready, and does not run, what the run will need that comes `ahead` runs from now: run, or
   * run_kept of so many steps (0: run). So that the first steps take no longer than others, and what
   * there is no memory for is known before. NULL: there is nothing to do. */
  Status (*make_ready)(DeviceGraph *graph, int ahead, int steps);
  /* Runs one step on a batch (NULL: the graph reads none); the batch may be overwritten when it returns. Results are
   * complete after the next read or sync. */
  Status (*run)(DeviceGraph *graph, const char *batch);
  /* The same, and a thread that has nothing to do meanwhile may call idle(context): once or not at
   * all, and until the next sync. NULL: the device has no such threads. */
  Status (*run_beside)(DeviceGraph *graph, const char *batch, DeviceIdle *idle, void *context);
  /* Runs steps [first, end) only, complete on return: profiling and checking. Adds nanoseconds. */
  Status (*run_part)(DeviceGraph *graph, const char *batch, int first, int end, int64_t *time);
  /* When the work that step `begin`, a BEGIN, has begun last was begun and has ended, by
   * clock_nanoseconds. Behind its END. NULL: the device does not know. */
  void (*work_times)(const DeviceGraph *graph, int begin, int64_t *begun, int64_t *ended);
  /* From the next run on each notes when its threads did parts of which steps, as of training step
   * `number`; spans NULL: no longer. NULL: the device cannot. */
  void (*note)(DeviceGraph *graph, Spans *spans, int64_t number);
  Status (*sync)(Device *device);

  /* ── a device that runs behind the host's back; all of this may be NULL or 0 ── */
  /* A batch given to run must stay as it is until so many further runs have returned. 0: until run
   * returns. */
  int holds;
  /* Puts a whole split on the device; *out is NULL if there is no room for it. */
  Status (*keep)(Device *device, const DeviceData *data, DeviceKept **out);
  void (*drop)(DeviceKept *kept); /* NULL is fine */
  /* The most steps that one run_kept may take. */
  int (*most_steps)(const DeviceGraph *graph);
  /* Runs `steps` steps, first_step the first, on batches gathered on the device. */
  Status (*run_kept)(DeviceGraph *graph, const DeviceKept *kept, int64_t first_step, int steps);
  /* Starts copying parts of the outputs of each step of the last run of this graph, all parts of
   * the first step, then of the second, to host memory from alloc_host. Does not wait. */
  Status (*fetch)(DeviceGraph *graph, const DevicePiece *piece, int count, char *to,
                  int64_t *ticket);
  /* Has the fetch of this ticket ended? `wait`: waits until it has. */
  Status (*fetched)(Device *device, int64_t ticket, bool wait, bool *is_done);
  /* Memory for a copy beside the places; *out is NULL if less than twice that is free. May be
   * freed by any thread. */
  Status (*spare)(Device *device, int64_t bytes, char **out);
  void (*spare_free)(Device *device, char *memory);
  /* From a place to memory of `spare`, behind all runs so far and before all later ones. */
  Status (*copy)(Device *device, char *to, const char *from, int64_t bytes);
  /* From memory of `spare`, on a thread of the caller's, while graphs run. */
  Status (*read_beside)(Device *device, void *to, const char *from, int64_t bytes);
  Status (*speed)(Device *device, DeviceSpeed *out);
  /* How long steps [first, end) take on the device when repeated, in nanoseconds: they run many
   * times on what the places hold. *by: what does the work if it is no kernel of the artifact.
   * *time is -1 for steps that a call which began before has done. */
  Status (*time_part)(DeviceGraph *graph, int first, int end, int64_t *time, const char **by);
  /* Runs step `index` of the plan and counts. */
  Status (*count_step)(DeviceGraph *graph, const char *batch, int index, const DeviceCounting *how,
                       DeviceCounts *out);
} DeviceType;

/* The sentence of a device that runs nothing beside its compute queue. */
STATUS_CHECKED Status dev_refuse_beside(const char *path, const PlanStep *step);
extern const DeviceType dev_cpu, dev_cuda, dev_sim;
/* "auto", "cpu", "cuda", "cuda:1", "sim": the device for this artifact, or a sentence that says
 * what to do instead. */
STATUS_CHECKED Status dev_find(const char *text, const Artifact *artifact, const DeviceType **out,
                               DeviceOptions *options);
/* Before there is an artifact: what to compile for, so that it runs best on the device of this text
 * (NULL: the best one here). is_ptx false: this machine's processor. *gpu: a name for ftc's --gpu,
 * or NULL: any GPU. A device that cannot be had is told by dev_find later. */
void dev_compile_for(const char *text, bool *is_ptx, const char **gpu);
int dev_gpus(void); /* that the driver lets this process see; 0: none, or there is no driver */
#endif
