/* cuda_speed: the ceilings that `ftrun bench` compares with: copy bandwidth measured on the spot,
 * and rates of arithmetic from the GPU's own data. */
#include "runtime/device/cuda/cuda_private.h"
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 12 };
static const int64_t most_copy = (int64_t)1 << 30, least_copy = 1 << 20;

/* f32 multiply-adds that a processor starts in a cycle. */
static int lanes_of(int major, int minor) {
  if (major == 8 && minor == 0) return 64;
  if (major == 7 || major == 6) return 64;
  return 128;
}

/* Multiply-adds of f16 or bf16, with sums in f32, that the tensor cores of a processor start in a
 * cycle; tf32: half as many. From NVIDIA's data sheets. */
static int tensor_lanes_of(int major, int minor) {
  if (major == 8) return minor == 0 ? 1024 : 256;
  if (major == 9) return 2048;
  if (major == 10) return 4096;
  return 0;
}

static int by_size(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

static Status time_copies(Device *device, CudaAddress from, CudaAddress to, size_t bytes,
                          float *median) {
  float times[ROUNDS];
  for (int i = -2; i < ROUNDS; i++) {
    CUDA_TRY(device, event_record(device->timer[0], device->compute), "timing a copy");
    CUDA_TRY(device, on_device(to, from, bytes, device->compute), "timing a copy");
    CUDA_TRY(device, event_record(device->timer[1], device->compute), "timing a copy");
    STATUS_TRY(cuda_wait_event(device, device->timer[1], "timing a copy"));
    if (i < 0) continue; /* warm */
    CUDA_TRY(device, event_elapsed(&times[i], device->timer[0], device->timer[1]), "timing");
  }
  qsort(times, ROUNDS, sizeof *times, by_size);
  *median = times[ROUNDS / 2];
  return STATUS_OK;
}

static Status measure_copy(Device *device, double *out) {
  size_t free_bytes, total;
  CUDA_TRY(device, memory_info(&free_bytes, &total), "free memory of the GPU");
  int64_t bytes = (int64_t)(free_bytes / 4);
  if (bytes > most_copy) bytes = most_copy;
  if (bytes < least_copy) return STATUS_OK; /* a number from a cache would mislead */
  CudaAddress block;
  CudaResult result = device->driver->memory_alloc(&block, (size_t)bytes * 2);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return STATUS_OK;
  STATUS_TRY(cuda_check(device->driver, result, "memory for timing a copy"));
  float median = 0;
  CudaResult filled = device->driver->fill(block, 0x5a, (size_t)bytes * 2, device->compute);
  Status status = cuda_check(device->driver, filled, "timing a copy");
  if (status == STATUS_OK)
    status = time_copies(device, block, block + (uint64_t)bytes, (size_t)bytes, &median);
  device->driver->memory_free(block);
  if (status == STATUS_OK && median > 0) *out = 2.0 * (double)bytes / ((double)median * 1e-3);
  return status;
}

Status cuda_speed(Device *device, DeviceSpeed *out) {
  int clock = 0;
  *out = (DeviceSpeed){.basis = "copy measured here, both ways counted; peaks from processors x "
                                "clock x lanes, f32 without tensor cores"};
  CUDA_TRY(device, device_attribute(&clock, CUDA_ATTRIBUTE_CLOCK_KHZ, device->device), "the clock");
  out->flops = 2.0 * device->processors * lanes_of(device->major, device->minor) * clock * 1e3;
  out->half_flops =
      2.0 * device->processors * tensor_lanes_of(device->major, device->minor) * clock * 1e3;
  out->tf32_flops = out->half_flops / 2;
  return measure_copy(device, &out->copy_bytes);
}
