/* gpu_model: see gpu_model.h. */
#include "plan/gpu_model.h"
#include "base/text.h"
#include <math.h>
#include <string.h>

enum { LANES = 32, REGISTER_UNIT = 256, SHARED_OF_A_BLOCK = 1024 };

static const Gpu gpu_table[] = {
#define GPU(name, schedulers, f32, multiply, integer, special, shared_width, warps, registers,     \
            shared, blocks, l2, l2_rate, memory_share, mma_share, clock, l1_cycles, shared_cycles, \
            l2_cycles, memory_cycles, launch, early_launch)                                        \
  {NULL,                                                                                           \
   name,                                                                                           \
   schedulers,                                                                                     \
   f32,                                                                                            \
   multiply,                                                                                       \
   integer,                                                                                        \
   special,                                                                                        \
   shared_width,                                                                                   \
   warps,                                                                                          \
   registers,                                                                                      \
   (shared) * 1024,                                                                                \
   blocks,                                                                                         \
   (l2) * 0x1p20,                                                                                  \
   (l2_rate) * 1e9,                                                                                \
   memory_share,                                                                                   \
   mma_share,                                                                                      \
   (clock) * 1e6,                                                                                  \
   l1_cycles,                                                                                      \
   shared_cycles,                                                                                  \
   l2_cycles,                                                                                      \
   memory_cycles,                                                                                  \
   (launch) * 1e-9,                                                                                \
   (early_launch) * 1e-9},
#include "plan/gpus.def"
#undef GPU
};
enum { COUNT = sizeof gpu_table / sizeof *gpu_table };

const Gpu *gpu_at(int index) {
  static Gpu found[COUNT]; /* the rows with their machines */
  if (index < 0 || index >= COUNT) return NULL;
  Gpu row = gpu_table[index];
  row.machine = machine_find(row.name);
  if (!row.machine) return NULL;
  found[index] = row;
  return &found[index];
}

const Gpu *gpu_find(const char *name) {
  for (int i = 0; i < COUNT; i++)
    if (!strcmp(gpu_table[i].name, name)) return gpu_at(i);
  return NULL;
}

const char *gpu_nearest(const char *name) {
  const char *names[COUNT];
  for (int i = 0; i < COUNT; i++) names[i] = gpu_table[i].name;
  return text_nearest(name, names, COUNT);
}

double gpu_tensor_rate(const Gpu *gpu) {
  return gpu->machine->half / gpu->machine->multiprocessors / gpu->machine->clock;
}
double gpu_mma_rate(const Gpu *gpu) { return gpu_tensor_rate(gpu) * gpu->mma_share; }

const char *gpu_bound_text(GpuBound bound) {
  static const char *const text[GPU_BOUNDS] = {"issue",  "f32",    "integer", "special", "tensor",
                                               "shared", "latency", "L2",      "memory",  "launch"};
  return text[bound];
}

int gpu_resident(const Gpu *gpu, int warps, int registers, int64_t shared_bytes) {
  int64_t by_warp = ((int64_t)registers * LANES + REGISTER_UNIT - 1) / REGISTER_UNIT * REGISTER_UNIT;
  int64_t blocks = gpu->blocks;
  if (warps < 1) return 0;
  if (blocks > gpu->warps / warps) blocks = gpu->warps / warps;
  if (by_warp && blocks > gpu->registers / (by_warp * warps))
    blocks = gpu->registers / (by_warp * warps);
  if (blocks > gpu->shared_bytes / (shared_bytes + SHARED_OF_A_BLOCK))
    blocks = gpu->shared_bytes / (shared_bytes + SHARED_OF_A_BLOCK);
  return (int)blocks;
}

