/* cuda_data: a split of the data kept on the GPU: uploaded once through pinned memory, in one
 * allocation beside the places; batches are gathered by a kernel (gpu/gather.c) in the same order
 * that the loader on the host would take. */
#include "runtime/device/cuda/cuda_private.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const char embed_gather_ptx[];

enum { THREADS = 256, UPLOAD_RING = 3, MOST_LANES = 64 };

/* ── room ─────────────────────────────────────────────────────────────────────────────────── */
/* At most this share of what is free: others may want some, and a driver's own needs grow. */
static const double share_of_free = 0.6;

static Status layout(DeviceKept *kept) {
  const DeviceData *data = &kept->data;
  kept->offset = calloc((size_t)data->input_count + 1, sizeof *kept->offset);
  kept->row = calloc((size_t)data->input_count + 1, sizeof *kept->row);
  if (!kept->offset || !kept->row) return status_fail(STATUS_FAULT, "out of memory");
  for (int i = 0; i < data->input_count; i++) {
    int64_t bytes;
    kept->row[i] = type_bytes(&data->inputs[i].type) / data->batch;
    kept->offset[i] = kept->bytes;
    if (__builtin_mul_overflow(kept->row[i], data->samples, &bytes) || bytes > INT64_MAX / 4)
      return status_fail(STATUS_USER, "the data is too large");
    kept->bytes += cuda_aligned(bytes);
  }
  return STATUS_OK;
}

static Status find_room(DeviceKept *kept) {
  Device *device = kept->device;
  size_t free_bytes, total_bytes;
  CUDA_TRY(device, memory_info(&free_bytes, &total_bytes), "free memory of the GPU");
  if ((double)kept->bytes > share_of_free * (double)free_bytes ||
      (uint64_t)(kept->bytes + cuda_headroom(device)) > free_bytes)
    return STATUS_OK;
  CudaResult result = device->driver->memory_alloc(&kept->memory, (size_t)kept->bytes + CUDA_ALIGN);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    kept->memory = 0; /* it was free a moment ago; batches are sent one by one then */
    return STATUS_OK;
  }
  return cuda_check(device->driver, result, "memory for the data");
}

/* ── upload ───────────────────────────────────────────────────────────────────────────────── */
static Status send_rows(DeviceKept *kept, const char *batch, int64_t first, int64_t count) {
  Device *device = kept->device;
  for (int i = 0; i < kept->data.input_count; i++) {
    CudaAddress to = kept->memory + (uint64_t)(kept->offset[i] + first * kept->row[i]);
    size_t bytes = (size_t)(count * kept->row[i]);
    if (bytes)
      CUDA_TRY(device, to_device(to, batch + kept->data.inputs[i].offset, bytes, device->copy),
               "sending the data");
  }
  return STATUS_OK;
}

/* Fills one pinned batch while others are on their way. */
static Status upload_through(DeviceKept *kept, void **batch, CudaEvent *sent) {
  Device *device = kept->device;
  const DeviceData *data = &kept->data;
  int64_t round = 0;
  for (int64_t first = 0; first < data->samples; first += data->batch, round++) {
    int at = (int)(round % UPLOAD_RING);
    int64_t left = data->samples - first;
    if (round >= UPLOAD_RING) STATUS_TRY(cuda_wait_event(device, sent[at], "sending the data"));
    STATUS_TRY(data->fill(data->context, first, batch[at]));
    STATUS_TRY(send_rows(kept, batch[at], first, left < data->batch ? left : data->batch));
    CUDA_TRY(device, event_record(sent[at], device->copy), "sending the data");
  }
  return cuda_wait_stream(device, device->copy, "sending the data");
}

