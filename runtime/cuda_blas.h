/* cuda_blas: library calls of cuBLASLt in place of launches of our own, where the plan offers one
 * (see `instead` in plan/plan.h), the library is there, and it is faster on this GPU. */
#ifndef FT_RUNTIME_CUDA_BLAS_H
#define FT_RUNTIME_CUDA_BLAS_H
#include "runtime/cuda_private.h"

/* Looks for the library; that it is missing is no failure. */
Status cuda_blas_open(Device *device);
/* Bytes of workspace that calls want from the one allocation, after cuda_blas_open. */
int64_t cuda_blas_workspace(const Device *device);
/* Takes the workspace, when the allocation is made. */
Status cuda_blas_ready(Device *device);
void cuda_blas_close(Device *device);
/* Makes `item`, a launch, a call that covers the launches it replaces, if that is wanted. */
Status cuda_blas_choose(DeviceGraph *graph, CudaItem *item);
Status cuda_blas_enqueue(DeviceGraph *graph, const CudaItem *item, int slot, CudaStream stream);
void cuda_blas_forget(DeviceGraph *graph);
#endif
