/* cuda_time: how long work takes on the GPU alone: captured several times over in one graph, so
 * that no launch from the host lies in between, and timed by events. What is timed runs for real,
 * many times. */
#include "runtime/device/cuda/cuda_private.h"

enum { PART_REPEATS = 20, PART_ROUNDS = 5 };
static const double long_enough = 2000; /* microseconds: no need to repeat */

/* What is timed: a graph, or without one (exec NULL) what is enqueued, whose launches the host makes
 * meanwhile. */
typedef struct {
  CudaEnqueue *enqueue;
  void *context;
  int repeats;
  CudaGraphExec exec;
} Timed;

static Status cuda_time_capture(Device *device, Timed *timed) {
  CudaGraph graph = NULL;
  CUDA_TRY(device, capture_begin(device->compute, CUDA_CAPTURE_THREAD_LOCAL), "timing");
  Status status = STATUS_OK;
  for (int i = 0; i < timed->repeats && status == STATUS_OK; i++)
    status = timed->enqueue(timed->context, device->compute);
  CudaResult result = device->driver->capture_end(device->compute, &graph); /* in any case */
  if (status == STATUS_OK) status = cuda_check(device->driver, result, "timing");
  if (status == STATUS_OK)
    status = cuda_check(device->driver,
                        device->driver->graph_instantiate(&timed->exec, graph, 0), "timing");
  if (status != STATUS_OK) timed->exec = NULL;
  if (result == CUDA_SUCCESS && graph) device->driver->graph_destroy(graph);
  return status;
}

static Status time_start(Device *device, const Timed *timed) {
  if (timed->exec) {
    CUDA_TRY(device, graph_launch(timed->exec, device->compute), "timing");
    return STATUS_OK;
  }
  for (int i = 0; i < timed->repeats; i++) STATUS_TRY(timed->enqueue(timed->context, device->compute));
  return STATUS_OK;
}

static Status time_launch(Device *device, const Timed *timed, float *milliseconds) {
  CUDA_TRY(device, event_record(device->timer[0], device->compute), "timing");
  STATUS_TRY(time_start(device, timed));
  CUDA_TRY(device, event_record(device->timer[1], device->compute), "timing");
  STATUS_TRY(cuda_wait_event(device, device->timer[1], "timing"));
  CUDA_TRY(device, event_elapsed(milliseconds, device->timer[0], device->timer[1]), "timing");
  return STATUS_OK;
}

Status cuda_time(Device *device, CudaEnqueue *enqueue, void *context, int repeats, int rounds,
                 double *microseconds) {
  Timed timed = {enqueue, context, repeats, NULL};
  float time, best = 0;
  if (!device->is_plain && cuda_time_capture(device, &timed) != STATUS_OK)
    STATUS_TRY(cuda_graph_go_on_plainly(device, "what is timed"));
  Status status = time_launch(device, &timed, &time); /* warms up */
  for (int i = 0; i < rounds && status == STATUS_OK; i++) {
    status = time_launch(device, &timed, &time);
    if (i == 0 || time < best) best = time;
  }
  if (timed.exec && cuda_settle(device, NULL, device->compute))
    device->driver->graph_exec_destroy(timed.exec);
  *microseconds = (double)best * 1e3 / repeats;
  return status;
}

/* ── parts of a step, for bench ───────────────────────────────────────────────────────────── */
typedef struct {
  DeviceGraph *graph;
  int first, end;
} Part;

static Status enqueue_part(void *context, CudaStream stream) {
  Part *part = context;
  for (int i = 0; i < part->graph->item_count; i++) {
    const CudaItem *item = &part->graph->item[i];
    if (item->first >= part->first && item->first < part->end)
      STATUS_TRY(cuda_graph_enqueue(part->graph, item, 0, stream));
  }
  return STATUS_OK;
}

Status cuda_time_part(DeviceGraph *graph, int first, int end, int64_t *time, const char **by) {
  Part part = {graph, first, end};
  double microseconds;
  bool is_covered = true; /* by a call that began before */
  *by = NULL;
  *time = -1;
  for (int i = 0; i < graph->item_count; i++) {
    if (graph->item[i].first < first || graph->item[i].first >= end) continue;
    is_covered = false;
    if (graph->item[i].call) *by = "cuBLASLt";
  }
  if (is_covered) return STATUS_OK;
  STATUS_TRY(cuda_time(graph->device, enqueue_part, &part, 1, 1, &microseconds));
  if (microseconds < long_enough)
    STATUS_TRY(
        cuda_time(graph->device, enqueue_part, &part, PART_REPEATS, PART_ROUNDS, &microseconds));
  *time = (int64_t)(microseconds * 1e3);
  return STATUS_OK;
}
