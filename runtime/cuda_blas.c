/* cuda_blas: see cuda_blas.h. Plans offer no library calls yet: nothing is opened or replaced. */
#include "runtime/cuda_blas.h"

Status cuda_blas_open(Device *device) {
  device->blas = NULL;
  return STATUS_OK;
}
int64_t cuda_blas_workspace(const Device *device) {
  (void)device;
  return 0;
}
Status cuda_blas_ready(Device *device) {
  (void)device;
  return STATUS_OK;
}
void cuda_blas_close(Device *device) { (void)device; }
Status cuda_blas_choose(DeviceGraph *graph, CudaItem *item) {
  (void)graph, (void)item;
  return STATUS_OK;
}
Status cuda_blas_enqueue(DeviceGraph *graph, const CudaItem *item, int slot, CudaStream stream) {
  (void)graph, (void)item, (void)slot, (void)stream;
  return STATUS_OK;
}
void cuda_blas_forget(DeviceGraph *graph) { (void)graph; }
