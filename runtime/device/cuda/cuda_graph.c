/* cuda_graph: a plan graph as a CUDA graph. Each launch depends only on those that the plan says it
 * waits for, so that the GPU may run independent ones side by side; several runs in a row are one
 * CUDA graph, and the addresses of its slots are fixed in it. The queues of the plan need no
 * streams: the edges alone say what may run side by side, copies beside kernels too. */
#include "base/say.h"
#include "plan/plan_order.h"
#include "runtime/device/cuda/cuda_blas.h"
#include "runtime/device/cuda/cuda_private.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cuda_graph_open(Device *device) {
  const char *wanted = getenv("FT_CUDA_EARLY");
  const Plan *plan = device->artifact->plan;
  bool has_early = false;
  for (int g = 0; g < plan->graphs.count; g++)
    for (int i = 0; i < plan->graphs.at[g].steps.count; i++)
      has_early |= plan->graphs.at[g].steps.at[i].is_early;
  device->begins_early = has_early && !(wanted && !strcmp(wanted, "0")) && device->driver->launch_ex &&
                         device->driver->version >= CUDA_DRIVER_EARLY;
}

/* ── items ────────────────────────────────────────────────────────────────────────────────── */
/* A block gets more than 48 KiB, its own arrays counted, only where the kernel has asked for it. */
static Status allow_shared(Device *device, CudaFunction function, const PlanStep *step) {
  int fixed = 0, most = 0;
  CUDA_TRY(device, function_get(&fixed, CUDA_FUNCTION_SHARED_BYTES, function), "kernel %s",
           step->name);
  if (step->shared + fixed <= 48 << 10) return STATUS_OK;
  CUDA_TRY(device, device_attribute(&most, CUDA_ATTRIBUTE_SHARED_MOST, device->device),
           "shared memory of the GPU");
  if (step->shared + fixed > most)
    return status_fail(STATUS_USER,
                       "%s: kernel %s needs %lld bytes of shared memory for a block and %s has %d; "
                       "compile the model for this GPU: ftc --gpu sm_%d%d",
                       device->artifact->path, step->name, (long long)step->shared + fixed,
                       device->text, most, device->major, device->minor);
  CUDA_TRY(device, function_set(function, CUDA_FUNCTION_SHARED_MOST, (int)step->shared),
           "%lld bytes of shared memory for kernel %s", (long long)step->shared, step->name);
  return STATUS_OK;
}

static Status find_function(DeviceGraph *graph, int index) {
  Device *device = graph->device;
  const PlanStep *step = &graph->plan->steps.at[index];
  CudaFunction *function = &graph->function[index];
  STATUS_TRY(cuda_say(device, cuda_modules_function(device->driver, &device->modules, step->name, function),
                        "kernel %s", step->name));
  STATUS_TRY(cuda_map_make(graph, step, &graph->map[index]));
  return step->shared ? allow_shared(device, *function, step) : STATUS_OK;
}

static Status cuda_graph_bind_step(DeviceGraph *graph, int index) {
  const PlanStep *step = &graph->plan->steps.at[index];
  switch (step->kind) {
  case STEP_LAUNCH:
    return find_function(graph, index);
  case STEP_COPY:
  case STEP_FILL:
  case STEP_END:
    return STATUS_OK;
  case STEP_BEGIN:
    return cuda_ranks_bind(graph, index);
  case STEP_CALL:
    break;
  }
  return status_fail(STATUS_USER,
                     "%s: the plan calls \"%s\", which the cuda device does not have; compile the "
                     "model again with this version's ftc",
                     graph->device->artifact->path, step->name);
}

static void wait_for_item(DeviceGraph *graph, int item, int earlier, int *waiter) {
  CudaItem *at = &graph->item[item];
  if (waiter[earlier] == item + 1) return;
  waiter[earlier] = item + 1;
  at->after[at->after_count++] = earlier;
  graph->item[earlier].is_awaited = true;
}

/* From steps to items. Library calls share a workspace, so each waits for the one before it; so
 * does what goes on between ranks, which is in the same order on all of them. */
