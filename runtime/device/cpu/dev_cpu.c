/* dev_cpu: the processor as a device. A bound graph is a list of tasks with their argument arrays
 * made, and for each the tasks that it waits for, as the plan says. A task has parts, each of which
 * is some thread's own. In a run every thread does its own parts of what is ready, in order, and
 * goes on without waiting for the others where nothing that it needs is theirs. A part whose thread
 * does not come (because the machine is busy with other programs) is done by another; so a run
 * never waits for a thread that has not begun, and the results do not depend on which thread did
 * what. A reserved thread (DeviceOptions) has the steps of the queues communicate and host for its
 * own, and loads.
 * Invariant: nothing is allocated in a run; the batch's address is patched into the tasks. */
#include "runtime/device/cpu/beside_cpu.h"
#include "runtime/device/cpu/dev_cpu.h"
#include "runtime/device/cpu/memory_cpu.h"
#include "base/clock.h"
#include "runtime/device/dev.h"
#include "runtime/common/element.h"
#include "runtime/common/pool.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A launch, one phase of a call, a BEGIN, or the END of one, which has no part for a thread to do:
 * it is done when all that it waits for is and the work has ended. */
typedef struct {
  HostKernel *kernel; /* or */
  CpuCall *call;      /* or */
  CpuBeside *beside;
  int begin;   /* of an END: the task of its BEGIN; else -1 */
  void **args; /* of a launch or a BEGIN */
  int64_t work;
  int phase, parts;
  int first_thread; /* part i is the own one of thread first_thread + i */
  bool is_aside;    /* all parts are the reserved thread's own */
  const PlanStep *step;
  CommDoing doing;
  const int *after; /* tasks before this one that must be done */
  int after_count;
} Task;

/* A part of a task: 0, or the ticket of the run that began it last, plus 1 when done. */
typedef struct {
  _Alignas(64) _Atomic uint64_t ticket;
} PartState;

/* Where the batch's address goes. */
typedef struct {
  int task, arg;
  int64_t offset;
} Patch;

struct DeviceGraph {
  Device *device;
  Arena *arena;
  Task *task;
  int task_count;
  int *first_task; /* of each step, and one more */
  int step_count;
  CpuBesides besides;
  int last_begin;   /* while binding: 1 + the task of the last BEGIN; 0: none */
  int last_sharing; /* while binding: 1 + the last task of a call that shares scratch; 0: none */
  CpuCall **call;   /* each once */
  int call_count;
  Patch *patch;
  int patch_count;
  int *aside; /* tasks for the reserved thread, in order */
  int aside_count;
  PartState *state; /* of part p of task t: [t * threads + p] */
  uint64_t *done;   /* [thread * task_count + t]: the last run in which this thread saw t done */
  int threads;
  const char *batch;          /* what the patches point to now */
  _Atomic(DeviceIdle *) idle; /* of the run; idle_context was written before */
  void *_Atomic idle_context;
  atomic_bool has_failed;
  Spans *spans; /* where runs note their parts, as of step `number`; NULL: nowhere */
  int64_t number;
};

typedef struct {
  const float *from;
  uint16_t *to;
  int64_t count;
  DType dtype;
  int threads;
} Rounding;

static void round_share(void *context, int share) {
  const Rounding *r = context;
  int64_t begin = r->count * share / r->threads, end = r->count * (share + 1) / r->threads;
  element_round(r->from + begin, end - begin, r->dtype, r->to + begin);
}

static Status cpu_round(Device *device, char *to, const char *from, int64_t count, DType dtype) {
  Rounding rounding = {(const float *)(const void *)from, (uint16_t *)(void *)to, count, dtype,
                       pool_threads(device->pool)};
  pool_run(device->pool, round_share, &rounding);
  return STATUS_OK;
}

static Status cpu_sync(Device *device) {
  pool_settle(device->pool);
  return STATUS_OK;
}

/* ── opening ──────────────────────────────────────────────────────────────────────────────── */
static void cpu_close(Device *device) {
  if (!device) return;
  pool_free(device->pool);
  cpu_library_free(device->library);
  free(device);
}

