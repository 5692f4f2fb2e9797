/* sim_gpu: from what the simulator counts to what plan/gpu_model.h reckons with. */
#ifndef FT_RUNTIME_SIM_GPU_H
#define FT_RUNTIME_SIM_GPU_H
#include "plan/gpu_model.h"
#include "runtime/device/sim/sim.h"

/* bytes: what the launch moves at least. If twice that fits into L2 it lies there: what ran before has written it. Bulk
 * copies come at the rate of L2, which all multiprocessors share. */
SimTiming sim_gpu_timing(const Gpu *gpu, double bytes);
/* Of a sample's counts those of all blocks. */
void sim_gpu_scale(SimCounts *counts, int64_t blocks);
/* The counts of one launch, all of its blocks; threads, shared_bytes: of a block; flops, bytes: the least; results: those
 * of the bytes that may be written, of which this launch need not write all. */
GpuWork sim_gpu_work(const SimCounts *counts, int64_t threads, int registers, int64_t shared_bytes,
                     double flops, double bytes, double results);
#endif