static void find_after(DeviceGraph *graph) {
  Arena *scratch = arena_new();
  const PlanGraph *plan = graph->plan;
  int *item_of = ARENA_ARRAY(scratch, int, plan->steps.count + 1), call = -1, begin = -1;
  int *waiter = ARENA_ARRAY(scratch, int, graph->item_count + 1);
  for (int i = 0; i < graph->item_count; i++) {
    CudaItem *item = &graph->item[i];
    int most = 1;
    for (int s = item->first; s < item->end; s++) most += plan->steps.at[s].after_count;
    item->after = ARENA_ARRAY(graph->arena, int, most);
    for (int s = item->first; s < item->end; s++)
      for (int k = 0; k < plan->steps.at[s].after_count; k++)
        if (plan->steps.at[s].after[k] < item->first)
          wait_for_item(graph, i, item_of[plan->steps.at[s].after[k]], waiter);
    if (item->call && call >= 0) wait_for_item(graph, i, call, waiter);
    if (item->call) call = i;
    bool is_begin = !item->call && plan->steps.at[item->first].kind == STEP_BEGIN;
    if (is_begin && begin >= 0) wait_for_item(graph, i, begin, waiter);
    if (is_begin) begin = i;
    for (int s = item->first; s < item->end; s++) item_of[s] = i; /* the last of several calls */
  }
  arena_free(scratch);
}

Status cuda_graph_items(DeviceGraph *graph) {
  int steps = graph->plan->steps.count;
  graph->item = ARENA_ARRAY(graph->arena, CudaItem, steps + 1);
  graph->function = ARENA_ARRAY(graph->arena, CudaFunction, steps + 1);
  graph->map = ARENA_ARRAY(graph->arena, CudaTensorMap *, steps + 1);
  for (int i = 0; i < steps; i++) STATUS_TRY(cuda_graph_bind_step(graph, i));
  cuda_ranks_bound(graph);
  STATUS_TRY(cuda_blas_items(graph));
  find_after(graph);
  return STATUS_OK;
}

CudaAddress cuda_graph_address(const DeviceGraph *graph, int index, int slot) {
  const Device *device = graph->device;
  const PlanBuffer *buffer = &graph->plan->buffers.at[index];
  CudaAddress base = graph->base[buffer->place];
  if (buffer->place == device->batch_place)
    base = device->input_slots + (uint64_t)(slot * device->input_stride);
  if (buffer->place == device->result_place)
    base = device->output_slots + (uint64_t)(slot * device->output_stride);
  return base + (uint64_t)buffer->offset;
}

/* ── enqueuing ────────────────────────────────────────────────────────────────────────────── */
/* The attribute is "programmatic stream serialization": in a capture it makes the edge to what the stream waits for a
 * programmatic one (CUDA C++ Programming Guide, "Use in CUDA Graphs"). */
static CudaResult launch_early(Device *device, CudaFunction function, CudaLaunch *launch,
                               void **arguments) {
  CudaLaunchAttribute early = {.id = CUDA_LAUNCH_EARLY, .value = {.number = 1}};
  launch->attributes = &early;
  launch->attribute_count = 1;
  return device->driver->launch_ex(launch, function, arguments, NULL);
}

static Status enqueue_launch(DeviceGraph *graph, const CudaItem *item, int slot,
                             CudaStream stream, bool is_early) {
  Device *device = graph->device;
  const PlanStep *step = &graph->plan->steps.at[item->first];
  CudaAddress address[64], *value = address;
  void *argument[64 + STEP_MAPS], **pointer = argument;
  Arena *scratch = step->arg_count > 64 ? arena_new() : NULL;
  if (scratch) {
    value = ARENA_ARRAY(scratch, CudaAddress, step->arg_count);
    pointer = ARENA_ARRAY(scratch, void *, step->arg_count + STEP_MAPS);
  }
  for (int i = 0; i < step->arg_count; i++) {
    value[i] = cuda_graph_address(graph, step->args[i], slot);
    pointer[i] = &value[i];
  }
  for (int i = 0; i < step->map_count; i++)
    pointer[step->arg_count + i] = &graph->map[item->first][i];
  int64_t fit = step->stays ? device->processors * step->stays : step->grid[0];
  if (step->cluster) fit = fit < step->cluster ? step->cluster : fit - fit % step->cluster;
  CudaLaunch launch = {(unsigned)(fit < step->grid[0] ? fit : step->grid[0]),
                       (unsigned)step->grid[1],
                       (unsigned)step->grid[2],
                       (unsigned)step->block[0],
                       (unsigned)step->block[1],
                       (unsigned)step->block[2],
                       (unsigned)step->shared,
                       stream,
                       NULL,
                       0};
  CudaResult result =
      is_early ? launch_early(device, item->function, &launch, pointer)
               : device->driver->launch(item->function, launch.grid_x, launch.grid_y, launch.grid_z,
                                        launch.block_x, launch.block_y, launch.block_z,
                                        launch.shared_bytes, stream, pointer, NULL);
  if (scratch) arena_free(scratch);
  return cuda_check(device->driver, result, "launch of %s (%s)", step->label, step->name);
}

