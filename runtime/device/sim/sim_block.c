/* sim_block: the memory of a block, and its beginning: sim_schedule.c runs it. */
#include "runtime/device/sim/sim_clock.h"
#include "runtime/device/sim/sim_path.h"
#include <stdlib.h>
#include <string.h>

enum { MULTIPROCESSOR_REGISTERS = 65536 };

/* ── memory ───────────────────────────────────────────────────────────────────────────────── */
static bool block_grow(void *slot, int64_t *capacity, int64_t wanted, size_t element) {
  char **at = slot;
  if (wanted <= *capacity && *at) return true;
  free(*at);
  *at = aligned_alloc(64, ((size_t)wanted * element + 127) & ~(size_t)63);
  *capacity = *at ? wanted : 0;
  return *at != NULL;
}

static bool block_prepare(SimCta *cta, const SimRun *run) {
  const SimKernel *kernel = run->kernel;
  int64_t threads = (int64_t)run->warps * SIM_LANES, shared = run->shared_bytes + 16;
  int64_t wanted = kernel->register_bytes * run->warps + 256;
  cta->run = run;
  if (!block_grow(&cta->registers, &cta->register_capacity, wanted, 1)) return false;
  if (shared > cta->shared_capacity || !cta->shared) {
    int64_t a = 0, b = 0;
    if (!block_grow(&cta->shared_writer, &a, shared / 4 + 4, sizeof(SimTouch)) ||
        !block_grow(&cta->shared_reader, &b, shared / 4 + 4, sizeof(SimTouch)) ||
        !block_grow(&cta->shared, &cta->shared_capacity, shared, 1))
      return false;
    memset(cta->shared_writer, 0, ((size_t)shared / 4 + 4) * sizeof(SimTouch));
    memset(cta->shared_reader, 0, ((size_t)shared / 4 + 4) * sizeof(SimTouch));
    memset(cta->shared, 0, (size_t)shared);
  }
  if (kernel->is_hopper &&
      !block_grow(&cta->dirty, &cta->dirty_capacity, shared / 4 + 4, sizeof *cta->dirty))
    return false;
  if (kernel->has_bulk && !cta->stored && !(cta->stored = malloc(STORED_BITS / 8))) return false;
  if (!kernel->is_hopper) {
    free(cta->dirty);
    cta->dirty = NULL;
    cta->dirty_capacity = 0;
  }
  if (kernel->local_bytes) {
    int64_t bytes = kernel->local_bytes * threads, other = 0;
    if (bytes > cta->local_capacity && (!block_grow(&cta->local_written, &other, bytes, 1) ||
                                        !block_grow(&cta->local, &cta->local_capacity, bytes, 1)))
      return false;
  }
  if (run->warps > cta->warp_capacity) {
    SimWarp *warps = realloc(cta->warps, sizeof *warps * (size_t)run->warps);
    if (!warps) return false;
    memset(warps + cta->warp_capacity, 0,
           sizeof *warps * (size_t)(run->warps - cta->warp_capacity));
    cta->warps = warps;
    cta->warp_capacity = run->warps;
  }
  memset(cta->registers, 0, (size_t)wanted);
  return true;
}

bool sim_cta_prepare(SimCta *first, const SimRun *run) {
  first->peer = first->own_peers;
  first->peer[0] = first;
  for (int i = 0; i < run->cluster; i++) {
    if (!first->peer[i] && !(first->peer[i] = calloc(1, sizeof *first))) return false;
    SimCta *cta = first->peer[i];
    cta->peer = first->peer;
    cta->rank = i;
    cta->failed_block = -1;
    if (!block_prepare(cta, run)) return false;
  }
  return true;
}

void sim_cta_free(SimCta *cta) {
  if (!cta) return;
  for (int i = 1; cta->peer == cta->own_peers && i < SIM_CLUSTER; i++) sim_cta_free(cta->peer[i]);
  for (int i = 0; i < cta->warp_capacity; i++) {
    free(cta->warps[i].async);
    free(cta->warps[i].flight);
    free(cta->warps[i].places);
    free(cta->warps[i].stores);
  }
  free(cta->dirty);
  sim_path_free(cta->paths);
  sim_clock_free(cta->clock_memory);
  free(cta->stored);
  for (int i = 0; i < cta->bulk_count; i++) free(cta->bulk[i].data);
  free(cta->bulk);
  free(cta->warps);
  free(cta->registers);
  free(cta->shared);
  free(cta->shared_writer);
  free(cta->shared_reader);
  free(cta->local);
  free(cta->local_written);
  free(cta);
}

bool sim_async_reserve(SimWarp *w) {
  if (w->async_count + SIM_LANES <= w->async_capacity) return true;
  int capacity = w->async_capacity ? w->async_capacity * 2 : 8 * SIM_LANES;
  if (capacity > 1 << 20) return false;
  SimAsync *async = realloc(w->async, sizeof *async * (size_t)capacity);
  if (!async) return false;
  w->async = async;
  w->async_capacity = capacity;
  return true;
}