static Status cpu_open(const Artifact *artifact, const DeviceOptions *options, Device **out) {
  (void)artifact;
  Device *device = calloc(1, sizeof *device);
  if (!device) return status_fail(STATUS_FAULT, "out of memory");
  Status status = pool_new_reserving(options->threads, options->reserved, &device->pool);
  if (status == STATUS_OK)
    status =
        cpu_library_new(pool_threads(device->pool), pool_reserved(device->pool), &device->library);
  if (status != STATUS_OK) {
    cpu_close(device);
    return status;
  }
  device->comm = options->comm;
  device->has_shared = options->comm != NULL;
  int threads = pool_threads(device->pool);
  int length = snprintf(device->text, sizeof device->text, "cpu, %d thread%s", threads,
                        threads == 1 ? "" : "s");
  if (options->reserved)
    snprintf(device->text + length, sizeof device->text - (size_t)length, " and %d reserved",
             options->reserved);
  *out = device;
  return STATUS_OK;
}

static const char *cpu_describe(const Device *device) { return device->text; }

/* ── binding ──────────────────────────────────────────────────────────────────────────────── */
static int launch_parts(const PlanStep *step, int threads) {
  int64_t worth = step->work / (step->grain > 0 ? step->grain : 1);
  return worth < 2 ? 1 : worth < threads ? (int)worth : threads;
}

static void bind_args(DeviceGraph *graph, const PlanGraph *plan, const PlanStep *step,
                      char *const *base, void **args) {
  for (int i = 0; i < step->arg_count; i++) {
    const PlanBuffer *buffer = &plan->buffers.at[step->args[i]];
    args[i] = (char *)graph; /* of the batch: patched before the first run, never followed */
    if (base[buffer->place])
      args[i] = base[buffer->place] + buffer->offset;
    else
      graph->patch[graph->patch_count++] = (Patch){graph->task_count, i, buffer->offset};
  }
}

static int last_task(const DeviceGraph *graph, int step) {
  return (step + 1 < graph->step_count ? graph->first_task[step + 1] : graph->task_count) - 1;
}

/* The first task of a step waits for what the plan says, and where calls share scratch, for the
 * call before; a BEGIN also for the BEGIN before it, so that all ranks begin in one order; each
 * phase waits for the one before it. */
static void add_task(DeviceGraph *graph, const PlanStep *step, Task task) {
  bool shares = task.call && task.phase == 0 && cpu_call_shares_scratch(task.call);
  int *after = ARENA_ARRAY(graph->arena, int, step->after_count + 2), count = 0;
  bool begins = step->kind == STEP_BEGIN;
  if (task.phase > 0) after[count++] = graph->task_count - 1;
  for (int i = 0; i < step->after_count && task.phase == 0; i++)
    after[count++] = last_task(graph, step->after[i]);
  if (shares && graph->last_sharing) after[count++] = graph->last_sharing - 1;
  if (begins && graph->last_begin) after[count++] = graph->last_begin - 1;
  if (begins) graph->last_begin = graph->task_count + 1;
  task.step = step;
  task.doing = (CommDoing){.what = "kernel", .name = step->label, .line = step->line};
  task.after = after;
  task.after_count = count;
  task.is_aside = pool_reserved(graph->device->pool) && !task.beside &&
                  (step->queue == QUEUE_COMMUNICATE || step->queue == QUEUE_HOST);
  if (task.is_aside && task.kernel) task.parts = 1;
  if (task.is_aside) graph->aside[graph->aside_count++] = graph->task_count;
  graph->task[graph->task_count++] = task;
}

static Status bind_beside(DeviceGraph *graph, const Artifact *artifact, const PlanGraph *plan,
                          const PlanStep *step, void **args) {
  Task task = {.args = args, .parts = 1, .begin = -1};
  if (step->kind == STEP_BEGIN) {
    STATUS_TRY(
        cpu_beside_new(&graph->besides, graph->arena, artifact, plan, step, args, &task.beside));
  } else {
    task.parts = 0;
    task.begin = graph->first_task[step->partner];
    task.beside = graph->task[task.begin].beside;
  }
  add_task(graph, step, task);
  return STATUS_OK;
}

