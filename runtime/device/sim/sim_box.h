/* sim_box: where the elements of a box of a tensor lie, in the tensor and in shared memory. */
#ifndef FT_RUNTIME_SIM_BOX_H
#define FT_RUNTIME_SIM_BOX_H
#include "runtime/device/sim/sim.h"

/* 16 bytes change places within a swizzle by the number of the row of 128 bytes. */
static inline uint32_t tensor_swizzled(const SimTensorMap *map, uint32_t at) {
  uint32_t pieces = map->swizzle / 16u;
  return pieces ? at ^ (at >> 7 & (pieces - 1)) << 4 : at;
}

/* Row `row` of the box, as far as it lies in the tensor: its address, and [*first, *first + count)
 * elements of it; 0: none. */
static inline uint64_t tensor_row(const SimTensorMap *map, const int64_t *start, uint64_t row,
                           uint64_t *address, uint64_t *first) {
  *address = map->address;
  for (int i = 1; i < map->rank; i++) {
    int64_t at = start[i] + (int64_t)(row % map->box[i]);
    row /= map->box[i];
    if (at < 0 || (uint64_t)at >= map->dim[i]) return 0;
    *address += (uint64_t)at * map->stride[i];
  }
  int64_t low = start[0] < 0 ? 0 : start[0], high = start[0] + (int64_t)map->box[0];
  if (high > (int64_t)map->dim[0]) high = (int64_t)map->dim[0];
  if (high <= low) return 0;
  *address += (uint64_t)low * map->stride[0];
  *first = (uint64_t)(low - start[0]);
  return (uint64_t)(high - low);
}
#endif
