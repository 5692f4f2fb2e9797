/* exec: an artifact with its memory on a device: initialise, run steps, read results, reach the
 * arenas. Everything is allocated in exec_new; a step allocates nothing. Not thread-safe: one
 * thread drives an Exec (batches may be filled by others).
 *
 *   Artifact *artifact; Exec *exec;
 *   artifact_open("model.so", &artifact);
 *   exec_new(artifact, &(ExecOptions){0}, &exec);
 *   exec_write_settings(exec);               // plan->settings -> the place settings
 *   exec_init(exec, seed);                   // parameters, states; the step counter is 0
 *   ExecGraph step = exec_result_graph(exec, PROGRAMME_STEP);
 *   exec_run(exec, step, batch);             // forward, backward, update; in parts: programme.h
 *   exec_scalar(exec, step, exec_find_output(exec, step, OUTPUT_LOSS, NULL), &loss);
 */
#ifndef FT_RUNTIME_EXEC_H
#define FT_RUNTIME_EXEC_H
#include "plan/plan_stages.h"
#include "runtime/device/dev.h"

/* A graph as programmes of the plan run it: its index in plan->graphs, plus their count where it
 * reads the average of the weights in place of the weights. */
typedef int ExecGraph;
enum { EXEC_NO_GRAPH = -1 };
ExecGraph exec_graph_of(const Plan *plan, const PlanRun *run);

typedef struct {
  const char *device;      /* "auto" (or NULL), "cpu", "cuda:N", "sim" */
  int threads;             /* 0: FT_THREADS, then OMP_NUM_THREADS, then the cores we may use */
  bool is_deterministic;   /* the same bits in every run on this device */
  const char *const *only; /* names of the programmes that will run, and memory for no more; ends in
                              NULL. NULL: all but that for generation (runtime/execute/decoder.h) */
  bool is_unchecked; /* sim: DeviceOptions */
  int reserved; /* cpu: of the threads, for queues beside compute and for loading (dev.h) */
  Comm *comm;   /* the ranks that the steps' collectives go to; NULL: this process is alone */
} ExecOptions;

typedef struct Exec Exec;

/* The artifact must outlive the Exec. */
STATUS_CHECKED Status exec_new(Artifact *artifact, const ExecOptions *options, Exec **out);
/* Joins the devices of ExecOptions.comm's ranks: all of them call it, when all have one.
 * STATUS_USER is told to all alike. */
STATUS_CHECKED Status exec_join(Exec *exec);
void exec_free(Exec *exec); /* NULL is fine */
/* DeviceType.enter and leave; NULL is fine. */
void exec_enter(Exec *exec);
void exec_leave(Exec *exec);
Plan *exec_plan(const Exec *exec);
/* Those of all ranks of a pipeline, the Exec's own among them: what files hold. */
const PlanStages *exec_stages(const Exec *exec);
const PlanGraph *exec_graph_plan(const Exec *exec, ExecGraph graph);
/* The graph whose results are those of the programme; EXEC_NO_GRAPH: the plan has no such one, or
 * it is none of ExecOptions.only. */
ExecGraph exec_result_graph(const Exec *exec, const char *programme);
bool exec_has_ema(const Exec *exec);  /* is there an evaluation with averages? */
int64_t exec_parts(const Exec *exec); /* batches of a step: train.accumulate */
int64_t exec_rank(const Exec *exec);  /* distributed.data_rank and … */
int64_t exec_ranks(const Exec *exec); /* … distributed.ranks: those that share the batch */
const char *exec_device_text(const Exec *exec); /* "cpu, 2 threads" */
/* Of a part of a tensor (its cut), as files have it: where byte `at` of it stands in the whole, and
 * how many from there on follow each other in both; -1: so many are in no file, behind the end of the
 * last rank's part. tensor_rank: whose part. */
int64_t exec_part_run(const PlanTensor *tensor, int64_t tensor_rank, int64_t at, int64_t *bytes);
/* plan_held, but only the elements that are the tensor's: the last ranks' parts may be longer than what is
 * left for them, and behind it lies what no one looks at. */
Type exec_held(const Exec *exec, const PlanTensor *tensor);
/* The element of the whole tensor, as files have it, that is this one of what is in memory. */
int64_t exec_element_of(const Exec *exec, const PlanTensor *tensor, int64_t held);