static Status enqueue_memory(DeviceGraph *graph, const PlanStep *step, int slot,
                             CudaStream stream) {
  Device *device = graph->device;
  size_t bytes = (size_t)step->work;
  CudaAddress to = cuda_graph_address(graph, step->args[step->arg_count - 1], slot);
  if (!bytes) return STATUS_OK;
  if (step->kind == STEP_FILL) {
    CUDA_TRY(device, fill(to, 0, bytes, stream), "%s", step->label);
    return STATUS_OK;
  }
  CUDA_TRY(device, on_device(to, cuda_graph_address(graph, step->args[0], slot), bytes, stream),
           "%s", step->label);
  return STATUS_OK;
}

Status cuda_graph_enqueue(DeviceGraph *graph, const CudaItem *item, int slot, CudaStream stream) {
  if (item->call) return cuda_blas_enqueue(graph, item, slot, stream);
  const PlanStep *step = &graph->plan->steps.at[item->first];
  switch (step->kind) {
  case STEP_LAUNCH: return enqueue_launch(graph, item, slot, stream, false);
  case STEP_BEGIN: return cuda_ranks_enqueue(graph, item, slot, stream);
  case STEP_END: return STATUS_OK; /* an edge, or the place in a stream */
  default: return enqueue_memory(graph, step, slot, stream);
  }
}

/* Each behind the one before on the compute stream, but for what has a stream of its own. */
static Status cuda_graph_enqueue_in_line(DeviceGraph *graph, const CudaItem *item, int slot) {
  StepKind kind = item->call ? STEP_CALL : graph->plan->steps.at[item->first].kind;
  if (kind == STEP_BEGIN) return cuda_ranks_fork(graph, item, slot);
  if (kind == STEP_END) return cuda_ranks_join(graph, item);
  return cuda_graph_enqueue(graph, item, slot, graph->device->compute);
}

/* ── capture ──────────────────────────────────────────────────────────────────────────────── */
/* The last nodes of an item that was captured: what its successors wait for. */
typedef struct {
  CudaGraphNode *node;
  size_t count;
} Tail;

typedef struct {
  DeviceGraph *graph;
  Arena *arena;
  Tail *tail, *previous; /* of the items of this step and of the one before */
  CudaGraphNode *wait;   /* room for the nodes that an item waits for */
  size_t wait_capacity;
} Capture;

static void wait_for(Capture *capture, size_t *count, const Tail *tail) {
  for (size_t i = 0; i < tail->count; i++) {
    if (*count == capture->wait_capacity) {
      size_t capacity = capture->wait_capacity * 2 + 64;
      CudaGraphNode *room = ARENA_ARRAY(capture->arena, CudaGraphNode, capacity);
      if (*count) memcpy(room, capture->wait, *count * sizeof *room);
      capture->wait = room;
      capture->wait_capacity = capacity;
    }
    capture->wait[(*count)++] = tail->node[i];
  }
}

/* Tells the capturing stream what the next nodes depend on. */
static Status set_dependencies(Capture *capture, const CudaItem *item, bool has_previous) {
  Device *device = capture->graph->device;
  size_t count = 0;
  for (int i = 0; i < item->after_count; i++)
    wait_for(capture, &count, &capture->tail[item->after[i]]);
  for (int i = 0; i < capture->graph->item_count && has_previous && !item->after_count; i++)
    if (!capture->graph->item[i].is_awaited) wait_for(capture, &count, &capture->previous[i]);
  CUDA_TRY(device,
           capture_update(device->compute, capture->wait, count, CUDA_CAPTURE_SET_DEPENDENCIES),
           "dependencies of %s", capture->graph->plan->steps.at[item->first].label);
  return STATUS_OK;
}

static Status read_tail(Capture *capture, Tail *out) {
  Device *device = capture->graph->device;
  int state;
  unsigned long long id;
  CudaGraph under_way;
  const CudaGraphNode *node = NULL;
  size_t count = 0;
  CUDA_TRY(device, capture_info(device->compute, &state, &id, &under_way, &node, &count),
           "capturing a step");
  out->node = ARENA_ARRAY(capture->arena, CudaGraphNode, count + 1);
  out->count = count;
  if (count) memcpy(out->node, node, count * sizeof *node);
  return STATUS_OK;
}

/* The steps of a plan have become items, so it is asked of these: a library call is no launch. */
static bool item_begins_early(const DeviceGraph *graph, const CudaItem *item) {
  if (!graph->device->begins_early || item->call || item->after_count != 1) return false;
  const CudaItem *before = &graph->item[item->after[0]];
  const PlanStep *steps = graph->plan->steps.at;
  return plan_begins_early(&steps[item->first], before->call ? NULL : &steps[before->first]);
}