static Status cpu_bind_step(DeviceGraph *graph, const Artifact *artifact, const PlanGraph *plan,
                            int index, char *const *base) {
  const PlanStep *step = &plan->steps.at[index];
  void **args = ARENA_ARRAY(graph->arena, void *, step->arg_count + 1);
  bind_args(graph, plan, step, base, args);
  graph->first_task[index] = graph->task_count;
  if (step->kind == STEP_BEGIN || step->kind == STEP_END)
    return bind_beside(graph, artifact, plan, step, args);
  if (step->kind == STEP_LAUNCH) {
    add_task(graph, step,
             (Task){.kernel = artifact_kernel(artifact, step->name),
                    .begin = -1,
                    .args = args,
                    .work = step->work,
                    .parts = launch_parts(step, pool_threads(graph->device->pool))});
    return STATUS_OK;
  }
  CpuCall *call;
  STATUS_TRY(cpu_call_new(graph->device->library, step, (char *const *)args, &call));
  graph->call[graph->call_count++] = call;
  for (int phase = 0; phase < cpu_call_phases(call); phase++)
    add_task(graph, step,
             (Task){.call = call,
                    .begin = -1,
                    .args = args,
                    .phase = phase,
                    .parts = cpu_call_parts(call, phase)});
  if (cpu_call_shares_scratch(call)) graph->last_sharing = graph->task_count;
  return STATUS_OK;
}

/* Tasks of one part: the first that waits for another one goes where that one went, since what it
 * reads is in that core's cache; the others go round, so that they run side by side. */
static void spread_tasks(DeviceGraph *graph) {
  bool *has_heir = ARENA_ARRAY(graph->arena, bool, graph->task_count + 1);
  int turn = 0;
  for (int i = 0; i < graph->task_count; i++) {
    Task *task = &graph->task[i];
    int from = task->after_count ? task->after[task->after_count - 1] : -1;
    if (task->parts != 1 || task->is_aside) continue;
    if (from >= 0 && !has_heir[from]) {
      task->first_thread = graph->task[from].first_thread;
      has_heir[from] = true;
    } else {
      turn = (turn + 1) % graph->threads;
      task->first_thread = from < 0 ? 0 : turn;
    }
  }
}

static void cpu_unbind(DeviceGraph *graph) {
  if (!graph) return;
  pool_settle(graph->device->pool);
  cpu_besides_settle(&graph->besides);
  comm_doing_nothing(graph->device->comm);
  for (int i = 0; i < graph->call_count; i++) cpu_call_free(graph->call[i]);
  arena_free(graph->arena);
  free(graph->state);
  free(graph->done);
  free(graph);
}

/* Phases of a call: at most this many. */
enum { MOST_TASKS_PER_STEP = 3 };

static Status cpu_bind(Device *device, const Artifact *artifact, int which, char *const *base,
                       DeviceGraph **out) {
  const PlanGraph *plan = &artifact->plan->graphs.at[which];
  DeviceGraph *graph = aligned_alloc(64, (sizeof *graph + 63) & ~(size_t)63);
  if (!graph) return status_fail(STATUS_FAULT, "out of memory");
  memset(graph, 0, sizeof *graph);
  int steps = plan->steps.count, args = 0;
  for (int i = 0; i < steps; i++) args += plan->steps.at[i].arg_count;
  graph->device = device;
  graph->besides.comm = device->comm;
  graph->besides.is_shared = &device->is_shared;
  graph->besides.pool = device->pool;
  graph->threads = pool_threads(device->pool);
  graph->arena = arena_new();
  graph->step_count = steps;
  graph->task = ARENA_ARRAY(graph->arena, Task, steps * MOST_TASKS_PER_STEP + 1);
  graph->aside = ARENA_ARRAY(graph->arena, int, steps *MOST_TASKS_PER_STEP + 1);
  graph->first_task = ARENA_ARRAY(graph->arena, int, steps + 1);
  graph->call = ARENA_ARRAY(graph->arena, CpuCall *, steps + 1);
  graph->patch = ARENA_ARRAY(graph->arena, Patch, args + 1);
  for (int i = 0; i < steps; i++) {
    Status status = cpu_bind_step(graph, artifact, plan, i, base);
    if (status != STATUS_OK) {
      cpu_unbind(graph);
      return status_prefix(status, "step %d (%s)", i, plan->steps.at[i].label);
    }
  }
  graph->first_task[steps] = graph->task_count;
  spread_tasks(graph);
  size_t states = (size_t)graph->task_count * (size_t)graph->threads + 1;
  graph->state = aligned_alloc(64, states * sizeof *graph->state);
  size_t walkers = (size_t)(graph->threads + pool_reserved(device->pool));
  graph->done = calloc((size_t)graph->task_count * walkers + 1, sizeof *graph->done);
  if (!graph->state || !graph->done) {
    cpu_unbind(graph);
    return status_fail(STATUS_FAULT, "out of memory");
  }
  memset(graph->state, 0, states * sizeof *graph->state);
  *out = graph;
  return STATUS_OK;
}

