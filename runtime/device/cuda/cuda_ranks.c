/* cuda_ranks: what a plan BEGINs on a GPU: works of NCCL, in the captured graph, on a branch of it.
 * One waits for the steps that the plan says and for the collective before it, which is the order
 * in which all ranks have them; only its END, and who waits for that, waits for it. Where the driver
 * takes no edges, and without graphs, the branch is a stream of its own, forked and joined by
 * events. Alone, a collective is a copy.
 * The host does not see where in a graph the GPU is: for the ranks' watch each launched graph that
 * has collectives is one work (COMM_RUN), over when its event is. */
#include "runtime/communicate/nccl.h"
#include "runtime/device/beside.h"
#include "runtime/device/cuda/cuda_private.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ── joining and leaving ──────────────────────────────────────────────────────────────────── */
/* The job has failed. The GPU's work ends with garbage then, and is not looked at. */
static void abort_ranks(void *context) {
  Device *device = context;
  atomic_store(&device->is_lost, true);
  device->driver->context_set(device->context);
  nccl_abort(device->nccl);
}

/* NCCL waits for graphs that have its works before it leaves. */
static void leave_ranks(void *context) {
  Device *device = context;
  device->driver->context_set(device->context);
  cuda_settle(device, NULL, device->compute);
  for (DeviceGraph *graph = device->graphs; graph; graph = graph->next)
    if (graph->begin_count) cuda_graph_forget(graph);
  nccl_leave(device->nccl);
  device->comm = NULL;
}

static bool plan_has_begins(const Plan *plan) {
  for (int g = 0; g < plan->graphs.count; g++)
    for (int i = 0; i < plan->graphs.at[g].steps.count; i++)
      if (plan->graphs.at[g].steps.at[i].kind == STEP_BEGIN) return true;
  return false;
}

/* Two ranks on one GPU: NCCL refuses that with fewer words. */
static Status cuda_ranks_differ(Device *device) {
  int ranks = comm_ranks(device->comm), first = -1, second = -1;
  CudaUuid mine = {{0}}, none = {{0}}, *all = calloc((size_t)ranks, sizeof *all);
  if (!all) return status_fail(STATUS_FAULT, "out of memory");
  if (device->driver->device_uuid) device->driver->device_uuid(&mine, device->device);
  Status status = comm_do(device->comm, &(CommWork){.kind = COMM_ALL_GATHER,
                                                    .dtype = DT_U8,
                                                    .count = sizeof mine,
                                                    .x = &mine,
                                                    .out = all,
                                                    .label = "the GPUs of the ranks"});
  for (int r = 0; r < ranks && status == STATUS_OK && second < 0; r++)
    for (int i = 0; i < r && second < 0; i++)
      if (!memcmp(&all[r], &all[i], sizeof mine) && memcmp(&all[r], &none, sizeof none)) {
        first = i;
        second = r;
      }
  free(all);
  STATUS_TRY(status);
  if (second < 0) return STATUS_OK;
  return status_fail(STATUS_USER,
                     "ranks %d and %d have the same GPU: each needs one of its own, so start as "
                     "many ranks on a machine as it has GPUs, and leave out --device cuda:N",
                     first, second);
}

void cuda_ranks_open(Device *device, Comm *comm) {
  if (plan_has_begins(device->artifact->plan)) device->comm = comm;
}

Status cuda_ranks_join_all(Device *device) {
  Comm *comm = device->comm;
  if (!comm) return STATUS_OK;
  CUDA_TRY(device, event_create(&device->forked, CUDA_EVENT_NO_TIMING), "an event");
  STATUS_TRY(cuda_ranks_differ(device));
  STATUS_TRY(nccl_join(comm, &device->nccl));
  STATUS_TRY(comm_attach(comm, &(CommOutside){abort_ranks, leave_ranks, device}));
  device->is_joined = true;
  size_t length = strlen(device->text);
  snprintf(device->text + length, sizeof device->text - length, ", %s", nccl_text(device->nccl));
  return STATUS_OK;
}

/* After a failure a thread may be in NCCL for ever: the process ends by _exit, and nothing that it
 * may look at is freed. */
bool cuda_ranks_close(Device *device) {
  if ((device->nccl && !device->is_joined) || atomic_load(&device->is_lost)) return false;
  nccl_free(device->nccl);
  if (device->forked) device->driver->event_destroy(device->forked);
  return true;
}

Status cuda_ranks_check(Device *device, CudaResult result, const char *what) {
  STATUS_TRY(comm_status(device->comm));
  return cuda_say(device, result, "%s", what);
}

/* ── binding ──────────────────────────────────────────────────────────────────────────────── */
/* NCCL's exchange of parts is not in place. */
static bool needs_copy(const DeviceGraph *graph, const PlanStep *step) {
  const PlanBuffer *buffers = graph->plan->buffers.at;
  if (strcmp(step->name, comm_kind_text(COMM_ALL_TO_ALL)) != 0) return false;
  const PlanBuffer *x = &buffers[step->args[0]], *out = &buffers[step->args[1]];
  return x->place == out->place && x->offset == out->offset;
}

