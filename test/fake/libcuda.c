/* libcuda: the entry points of the fake driver but for graphs and launches, see fake.h. */
#include "fake_entry.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const CudaDevice first_device = 40; /* no index: a handle */

struct CudaContextBody {
  int retained;
};
static struct CudaContextBody contexts[64]; /* by GPU */
static _Thread_local CudaContext current;   /* each thread sets its own */
bool fake_is_initialised;

/* ── the driver and its devices ───────────────────────────────────────────────────────────── */
CudaResult entry_init(unsigned flags) {
  (void)flags;
  fake_is_initialised = true;
  return fake_setting("COUNT", 1) > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CudaResult entry_driver_version(int *version) {
  *version = (int)fake_setting("VERSION", 12040);
  return CUDA_SUCCESS;
}

static const struct {
  CudaResult result;
  const char *name, *text;
} errors[] = {{CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
              {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
              {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
              {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
              {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
              {CUDA_ERROR_NO_BINARY, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available"},
              {CUDA_ERROR_UNSUPPORTED_PTX, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "too new"},
              {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
              {CUDA_ERROR_LAUNCH_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
               "too many resources requested for launch"},
              {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
              {CUDA_ERROR_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
               "operation not permitted when stream is capturing"},
              {CUDA_ERROR_CAPTURE_SPOILED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
               "operation failed due to a previous error during capture"}};

CudaResult entry_error_name(CudaResult error, const char **text) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].result == error) {
      *text = errors[i].name;
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_INVALID_VALUE;
}

CudaResult entry_error_string(CudaResult error, const char **text) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].result == error) {
      *text = errors[i].text;
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_INVALID_VALUE;
}

/* The GPU that this process sees as number `ordinal`, by CUDA_VISIBLE_DEVICES; -1: none. */
static int visible_gpu(int ordinal) {
  const char *at = getenv("CUDA_VISIBLE_DEVICES");
  long count = fake_setting("COUNT", 1);
  for (int i = 0; at && *at && i < ordinal; i++) {
    at = strchr(at, ',');
    if (!at) return -1;
    at++;
  }
  long which = at && *at ? strtol(at, NULL, 10) : ordinal;
  return which >= 0 && which < count ? (int)which : -1;
}

CudaResult entry_device_count(int *count) {
  for (*count = 0; visible_gpu(*count) >= 0; ++*count) {
  }
  return CUDA_SUCCESS;
}

CudaResult entry_device_get(CudaDevice *device, int ordinal) {
  int which = ordinal < 0 ? -1 : visible_gpu(ordinal);
  if (which < 0) return 101;
  *device = first_device + which;
  return CUDA_SUCCESS;
}

static void check_device(CudaDevice device) {
  if (device < first_device || device >= first_device + fake_setting("COUNT", 1))
    fake_die("%d is no device", device);
}

CudaResult entry_device_name(char *name, int length, CudaDevice device) {
  check_device(device);
  snprintf(name, (size_t)length, "Fake GPU");
  return CUDA_SUCCESS;
}

CudaResult entry_device_memory(size_t *bytes, CudaDevice device) {
  check_device(device);
  *bytes = (size_t)fake_setting("MEMORY", 1 << 30);
  return CUDA_SUCCESS;
}

static int fake_unknown_attribute(int attribute) { fake_die("device attribute %d", attribute); }

CudaResult entry_device_attribute(int *value, int attribute, CudaDevice device) {
  check_device(device);
  long capability = fake_setting("CC", 90);
  *value = attribute == CUDA_ATTRIBUTE_MAJOR         ? (int)(capability / 10)
           : attribute == CUDA_ATTRIBUTE_MINOR       ? (int)(capability % 10)
           : attribute == CUDA_ATTRIBUTE_PROCESSORS  ? (int)fake_setting("PROCESSORS", 2)
           : attribute == CUDA_ATTRIBUTE_CLOCK_KHZ   ? (int)fake_setting("CLOCK", 1000000)
           : attribute == CUDA_ATTRIBUTE_SHARED_MOST ? (int)fake_setting("SHARED", 227 << 10)
                                                     : fake_unknown_attribute(attribute);
  return CUDA_SUCCESS;
}

CudaResult entry_context_retain(CudaContext *out, CudaDevice device) {
  check_device(device);
  if (device - first_device == fake_setting("BAD", -1)) return 46;
  if (!fake_machine && sim_machine_new(1, &fake_machine) != STATUS_OK) return 999;
  if (device - first_device >= 64) fake_die("more GPUs than 64");
  *out = &contexts[device - first_device];
  (*out)->retained++;
  return CUDA_SUCCESS;
}

static bool some_context_is_alive(void) {
  for (int i = 0; i < 64; i++)
    if (contexts[i].retained) return true;
  return false;
}

CudaResult entry_context_release(CudaDevice device) {
  LOCKED();
  check_device(device);
  CudaContext released = &contexts[device - first_device];
  if (released->retained < 1) fake_die("a context released more often than retained");
  if (fake_capture_refuses("cuDevicePrimaryCtxRelease")) fake_die("a context released in capture");
  released->retained--;
  if (!some_context_is_alive() && !fake_sticky && fake_memory_blocks())
    fake_die("%d allocations were not freed", fake_memory_blocks());
  fake_sticky = CUDA_SUCCESS;
  return CUDA_SUCCESS;
}

static void check_alive(CudaContext chosen) {
  if (chosen < contexts || chosen >= contexts + 64 || !chosen->retained)
    fake_die("a dead context is set");
}

CudaContext fake_context(void) { return current; }

CudaResult entry_context_set(CudaContext chosen) {
  if (chosen) check_alive(chosen);
  current = chosen;
  return CUDA_SUCCESS;
}

CudaResult entry_context_current(CudaContext *out) {
  *out = current;
  return CUDA_SUCCESS;
}

/* ── what deployed models call besides (runtime/command/deploy_ptx.part) ──────────────────────── */
EXPORT CudaResult entry_context_device(CudaDevice *device) __asm__("cuCtxGetDevice");
EXPORT CudaResult entry_context_push(CudaContext pushed) __asm__("cuCtxPushCurrent_v2");
EXPORT CudaResult entry_context_pop(CudaContext *out) __asm__("cuCtxPopCurrent_v2");

enum { MOST_CONTEXTS = 8 };
static _Thread_local CudaContext fake_context_stack[MOST_CONTEXTS]; /* what was current below */
static _Thread_local int fake_context_depth;

CudaResult entry_context_device(CudaDevice *device) {
  fake_context_check();
  *device = first_device + (CudaDevice)(current - contexts);
  return CUDA_SUCCESS;
}

CudaResult entry_context_push(CudaContext pushed) {
  check_alive(pushed);
  if (fake_context_depth == MOST_CONTEXTS) fake_die("contexts are pushed and not popped");
  fake_context_stack[fake_context_depth++] = current;
  current = pushed;
  return CUDA_SUCCESS;
}

CudaResult entry_context_pop(CudaContext *out) {
  if (!fake_context_depth) return 201; /* CUDA_ERROR_INVALID_CONTEXT */
  *out = current;
  current = fake_context_stack[--fake_context_depth];
  return CUDA_SUCCESS;
}

/* ── memory ───────────────────────────────────────────────────────────────────────────────── */
CudaResult entry_memory_info(size_t *free_bytes, size_t *total_bytes) {
  LIVE();
  *total_bytes = (size_t)fake_setting("MEMORY", 1 << 30);
  *free_bytes = *total_bytes - fake_memory_used();
  return CUDA_SUCCESS;
}

CudaResult entry_memory_alloc(CudaAddress *address, size_t bytes) {
  LIVE();
  NOT_IN_CAPTURE("cuMemAlloc");
  return fake_memory_alloc(address, bytes);
}

CudaResult entry_memory_free(CudaAddress address) {
  LOCKED();
  fake_context_check();
  NOT_IN_CAPTURE("cuMemFree");
  for (CudaStream stream = fake_streams; stream && !fake_sticky; stream = stream->next)
    fake_run_until_empty(stream); /* as a driver does */
  fake_memory_free(address);
  return fake_sticky;
}

CudaResult entry_host_alloc(void **memory, size_t bytes, unsigned flags) {
  LIVE();
  NOT_IN_CAPTURE("cuMemHostAlloc");
  return fake_host_alloc(memory, bytes, flags & CUDA_HOST_MAPPED);
}

CudaResult entry_host_address(CudaAddress *address, void *memory, unsigned flags) {
  LIVE();
  if (flags) fake_die("cuMemHostGetDevicePointer with flags");
  *address = (CudaAddress)(uintptr_t)memory;
  fake_memory_check(*address, 1, "cuMemHostGetDevicePointer");
  return CUDA_SUCCESS;
}

CudaResult entry_host_free(void *memory) {
  LOCKED();
  fake_context_check();
  NOT_IN_CAPTURE("cuMemFreeHost");
  for (CudaStream stream = fake_streams; stream; stream = stream->next)
    for (int i = stream->done; i < stream->count && !fake_sticky; i++)
      if (stream->op[i].kind == OP_COPY &&
          (stream->op[i].copy.from_host == memory || stream->op[i].copy.to_host == memory))
        fake_die("pinned memory is freed while a copy of it is under way");
  fake_host_free(memory);
  return fake_sticky;
}

/* Copies: device places are checked now, and once more by the simulator's own table if freed. */
static CudaResult copy(CudaCopy2d copy, CudaStream stream) {
  LIVE();
  FakeOp op = {.kind = OP_COPY, .copy = copy};
  size_t from = copy.width + (copy.height - 1) * copy.from_pitch;
  size_t to = copy.width + (copy.height - 1) * copy.to_pitch;
  if (!copy.width || !copy.height) return CUDA_SUCCESS;
  bool is_up = copy.from_kind == CUDA_MEMORY_HOST, is_down = copy.to_kind == CUDA_MEMORY_HOST;
  if (!is_up) fake_memory_check(copy.from_device, from, "copy");
  if (!is_down) fake_memory_check(copy.to_device, to, "copy");
  fake_counts.to_device += is_up;
  fake_counts.to_host += is_down;
  fake_counts.on_device += !is_up && !is_down;
  if (stream && stream->capture &&
      ((is_up && !fake_is_pinned(copy.from_host, from)) ||
       (is_down && !fake_is_pinned(copy.to_host, to))))
    fake_die("a captured copy of memory that is not pinned: a replay reads it as it is then");
  if (is_up && !fake_is_pinned(copy.from_host, from)) { /* staged before the call returns */
    fake_counts.pageable++;
    op.staged = malloc(from);
    memcpy(op.staged, copy.from_host, from);
  }
  bool is_direct = is_down && !fake_is_pinned(copy.to_host, to);
  CudaResult result = fake_enqueue(stream, op);
  if (result == CUDA_SUCCESS && is_direct) { /* the call returns when it is done */
    fake_counts.pageable++;
    result = fake_run_until_empty(stream);
  }
  return result;
}

static CudaCopy2d flat(int from_kind, int to_kind, size_t bytes) {
  return (CudaCopy2d){.from_kind = from_kind,
                      .to_kind = to_kind,
                      .width = bytes,
                      .height = 1,
                      .from_pitch = bytes,
                      .to_pitch = bytes};
}

CudaResult entry_to_device(CudaAddress to, const void *from, size_t bytes, CudaStream stream) {
  CudaCopy2d plain = flat(CUDA_MEMORY_HOST, CUDA_MEMORY_DEVICE, bytes);
  plain.from_host = from;
  plain.to_device = to;
  return copy(plain, stream);
}

CudaResult entry_to_host(void *to, CudaAddress from, size_t bytes, CudaStream stream) {
  CudaCopy2d plain = flat(CUDA_MEMORY_DEVICE, CUDA_MEMORY_HOST, bytes);
  plain.from_device = from;
  plain.to_host = to;
  return copy(plain, stream);
}

CudaResult entry_on_device(CudaAddress to, CudaAddress from, size_t bytes, CudaStream stream) {
  CudaCopy2d plain = flat(CUDA_MEMORY_DEVICE, CUDA_MEMORY_DEVICE, bytes);
  plain.from_device = from;
  plain.to_device = to;
  return copy(plain, stream);
}

CudaResult entry_copy_2d(const CudaCopy2d *plain, CudaStream stream) {
  if (plain->from_x || plain->from_y || plain->to_x || plain->to_y)
    fake_die("a 2D copy with an offset, which the fake does not know");
  if (plain->width > plain->from_pitch || plain->width > plain->to_pitch)
    return CUDA_ERROR_INVALID_VALUE;
  return copy(*plain, stream);
}

CudaResult entry_fill(CudaAddress to, unsigned char value, size_t bytes, CudaStream stream) {
  LIVE();
  fake_memory_check(to, bytes, "fill");
  return fake_enqueue(stream, (FakeOp){.kind = OP_FILL, .to = to, .bytes = bytes, .value = value});
}

/* ── streams and events ───────────────────────────────────────────────────────────────────── */
CudaResult entry_stream_create(CudaStream *stream, unsigned flags) {
  LIVE();
  if (flags != CUDA_STREAM_NON_BLOCKING) fake_die("a stream that blocks the default one");
  static unsigned made;
  *stream = calloc(1, sizeof **stream);
  (*stream)->is_slow = fake_setting("SEED", 0) >> made++ % 4 & 1;
  (*stream)->context = current;
  (*stream)->next = fake_streams;
  fake_streams = *stream;
  return CUDA_SUCCESS;
}

CudaResult entry_stream_destroy(CudaStream stream) {
  LOCKED();
  fake_context_check();
  if (stream->capture) fake_die("a stream is destroyed while it is captured");
  CudaStream *at = &fake_streams;
  while (*at && *at != stream) at = &(*at)->next;
  if (!*at) fake_die("a dead stream is destroyed");
  if (!fake_sticky) fake_run_until_empty(stream);
  *at = stream->next;
  free(stream->wait);
  free(stream->op);
  free(stream);
  return fake_sticky;
}

CudaResult entry_stream_wait_event(CudaStream stream, CudaEvent event, unsigned flags) {
  LIVE();
  if (flags) fake_die("a wait with flags");
  if (fake_capture_wait(stream, event)) return CUDA_SUCCESS;
  if (!event->recorded) return CUDA_SUCCESS; /* an event never recorded counts as done */
  return fake_enqueue(stream,
                      (FakeOp){.kind = OP_WAIT, .event = event, .generation = event->recorded});
}

/* What deployed models call (runtime/command/deploy_ptx.part); ftrun itself only asks. */
EXPORT CudaResult entry_stream_synchronize(CudaStream stream) __asm__("cuStreamSynchronize");

CudaResult entry_stream_query(CudaStream stream) {
  LIVE();
  NOT_IN_CAPTURE("cuStreamQuery");
  bool is_done = fake_ask(NULL, stream);
  if (fake_sticky) return fake_sticky;
  return is_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CudaResult entry_stream_synchronize(CudaStream stream) {
  LIVE();
  NOT_IN_CAPTURE("cuStreamSynchronize");
  fake_counts.synchronize++;
  return fake_run_until_empty(stream);
}

CudaResult entry_event_create(CudaEvent *event, unsigned flags) {
  LIVE();
  *event = calloc(1, sizeof **event);
  (*event)->flags = flags;
  return CUDA_SUCCESS;
}

CudaResult entry_event_destroy(CudaEvent event) {
  LOCKED();
  fake_context_check();
  free(event->node);
  free(event);
  return fake_sticky;
}

CudaResult entry_event_record(CudaEvent event, CudaStream stream) {
  LIVE();
  if (stream->capture && !stream->is_spoiled) {
    fake_capture_record(stream, event);
    return CUDA_SUCCESS;
  }
  event->capture_id = 0;
  event->recorded++;
  event->stream = stream;
  event->launches = fake_counts.graph_launch;
  fake_counts.event_record++;
  return fake_enqueue(stream,
                      (FakeOp){.kind = OP_RECORD, .event = event, .generation = event->recorded});
}

CudaResult entry_event_query(CudaEvent event) {
  LIVE();
  NOT_IN_CAPTURE("cuEventQuery");
  bool is_done = fake_ask(event, NULL);
  if (fake_sticky) return fake_sticky;
  return is_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CudaResult entry_event_elapsed(float *milliseconds, CudaEvent start, CudaEvent end) {
  LIVE();
  if ((start->flags | end->flags) & CUDA_EVENT_NO_TIMING) fake_die("timing an event without time");
  if (!fake_event_is_done(start) || !fake_event_is_done(end)) return CUDA_ERROR_NOT_READY;
  *milliseconds = (float)(end->time - start->time);
  return CUDA_SUCCESS;
}

/* ── for the fake cuBLASLt and NCCL ───────────────────────────────────────────────────────── */
EXPORT int fake_library_enqueue(CudaStream stream, void (*work)(void *), const void *context,
                                size_t bytes);
EXPORT int fake_library_collective(void *stream, void (*work)(void *), const void *context,
                                   size_t bytes);
EXPORT void fake_library_mark(const void *at, size_t bytes);
EXPORT void fake_library_check(const void *at, size_t bytes);
EXPORT void fake_library_pause(void);
EXPORT void fake_library_move(void);
EXPORT void fake_library_took(double milliseconds);

int fake_library_enqueue(CudaStream stream, void (*work)(void *), const void *context,
                         size_t bytes) {
  void *kept = malloc(bytes);
  memcpy(kept, context, bytes);
  fake_counts.library_call++;
  return fake_enqueue(stream, (FakeOp){.kind = OP_HOST, .host = work, .context = kept});
}

void fake_library_mark(const void *at, size_t bytes) {
  fake_memory_check((CudaAddress)(uintptr_t)at, bytes, "a library's result");
  sim_mark(fake_machine, at, (int64_t)bytes, true);
}

/* A library's kernel that waits for other processes. stream: a CudaStream. */
int fake_library_collective(void *stream, void (*work)(void *), const void *context,
                            size_t bytes) {
  LOCKED();
  void *kept = malloc(bytes);
  memcpy(kept, context, bytes);
  return fake_enqueue(stream, (FakeOp){.kind = OP_COLLECTIVE, .host = work, .context = kept});
}

void fake_library_check(const void *at, size_t bytes) {
  LOCKED();
  fake_memory_check((CudaAddress)(uintptr_t)at, bytes, "a collective");
}

void fake_library_pause(void) { fake_pause(); }

void fake_library_move(void) {
  LOCKED();
  fake_move_all();
}

/* What runs took so long by the clock of events, whatever it did by that of the wall. */
void fake_library_took(double milliseconds) { fake_said_milliseconds += milliseconds; }

/* Each GPU of each machine its own. */
CudaResult entry_device_uuid(CudaUuid *uuid, CudaDevice device) {
  check_device(device);
  memset(uuid, 0, sizeof *uuid);
  gethostname(uuid->bytes, 12);
  uuid->bytes[15] = (char)device;
  return CUDA_SUCCESS;
}

CudaResult entry_device_bus(char *text, int length, CudaDevice device) {
  const char *given = getenv("FT_FAKE_CUDA_BUS");
  check_device(device);
  snprintf(text, (size_t)length, "%s", given && given[0] ? given : "FFFF:FF:1F.7");
  return CUDA_SUCCESS;
}

/* A letter for each pair, row by row: N: NVLink, P: PCIe, all else: no access. */
CudaResult entry_device_link(int *value, int attribute, CudaDevice from, CudaDevice to) {
  const char *links = getenv("FT_FAKE_CUDA_LINKS");
  check_device(from);
  check_device(to);
  size_t at = (size_t)((from - first_device) * fake_setting("COUNT", 1) + (to - first_device));
  char link = links && at < strlen(links) ? links[at] : '-';
  if (from == to) return CUDA_ERROR_INVALID_VALUE;
  if (attribute != CUDA_LINK_ACCESS && attribute != CUDA_LINK_ATOMICS)
    fake_die("link attribute %d", attribute);
  *value = attribute == CUDA_LINK_ACCESS ? link == 'N' || link == 'P' : link == 'N';
  return CUDA_SUCCESS;
}
