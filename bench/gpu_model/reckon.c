/* reckon: see reckon.h. */
#include "bench/gpu_model/reckon.h"
#include "base/text.h"
#include "runtime/device/sim/sim_gpu.h"
#include <stdio.h>
#include <stdlib.h>

void reckon_fail(const char *what, const char *of) {
  fprintf(stderr, "%s %s\n", what, of);
  exit(1);
}
void reckon_must(Status status) {
  if (status != STATUS_OK) reckon_fail(status_message(), "");
}

SimModule *reckon_module(const char *path) {
  Text ptx = {0};
  SimModule *module;
  if (text_read_file(&ptx, path)) reckon_fail("cannot read", path);
  reckon_must(sim_module_load(path, text_cstr(&ptx), ptx.count, &module));
  text_free(&ptx);
  return module;
}

void reckon_launch(SimMachine *machine, const SimKernel *kernel, SimLaunch *launch, const Reckoning *about) {
  const Gpu *gpu = gpu_find(about->gpu);
  if (!gpu) reckon_fail("no such GPU:", about->gpu);
  SimKernelInfo info = sim_kernel_info(kernel);
  SimTiming timing = sim_gpu_timing(gpu, about->bytes);
  SimCounts counts = {0};
  launch->counts = &counts;
  launch->timing = &timing;
  launch->step_limit = 1 << 28;
  reckon_must(sim_launch(machine, kernel, launch));
  sim_gpu_scale(&counts, launch->grid[0] * launch->grid[1] * launch->grid[2]);
  int64_t threads = launch->block[0] * launch->block[1] * launch->block[2];
  GpuWork work = sim_gpu_work(&counts, threads, about->registers, info.shared_bytes + launch->shared, about->flops, about->bytes, 0);
  work.is_half = work.wgmma + work.mma > 0;
  GpuTime time;
  gpu_time(gpu, &work, &time);
  printf("%.3f %.3f %s", time.seconds * 1e6, time.floor * 1e6, gpu_bound_text(time.bound));
  for (int i = 0; i < GPU_LAUNCH; i++) printf(" %s=%.3f", gpu_bound_text((GpuBound)i), time.part[i] * 1e6);
  printf(" fit=%d rounds=%.2f instructions=%lld sectors=%lld%s%s\n", time.resident, time.rounds, (long long)counts.instructions,
         (long long)(counts.load_sectors + counts.store_sectors), about->label ? " " : "", about->label ? about->label : "");
  fflush(stdout);
}