/* What this process has in memory (plan_held) of all elements of a param or state, as files have
 * them (plan_whole); these are overwritten. `held` may be `whole`, with room for either. */
STATUS_CHECKED Status exec_take_tensor(const Exec *exec, const PlanTensor *tensor, char *whole,
                                       char *held);

/* Copies the numeric settings of the plan (as they are now, train.steps_per_epoch and
 * train.total_steps included: set those first with exec_set_derived) to the device. Call before
 * the first step and after every change. */
STATUS_CHECKED Status exec_write_settings(Exec *exec);
/* Sets a DERIVED setting by key in plan->settings. */
void exec_set_derived(Exec *exec, const char *key, double value);

/* Parameters and states by their initialisers (Philox keyed by seed and the parameter's place:
 * the same on every device and thread count). */
STATUS_CHECKED Status exec_init(Exec *exec, uint64_t seed);
/* States only, before ckpt_load_weights, which sets every parameter. */
STATUS_CHECKED Status exec_init_states(Exec *exec, uint64_t seed);
/* The parts of a batch that were done count no more: the next one is a batch's first. */
STATUS_CHECKED Status exec_clear_parts(Exec *exec);

/* ── running ──────────────────────────────────────────────────────────────────────────────── */
/* A batch is exec_batch_bytes long, 64-byte aligned, with each input at its
 * PlanTensor offset. It must not change until exec_run has returned and exec_holds further runs
 * have, or results of its own run were read, or exec_sync. On the cpu exec_holds is 0. */
int exec_holds(const Exec *exec);
int64_t exec_batch_bytes(const Exec *exec);
STATUS_CHECKED Status exec_batch_new(Exec *exec, void **out); /* zeroed */
void exec_batch_free(Exec *exec, void *batch);                /* NULL is fine */
/* exec_run, and idle(context) on a thread with nothing to do: see DeviceType.run_beside. */
bool exec_has_idle(const Exec *exec);
STATUS_CHECKED Status exec_run_beside(Exec *exec, ExecGraph graph, const void *batch,
                                      DeviceIdle *idle, void *context);
/* What the next run is, for the device's messages: see DeviceType.tell. */
void exec_tell(Exec *exec, int64_t first, int64_t last);
STATUS_CHECKED Status exec_run(Exec *exec, ExecGraph graph, const void *batch);
/* Like exec_run, but looks at every float result of every launch: STATUS_USER and a sentence that
 * names the step, its label and source line at the first NaN or infinity. --check=nan. */
STATUS_CHECKED Status exec_run_checked(Exec *exec, ExecGraph graph, const void *batch);
/* STATUS_USER and a sentence if a parameter holds a number that is not finite. Reads all of
 * them. */
STATUS_CHECKED Status exec_check_params(Exec *exec);
/* Like exec_run with each plan step timed alone: nanoseconds[i] for step i of the graph. */
STATUS_CHECKED Status exec_run_timed(Exec *exec, ExecGraph graph, const void *batch,
                                     int64_t *nanoseconds);
/* When a step ran, by clock_nanoseconds. */
typedef struct {
  int64_t start, time;
  int64_t begun, ended; /* of a BEGIN: what it began; 0: it is none, or the device does not know */
} ExecStepTime;
/* exec_run_timed for a trace: times[i] of step i; *sent: when the batch went to a device with memory
 * of its own. */
STATUS_CHECKED Status exec_run_traced(Exec *exec, ExecGraph graph, const void *batch,
                                      ExecStepTime *times, ExecStepTime *sent);
/* exec_run as ever, noting when threads did parts of which steps, on a device that can. Of `times`
 * it gives begun and ended. */
bool exec_notes(const Exec *exec);
STATUS_CHECKED Status exec_run_noted(Exec *exec, ExecGraph graph, const void *batch, Spans *spans,
                                     int64_t number, ExecStepTime *times);
/* On a device with a clock of its own: how long step `index` takes when run many times over, in
 * nanoseconds; -1: a library call that began at an earlier step does it. *by: what does it if no
 * kernel of the artifact does; NULL otherwise. Call after exec_run_timed. */
STATUS_CHECKED Status exec_time_step(Exec *exec, ExecGraph graph, int index, int64_t *nanoseconds,
                                     const char **by);
bool exec_times_steps(const Exec *exec); /* has it such a clock? */
/* Waits until everything started is done (a no-op on the cpu). */
STATUS_CHECKED Status exec_sync(Exec *exec);

