/* dev_cuda: an NVIDIA GPU as a device. Opening checks everything that can be known before a step:
 * the driver, the GPU, the PTX, and whether the plan's memory fits. Files: cuda_driver (entry
 * points), cuda_module (PTX), cuda_map (tensor maps), cuda_graph (what a step enqueues), cuda_run
 * (streams and events), cuda_data (data on the GPU), cuda_round, cuda_blas (cuBLASLt), cuda_speed
 * (ceilings).
 */
#include "base/say.h"
#include "runtime/device/cuda/cuda_blas.h"
#include "runtime/device/cuda/cuda_private.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 64, MOST_NODES = 2048 };
static const int64_t most_slot_bytes = 128 << 20; /* for the slots of steps in a row */

/* ── memory ───────────────────────────────────────────────────────────────────────────────── */
/* How many steps one launch may take: few enough nodes that a launch stays short, and slots that
 * stay small beside the model. */
static void plan_slots(Device *device) {
  const Plan *plan = device->artifact->plan;
  device->batch_place = plan_batch_place(plan);
  device->result_place = plan_result_place(plan);
  device->input_stride = cuda_aligned(plan_place_bytes(plan, device->batch_place) + 1);
  device->output_stride = cuda_aligned(plan_place_bytes(plan, device->result_place) + 1);
  const PlanGraph *step = plan_result(plan, PROGRAMME_STEP);
  int64_t nodes = (step ? step->steps.count : 0) + 1;
  int64_t steps = MOST_NODES / nodes;
  int64_t room = most_slot_bytes / (2 * (device->input_stride + device->output_stride));
  if (steps > room) steps = room;
  if (steps > MOST_STEPS) steps = MOST_STEPS;
  if (device->waits) steps = 1; /* so that the step is known in which a kernel gives up */
  device->most_steps = steps < 1 ? 1 : (int)steps;
  device->slot_count = 2 * device->most_steps;
  if (device->slot_count < CUDA_STREAMED) device->slot_count = CUDA_STREAMED;
}

/* Bytes on the GPU: places (batches are in the slots), slots, the library's workspace. */
static int64_t block_bytes(const Device *device) {
  const Plan *plan = device->artifact->plan;
  int64_t bytes = device->slot_count * (device->input_stride + device->output_stride);
  for (int i = 0; i < plan->places.count; i++)
    if (!plan->places.at[i].is_window && i != device->batch_place)
      bytes += cuda_aligned(plan->places.at[i].bytes + 1);
  return bytes + cuda_aligned(cuda_blas_workspace(device) + 1);
}

/* Assumed, not measured: CUDA graphs and the driver's own needs, code and work of cuBLASLt, buffers
 * of NCCL before the ranks are joined. */
int64_t cuda_headroom(const Device *device) {
  enum { OF_DRIVER = 64, OF_BLAS = 64, OF_RANKS = 256 }; /* MiB */
  bool joins = comm_ranks(device->comm) > 1 && !device->is_joined;
  return (int64_t)(OF_DRIVER + (device->blas ? OF_BLAS : 0) + (joins ? OF_RANKS : 0)) << 20;
}

typedef struct {
  size_t free, total;
} Room;

static double mebibytes(int64_t bytes) { return (double)bytes / (1 << 20); }

static bool leaves_headroom(const Device *device, const Room *room) {
  return (uint64_t)(device->block_bytes + cuda_headroom(device)) <= room->free;
}

static Status too_large(const Device *device, const Room *room) {
  return status_fail(STATUS_FAULT,
                     "%s needs %.1f MiB on the GPU and %.1f MiB are free (of %.1f MiB): compile it "
                     "with a smaller train.batch, or free memory (nvidia-smi shows who has it); "
                     "beside it CUDA graphs and libraries want some %.0f MiB",
                     device->artifact->path, mebibytes(device->block_bytes),
                     mebibytes((int64_t)room->free), mebibytes((int64_t)room->total),
                     mebibytes(cuda_headroom(device)));
}

static void warn_of_little_room(const Device *device, const Room *room) {
  say_warning("%s needs %.1f MiB on the GPU and %.1f MiB are free (of %.1f MiB), which leaves %.1f "
              "MiB: CUDA graphs and libraries want some %.0f, and without them steps are slower, or "
              "the run ends; a smaller train.batch needs less",
              device->artifact->path, mebibytes(device->block_bytes),
              mebibytes((int64_t)room->free), mebibytes((int64_t)room->total),
              mebibytes((int64_t)room->free - device->block_bytes),
              mebibytes(cuda_headroom(device)));
}