bool sim_flight_reserve(SimWarp *w) {
  int places = (int)(w->cta->run->kernel->register_bytes / (SIM_LANES * 4)) + 1;
  if (places > w->place_capacity) {
    uint8_t *more = realloc(w->places, (size_t)places);
    if (!more) return false;
    memset(more, 0, (size_t)places);
    w->places = more;
    w->place_capacity = places;
  }
  if (w->flight_count < w->flight_capacity) return true;
  int capacity = w->flight_capacity ? w->flight_capacity * 2 : 16;
  if (capacity > 1 << 16) return false;
  SimFlight *flight = realloc(w->flight, sizeof *flight * (size_t)capacity);
  if (!flight) return false;
  w->flight = flight;
  w->flight_capacity = capacity;
  return true;
}

bool sim_store_push(SimWarp *w, SimStore store) {
  if (w->store_count == w->store_capacity) {
    int capacity = w->store_capacity ? w->store_capacity * 2 : 64;
    SimStore *stores =
        capacity > 1 << 24 ? NULL : realloc(w->stores, sizeof *stores * (size_t)capacity);
    if (!stores) return false;
    w->stores = stores;
    w->store_capacity = capacity;
  }
  w->stores[w->store_count++] = store;
  uint64_t lanes = store.is_unit ? (uint64_t)__builtin_popcount(store.mask) : 1;
  uint64_t last = (store.at + lanes * store.bytes - 1) / STORED_PIECE;
  for (uint64_t piece = store.at / STORED_PIECE; piece <= last; piece++)
    w->cta->stored[piece % STORED_BITS / 8] |= (uint8_t)(1 << piece % 8);
  return true;
}

/* ── beginning ────────────────────────────────────────────────────────────────────────────── */
static uint32_t special_value(const SimCta *cta, int warp, int lane, SimSpecial which) {
  const SimLaunch *launch = cta->run->launch;
  uint32_t thread = (uint32_t)(warp * SIM_LANES + lane);
  uint32_t x = (uint32_t)launch->block[0], y = (uint32_t)launch->block[1], one = 1u << lane;
  switch (which) {
  case SPECIAL_tid_x:
    return thread % x;
  case SPECIAL_tid_y:
    return thread / x % y;
  case SPECIAL_tid_z:
    return thread / x / y;
  case SPECIAL_ntid_x:
    return x;
  case SPECIAL_ntid_y:
    return y;
  case SPECIAL_ntid_z:
    return (uint32_t)launch->block[2];
  case SPECIAL_ctaid_x:
    return cta->id[0];
  case SPECIAL_ctaid_y:
    return cta->id[1];
  case SPECIAL_ctaid_z:
    return cta->id[2];
  case SPECIAL_nctaid_x:
    return (uint32_t)launch->grid[0];
  case SPECIAL_nctaid_y:
    return (uint32_t)launch->grid[1];
  case SPECIAL_nctaid_z:
    return (uint32_t)launch->grid[2];
  case SPECIAL_laneid:
    return (uint32_t)lane;
  case SPECIAL_warpid:
    return (uint32_t)warp;
  case SPECIAL_nwarpid:
    return (uint32_t)cta->run->warps;
  case SPECIAL_mask_eq:
    return one;
  case SPECIAL_mask_le:
    return one | (one - 1);
  case SPECIAL_mask_lt:
    return one - 1;
  case SPECIAL_mask_ge:
    return ~(one - 1);
  case SPECIAL_mask_gt:
    return ~(one | (one - 1));
  case SPECIAL_nsmid:
    return 1;
  case SPECIAL_dynamic_shared:
    return (uint32_t)launch->shared;
  case SPECIAL_cluster_rank:
    return (uint32_t)cta->rank;
  case SPECIAL_cluster_size:
    return (uint32_t)cta->run->cluster;
  case SPECIAL_cluster_ctaid_x:
    return (uint32_t)cta->rank;
  case SPECIAL_cluster_nctaid_x:
    return (uint32_t)cta->run->cluster;
  case SPECIAL_cluster_nctaid_y:
  case SPECIAL_cluster_nctaid_z:
    return 1;
  case SPECIAL_clusterid_x:
    return cta->id[0] / (uint32_t)cta->run->cluster;
  case SPECIAL_clusterid_y:
    return cta->id[1];
  case SPECIAL_clusterid_z:
    return cta->id[2];
  case SPECIAL_nclusterid_x:
    return (uint32_t)(launch->grid[0] / cta->run->cluster);
  case SPECIAL_nclusterid_y:
    return (uint32_t)launch->grid[1];
  case SPECIAL_nclusterid_z:
    return (uint32_t)launch->grid[2];
  case SPECIAL_dynamic_at:
    return (uint32_t)cta->run->dynamic_at;
  default:
    return 0;
  }
}