static Status capture_item(Capture *capture, int index, int slot, bool has_previous) {
  DeviceGraph *graph = capture->graph;
  const CudaItem *item = &graph->item[index];
  CudaStream stream = graph->device->compute;
  STATUS_TRY(set_dependencies(capture, item, has_previous));
  if (item_begins_early(graph, item))
    STATUS_TRY(enqueue_launch(graph, item, slot, stream, true));
  else
    STATUS_TRY(cuda_graph_enqueue(graph, item, slot, stream));
  return read_tail(capture, &capture->tail[index]);
}

static Status capture_step(Capture *capture, int slot, bool has_previous) {
  DeviceGraph *graph = capture->graph;
  for (int i = 0; i < graph->item_count; i++)
    STATUS_TRY(graph->device->is_chain
                   ? cuda_graph_enqueue_in_line(graph, &graph->item[i], slot)
                   : capture_item(capture, i, slot, has_previous));
  Tail *tail = capture->tail;
  capture->tail = capture->previous;
  capture->previous = tail;
  return STATUS_OK;
}

static Status capture_steps(DeviceGraph *graph, int first_slot, int steps, CudaGraph *out) {
  Device *device = graph->device;
  Capture capture = {.graph = graph, .arena = arena_new()};
  capture.tail = ARENA_ARRAY(capture.arena, Tail, graph->item_count + 1);
  capture.previous = ARENA_ARRAY(capture.arena, Tail, graph->item_count + 1);
  CudaResult begun = device->driver->capture_begin(device->compute, CUDA_CAPTURE_THREAD_LOCAL);
  Status status = cuda_check(device->driver, begun, "capturing a step");
  for (int i = 0; i < steps && status == STATUS_OK; i++)
    status = capture_step(&capture, first_slot + i, i > 0);
  arena_free(capture.arena);
  if (begun != CUDA_SUCCESS) return status;
  CudaResult ended = device->driver->capture_end(device->compute, out); /* after a failure too */
  if (status != STATUS_OK) {
    if (ended == CUDA_SUCCESS && *out) device->driver->graph_destroy(*out);
    *out = NULL;
    return status;
  }
  return cuda_check(device->driver, ended, "capturing a step");
}

/* Edges are an advantage, not a need: without them each launch waits for the one before. */
static Status capture_or_chain(DeviceGraph *graph, int first_slot, int steps, CudaGraph *out) {
  Device *device = graph->device;
  char why[512] = "it lacks the functions for it";
  if (!device->is_chain && device->driver->capture_info && device->driver->capture_update) {
    Status status = capture_steps(graph, first_slot, steps, out);
    if (status == STATUS_OK || device->begins_early) return status;
    snprintf(why, sizeof why, "%s", status_message());
  }
  bool is_known = device->is_chain;
  device->is_chain = true;
  STATUS_TRY(capture_steps(graph, first_slot, steps, out));
  if (!is_known)
    say_warning("%s: the driver takes no dependencies in a CUDA graph (%s): kernels that could run "
                "side by side run one after another",
                device->text, why);
  return STATUS_OK;
}

static Status capture_and_make(DeviceGraph *graph, int first_slot, int steps, CudaGraphExec *out) {
  Device *device = graph->device;
  CudaGraph captured = NULL;
  STATUS_TRY(capture_or_chain(graph, first_slot, steps, &captured));
  CudaResult result = device->driver->graph_instantiate(out, captured, 0);
  device->driver->graph_destroy(captured);
  STATUS_TRY(cuda_say(device, result, "making it"));
  result = device->driver->graph_upload ? device->driver->graph_upload(*out, device->compute)
                                        : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) device->driver->graph_exec_destroy(*out);
  return cuda_say(device, result, "uploading it");
}

/* Launches that begin early are an advantage too. */
static Status cuda_graph_capture(DeviceGraph *graph, int first_slot, int steps,
                                 CudaGraphExec *out) {
  Device *device = graph->device;
  Status status = capture_and_make(graph, first_slot, steps, out);
  if (status == STATUS_OK || !device->begins_early) return status;
  char why[512];
  snprintf(why, sizeof why, "%s", status_message());
  device->begins_early = false;
  STATUS_TRY(capture_and_make(graph, first_slot, steps, out));
  if (!device->is_chain)
    say_warning("%s: the driver makes no CUDA graph in which kernels begin early (%s): each begins when "
                "the one before has ended",
                device->text, why);
  return STATUS_OK;
}

