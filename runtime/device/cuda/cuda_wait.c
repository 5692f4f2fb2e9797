/* cuda_wait: the host waits for the GPU, and gives up where no run ends for train.timeout. It asks the
 * driver, and sleeps in between: first for moments, then for a sixteenth of the time waited, so that a wait
 * costs no core and ends soon after the work. A wait in the driver could be given no end. Where
 * ranks are joined, their watch has a deadline of its own (runtime/communicate/watch.h). */
#define _GNU_SOURCE /* nanosleep */
#include "base/clock.h"
#include "base/output.h"
#include "plan/waits.h"
#include "runtime/device/cuda/cuda_private.h"
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SPIN = 50000, LONGEST = 200000 }; /* nanoseconds */

/* ── what is said ─────────────────────────────────────────────────────────────────────────── */
/* "step 3", "steps 3 to 66", "batch 2 of graph eval" */
static void run_text(const Device *device, const CudaRunNote *note, char *out, size_t size) {
  bool is_step = plan_is_step(device->artifact->plan, note->graph);
  const char *what = is_step ? "step" : "batch";
  int used = 0;
  if (note->last > note->first)
    used = snprintf(out, size, "%s%s %lld to %lld", what, is_step ? "s" : "es",
                    (long long)note->first, (long long)note->last);
  else if (note->first)
    used = snprintf(out, size, "%s %lld", what, (long long)note->first);
  if (!is_step || !note->first)
    snprintf(out + used, size - (size_t)used, "%sgraph %s", used ? " of " : "", note->graph->name);
}

/* By the note in front of each run, which the GPU has made in order. */
static bool tell_wait(const Device *device, char *out, size_t size) {
  char run[128], when[144];
  if (!device->waits) return false;
  unsigned mark = (unsigned char)device->waits[WAITS_BYTES];
  const CudaRunNote *note = NULL;
  for (int64_t r = device->runs + 1; r > 0 && r > device->runs + 1 - CUDA_RING && !note; r--)
    if ((r & 255) == mark && device->note[r % CUDA_RING].graph)
      note = &device->note[r % CUDA_RING];
  if (note) run_text(device, note, run, sizeof run);
  snprintf(when, sizeof when, "in %s", note ? run : "");
  return waits_tell(device->waits, device->artifact->plan, note ? when : NULL, out, size);
}

Status cuda_say(Device *device, CudaResult result, const char *format, ...) {
  char what[256], wait[768];
  if (result == CUDA_SUCCESS) return STATUS_OK;
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  if (tell_wait(device, wait, sizeof wait))
    return status_fail(STATUS_FAULT, "%s: %s", device->artifact->path, wait);
  return cuda_check(device->driver, result, "%s", what);
}

/* The number of the first run that is not over; 0: all are. */
static int64_t run_under_way(Device *device) {
  int64_t first = device->runs - CUDA_RING + 1;
  for (int64_t run = first < 1 ? 1 : first; run <= device->runs; run++)
    if (device->driver->event_query(device->done[run % CUDA_RING]) == CUDA_ERROR_NOT_READY)
      return run;
  return 0;
}

static Status tell_late(Device *device, const char *what) {
  char run[128] = "what it was given", within[400] = "";
  int64_t number = device->is_waited ? device->runs + 1 : run_under_way(device);
  const CudaRunNote *note = &device->note[number % CUDA_RING];
  if (number && note->graph) run_text(device, note, run, sizeof run);
  if (device->is_waited) snprintf(within, sizeof within, "%s in ", what);
  return status_fail(
      STATUS_FAULT, "%s: the GPU has not ended %s%s for %g seconds (train.timeout)%s", device->text,
      within, run, round((double)device->deadline * 1e-6) * 1e-3,
      device->is_waited ? ""
                        : "; FT_CUDA_NO_GRAPH=wait says in which kernel it is, and for --gpu "
                          "sm_90a ftc --debug-waits at which barrier");
}

