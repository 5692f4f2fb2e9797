/* sim_gpu: see sim_gpu.h. */
#include "runtime/device/sim/sim_gpu.h"

enum { SECTOR = 32, LANES = 32 };

SimTiming sim_gpu_timing(const Gpu *gpu, double bytes) {
  double clock = gpu->machine->clock * gpu->machine->multiprocessors;
  bool is_in_l2 = 2 * bytes < gpu->l2_bytes;
  return (SimTiming){.l1_cycles = gpu->l1_cycles,
                     .shared_cycles = gpu->shared_cycles,
                     .memory_cycles = is_in_l2 ? gpu->l2_cycles : gpu->memory_cycles,
                     .wgmma = gpu_tensor_rate(gpu) / gpu->schedulers,
                     .mma = gpu_mma_rate(gpu) / gpu->schedulers,
                     .copied = gpu->l2_rate / clock};
}

void sim_gpu_scale(SimCounts *counts, int64_t blocks) {
  int64_t *const all[] = {
      &counts->warps,          &counts->instructions,       &counts->thread_instructions,
      &counts->load_sectors,   &counts->store_sectors,      &counts->load_requests,
      &counts->store_requests, &counts->wide_loads,         &counts->narrow_loads,
      &counts->shared_accesses, &counts->bank_conflicts,    &counts->branches,
      &counts->divergent_branches, &counts->issued,         &counts->f32,
      &counts->multiply,       &counts->integer,            &counts->special,
      &counts->wgmma,          &counts->mma,                &counts->wavefronts,
      &counts->path};
  if (!counts->blocks || counts->blocks == blocks) return;
  double times = (double)blocks / (double)counts->blocks;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    *all[i] = (int64_t)((double)*all[i] * times + 0.5);
  counts->blocks = blocks;
}

GpuWork sim_gpu_work(const SimCounts *counts, int64_t threads, int registers, int64_t shared_bytes,
                     double flops, double bytes, double results) {
  double stored = SECTOR * (double)counts->store_sectors;
  double moved = SECTOR * (double)counts->load_sectors + stored;
  double memory = bytes > results && results > stored ? bytes - (results - stored) : bytes;
  return (GpuWork){.blocks = counts->blocks,
                   .warps = (int)((threads + LANES - 1) / LANES),
                   .registers = registers,
                   .shared_bytes = shared_bytes,
                   .issued = (double)counts->issued,
                   .f32 = (double)counts->f32,
                   .multiply = (double)counts->multiply,
                   .integer = (double)counts->integer,
                   .special = (double)counts->special,
                   .wgmma = (double)counts->wgmma,
                   .mma = (double)counts->mma,
                   .wavefronts = (double)counts->wavefronts,
                   .l2 = moved,
                   .memory = moved < memory ? moved : memory,
                   .path = counts->blocks ? (double)counts->path / (double)counts->blocks : 0,
                   .longest_path = (double)counts->longest_path,
                   .flops = flops,
                   .bytes = bytes};
}