int sim_kernel_registers(const SimKernel *kernel) {
  int64_t most = kernel->max_registers ? kernel->max_registers
                                       : MULTIPROCESSOR_REGISTERS / kernel->max_threads;
  return (int)(most > 256 ? 256 : most / 8 * 8);
}

static void begin_warp(SimCta *cta, int index) {
  const SimKernel *kernel = cta->run->kernel;
  const int64_t *block = cta->run->launch->block;
  SimWarp *w = &cta->warps[index];
  int64_t threads = block[0] * block[1] * block[2] - (int64_t)index * SIM_LANES;
  w->base[0] = cta->registers + kernel->register_bytes * index;
  w->base[1] = kernel->constant_lanes;
  w->mask = w->live = w->all = threads >= SIM_LANES ? ~0u : (1u << threads) - 1;
  w->unready = cta->run->launch->is_early ? w->all : 0;
  w->is_partial = false;
  w->state = WARP_RUNS;
  w->index = index;
  w->sync = 0;
  w->cta = cta;
  w->at = kernel->code.at;
  w->group_count = 0;
  w->steps = w->thread_steps = 0;
  w->async_count = 0;
  w->flight_count = w->flight_groups = w->store_count = 0;
  w->dirty_low = INT32_MAX;
  w->dirty_high = 0;
  w->is_fenced = w->is_polling = w->has_arrived = w->cluster_waits = false;
  w->registers = sim_kernel_registers(kernel);
  w->register_sets = 0;
  if ((int64_t)w->place_capacity * SIM_LANES * 4 <= kernel->register_bytes) { /* another kernel's */
    free(w->places);
    w->places = NULL;
    w->place_capacity = 0;
  }
  if (w->places) memset(w->places, 0, (size_t)w->place_capacity);
  memset(w->async_groups, 0, sizeof w->async_groups);
  memset(w->stored_groups, 0, sizeof w->stored_groups);
  for (int s = 0; s < SPECIAL_COUNT; s++) {
    if (kernel->special[s] < 0) continue;
    uint32_t *lanes = (uint32_t *)(void *)(w->base[0] + kernel->special[s]);
    for (int l = 0; l < SIM_LANES; l++) lanes[l] = special_value(cta, index, l, (SimSpecial)s);
  }
}

bool sim_cta_begin(SimCta *cta, int64_t block) {
  const SimRun *run = cta->run;
  cta->block = block;
  cta->id[0] = (uint32_t)(block % run->launch->grid[0]);
  cta->id[1] = (uint32_t)(block / run->launch->grid[0] % run->launch->grid[1]);
  cta->id[2] = (uint32_t)(block / run->launch->grid[0] / run->launch->grid[1]);
  cta->random = run->seed ? run->seed ^ ((uint64_t)block + 1) * UINT64_C(0xd1342543de82ef95) : 0;
  cta->random += run->seed && !cta->random;
  cta->slow = 0;
  cta->epoch = cta->cluster_phase = 0;
  cta->has_ended = false;
  cta->free_registers = cta->drawn = 0;
  memset(cta->barrier, 0, sizeof cta->barrier);
  cta->polls_fail = false;
  /* every run of a block owns shared memory anew: what the last one left counts as not written */
  cta->shared_runs = (cta->shared_runs + 1) & ((UINT64_C(1) << (64 - TOUCH_OWNER)) - 1);
  if (cta->shared_runs == 0) {
    memset(cta->shared_writer, 0, ((size_t)cta->shared_capacity / 4 + 4) * sizeof(SimTouch));
    memset(cta->shared_reader, 0, ((size_t)cta->shared_capacity / 4 + 4) * sizeof(SimTouch));
    cta->shared_runs = 1;
  }
  cta->owner_shared = cta->shared_runs << TOUCH_OWNER;
  uint64_t launch = run->machine->launch;
  cta->owner_global = (launch << TOUCH_BLOCKS | ((uint64_t)block & ((1 << TOUCH_BLOCKS) - 1)))
                      << TOUCH_OWNER;
  if (run->kernel->local_bytes)
    memset(cta->local_written, 0,
           (size_t)run->kernel->local_bytes * (size_t)run->warps * SIM_LANES);
  for (int i = 0; i < cta->bulk_count; i++) free(cta->bulk[i].data);
  cta->bulk_count = 0;
  if (cta->stored && run->kernel->has_bulk) memset(cta->stored, 0, STORED_BITS / 8);
  if (cta->dirty) memset(cta->dirty, 0, (size_t)cta->dirty_capacity * sizeof *cta->dirty);
  for (int i = 0; i < SIM_CACHE_LINES; i++) cta->cache.tags[i] = 0;
  for (int i = 0; i < run->warps; i++) begin_warp(cta, i);
  return sim_path_begin(cta) && sim_clock_begin(cta);
}