/* ── results: each call sees the values of the last exec_run of that graph ─────────────────── */
/* Index in the outputs of exec_graph_plan, -1 if none. kind OUTPUT_KINDS: of any; name NULL: any.
 * The graphs share their places: read before the next run. */
int exec_find_output(const Exec *exec, ExecGraph graph, OutputKind kind, const char *name);
/* The value of a scalar output of any dtype. */
STATUS_CHECKED Status exec_scalar(Exec *exec, ExecGraph graph, int output, double *value);
double exec_scalar_value(DType dtype, const void *bytes); /* of one element */
/* The whole output, row-major in its own dtype; `bytes` must be type_bytes of it. */
STATUS_CHECKED Status exec_read_output(Exec *exec, ExecGraph graph, int output, void *to,
                                       int64_t bytes);

/* ── results later: a device that runs ahead of the host is not made to wait ───────────────── */
/* Does exec_run return before its results are there? */
bool exec_runs_ahead(const Exec *exec);
/* Asks for the scalar outputs of every step of the last run of this graph. `tag` is the caller's
 * name for the first of those steps, tag + 1 the next's. Not while exec_fetch_is_full. */
STATUS_CHECKED Status exec_fetch(Exec *exec, ExecGraph graph, int64_t tag);
bool exec_fetch_is_full(const Exec *exec);
typedef struct {
  ExecGraph graph;
  int64_t tag;
  const double *value; /* by index in the graph's outputs; NAN for what is no scalar */
} ExecScalars;
/* The next step's scalars in the order asked for; *is_there is false if there are none (yet).
 * `wait`: waits for what was asked for. The values are valid until the next call. */
STATUS_CHECKED Status exec_fetched(Exec *exec, bool wait, ExecScalars *out, bool *is_there);

/* ── data kept on the device ──────────────────────────────────────────────────────────────── */
/* *out is NULL if this device keeps no data, or has no room for it. */
STATUS_CHECKED Status exec_keep(Exec *exec, const DeviceData *data, DeviceKept **out);
void exec_drop(Exec *exec, DeviceKept *kept); /* NULL is fine */
int exec_most_steps(const Exec *exec, ExecGraph graph);
/* DeviceType.make_ready. */
STATUS_CHECKED Status exec_make_ready(Exec *exec, ExecGraph graph, int ahead, int steps);
/* Of every graph, for runs in any order, each of one batch. */
STATUS_CHECKED Status exec_make_all_ready(Exec *exec);
STATUS_CHECKED Status exec_run_kept(Exec *exec, ExecGraph graph, const DeviceKept *kept,
                                    int64_t first_step, int steps);
/* Runs step `index` and counts what its kernel does, on a device that can (the simulator). */
bool exec_counts(const Exec *exec);
STATUS_CHECKED Status exec_count_step(Exec *exec, ExecGraph graph, const void *batch, int index,
                                      const DeviceCounting *how, DeviceCounts *out);
/* What the device can do at best; zeros where it does not know. */
STATUS_CHECKED Status exec_speed(Exec *exec, DeviceSpeed *out);

/* ── memory: for checkpoints, --init, --save ──────────────────────────────────────────────── */
/* `place`: of plan->places, but none of batches. What there is of it: not all, where no graph that will
 * run reaches the rest. */
int64_t exec_place_bytes(const Exec *exec, int place);
STATUS_CHECKED Status exec_read(Exec *exec, int place, int64_t offset, int64_t bytes, void *to);
STATUS_CHECKED Status exec_write(Exec *exec, int place, int64_t offset, int64_t bytes,
                                 const void *from);
/* The first bytes of plan->states.at[index]. */
STATUS_CHECKED Status exec_read_state(Exec *exec, int index, int64_t bytes, void *to);
STATUS_CHECKED Status exec_write_state(Exec *exec, int index, int64_t bytes, const void *from);
/* Zeros to all places of this life. */
STATUS_CHECKED Status exec_clear(Exec *exec, PlaceLife life);
/* Index in plan->params or plan->states by name, or -1. */
int exec_find_param(const Exec *exec, const char *name);
int exec_find_state(const Exec *exec, const char *name);
/* The state of role step: how many training steps are done. 0 if the plan has none. */
STATUS_CHECKED Status exec_step(Exec *exec, int64_t *step);
STATUS_CHECKED Status exec_set_step(Exec *exec, int64_t step);
#endif