static Status upload(DeviceKept *kept) {
  const CudaDriver *driver = kept->device->driver;
  void *batch[UPLOAD_RING] = {0};
  CudaEvent sent[UPLOAD_RING] = {0};
  CudaResult result = CUDA_SUCCESS;
  for (int i = 0; i < UPLOAD_RING && result == CUDA_SUCCESS; i++) {
    size_t bytes = (size_t)kept->data.batch_bytes + 1;
    result = driver->host_alloc(&batch[i], bytes, CUDA_HOST_PORTABLE);
    if (result != CUDA_SUCCESS) break;
    memset(batch[i], 0, bytes);
    result = driver->event_create(&sent[i], CUDA_EVENT_NO_TIMING);
  }
  Status status = cuda_check(driver, result, "pinned memory for the data");
  if (status == STATUS_OK) status = upload_through(kept, batch, sent);
  for (int i = 0; i < UPLOAD_RING; i++) {
    if (sent[i]) driver->event_destroy(sent[i]);
    if (batch[i]) driver->host_free(batch[i]);
  }
  return status;
}

static Status load_gather(Device *device) {
  if (device->gather) return STATUS_OK;
  STATUS_TRY(cuda_module_load(device->driver, "ftrun", embed_gather_ptx, &device->gather_module));
  CUDA_TRY(device, module_function(&device->gather, device->gather_module, "ft_gather"),
           "kernel ft_gather");
  return STATUS_OK;
}

Status cuda_keep(Device *device, const DeviceData *data, DeviceKept **out) {
  *out = NULL;
  DeviceKept *kept = calloc(1, sizeof *kept);
  if (!kept) return status_fail(STATUS_FAULT, "out of memory");
  kept->device = device;
  kept->data = *data;
  Status status = layout(kept);
  if (status == STATUS_OK) status = find_room(kept);
  if (status == STATUS_OK && kept->memory) status = load_gather(device);
  if (status == STATUS_OK && kept->memory) status = upload(kept);
  if (status == STATUS_OK && kept->memory)
    *out = kept;
  else
    cuda_drop(kept);
  return status;
}

void cuda_drop(DeviceKept *kept) {
  if (!kept) return;
  /* a step under way may still read it */
  if (kept->memory && cuda_settle(kept->device, NULL, kept->device->copy))
    kept->device->driver->memory_free(kept->memory);
  free(kept->offset);
  free(kept->row);
  free(kept);
}

/* ── gathering ────────────────────────────────────────────────────────────────────────────── */
/* Threads that copy one row: 16 bytes each, a power of two. */
static int64_t lanes_for(int64_t row) {
  int64_t unit = row % 16 == 0 ? 16 : row % 4 == 0 ? 4 : 1, lanes = 1;
  while (lanes < MOST_LANES && lanes * unit < row) lanes *= 2;
  return lanes;
}

static Status gather_input(const DeviceKept *kept, int input, int64_t first_step, int64_t steps,
                           CudaAddress batches) {
  Device *device = kept->device;
  const DeviceData *data = &kept->data;
  CudaAddress from = kept->memory + (uint64_t)kept->offset[input];
  CudaAddress to = batches + (uint64_t)data->inputs[input].offset;
  int64_t row = kept->row[input], lanes = lanes_for(row), shuffle = data->shuffle;
  int64_t batch = data->batch, stride = device->input_stride, samples = data->samples;
  int64_t seed = (int64_t)data->seed;
  void *arguments[] = {&from,    &to,      &row,  &lanes,      &batch, &stride,
                       &samples, &shuffle, &seed, &first_step, &steps};
  int64_t blocks = (batch * steps * lanes + THREADS - 1) / THREADS;
  if (!row) return STATUS_OK;
  CUDA_TRY(device,
           launch(device->gather, (unsigned)blocks, 1, 1, THREADS, 1, 1, 0, device->copy, arguments,
                  NULL),
           "gathering a batch");
  return STATUS_OK;
}

Status cuda_data_gather(const DeviceKept *kept, int64_t first_step, int steps, int first_slot) {
  Device *device = kept->device;
  CudaAddress batches = device->input_slots + (uint64_t)(first_slot * device->input_stride);
  for (int i = 0; i < kept->data.input_count; i++)
    STATUS_TRY(gather_input(kept, i, first_step, steps, batches));
  return STATUS_OK;
}