/* Cycles that a block needs of each unit of its multiprocessor. */
static void cycles_of_a_block(const Gpu *gpu, const GpuWork *work, double *cycles) {
  double lanes = LANES / (double)work->blocks;
  cycles[GPU_ISSUE] = work->issued / gpu->schedulers / (double)work->blocks;
  cycles[GPU_F32] = (work->f32 / gpu->f32_lanes + work->multiply / gpu->multiply_lanes) * lanes;
  cycles[GPU_INTEGER] = work->integer / gpu->integer_lanes * lanes;
  cycles[GPU_SPECIAL] = work->special / gpu->special_lanes * lanes;
  cycles[GPU_TENSOR] = (work->wgmma / gpu_tensor_rate(gpu) + work->mma / gpu_mma_rate(gpu)) /
                       (double)work->blocks;
  cycles[GPU_SHARED] = work->wavefronts * 128 / gpu->shared_width / (double)work->blocks;
}

/* All rounds of blocks: `each` cycles of a unit for a block, beside its path. Blocks of a round
 * follow one another as they end, but the last one ends with its longest block. */
static double all_rounds(const Gpu *gpu, const GpuWork *work, int resident, double each,
                         double path, double last_path) {
  int64_t count = gpu->machine->multiprocessors, at_once = (int64_t)resident * count;
  int64_t full = work->blocks / at_once, rest = work->blocks % at_once;
  if (!rest && full) full--, rest = at_once;
  double cycles = (double)full * hypot(path, resident * each);
  if (rest) cycles += hypot(last_path, (double)((rest + count - 1) / count) * each);
  return cycles;
}

static double least_time(const Gpu *gpu, const GpuWork *work) {
  const Machine *machine = gpu->machine;
  double tensor = gpu->busy_clock / machine->clock;
  double peak = work->is_half ? machine->half * tensor * (work->is_float8 ? 2 : 1)
                : work->is_tf32 ? machine->tf32 * tensor
                                : machine->f32;
  return fmax(work->flops / peak, work->bytes / (machine->memory_rate * gpu->memory_share));
}

void gpu_time(const Gpu *gpu, const GpuWork *work, GpuTime *out) {
  *out = (GpuTime){.bound = GPU_LAUNCH};
  if (work->blocks < 1) return;
  const Machine *machine = gpu->machine;
  double cycles[GPU_BOUNDS] = {0}, most = 0;
  int resident = gpu_resident(gpu, work->warps, work->registers, work->shared_bytes);
  out->resident = resident;
  if (!resident) resident = 1;
  out->rounds = (double)work->blocks / ((double)resident * machine->multiprocessors);
  cycles_of_a_block(gpu, work, cycles);
  for (int i = 0; i < GPU_PATH; i++) most = fmax(most, cycles[i]);
  double longest = fmax(work->path, work->longest_path);
  double all = all_rounds(gpu, work, resident, most, work->path, longest);
  /* the more of the time tensor cores work, the lower the clock */
  double busy = all > 0 ? all_rounds(gpu, work, resident, cycles[GPU_TENSOR], 0, 0) / all : 0;
  double clock = machine->clock + (gpu->busy_clock - machine->clock) * busy;
  for (int i = 0; i < GPU_PATH; i++)
    out->part[i] = all_rounds(gpu, work, resident, cycles[i], 0, 0) / clock;
  out->part[GPU_PATH] = all_rounds(gpu, work, resident, 0, work->path, longest) / clock;
  out->part[GPU_L2] = work->l2 / gpu->l2_rate;
  out->part[GPU_MEMORY] = work->memory / (machine->memory_rate * gpu->memory_share);
  out->part[GPU_LAUNCH] = work->is_early ? gpu->early_launch : gpu->launch;
  for (int i = 0; i < GPU_BOUNDS; i++)
    if (out->part[i] > out->part[out->bound]) out->bound = (GpuBound)i;
  double shared = hypot(out->part[GPU_PATH], fmax(out->part[GPU_L2], out->part[GPU_MEMORY]));
  out->seconds = fmax(all / clock, shared) + out->part[GPU_LAUNCH];
  out->floor = least_time(gpu, work);
}