/* ── running ──────────────────────────────────────────────────────────────────────────────── */
static void patch_batch(DeviceGraph *graph, const char *batch) {
  if (graph->batch == batch) return;
  for (int i = 0; i < graph->patch_count; i++) {
    const Patch *patch = &graph->patch[i];
    Task *task = &graph->task[patch->task];
    char *address = (char *)(uintptr_t)batch + patch->offset; /* only read: plan_parse sees to it */
    task->args[patch->arg] = address;
    if (task->call) cpu_call_move(task->call, patch->arg, address);
  }
  graph->batch = batch;
}

static inline void run_task(DeviceGraph *graph, const Task *task, int part, int thread,
                            uint64_t ticket) {
  if (task->beside) {
    cpu_beside_begin(task->beside, task->args, ticket);
    return;
  }
  if (graph->device->comm) comm_doing(graph->device->comm, &task->doing);
  if (task->call) {
    if (!cpu_call_run(task->call, task->phase, part, thread))
      atomic_store(&graph->has_failed, true);
    return;
  }
  int64_t begin = task->work * part / task->parts, end = task->work * (part + 1) / task->parts;
  if (begin < end) task->kernel(task->args, begin, end);
}

/* Begins the part unless it has been begun in this run, or this run is over. Tickets only grow, and
 * each run begins each of its parts, so a thread that comes late from a run before takes nothing. */
static inline bool claim(PartState *state, uint64_t ticket) {
  uint64_t seen = atomic_load_explicit(&state->ticket, memory_order_acquire);
  return seen < ticket && atomic_compare_exchange_strong(&state->ticket, &seen, ticket);
}

/* One thread's way through the tasks [first, end) of a run. */
typedef struct {
  DeviceGraph *graph;
  int first, end, thread;
  uint64_t ticket;
  uint64_t *done; /* by task: the last run in which it was seen done */
} Walk;

static inline PartState *part_state(const Walk *walk, int task, int part) {
  return &walk->graph->state[(size_t)task * (size_t)walk->graph->threads + (size_t)part];
}

static inline bool is_part_done(const Walk *walk, int task, int part) {
  PartState *state = part_state(walk, task, part);
  return atomic_load_explicit(&state->ticket, memory_order_acquire) > walk->ticket;
}

static inline bool is_ready(const Walk *walk, int index);

/* The work has ended. Where its BEGIN is none of this run's tasks, an earlier run began it. */
static bool is_work_done(const Walk *walk, const Task *task) {
  const CpuBeside *beside = task->beside;
  uint64_t since = task->begin < walk->first ? atomic_load(&beside->begun) : walk->ticket;
  return atomic_load(&beside->ended) > since;
}

static inline bool is_done(const Walk *walk, int index) {
  const Task *task = &walk->graph->task[index];
  if (index < walk->first || walk->done[index] == walk->ticket) return true;
  for (int part = 0; part < task->parts; part++)
    if (!is_part_done(walk, index, part)) return false;
  if (task->begin >= 0 && !(is_ready(walk, index) && is_work_done(walk, task))) return false;
  walk->done[index] = walk->ticket;
  return true;
}

static inline bool is_ready(const Walk *walk, int index) {
  const Task *task = &walk->graph->task[index];
  for (int i = 0; i < task->after_count; i++)
    if (!is_done(walk, task->after[i])) return false;
  return true;
}

/* Does the part if no thread has begun it. The task must be ready. */
static inline bool take_part(const Walk *walk, int task, int part) {
  DeviceGraph *graph = walk->graph;
  PartState *state = part_state(walk, task, part);
  if (!claim(state, walk->ticket)) return false;
  int64_t start = graph->spans ? clock_nanoseconds() : 0;
  run_task(graph, &graph->task[task], part, walk->thread, walk->ticket);
  if (start)
    spans_add(graph->spans,
              &(TraceSpan){SPAN_COMPUTE, walk->thread % SPAN_LANES, start, clock_nanoseconds(),
                           graph->number, graph->task[task].step});
  pool_post(graph->device->pool, &state->ticket, walk->ticket + 1);
  cpu_besides_wake(&graph->besides);
  return true;
}

