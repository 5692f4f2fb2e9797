/* cuda_map: tensor maps, which the driver makes of an address and a description (plan/plan_map.h).
 * They are made when a graph is bound: from then on its places stay where they are, and a captured
 * launch keeps a copy of its maps. */
#include "runtime/device/cuda/cuda_private.h"

const int cuda_map_type[DT_COUNT] = {
    [DT_BOOL] = CUDA_MAP_U8,   [DT_U8] = CUDA_MAP_U8,   [DT_I32] = CUDA_MAP_I32,
    [DT_U32] = CUDA_MAP_U32,   [DT_I64] = CUDA_MAP_I64, [DT_F16] = CUDA_MAP_F16,
    [DT_BF16] = CUDA_MAP_BF16, [DT_F32] = CUDA_MAP_F32, [DT_F64] = CUDA_MAP_F64,
};

int cuda_map_swizzle(int bytes) {
  return bytes == 128  ? CUDA_MAP_SWIZZLE_128
         : bytes == 64 ? CUDA_MAP_SWIZZLE_64
         : bytes == 32 ? CUDA_MAP_SWIZZLE_32
                       : CUDA_MAP_SWIZZLE_NONE;
}

static Status cuda_map_make_one(DeviceGraph *graph, const PlanStep *step, const PlanMap *map,
                                CudaTensorMap *out) {
  Device *device = graph->device;
  CudaAddress address = cuda_graph_address(graph, step->args[map->arg], 0) + (uint64_t)map->offset;
  uint64_t dims[MAP_RANK], strides[MAP_RANK];
  unsigned box[MAP_RANK], steps[MAP_RANK];
  for (int i = 0; i < map->rank; i++) {
    dims[i] = (uint64_t)map->dim[i];
    if (i) strides[i - 1] = (uint64_t)map->stride[i];
    box[i] = (unsigned)map->box[i];
    steps[i] = 1;
  }
  CUDA_TRY(device,
           map_tiled(out, cuda_map_type[map->dtype], (unsigned)map->rank, (void *)(uintptr_t)address,
                     dims, strides, box, steps, 0, cuda_map_swizzle(map->swizzle), CUDA_MAP_PROMOTE_128, 0),
           "a tensor map of kernel %s", step->name);
  return STATUS_OK;
}

Status cuda_map_make(DeviceGraph *graph, const PlanStep *step, CudaTensorMap **out) {
  enum { ALIGN = _Alignof(CudaTensorMap) };
  const Device *device = graph->device;
  if (!step->map_count) return STATUS_OK;
  if (!device->driver->map_tiled)
    return status_fail(STATUS_USER,
                       "%s: kernel %s wants tensor maps, and the NVIDIA driver here (for CUDA "
                       "%d.%d) has none: install one for CUDA 12 or newer, or compile the model "
                       "with --gpu sm_90 or --disable=tma",
                       device->artifact->path, step->name, device->driver->version / 1000,
                       device->driver->version % 1000 / 10);
  char *memory = arena_alloc(graph->arena, (size_t)step->map_count * sizeof **out + ALIGN);
  *out = (CudaTensorMap *)(void *)(memory + (ALIGN - (uintptr_t)memory % ALIGN) % ALIGN);
  for (int i = 0; i < step->map_count; i++)
    STATUS_TRY(cuda_map_make_one(graph, step, &step->maps[i], &(*out)[i]));
  return STATUS_OK;
}