/* Fewer steps in a launch need fewer slots. */
static void fit_slots(Device *device, const Room *room) {
  plan_slots(device);
  device->block_bytes = block_bytes(device);
  if (leaves_headroom(device, room)) return;
  device->most_steps = 1;
  device->slot_count = CUDA_STREAMED;
  device->block_bytes = block_bytes(device);
}

static Status take_memory(Device *device) {
  Room room;
  CUDA_TRY(device, memory_info(&room.free, &room.total), "free memory of the GPU");
  fit_slots(device, &room);
  if ((uint64_t)device->block_bytes > room.free) return too_large(device, &room);
  CudaResult result = device->driver->memory_alloc(&device->block, (size_t)device->block_bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return too_large(device, &room); /* not in one piece */
  STATUS_TRY(cuda_check(device->driver, result, "memory for the model"));
  if (!leaves_headroom(device, &room)) warn_of_little_room(device, &room);
  CUDA_TRY(device, fill(device->block, 0, (size_t)device->block_bytes, device->compute),
           "clearing memory");
  device->input_slots = device->block;
  device->output_slots = device->block + (uint64_t)(device->slot_count * device->input_stride);
  device->block_used = device->slot_count * (device->input_stride + device->output_stride);
  device->slot = calloc((size_t)device->slot_count, sizeof *device->slot);
  return device->slot ? STATUS_OK : status_fail(STATUS_FAULT, "out of memory");
}

CudaAddress cuda_take(Device *device, int64_t bytes) {
  CudaAddress at = device->block + (uint64_t)device->block_used;
  device->block_used += cuda_aligned(bytes + 1);
  return at;
}

/* Pieces of the one block, which is as large as all of them; they go back with it. */
static Status cuda_alloc(Device *device, int64_t bytes, char **out) {
  if (device->block_used + cuda_aligned(bytes + 1) > device->block_bytes)
    return status_fail(STATUS_FAULT, "the GPU's memory was planned smaller than it is used");
  *out = (char *)(uintptr_t)cuda_take(device, bytes);
  return STATUS_OK;
}

static void cuda_free(Device *device, char *memory, int64_t bytes) {
  (void)device, (void)memory, (void)bytes;
}

static Status cuda_alloc_host(Device *device, int64_t bytes, char **out) {
  void *memory;
  CUDA_TRY(device, host_alloc(&memory, (size_t)bytes + 1, CUDA_HOST_PORTABLE),
           "%.1f MiB of pinned memory", (double)bytes / (1 << 20));
  memset(memory, 0, (size_t)bytes + 1);
  *out = memory;
  return STATUS_OK;
}

/* Copies from and to it may be under way. */
static void cuda_free_host(Device *device, char *memory, int64_t bytes) {
  (void)bytes;
  if (atomic_load(&device->is_lost)) return;
  if (cuda_settle(device, NULL, device->copy) && cuda_settle(device, NULL, device->back))
    device->driver->host_free(memory);
}

/* Results are those of the last run. */
static CudaAddress place_of(const Device *device, const char *address) {
  CudaAddress at = (CudaAddress)(uintptr_t)address;
  int64_t bytes = plan_place_bytes(device->artifact->plan, device->result_place);
  if (at < device->output_base || at - device->output_base >= (uint64_t)bytes) return at;
  int64_t slot = device->last_slot + device->last_steps - 1;
  return device->output_slots + (uint64_t)(slot * device->output_stride) +
         (at - device->output_base);
}

static Status cuda_write(Device *device, char *to, const void *from, int64_t bytes) {
  if (!bytes) return STATUS_OK;
  STATUS_TRY(cuda_wait_stream(device, device->compute, "the steps before"));
  CUDA_TRY(device, to_device(place_of(device, to), from, (size_t)bytes, device->compute),
           "writing %lld bytes", (long long)bytes);
  return cuda_wait_stream(device, device->compute, "writing to the GPU");
}

static Status cuda_read(Device *device, void *to, const char *from, int64_t bytes) {
  if (!bytes) return STATUS_OK;
  /* a copy to memory that is not pinned would wait in the driver for what is before it */
  STATUS_TRY(cuda_wait_stream(device, device->compute, "the GPU failed in a step"));
  CUDA_TRY(device, to_host(to, place_of(device, from), (size_t)bytes, device->compute),
           "reading %lld bytes", (long long)bytes);
  return cuda_wait_stream(device, device->compute, "reading what the GPU holds");
}

static Status cuda_sync(Device *device) {
  STATUS_TRY(cuda_wait_stream(device, device->compute, "the GPU failed in a step"));
  return cuda_wait_stream(device, device->back, "reading results");
}

/* ── copies for another thread ────────────────────────────────────────────────────────────── */
static Status cuda_spare(Device *device, int64_t bytes, char **out) {
  size_t free_bytes, total;
  CudaAddress at = 0;
  *out = NULL;
  CUDA_TRY(device, memory_info(&free_bytes, &total), "free memory of the GPU");
  if ((uint64_t)bytes > free_bytes / 2 || (uint64_t)(bytes + cuda_headroom(device)) > free_bytes)
    return STATUS_OK;
  CudaResult result = device->driver->memory_alloc(&at, (size_t)bytes + 1);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return STATUS_OK; /* free, but not in one piece */
  STATUS_TRY(cuda_check(device->driver, result, "memory for a copy"));
  *out = (char *)(uintptr_t)at;
  return STATUS_OK;
}

/* Not before the copy into it is over. Nothing is checked: a lost device has told that already. */
static void cuda_spare_free(Device *device, char *memory) {
  device->driver->context_set(device->context);
  if (cuda_settle(device, device->copied, NULL))
    device->driver->memory_free((CudaAddress)(uintptr_t)memory);
}

static Status cuda_copy(Device *device, char *to, const char *from, int64_t bytes) {
  if (bytes)
    CUDA_TRY(device,
             on_device((CudaAddress)(uintptr_t)to, place_of(device, from), (size_t)bytes,
                       device->compute),
             "copying %lld bytes", (long long)bytes);
  CUDA_TRY(device, event_record(device->copied, device->compute), "copying");
  return STATUS_OK;
}

/* A context is current in a thread, and this may be any. */
static Status cuda_read_beside(Device *device, void *to, const char *from, int64_t bytes) {
  if (!bytes) return STATUS_OK;
  CUDA_TRY(device, context_set(device->context), "the GPU's context");
  STATUS_TRY(cuda_wait_event(device, device->copied, "a copy"));
  CUDA_TRY(device, to_host(to, (CudaAddress)(uintptr_t)from, (size_t)bytes, device->aside),
           "reading a copy");
  return cuda_wait_stream(device, device->aside, "reading a copy");
}

/* ── opening ──────────────────────────────────────────────────────────────────────────────── */
static Status find_device(Device *device, int index) {
  int count;
  char name[96] = "";
  CUDA_TRY(device, device_count(&count), "counting GPUs");
  if (count < 1) return status_fail(STATUS_USER, "the NVIDIA driver finds no GPU on this machine");
  if (index >= count)
    return status_fail(STATUS_USER, "there is no cuda:%d: this machine has cuda:0%s", index,
                       count > 1 ? " and more (ftrun devices lists them)" : " only");
  CUDA_TRY(device, device_get(&device->device, index), "GPU %d", index);
  const struct {
    int attribute, *value;
  } wanted[] = {{CUDA_ATTRIBUTE_MAJOR, &device->major},
                {CUDA_ATTRIBUTE_MINOR, &device->minor},
                {CUDA_ATTRIBUTE_PROCESSORS, &device->processors}};
  for (int i = 0; i < 3; i++)
    CUDA_TRY(device, device_attribute(wanted[i].value, wanted[i].attribute, device->device),
             "GPU %d", index);
  CUDA_TRY(device, device_name(name, sizeof name, device->device), "GPU %d", index);
  int version = device->driver->version; /* 12080 for 12.8 */
  snprintf(device->text, sizeof device->text, "cuda:%d (%s, sm_%d%d), CUDA %d.%d", index, name,
           device->major, device->minor, version / 1000, version % 1000 / 10);
  return STATUS_OK;
}

static Status make_streams(Device *device) {
  CudaStream *const streams[] = {&device->compute, &device->copy, &device->back,
                                 &device->communicate, &device->aside};
  for (int i = 0; i < 5; i++)
    CUDA_TRY(device, stream_create(streams[i], CUDA_STREAM_NON_BLOCKING), "a stream");
  CUDA_TRY(device, event_create(&device->copied, CUDA_EVENT_NO_TIMING), "an event");
  for (int i = 0; i < CUDA_RING; i++) {
    CUDA_TRY(device, event_create(&device->filled[i], CUDA_EVENT_NO_TIMING), "an event");
    CUDA_TRY(device, event_create(&device->done[i], CUDA_EVENT_NO_TIMING), "an event");
  }
  for (int i = 0; i < CUDA_TICKETS; i++)
    CUDA_TRY(device, event_create(&device->back_done[i], CUDA_EVENT_NO_TIMING), "an event");
  for (int i = 0; i < 2; i++) CUDA_TRY(device, event_create(&device->timer[i], 0), "an event");
  return STATUS_OK;
}

/* What the thread that has entered had current before: its caller's. Of one device at a time. */
static _Thread_local CudaContext context_before;

static void cuda_enter(Device *device) {
  CudaContext now = NULL;
  device->driver->context_current(&now);
  context_before = now;
  if (now != device->context) device->driver->context_set(device->context);
}

static void cuda_leave(Device *device) {
  if (context_before != device->context) device->driver->context_set(context_before);
  context_before = NULL;
}

/* The device's text says where the kernels come from if the artifact has a cubin. */
static Status load_kernels(Device *device) {
  const PlanCubin *cubin = &device->artifact->cubin;
  bool is_cubin;
  STATUS_TRY(cuda_modules_load(device->driver, device->artifact, device->major, device->minor, &device->modules,
                               &is_cubin));
  size_t used = strlen(device->text);
  if (is_cubin)
    snprintf(device->text + used, sizeof device->text - used, ", cubin of %s", cubin->target);
  else if (cubin->target && !cubin->problem)
    snprintf(device->text + used, sizeof device->text - used, ", PTX (the cubin is for %s)",
             cubin->target);
  return STATUS_OK;
}

static Status open_device(Device *device, const DeviceOptions *options) {
  STATUS_TRY(find_device(device, options->index));
  STATUS_TRY(cuda_module_check(device->artifact, device->major, device->minor));
  CUDA_TRY(device, context_retain(&device->context, device->device), "a context on %s",
           device->text);
  CUDA_TRY(device, context_current(&context_before), "a context on %s", device->text);
  CUDA_TRY(device, context_set(device->context), "a context on %s", device->text);
  STATUS_TRY(make_streams(device));
  STATUS_TRY(load_kernels(device));
  STATUS_TRY(cuda_wait_open(device));
  const char *library = "";
  STATUS_TRY(cuda_blas_open(device, !options->is_deterministic, &library));
  strncat(device->text, library, sizeof device->text - strlen(device->text) - 1);
  STATUS_TRY(take_memory(device));
  cuda_blas_ready(device);
  return STATUS_OK;
}

static void destroy_streams(Device *device) {
  const CudaDriver *driver = device->driver;
  CudaStream const streams[] = {device->compute, device->copy, device->back, device->communicate,
                                device->aside};
  for (int i = 0; i < 5; i++)
    if (streams[i]) driver->stream_destroy(streams[i]);
  if (device->copied) driver->event_destroy(device->copied);
  for (int i = 0; i < CUDA_RING; i++) {
    if (device->filled[i]) driver->event_destroy(device->filled[i]);
    if (device->done[i]) driver->event_destroy(device->done[i]);
  }
  for (int i = 0; i < CUDA_TICKETS; i++)
    if (device->back_done[i]) driver->event_destroy(device->back_done[i]);
  for (int i = 0; i < 2; i++)
    if (device->timer[i]) driver->event_destroy(device->timer[i]);
}

/* Nothing here is checked: after a lost device every call fails, and the process ends anyway. False:
 * all must stay as it is. */
static bool close_device(Device *device) {
  const CudaDriver *driver = device->driver;
  if (!cuda_ranks_close(device)) return false;
  if (!device->context) return true;
  CudaStream const streams[] = {device->copy, device->compute, device->back};
  for (int i = 0; i < 3; i++)
    if (streams[i] && !cuda_settle(device, NULL, streams[i])) return false;
  cuda_blas_close(device);
  destroy_streams(device);
  if (device->block) driver->memory_free(device->block);
  cuda_wait_close(device);
  cuda_modules_unload(driver, &device->modules);
  if (device->gather_module) driver->module_unload(device->gather_module);
  if (device->round_module) driver->module_unload(device->round_module);
  return true;
}

static void cuda_close(Device *device) {
  if (!device) return;
  bool is_closed = close_device(device);
  if (device->context) cuda_leave(device);
  if (!is_closed) return;
  if (device->context) device->driver->context_release(device->device);
  free(device->slot);
  free(device);
}

static Status cuda_open(const Artifact *artifact, const DeviceOptions *options, Device **out) {
  Device *device = calloc(1, sizeof *device);
  if (!device) return status_fail(STATUS_FAULT, "out of memory");
  device->artifact = artifact;
  device->last_steps = 1;
  context_before = NULL;
  const char *plain = getenv("FT_CUDA_NO_GRAPH");
  device->is_plain = plain && plain[0] && strcmp(plain, "0") != 0;
  device->is_waited = plain && !strcmp(plain, "wait");
  cuda_ranks_open(device, options->comm);
  Status status = cuda_driver_open(&device->driver);
  if (status == STATUS_OK) cuda_graph_open(device);
  if (status == STATUS_OK) status = open_device(device, options);
  if (status != STATUS_OK) {
    cuda_close(device);
    return status;
  }
  *out = device;
  return STATUS_OK;
}

static const char *cuda_describe(const Device *device) { return device->text; }

/* ── binding ──────────────────────────────────────────────────────────────────────────────── */
static void cuda_unbind(DeviceGraph *graph) {
  if (!graph || atomic_load(&graph->device->is_lost)) return;
  if (!cuda_settle(graph->device, NULL, graph->device->compute)) return;
  cuda_graph_forget(graph);
  cuda_ranks_forget(graph);
  cuda_blas_forget(graph);
  for (DeviceGraph **at = &graph->device->graphs; *at; at = &(*at)->next)
    if (*at == graph) {
      *at = graph->next;
      break;
    }
  arena_free(graph->arena);
  free(graph);
}

static Status cuda_bind(Device *device, const Artifact *artifact, int which, char *const *base,
                        DeviceGraph **out) {
  DeviceGraph *graph = calloc(1, sizeof *graph);
  if (!graph) return status_fail(STATUS_FAULT, "out of memory");
  graph->device = device;
  graph->plan = &artifact->plan->graphs.at[which];
  graph->arena = arena_new();
  int places = artifact->plan->places.count;
  graph->base = ARENA_ARRAY(graph->arena, CudaAddress, places + 1);
  for (int i = 0; i < places; i++) graph->base[i] = (CudaAddress)(uintptr_t)base[i];
  device->output_base = device->result_place < 0 ? 0 : graph->base[device->result_place];
  Status status = cuda_graph_items(graph);
  if (status != STATUS_OK) {
    cuda_unbind(graph);
    return status;
  }
  graph->next = device->graphs;
  device->graphs = graph;
  *out = graph;
  return STATUS_OK;
}

const DeviceType dev_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .enter = cuda_enter,
    .leave = cuda_leave,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .alloc_host = cuda_alloc_host,
    .free_host = cuda_free_host,
    .write = cuda_write,
    .read = cuda_read,
    .round = cuda_round,
    .bind = cuda_bind,
    .unbind = cuda_unbind,
    .join = cuda_ranks_join_all,
    .tell = cuda_tell,
    .make_ready = cuda_make_ready,
    .run = cuda_run,
    .run_part = cuda_run_part,
    .sync = cuda_sync,
    .holds = CUDA_HOLDS,
    .spare = cuda_spare,
    .spare_free = cuda_spare_free,
    .copy = cuda_copy,
    .read_beside = cuda_read_beside,
    .keep = cuda_keep,
    .drop = cuda_drop,
    .most_steps = cuda_most_steps,
    .run_kept = cuda_run_kept,
    .fetch = cuda_fetch,
    .fetched = cuda_fetched,
    .speed = cuda_speed,
    .time_part = cuda_time_part,
};