/* ── kernels that bound their waits ───────────────────────────────────────────────────────── */
Status cuda_wait_open(Device *device) {
  const CudaDriver *driver = device->driver;
  CudaAddress variable;
  size_t bytes;
  void *memory;
  double seconds = setting_number(device->artifact->plan->settings, "train.timeout");
  device->deadline = (int64_t)(seconds * 1e9);
  CudaResult result = driver->module_global(&variable, &bytes, device->modules.at[0], WAITS_VARIABLE); /* one that has it is one module */
  if (result == CUDA_ERROR_NOT_FOUND) return STATUS_OK;
  STATUS_TRY(cuda_check(driver, result, "the variable %s", WAITS_VARIABLE));
  if (bytes != sizeof device->waits_address)
    return status_fail(STATUS_USER, "%s: the variable %s has %zu bytes, and 8 are expected",
                       device->artifact->path, WAITS_VARIABLE, bytes);
  /* behind the records a byte that says which run the GPU is in */
  CUDA_TRY(device, host_alloc(&memory, WAITS_BYTES + 1, CUDA_HOST_PORTABLE | CUDA_HOST_MAPPED),
           "memory for what kernels say");
  device->waits = memory;
  memset(device->waits, 0, WAITS_BYTES + 1);
  CUDA_TRY(device, host_address(&device->waits_address, memory, 0), "memory for what kernels say");
  CUDA_TRY(device, to_device(variable, &device->waits_address, bytes, device->compute),
           "the variable %s", WAITS_VARIABLE);
  return cuda_wait_stream(device, device->compute, "the variable " WAITS_VARIABLE);
}

void cuda_wait_close(Device *device) {
  if (device->waits) device->driver->host_free(device->waits);
}

void cuda_tell(Device *device, int64_t first, int64_t last) {
  device->first = first;
  device->last = last;
}

Status cuda_wait_note(DeviceGraph *graph, int64_t run) {
  Device *device = graph->device;
  device->note[run % CUDA_RING] = (CudaRunNote){graph->plan, device->first, device->last};
  device->first = device->last = 0;
  if (!device->waits) return STATUS_OK;
  CUDA_TRY(device, fill(device->waits_address + WAITS_BYTES, (unsigned char)run, 1, device->compute),
           "a step");
  return STATUS_OK;
}

/* ── waiting ──────────────────────────────────────────────────────────────────────────────── */
static void wait_a_moment(int64_t waited) {
  if (waited < SPIN) {
    sched_yield();
    return;
  }
  int64_t pause = waited / 16 < LONGEST ? waited / 16 : LONGEST;
  nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
}

typedef enum { WAIT_OVER, WAIT_LATE, WAIT_LOST } WaitEnd;

/* Until it is over, or no run has ended for as long as the deadline says: then the device is lost.
 * Several runs may lie before what is waited for. */
static WaitEnd wait_until(Device *device, CudaEvent event, CudaStream stream, CudaResult *result) {
  int64_t start = 0, since = 0, run = -1;
  for (;;) {
    *result = event ? device->driver->event_query(event) : device->driver->stream_query(stream);
    if (*result != CUDA_ERROR_NOT_READY) return WAIT_OVER;
    if (atomic_load(&device->is_lost) && !device->nccl) return WAIT_LOST;
    int64_t now = clock_nanoseconds();
    if (!start) start = since = now;
    if (run < 0 && now - start >= SPIN) run = run_under_way(device);
    if (device->deadline && now - since > device->deadline && !device->nccl) {
      int64_t next = run_under_way(device);
      if (next == run) {
        atomic_store(&device->is_lost, true);
        output_leave_at_once();
        return WAIT_LATE;
      }
      run = next;
      since = now;
    }
    wait_a_moment(now - start);
  }
}

static Status say_end(Device *device, WaitEnd end, CudaResult result, const char *what) {
  if (end == WAIT_LATE) return tell_late(device, what);
  if (end == WAIT_LOST)
    return status_fail(STATUS_FAULT, "%s: the GPU does not end its work (%s)", device->text, what);
  return cuda_ranks_check(device, result, what);
}

Status cuda_wait_event(Device *device, CudaEvent event, const char *what) {
  CudaResult result;
  WaitEnd end = wait_until(device, event, NULL, &result);
  return say_end(device, end, result, what);
}

Status cuda_wait_stream(Device *device, CudaStream stream, const char *what) {
  CudaResult result;
  WaitEnd end = wait_until(device, NULL, stream, &result);
  return say_end(device, end, result, what);
}

bool cuda_settle(Device *device, CudaEvent event, CudaStream stream) {
  CudaResult result;
  return wait_until(device, event, stream, &result) == WAIT_OVER;
}
