/* sim_launch: a launch: its places in memory, its blocks on the pool's threads. Blocks are taken in
 * order; after a finding no later block is begun, so that the lowest one's is reported. */
#include "runtime/device/sim/sim_private.h"
#include <string.h>

enum { MOST_SHARED = 227 * 1024, MOST_BLOCK = 1024, MOST_REGISTERS = 65536 };

static Status check_registers(const SimKernel *kernel, int64_t threads) {
  int64_t all = (threads + SIM_LANES - 1) / SIM_LANES * SIM_LANES * sim_kernel_registers(kernel);
  if (!kernel->max_registers || all <= MOST_REGISTERS) return STATUS_OK;
  return status_fail(STATUS_USER,
                     "kernel %s: %lld threads of %d registers (.maxnreg) are %lld, and a "
                     "multiprocessor has %d",
                     kernel->name, (long long)threads, sim_kernel_registers(kernel), (long long)all,
                     MOST_REGISTERS);
}

static int cluster_of(const SimKernel *kernel, const SimLaunch *launch) {
  return launch->cluster ? launch->cluster : kernel->cluster;
}

static Status check_shape(const SimKernel *kernel, const SimLaunch *launch) {
  int64_t threads = 1, blocks = 1;
  for (int i = 0; i < 3; i++) {
    if (launch->grid[i] < 1 || launch->grid[i] > (i ? 65535 : INT32_MAX) || launch->block[i] < 1 ||
        launch->block[i] > MOST_BLOCK)
      return status_fail(STATUS_USER, "kernel %s: a grid or block of a wrong size", kernel->name);
    threads *= launch->block[i];
    blocks *= launch->grid[i];
    if (blocks > INT64_C(1) << 40)
      return status_fail(STATUS_USER, "kernel %s: the grid is too large", kernel->name);
  }
  if (threads > kernel->max_threads)
    return status_fail(STATUS_USER, "kernel %s: blocks of %lld threads, and it allows %lld",
                       kernel->name, (long long)threads, (long long)kernel->max_threads);
  int cluster = cluster_of(kernel, launch);
  if (cluster < 1 || cluster > SIM_CLUSTER || (kernel->cluster > 1 && cluster != kernel->cluster))
    return status_fail(STATUS_USER, "kernel %s: clusters of %d blocks, where %d %s", kernel->name, cluster,
                       kernel->cluster > 1 ? kernel->cluster : SIM_CLUSTER, kernel->cluster > 1 ? "are compiled in" : "are possible");
  if (launch->grid[0] % cluster)
    return status_fail(STATUS_USER,
                       "kernel %s: a grid of %lld blocks is no multiple of its clusters' %d",
                       kernel->name, (long long)launch->grid[0], cluster);
  if (launch->shared < 0 || kernel->shared_bytes + launch->shared > MOST_SHARED)
    return status_fail(STATUS_USER,
                       "kernel %s: %lld bytes of shared memory are more than a GPU has",
                       kernel->name, (long long)(kernel->shared_bytes + launch->shared));
  if (launch->param_bytes < kernel->param_bytes)
    return status_fail(STATUS_USER, "kernel %s: %lld bytes of parameters, and it takes %lld",
                       kernel->name, (long long)launch->param_bytes,
                       (long long)kernel->param_bytes);
  return check_registers(kernel, threads);
}

/* ── places ───────────────────────────────────────────────────────────────────────────────── */
static bool is_all_written(const uint8_t *written, int64_t bytes) {
  return !bytes || !memchr(written, 0, (size_t)bytes);
}

static bool meets(const SimPlace *a, const SimPlace *b) { return a->at < b->end && b->at < a->end; }

/* What is only read and was written before needs no look at each access. */
static void add_records(SimMachine *machine, SimPlace *places, int count) {
  for (int i = 0; i < count; i++) {
    SimPlace *place = &places[i];
    SimAllocation *from = sim_allocation(machine, place->at, place->end - place->at);
    bool is_written_to = false;
    for (int k = 0; k < count; k++)
      is_written_to |= places[k].is_writable && meets(&places[k], place);
    if (!from || machine->is_unchecked) continue;
    uint8_t *written = from->written + (place->at - from->at);
    if (is_written_to) {
      place->writer = from->writer;
      place->reader = from->reader;
      place->first_word = from->at;
    }
    if (is_written_to || !is_all_written(written, place->end - place->at)) place->written = written;
  }
}

static SimPlace *make_places(SimMachine *machine, const SimKernel *kernel, const SimLaunch *launch,
                             Arena *arena, int *count) {
  const SimModule *module = kernel->module;
  int regions = launch->regions ? launch->region_count : machine->allocations.count;
  SimPlace *places = ARENA_ARRAY(arena, SimPlace, regions + module->variables.count + 1);
  *count = 0;
  for (int i = 0; i < regions; i++) {
    const SimAllocation *whole = launch->regions ? NULL : &machine->allocations.at[i];
    const SimRegion *region = launch->regions ? &launch->regions[i] : NULL;
    char *at = whole ? whole->at : region->at;
    places[(*count)++] = (SimPlace){.name = whole ? "an allocation" : region->name,
                                    .at = at,
                                    .end = at + (whole ? whole->bytes : region->bytes),
                                    .is_writable = whole || region->is_writable};
  }
  add_records(machine, places, *count);
  for (int i = 0; i < module->variables.count; i++) {
    const SimVariable *variable = &module->variables.at[i];
    places[(*count)++] = (SimPlace){.name = variable->name,
                                    .at = variable->at,
                                    .end = variable->at + variable->bytes,
                                    .is_writable = variable->is_writable};
  }
  return places;
}

