/* dev_cpu: the processor as a device. A bound graph is a list of tasks with their argument arrays
 * made; a run walks it. Tasks that split into shares run one behind the other inside one parallel
 * region, with a barrier only where a task touches what an earlier one wrote (or overwrites what it
 * read) on another thread: a fork and join costs 1.5 us, a barrier 0.1 us, a small step 50 us.
 * Invariant: nothing is allocated in a run; the batch's address is patched into the tasks. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, madvise */
#include "runtime/calls_cpu.h"
#include "runtime/dev.h"
#include "runtime/pool.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

struct Device {
  int threads;
  CpuLibrary *library;
  char text[64];
};

typedef struct {
  HostKernel *kernel; /* or */
  CpuCall *call;
  void **args;
  int64_t work;
  int parts;          /* shares that it splits into; 0: a call that stands alone */
  bool needs_barrier; /* before it, inside a region */
} Task;

/* tasks [first, end): one region, or in line by one thread, or one call that stands alone */
typedef struct {
  int first, end;
  bool is_parallel;
} Segment;

typedef struct {
  int task, arg;
  int64_t offset;
} Patch;

struct DeviceGraph {
  Device *device;
  Task *task;
  int task_count;
  Segment *segment;
  int segment_count;
  Patch *patch;
  int patch_count;
  const char *batch; /* what the patches point to now */
  int first, end;    /* of the segment being run */
  PoolBarrier barrier;
  atomic_bool has_failed;
  Arena *arena;
};

/* ── memory ───────────────────────────────────────────────────────────────────────────────── */
enum { PAGE = 4096, HUGE = 2 << 20 };

static size_t mapped_bytes(int64_t bytes) {
  size_t unit = bytes >= HUGE ? HUGE : PAGE;
  return ((size_t)bytes + unit) & ~(unit - 1); /* at least one page more than nothing */
}

