/* cuda_run: what a run enqueues on which stream, and how results come back. The host runs ahead: a
 * run returns when its work is enqueued, and waits only for runs several launches ago, so that the
 * copy of at least two batches is always under way or done before their steps begin. */
#include "runtime/device/cuda/cuda_private.h"
#include <stdio.h>
#include <string.h>

int cuda_most_steps(const DeviceGraph *graph) { return graph->device->most_steps; }

/* Waits for the event of a run long past; at once if it is over. */
static Status wait_for_run(Device *device, const CudaEvent *events, int64_t run) {
  if (run < 1) return STATUS_OK;
  return cuda_wait_event(device, events[run % CUDA_RING], "the GPU failed in a step");
}

/* `stream` waits for the last runs that used the slots. */
static Status wait_for_slots(Device *device, int first, int count, CudaStream stream) {
  int64_t last = 0;
  for (int i = first; i < first + count; i++)
    if (device->slot[i].last_run > last) last = device->slot[i].last_run;
  if (last)
    CUDA_TRY(device, stream_wait_event(stream, device->done[last % CUDA_RING], 0), "waiting");
  return STATUS_OK;
}

/* Waits for the fetches that read the outputs of these slots, before a run writes them. */
static Status wait_for_fetches(Device *device, int first, int count) {
  int64_t last = 0;
  for (int i = first; i < first + count; i++) {
    if (device->slot[i].last_fetch > last) last = device->slot[i].last_fetch;
    device->slot[i].last_fetch = 0;
  }
  if (last)
    CUDA_TRY(device, stream_wait_event(device->compute, device->back_done[last % CUDA_TICKETS], 0),
             "waiting");
  return STATUS_OK;
}

/* What is enqueued on the copy stream belongs to the next run: launches it. */
static Status launch(DeviceGraph *graph, int first_slot, int steps) {
  Device *device = graph->device;
  int64_t run = device->runs + 1;
  CUDA_TRY(device, event_record(device->filled[run % CUDA_RING], device->copy), "a batch");
  CUDA_TRY(device, stream_wait_event(device->compute, device->filled[run % CUDA_RING], 0),
           "waiting");
  STATUS_TRY(wait_for_fetches(device, first_slot, steps));
  STATUS_TRY(cuda_wait_note(graph, run));
  STATUS_TRY(cuda_graph_launch(graph, first_slot, steps));
  CUDA_TRY(device, event_record(device->done[run % CUDA_RING], device->compute), "a step");
  for (int i = first_slot; i < first_slot + steps; i++) device->slot[i].last_run = run;
  STATUS_TRY(cuda_ranks_launched(graph, run));
  device->runs = run;
  device->last_slot = first_slot;
  device->last_steps = steps;
  return STATUS_OK;
}

/* Which slots run number `run` (from 0) takes. */
static int streamed_slot(int64_t run) { return (int)(run % CUDA_STREAMED); }
static int kept_slot(const Device *device, int64_t run) {
  return (int)(run % 2) * device->most_steps;
}

/* Evaluations in between shift later runs by one: from the third on both sets of slots are taken. */
Status cuda_make_ready(DeviceGraph *graph, int ahead, int steps) {
  Device *device = graph->device;
  int64_t run = device->runs + ahead;
  if (!steps) return cuda_graph_make_ready(graph, streamed_slot(run), 1);
  STATUS_TRY(cuda_graph_make_ready(graph, kept_slot(device, run), steps));
  if (ahead < 2) return STATUS_OK;
  return cuda_graph_make_ready(graph, kept_slot(device, run + 1), steps);
}

Status cuda_run(DeviceGraph *graph, const char *batch) {
  Device *device = graph->device;
  int slot = streamed_slot(device->runs);
  /* the batch of run r - CUDA_HOLDS may be changed when this run returns */
  STATUS_TRY(wait_for_run(device, device->filled, device->runs + 1 - CUDA_HOLDS));
  STATUS_TRY(wait_for_slots(device, slot, 1, device->copy));
  int64_t bytes = plan_place_bytes(device->artifact->plan, device->batch_place);
  if (bytes && batch)
    CUDA_TRY(device,
             to_device(device->input_slots + (uint64_t)(slot * device->input_stride), batch,
                       (size_t)bytes, device->copy),
             "sending a batch");
  return launch(graph, slot, 1);
}