/* ── blocks ───────────────────────────────────────────────────────────────────────────────── */
/* Of as many equal stretches of the grid as clusters are taken one of each, at a place that is drawn: at equal distances
 * they might all be of one kind, where kinds follow one another. Its first block. */
static int64_t block_of_run(const SimRun *run, int64_t index) {
  int64_t all = run->blocks / run->cluster;
  if (run->taken == all) return index * run->cluster;
  int64_t begin = (int64_t)((double)all * (double)index / (double)run->taken);
  int64_t end = (int64_t)((double)all * (double)(index + 1) / (double)run->taken);
  uint64_t state = (uint64_t)index;
  int64_t cluster = begin + (int64_t)(sim_random(&state) % (uint64_t)(end > begin ? end - begin : 1));
  return cluster * run->cluster;
}

static void sim_work(void *context, int share) {
  SimRun *run = context;
  SimCta *cta = run->machine->cta[share];
  for (bool is_ready = false;;) {
    int64_t index = atomic_fetch_add(&run->next_block, 1);
    if (index >= run->taken) return;
    int64_t block = block_of_run(run, index);
    if (block > atomic_load(&run->failed_block)) return;
    if (!is_ready && !sim_cta_prepare(cta, run)) {
      cta->out_of_memory = true;
      atomic_store(&run->failed_block, -1);
      return;
    }
    is_ready = true;
    sim_cta_run(cta, block);
    if (cta->failed_block < 0) continue;
    int64_t lowest = atomic_load(&run->failed_block);
    while (block < lowest && !atomic_compare_exchange_weak(&run->failed_block, &lowest, block)) {
    }
    return;
  }
}

/* Stamps of launches come back after 4095: then nothing of the old ones may be left. */
static void next_stamp(SimMachine *machine) {
  uint32_t most = (1u << (64 - TOUCH_OWNER - TOUCH_BLOCKS)) - 1;
  if (++machine->launch <= most) return;
  machine->launch = 1;
  for (int i = 0; i < machine->allocations.count; i++) {
    SimAllocation *allocation = &machine->allocations.at[i];
    size_t bytes = ((size_t)allocation->bytes / 4 + 2) * sizeof(SimTouch);
    memset(allocation->writer, 0, bytes);
    memset(allocation->reader, 0, bytes);
  }
}

static Status sim_finish(const SimRun *run) {
  int threads = pool_threads(run->machine->pool);
  const SimCta *failed = NULL;
  for (int i = 0; i < threads; i++) {
    const SimCta *cta = run->machine->cta[i];
    if (cta->out_of_memory)
      return status_fail(STATUS_FAULT, "out of memory for a block's registers");
    if (cta->failed_block >= 0 && (!failed || cta->failed_block < failed->failed_block))
      failed = cta;
    if (run->launch->counts) sim_count_add(run->launch->counts, &cta->counts);
  }
  if (run->launch->counts) run->launch->counts->launches++;
  return failed ? sim_report(run, failed) : STATUS_OK;
}

Status sim_launch(SimMachine *machine, const SimKernel *kernel, const SimLaunch *launch) {
  STATUS_TRY(check_shape(kernel, launch));
  Arena *arena = arena_new();
  SimRun run = {.machine = machine,
                .kernel = kernel,
                .launch = launch,
                .blocks = launch->grid[0] * launch->grid[1] * launch->grid[2],
                .failed_block = INT64_MAX};
  bool is_sample = launch->sample > 0 && launch->sample < run.blocks;
  run.cluster = cluster_of(kernel, launch);
  run.taken = (is_sample ? launch->sample : run.blocks) / run.cluster;
  if (!run.taken) run.taken = 1;
  run.step_limit = launch->step_limit ? launch->step_limit : INT64_C(1) << 36;
  int64_t threads = launch->block[0] * launch->block[1] * launch->block[2];
  run.warps = (int)((threads + SIM_LANES - 1) / SIM_LANES);
  int64_t align = kernel->dynamic_align > 16 ? kernel->dynamic_align : 16;
  run.dynamic_at = (kernel->shared_bytes + align - 1) & -align;
  run.shared_bytes = launch->shared ? run.dynamic_at + launch->shared : kernel->shared_bytes;
  run.places = make_places(machine, kernel, launch, arena, &run.place_count);
  next_stamp(machine);
  uint64_t state = machine->schedule_seed + machine->launches++;
  if (machine->schedule_seed && !launch->timing) run.seed = sim_random(&state) | 1;
  state = machine->rounding_seed; /* the same in every launch: hardware's error has no memory */
  if (machine->rounding_seed) run.rounding = (uint32_t)sim_random(&state) | 2;
  for (int i = 0; i < pool_threads(machine->pool); i++) {
    memset(&machine->cta[i]->counts, 0, sizeof(SimCounts));
    machine->cta[i]->failed_block = -1;
    machine->cta[i]->out_of_memory = false;
  }
  if (run.taken == 1)
    sim_work(&run, 0);
  else
    pool_run(machine->pool, sim_work, &run);
  Status status = sim_finish(&run);
  arena_free(arena);
  return status;
}