static inline bool is_begun(const Walk *walk, int task, int part) {
  PartState *state = part_state(walk, task, part);
  return atomic_load_explicit(&state->ticket, memory_order_relaxed) >= walk->ticket;
}

/* How far behind the first task that is not done a thread looks for work, and for how many pauses
 * of some 30 ns a part is left to the thread whose it is. */
enum { AHEAD = 16, PATIENCE = 100 };

static inline int last_ahead(const Walk *walk, int from) {
  return walk->end - from < AHEAD ? walk->end : from + AHEAD;
}

/* -1: none. A BEGIN is any thread's: who does the last of what it waits for comes to it first. */
static inline int own_part(const Walk *walk, int index) {
  const Task *task = &walk->graph->task[index];
  if (task->is_aside) return -1;
  if (task->beside) return task->parts - 1;
  int part = walk->thread - task->first_thread;
  if (part < 0) part += walk->graph->threads;
  return part < task->parts ? part : -1;
}

/* Its own part of the first ready task that has one left. */
static bool do_own(const Walk *walk, int from) {
  for (int i = from, end = last_ahead(walk, from); i < end; i++) {
    int part = own_part(walk, i);
    if (part >= 0 && !is_begun(walk, i, part) && is_ready(walk, i) && take_part(walk, i, part))
      return true;
  }
  return false;
}

static bool do_any(const Walk *walk, int from) {
  for (int i = from, end = last_ahead(walk, from); i < end; i++)
    for (int part = 0; part < walk->graph->task[i].parts; part++)
      if (!is_begun(walk, i, part) && is_ready(walk, i) && take_part(walk, i, part)) return true;
  return false;
}

/* Sleeps until some work ends, unless this one has. `ends` was read before the thread looked for
 * something to do. */
static void wait_for_end(const Walk *walk, int index, uint64_t ends) {
  CpuBesides *all = &walk->graph->besides;
  if (!is_done(walk, index)) pool_sleep(all->pool, &all->ends, ends);
}

/* `from` is not done, what it waits for is, and all its parts are begun: waits for one of these. */
static void wait_for_part(const Walk *walk, int from, uint64_t ends) {
  if (walk->graph->task[from].begin >= 0) wait_for_end(walk, from, ends);
  for (int part = 0; part < walk->graph->task[from].parts; part++)
    if (!is_part_done(walk, from, part)) {
      pool_wait(walk->graph->device->pool, &part_state(walk, from, part)->ticket, walk->ticket);
      return;
    }
}

/* A thread that waits for a work looks again when another one has done something. */
static void do_any_or_wait(const Walk *walk, int from) {
  CpuBesides *all = &walk->graph->besides;
  bool is_end = walk->graph->task[from].begin >= 0;
  if (is_end) atomic_fetch_add(&all->sleepers, 1); /* before it looks */
  uint64_t ends = atomic_load(&all->ends);
  if (!do_any(walk, from)) wait_for_part(walk, from, ends);
  if (is_end) atomic_fetch_sub(&all->sleepers, 1);
}

/* For a thread that would only wait for a part that is not its own. */
static void use_idle_thread(DeviceGraph *graph) {
  DeviceIdle *idle = atomic_load_explicit(&graph->idle, memory_order_acquire);
  if (idle) idle(atomic_load_explicit(&graph->idle_context, memory_order_relaxed));
}

/* Sleeps until the task is done, by whomever. Tickets only grow, so a late one does not miss it. */
static void wait_for_task(const Walk *walk, int task) {
  const Task *at = &walk->graph->task[task];
  if (at->begin >= 0 && task >= walk->first) {
    for (int i = 0; i < at->after_count; i++) wait_for_task(walk, at->after[i]);
    for (uint64_t ends; !is_done(walk, task); wait_for_end(walk, task, ends))
      ends = atomic_load(&walk->graph->besides.ends);
  }
  for (int part = 0; part < walk->graph->task[task].parts; part++) {
    _Atomic uint64_t *ticket = &part_state(walk, task, part)->ticket;
    for (uint64_t seen; task >= walk->first && (seen = atomic_load(ticket)) <= walk->ticket;)
      pool_wait(walk->graph->device->pool, ticket, seen);
  }
}