Status cuda_ranks_bind(DeviceGraph *graph, int index) {
  Device *device = graph->device;
  const PlanStep *step = &graph->plan->steps.at[index];
  if (!graph->begin)
    graph->begin = ARENA_ARRAY(graph->arena, CudaBegin *, graph->plan->steps.count);
  CudaBegin *begin = graph->begin[index] = ARENA_NEW(graph->arena, CudaBegin);
  STATUS_TRY(beside_work(device->comm, device->artifact, graph->plan, step, &begin->work));
  if (comm_ranks(device->comm) > 1 && needs_copy(graph, step)) {
    size_t bytes = (size_t)(begin->work.count * dtype_bytes(begin->work.dtype));
    CUDA_TRY(device, memory_alloc(&begin->copy, bytes + 1), "memory for %s", step->label);
  }
  CUDA_TRY(device, event_create(&begin->over, CUDA_EVENT_NO_TIMING), "an event");
  graph->ranks = comm_ranks(device->comm);
  graph->last_begin = begin;
  if (!graph->begin_count++) graph->first_begin = begin;
  return STATUS_OK;
}

void cuda_ranks_bound(DeviceGraph *graph) {
  if (!graph->begin_count) return;
  const char *first = graph->first_begin->work.label, *last = graph->last_begin->work.label;
  graph->begin_label = strcmp(first, last)
                           ? arena_printf(graph->arena, "%s … %s", first, last)
                           : first;
}

void cuda_ranks_forget(DeviceGraph *graph) {
  for (int i = 0; graph->begin && i < graph->plan->steps.count; i++)
    if (graph->begin[i]) {
      if (graph->begin[i]->over) graph->device->driver->event_destroy(graph->begin[i]->over);
      if (graph->begin[i]->copy) graph->device->driver->memory_free(graph->begin[i]->copy);
    }
}

/* ── enqueuing ────────────────────────────────────────────────────────────────────────────── */
Status cuda_ranks_enqueue(DeviceGraph *graph, const CudaItem *item, int slot, CudaStream stream) {
  Device *device = graph->device;
  const PlanStep *step = &graph->plan->steps.at[item->first];
  CommWork work = graph->begin[item->first]->work;
  CudaAddress x = step->input_count ? cuda_graph_address(graph, step->args[0], slot) : 0;
  bool has_output = step->arg_count > step->input_count;
  CudaAddress out = has_output ? cuda_graph_address(graph, step->args[step->input_count], slot) : 0;
  size_t bytes = (size_t)(work.count * dtype_bytes(work.dtype));
  CudaAddress copy = graph->begin[item->first]->copy;
  if (copy && bytes) {
    CUDA_TRY(device, on_device(copy, x, bytes, stream), "%s", step->label);
    x = copy;
  }
  work.x = (const void *)(uintptr_t)x;
  work.out = (void *)(uintptr_t)out;
  if (graph->ranks > 1 && (!device->nccl || !device->comm))
    return status_fail(STATUS_FAULT, "%s (%s): the ranks are not joined", step->name, step->label);
  if (work.clears && bytes) CUDA_TRY(device, fill(out, 0, bytes, stream), "%s", step->label);
  if (work.kind == COMM_ABSENT) return STATUS_OK;
  if (comm_size(device->comm, work.over) > 1) return nccl_enqueue(device->nccl, &work, stream);
  if (x == out || !bytes) return STATUS_OK;
  CUDA_TRY(device, on_device(out, x, bytes, stream), "%s", step->label);
  return STATUS_OK;
}

Status cuda_ranks_fork(DeviceGraph *graph, const CudaItem *item, int slot) {
  Device *device = graph->device;
  if (!device->nccl) return cuda_ranks_enqueue(graph, item, slot, device->compute);
  CUDA_TRY(device, event_record(device->forked, device->compute), "a collective");
  CUDA_TRY(device, stream_wait_event(device->communicate, device->forked, 0), "a collective");
  STATUS_TRY(cuda_ranks_enqueue(graph, item, slot, device->communicate));
  CUDA_TRY(device, event_record(graph->begin[item->first]->over, device->communicate),
           "a collective");
  return STATUS_OK;
}

Status cuda_ranks_join(DeviceGraph *graph, const CudaItem *item) {
  Device *device = graph->device;
  int begun = graph->plan->steps.at[item->first].partner;
  if (!device->nccl) return STATUS_OK;
  CUDA_TRY(device, stream_wait_event(device->compute, graph->begin[begun]->over, 0),
           "the end of a collective");
  return STATUS_OK;
}

/* ── for the ranks' watch ─────────────────────────────────────────────────────────────────── */
/* Events of runs long past are used again: those runs are over. */
static bool look_at_run(const CommWork *work, bool *is_over, char *why, size_t size) {
  Device *device = work->context;
  int64_t run = (int64_t)(intptr_t)work->x;
  *is_over = atomic_load(&device->recorded) >= run + CUDA_RING;
  if (!*is_over) {
    device->driver->context_set(device->context);
    CudaResult result = device->driver->event_query(device->done[run % CUDA_RING]);
    *is_over = result != CUDA_ERROR_NOT_READY; /* another failure is told where it is waited for */
  }
  return nccl_is_well(device->nccl, why, size);
}

static void run_is_over(void *context, Status status) { (void)context, (void)status; }

Status cuda_ranks_launched(DeviceGraph *graph, int64_t run) {
  Device *device = graph->device;
  atomic_store(&device->recorded, run);
  if (!device->nccl || !graph->begin_count) return STATUS_OK;
  int64_t number;
  return comm_begin(device->comm,
                    &(CommWork){.kind = COMM_RUN,
                                .dtype = DT_U8,
                                .count = graph->begin_count,
                                .x = (const void *)(intptr_t)run,
                                .label = graph->begin_label,
                                .done = run_is_over,
                                .look = look_at_run,
                                .context = device},
                    &number);
}