Status cuda_graph_go_on_plainly(Device *device, const char *of) {
  char why[512];
  snprintf(why, sizeof why, "%s", status_message());
  STATUS_TRY(comm_status(device->comm));
  CudaResult result = device->driver->stream_query(device->compute);
  if (result != CUDA_ERROR_NOT_READY) STATUS_TRY(cuda_say(device, result, "%s", why));
  device->is_plain = true;
  say_warning("%s: there is no CUDA graph of %s: %s; kernels are launched one by one from now on: "
              "steps are slower, and their results the same",
              device->text, of, why);
  return STATUS_OK;
}

static Status go_on_plainly(DeviceGraph *graph, int steps) {
  char of[192];
  snprintf(of, sizeof of, steps > 1 ? "graph %s (%d steps)" : "graph %s", graph->plan->name, steps);
  return cuda_graph_go_on_plainly(graph->device, of);
}

void cuda_graph_forget(DeviceGraph *graph) {
  for (int i = 0; i < graph->captured_count; i++)
    graph->device->driver->graph_exec_destroy(graph->captured[i].exec);
  graph->captured_count = graph->oldest = 0;
}

/* The place of a new captured graph: the oldest one's if all are taken. */
static Status make_room(DeviceGraph *graph, CudaCaptured **out) {
  Device *device = graph->device;
  if (graph->captured_count < CUDA_EXECS) {
    *out = &graph->captured[graph->captured_count++];
    return STATUS_OK;
  }
  *out = &graph->captured[graph->oldest];
  graph->oldest = (graph->oldest + 1) % CUDA_EXECS;
  STATUS_TRY(cuda_wait_stream(device, device->compute, "the place of a captured graph"));
  CUDA_TRY(device, graph_exec_destroy((*out)->exec), "replacing a graph");
  return STATUS_OK;
}

/* With FT_CUDA_NO_GRAPH=wait a failure is that of the launch which it names. */
static Status launch_alone(DeviceGraph *graph, const CudaItem *item, int slot) {
  Device *device = graph->device;
  char what[256];
  STATUS_TRY(cuda_graph_enqueue_in_line(graph, item, slot));
  if (!device->is_waited) return STATUS_OK;
  const PlanStep *step = &graph->plan->steps.at[item->first];
  snprintf(what, sizeof what, "kernel %s (%s)", item->call ? "of cuBLASLt" : step->name, step->label);
  return cuda_wait_stream(device, device->compute, what);
}

static Status launch_plainly(DeviceGraph *graph, int first_slot, int steps) {
  for (int s = 0; s < steps; s++)
    for (int i = 0; i < graph->item_count; i++)
      STATUS_TRY(launch_alone(graph, &graph->item[i], first_slot + s));
  return STATUS_OK;
}

static CudaCaptured *find_captured(DeviceGraph *graph, int first_slot, int steps) {
  for (int i = 0; i < graph->captured_count; i++)
    if (graph->captured[i].first_slot == first_slot && graph->captured[i].steps == steps)
      return &graph->captured[i];
  return NULL;
}

/* *out NULL: there is none, and device->is_plain. */
static Status find_or_capture(DeviceGraph *graph, int first_slot, int steps, CudaCaptured **out) {
  CudaGraphExec exec;
  *out = find_captured(graph, first_slot, steps);
  if (*out) return STATUS_OK;
  if (cuda_graph_capture(graph, first_slot, steps, &exec) != STATUS_OK)
    return go_on_plainly(graph, steps);
  Status status = make_room(graph, out);
  if (status != STATUS_OK) {
    graph->device->driver->graph_exec_destroy(exec);
    return status;
  }
  **out = (CudaCaptured){exec, first_slot, steps};
  return STATUS_OK;
}

Status cuda_graph_make_ready(DeviceGraph *graph, int first_slot, int steps) {
  CudaCaptured *ignored;
  if (graph->device->is_plain || graph->captured_count == CUDA_EXECS) return STATUS_OK;
  return find_or_capture(graph, first_slot, steps, &ignored);
}

Status cuda_graph_launch(DeviceGraph *graph, int first_slot, int steps) {
  Device *device = graph->device;
  CudaCaptured *found = NULL;
  if (!device->is_plain) STATUS_TRY(find_or_capture(graph, first_slot, steps, &found));
  if (!found) return launch_plainly(graph, first_slot, steps);
  CUDA_TRY(device, graph_launch(found->exec, device->compute), "launching a step");
  return STATUS_OK;
}