Status cuda_run_kept(DeviceGraph *graph, const DeviceKept *kept, int64_t first_step, int steps) {
  Device *device = graph->device;
  int first_slot = kept_slot(device, device->runs);
  STATUS_TRY(wait_for_run(device, device->done, device->runs + 1 - CUDA_AHEAD));
  STATUS_TRY(wait_for_slots(device, first_slot, steps, device->copy));
  STATUS_TRY(cuda_data_gather(kept, first_step, steps, first_slot));
  return launch(graph, first_slot, steps);
}

/* ── parts, timed ─────────────────────────────────────────────────────────────────────────── */
static Status cuda_run_time_items(DeviceGraph *graph, int first, int end, float *milliseconds) {
  Device *device = graph->device;
  char what[256];
  CUDA_TRY(device, event_record(device->timer[0], device->compute), "timing");
  for (int i = 0; i < graph->item_count; i++)
    if (graph->item[i].first >= first && graph->item[i].first < end)
      STATUS_TRY(cuda_graph_enqueue(graph, &graph->item[i], 0, device->compute));
  CUDA_TRY(device, event_record(device->timer[1], device->compute), "timing");
  snprintf(what, sizeof what, "the GPU failed in %s",
           first < graph->plan->steps.count ? graph->plan->steps.at[first].label : "a step");
  STATUS_TRY(cuda_wait_event(device, device->timer[1], what));
  CUDA_TRY(device, event_elapsed(milliseconds, device->timer[0], device->timer[1]), "timing");
  return STATUS_OK;
}

Status cuda_run_part(DeviceGraph *graph, const char *batch, int first, int end, int64_t *time) {
  Device *device = graph->device;
  float milliseconds = 0;
  int64_t bytes = plan_place_bytes(device->artifact->plan, device->batch_place);
  if (first == 0) { /* a step begins: everything before is over, slot 0 is free */
    STATUS_TRY(cuda_wait_stream(device, device->compute, "the GPU failed in a step"));
    STATUS_TRY(cuda_wait_stream(device, device->back, "reading results"));
    if (bytes)
      CUDA_TRY(device, to_device(device->input_slots, batch, (size_t)bytes, device->compute),
               "sending a batch");
    STATUS_TRY(cuda_wait_stream(device, device->compute, "sending a batch"));
  }
  STATUS_TRY(cuda_run_time_items(graph, first, end, &milliseconds));
  device->last_slot = 0;
  device->last_steps = 1;
  *time += (int64_t)((double)milliseconds * 1e6);
  return STATUS_OK;
}

/* ── results ──────────────────────────────────────────────────────────────────────────────── */
static Status fetch_piece(Device *device, const DevicePiece *piece, char *to, int64_t pitch) {
  CudaCopy2d copy = {
      .from_kind = CUDA_MEMORY_DEVICE,
      .from_device = device->output_slots +
                     (uint64_t)(device->last_slot * device->output_stride + piece->offset),
      .from_pitch = (size_t)device->output_stride,
      .to_kind = CUDA_MEMORY_HOST,
      .to_host = to,
      .to_pitch = (size_t)pitch,
      .width = (size_t)piece->bytes,
      .height = (size_t)device->last_steps,
  };
  CUDA_TRY(device, copy_2d(&copy, device->back), "reading results");
  return STATUS_OK;
}

Status cuda_fetch(DeviceGraph *graph, const DevicePiece *piece, int count, char *to,
                  int64_t *ticket) {
  Device *device = graph->device;
  int64_t pitch = 0, next = device->tickets + 1;
  for (int i = 0; i < count; i++) pitch += piece[i].bytes;
  CUDA_TRY(device, stream_wait_event(device->back, device->done[device->runs % CUDA_RING], 0),
           "waiting");
  for (int i = 0; i < count; i++) {
    STATUS_TRY(fetch_piece(device, &piece[i], to, pitch));
    to += piece[i].bytes;
  }
  CUDA_TRY(device, event_record(device->back_done[next % CUDA_TICKETS], device->back), "results");
  for (int i = 0; i < device->last_steps; i++)
    device->slot[device->last_slot + i].last_fetch = next;
  *ticket = device->tickets = next;
  return STATUS_OK;
}

Status cuda_fetched(Device *device, int64_t ticket, bool wait, bool *is_done) {
  CudaEvent event = device->back_done[ticket % CUDA_TICKETS];
  *is_done = true;
  if (wait) return cuda_wait_event(device, event, "the GPU failed in a step");
  CudaResult result = device->driver->event_query(event);
  *is_done = result != CUDA_ERROR_NOT_READY;
  return *is_done ? cuda_ranks_check(device, result, "the GPU failed in a step") : STATUS_OK;
}