/* The reserved thread does what is put aside for it, in order, but for what others have begun since
 * it did not come; then it loads. */
static void walk_aside(const Walk *walk) {
  DeviceGraph *graph = walk->graph;
  for (int i = 0; i < graph->aside_count; i++) {
    int index = graph->aside[i];
    const Task *task = &graph->task[index];
    if (index < walk->first || index >= walk->end || is_done(walk, index)) continue;
    for (int k = 0; k < task->after_count; k++) wait_for_task(walk, task->after[k]);
    for (int part = 0; part < task->parts; part++) take_part(walk, index, part);
  }
  if (walk->thread == graph->threads) use_idle_thread(graph);
}

static void walk(void *context, int first, int end, uint64_t ticket, int thread) {
  DeviceGraph *graph = context;
  Walk way = {graph,  first,  end,
              thread, ticket, graph->done + (size_t)thread * (size_t)graph->task_count};
  bool was_idle = thread == 0 || pool_reserved(graph->device->pool) > 0;
  int waited = 0;
  if (thread >= graph->threads) {
    walk_aside(&way);
    return;
  }
  for (int from = first;;) {
    while (from < end && is_done(&way, from)) from++, waited = 0;
    if (from == end) return;
    if (do_own(&way, from)) {
      waited = 0;
    } else if (!was_idle && own_part(&way, from) < 0) {
      was_idle = true;
      use_idle_thread(graph);
    } else if (waited++ < PATIENCE) {
      pool_relax();
    } else {
      do_any_or_wait(&way, from);
    }
  }
}

static Status run_tasks(DeviceGraph *graph, const char *batch, int first, int end) {
  Pool *pool = graph->device->pool;
  patch_batch(graph, batch);
  int before = pool_quiet_libraries();
  bool wants_reserved = graph->aside_count || atomic_load(&graph->idle);
  if (first < end)
    walk(graph, first, end,
         (wants_reserved ? pool_ask_all : pool_ask)(pool, walk, graph, first, end), 0);
  pool_restore_libraries(before);
  STATUS_TRY(cpu_besides_status(&graph->besides));
  if (!atomic_load_explicit(&graph->has_failed, memory_order_relaxed)) return STATUS_OK;
  atomic_store(&graph->has_failed, false);
  return status_fail(STATUS_FAULT, "oneDNN failed in a step (out of memory?)");
}

static Status cpu_run(DeviceGraph *graph, const char *batch) {
  return run_tasks(graph, batch, 0, graph->task_count);
}

static Status cpu_run_beside(DeviceGraph *graph, const char *batch, DeviceIdle *idle,
                             void *context) {
  atomic_store_explicit(&graph->idle_context, context, memory_order_relaxed);
  atomic_store_explicit(&graph->idle, idle, memory_order_release);
  Status status = cpu_run(graph, batch);
  atomic_store_explicit(&graph->idle, (DeviceIdle *)NULL, memory_order_relaxed);
  return status;
}

static Status cpu_run_part(DeviceGraph *graph, const char *batch, int first, int end,
                           int64_t *time) {
  int64_t start = clock_nanoseconds();
  Status status = run_tasks(graph, batch, graph->first_task[first], graph->first_task[end]);
  *time += clock_nanoseconds() - start;
  return status;
}

static void cpu_note(DeviceGraph *graph, Spans *spans, int64_t number) {
  graph->spans = spans, graph->number = number;
}

static void cpu_work_times(const DeviceGraph *graph, int begin, int64_t *begun, int64_t *ended) {
  const CpuBeside *beside = graph->task[graph->first_task[begin]].beside;
  *begun = atomic_load(&beside->begun_at);
  *ended = atomic_load(&beside->ended_at);
}

const DeviceType dev_cpu = {
    .name = "cpu",
    .is_host_memory = true,
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .join = cpu_join,
    .alloc = cpu_alloc,
    .alloc_shared = cpu_alloc_shared,
    .free = cpu_free,
    .alloc_host = cpu_alloc,
    .free_host = cpu_free,
    .write = cpu_write,
    .read = cpu_read,
    .round = cpu_round,
    .bind = cpu_bind,
    .unbind = cpu_unbind,
    .run = cpu_run,
    .run_beside = cpu_run_beside,
    .run_part = cpu_run_part,
    .work_times = cpu_work_times,
    .note = cpu_note,
    .sync = cpu_sync,
};