/* Fresh pages are zero. Large blocks are aligned to huge pages and advised to use them. */
static Status cpu_alloc(Device *device, int64_t bytes, char **out) {
  (void)device;
  size_t size = mapped_bytes(bytes), slack = bytes >= HUGE ? HUGE : 0;
  char *at = mmap(NULL, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    return status_fail(STATUS_FAULT, "out of memory: %.1f MiB cannot be had",
                       (double)bytes / (1 << 20));
  if (slack) {
    size_t low = (HUGE - (uintptr_t)at % HUGE) % HUGE;
    if (low) munmap(at, low);
    if (slack - low) munmap(at + low + size, slack - low);
    at += low;
    madvise(at, size, MADV_HUGEPAGE);
  }
  *out = at;
  return STATUS_OK;
}

static void cpu_free(Device *device, char *memory, int64_t bytes) {
  (void)device;
  if (memory) munmap(memory, mapped_bytes(bytes));
}

static Status cpu_write(Device *device, char *to, const void *from, int64_t bytes) {
  (void)device;
  if (bytes) memcpy(to, from, (size_t)bytes);
  return STATUS_OK;
}

static Status cpu_read(Device *device, void *to, const char *from, int64_t bytes) {
  (void)device;
  if (bytes) memcpy(to, from, (size_t)bytes);
  return STATUS_OK;
}

static Status cpu_sync(Device *device) {
  (void)device;
  return STATUS_OK;
}

/* ── opening ──────────────────────────────────────────────────────────────────────────────── */
static Status cpu_open(const Artifact *artifact, const DeviceOptions *options, Device **out) {
  (void)artifact;
  Device *device = calloc(1, sizeof *device);
  if (!device) return status_fail(STATUS_FAULT, "out of memory");
  Status status = pool_start(options->threads, &device->threads);
  if (status == STATUS_OK) status = cpu_library_new(device->threads, &device->library);
  if (status != STATUS_OK) {
    free(device);
    return status;
  }
  snprintf(device->text, sizeof device->text, "cpu, %d thread%s", device->threads,
           device->threads == 1 ? "" : "s");
  *out = device;
  return STATUS_OK;
}

static void cpu_close(Device *device) {
  if (!device) return;
  cpu_library_free(device->library);
  free(device);
}

static const char *cpu_describe(const Device *device) { return device->text; }

/* ── binding ──────────────────────────────────────────────────────────────────────────────── */
static int launch_parts(const PlanStep *step, int threads) {
  int64_t worth = step->work / (step->grain > 0 ? step->grain : 1);
  return worth < 2 ? 1 : worth < threads ? (int)worth : threads;
}

static Status bind_task(DeviceGraph *graph, const Artifact *artifact, const PlanGraph *plan,
                        int index, char *const *base) {
  const PlanStep *step = &plan->steps.at[index];
  Task *task = &graph->task[index];
  task->args = ARENA_ARRAY(graph->arena, void *, step->arg_count + 1);
  task->work = step->work;
  for (int i = 0; i < step->arg_count; i++) {
    const PlanBuffer *buffer = &plan->buffers.at[step->args[i]];
    if (buffer->arena != ARENA_INPUT)
      task->args[i] = base[buffer->arena] + buffer->offset;
    else
      graph->patch[graph->patch_count++] = (Patch){index, i, buffer->offset};
  }
  if (step->kind == STEP_LAUNCH) {
    task->kernel = artifact_kernel(artifact, step->name);
    task->parts = launch_parts(step, graph->device->threads);
    return STATUS_OK;
  }
  STATUS_TRY(cpu_call_new(graph->device->library, step, (char *const *)task->args, &task->call));
  task->parts = cpu_call_parts(task->call);
  return STATUS_OK;
}

/* ── which tasks need a barrier before them ───────────────────────────────────────────────── */
static bool overlaps(const PlanBuffer *a, const PlanBuffer *b) {
  return a->arena == b->arena && a->offset < b->offset + type_bytes(&b->type) &&
         b->offset < a->offset + type_bytes(&a->type);
}

/* Do two steps conflict: does one write what the other reads or writes? */
static bool conflicts(const PlanGraph *plan, const PlanStep *a, const PlanStep *b) {
  for (int i = 0; i < a->arg_count; i++)
    for (int j = 0; j < b->arg_count; j++)
      if ((i >= a->input_count || j >= b->input_count) &&
          overlaps(&plan->buffers.at[a->args[i]], &plan->buffers.at[b->args[j]]))
        return true;
  return false;
}

/* Tasks since the last barrier are run by all threads freely; two tasks of one share each are run
 * by thread 0, in order, and need no barrier between them. */
static void place_barriers(DeviceGraph *graph, const PlanGraph *plan, int first, int end) {
  int epoch = first;
  for (int i = first; i < end; i++) {
    for (int j = epoch; j < i; j++) {
      bool is_same_thread = graph->task[i].parts == 1 && graph->task[j].parts == 1;
      if (is_same_thread || !conflicts(plan, &plan->steps.at[j], &plan->steps.at[i])) continue;
      graph->task[i].needs_barrier = true;
      epoch = i;
      break;
    }
  }
}

static void cut_segments(DeviceGraph *graph, const PlanGraph *plan) {
  graph->segment = ARENA_ARRAY(graph->arena, Segment, graph->task_count + 1);
  for (int i = 0; i < graph->task_count;) {
    Segment segment = {.first = i, .end = i + 1};
    if (graph->task[i].parts) {
      while (segment.end < graph->task_count && graph->task[segment.end].parts) segment.end++;
      for (int j = i; j < segment.end; j++) segment.is_parallel |= graph->task[j].parts > 1;
      place_barriers(graph, plan, segment.first, segment.end);
    }
    graph->segment[graph->segment_count++] = segment;
    i = segment.end;
  }
}

static void cpu_unbind(DeviceGraph *graph) {
  if (!graph) return;
  for (int i = 0; i < graph->task_count; i++) cpu_call_free(graph->task[i].call);
  arena_free(graph->arena);
  free(graph);
}

static Status cpu_bind(Device *device, const Artifact *artifact, int which, char *const *base,
                       DeviceGraph **out) {
  const PlanGraph *plan = &artifact->plan->graph[which];
  DeviceGraph *graph = aligned_alloc(64, (sizeof *graph + 63) & ~(size_t)63);
  if (!graph) return status_fail(STATUS_FAULT, "out of memory");
  memset(graph, 0, sizeof *graph);
  graph->device = device;
  graph->arena = arena_new();
  graph->task_count = plan->steps.count;
  graph->task = ARENA_ARRAY(graph->arena, Task, plan->steps.count + 1);
  int args = 0;
  for (int i = 0; i < plan->steps.count; i++) args += plan->steps.at[i].arg_count;
  graph->patch = ARENA_ARRAY(graph->arena, Patch, args + 1);
  for (int i = 0; i < plan->steps.count; i++) {
    Status status = bind_task(graph, artifact, plan, i, base);
    if (status != STATUS_OK) {
      cpu_unbind(graph);
      return status_prefix(status, "step %d (%s)", i, plan->steps.at[i].label);
    }
  }
  cut_segments(graph, plan);
  *out = graph;
  return STATUS_OK;
}

/* ── running ──────────────────────────────────────────────────────────────────────────────── */
static void patch_batch(DeviceGraph *graph, const char *batch) {
  if (graph->batch == batch) return;
  for (int i = 0; i < graph->patch_count; i++) {
    const Patch *patch = &graph->patch[i];
    Task *task = &graph->task[patch->task];
    char *address = (char *)(uintptr_t)batch + patch->offset; /* kernels only read it: plan_parse */
    task->args[patch->arg] = address;
    if (task->call) cpu_call_move(task->call, patch->arg, address);
  }
  graph->batch = batch;
}

static inline void run_share(DeviceGraph *graph, const Task *task, int share) {
  if (task->call) {
    if (!cpu_call_run(task->call, share)) atomic_store(&graph->has_failed, true);
    return;
  }
  int64_t begin = task->work * share / task->parts, end = task->work * (share + 1) / task->parts;
  if (begin < end) task->kernel(task->args, begin, end);
}

/* One thread's way through a segment. Should the pool have given fewer threads than asked for, each
 * takes several shares. */
static void walk(void *context, int share, int shares) {
  DeviceGraph *graph = context;
  for (int i = graph->first; i < graph->end; i++) {
    const Task *task = &graph->task[i];
    if (task->needs_barrier) pool_wait(&graph->barrier, shares);
    for (int part = share; part < task->parts; part += shares) run_share(graph, task, part);
  }
}

static void run_segment(DeviceGraph *graph, const Segment *segment) {
  graph->first = segment->first;
  graph->end = segment->end;
  const Task *task = &graph->task[segment->first];
  if (!task->parts)
    run_share(graph, task, 0);
  else if (segment->is_parallel)
    pool_run(graph->device->threads, walk, graph);
  else
    walk(graph, 0, 1);
}

static Status check_run(DeviceGraph *graph) {
  if (!atomic_load_explicit(&graph->has_failed, memory_order_relaxed)) return STATUS_OK;
  atomic_store(&graph->has_failed, false);
  return status_fail(STATUS_FAULT, "oneDNN failed in a step (out of memory?)");
}

static Status cpu_run(DeviceGraph *graph, const char *batch) {
  patch_batch(graph, batch);
  for (int i = 0; i < graph->segment_count; i++) run_segment(graph, &graph->segment[i]);
  return check_run(graph);
}

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static Status cpu_run_part(DeviceGraph *graph, const char *batch, int first, int end,
                           int64_t *time) {
  patch_batch(graph, batch);
  int64_t start = now();
  for (int i = first; i < end; i++) {
    Segment one = {i, i + 1, graph->task[i].parts > 1};
    run_segment(graph, &one);
  }
  *time += now() - start;
  return check_run(graph);
}

const DeviceType dev_cpu = {
    .name = "cpu",
    .is_host_memory = true,
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .alloc_host = cpu_alloc,
    .free_host = cpu_free,
    .write = cpu_write,
    .read = cpu_read,
    .bind = cpu_bind,
    .unbind = cpu_unbind,
    .run = cpu_run,
    .run_part = cpu_run_part,
    .sync = cpu_sync,
};
