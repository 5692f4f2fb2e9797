/* cuda_round: parameters, or their average, rounded on the GPU (gpu/round.c), in order with the
 * steps: the host does not wait. */
#include "runtime/device/cuda/cuda_private.h"

extern const char embed_round_ptx[];

enum { THREADS = 256 };

static Status load_round(Device *device) {
  if (device->round) return STATUS_OK;
  STATUS_TRY(cuda_module_load(device->driver, "ftrun", embed_round_ptx, &device->round_module));
  CUDA_TRY(device, module_function(&device->round, device->round_module, "ft_round"),
           "kernel ft_round");
  return STATUS_OK;
}

Status cuda_round(Device *device, char *to, const char *from, int64_t count, DType dtype) {
  CudaAddress target = (CudaAddress)(uintptr_t)to, source = (CudaAddress)(uintptr_t)from;
  int64_t is_half = dtype == DT_F16, blocks = (count + THREADS - 1) / THREADS;
  void *arguments[] = {&source, &target, &count, &is_half};
  if (!count) return STATUS_OK;
  STATUS_TRY(load_round(device));
  CUDA_TRY(device,
           launch(device->round, (unsigned)blocks, 1, 1, THREADS, 1, 1, 0, device->compute,
                  arguments, NULL),
           "rounding parameters");
  return STATUS_OK;
}
