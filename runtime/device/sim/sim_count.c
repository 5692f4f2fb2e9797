/* sim_count: global sectors and shared bank conflicts.
 *
 * A sector is 32 aligned bytes. A load moves the sectors that its lanes touch, but for those that
 * the block's small cache holds: 512 sectors (16 KiB) in sets of four, the one not used for longest
 * making room, empty when the block begins; that is what a block can count on when eight share a
 * first-level cache. Stores go through it to memory and are counted in full. Sectors are named by
 * their place in an allocation, so that counts do not depend on where the host has them.
 *
 * Shared memory has 32 banks of 4 bytes. A wavefront serves each bank once; lanes that want the
 * same word share it. 8-byte accesses go by half warps, 16-byte ones by quarters, as on the
 * hardware. */
#include "runtime/device/sim/sim_path.h"

enum { WAYS = 4, SETS = SIM_CACHE_LINES / WAYS };

/* Puts the sector first in its set; was it there? */
static bool is_cached(SimCache *cache, uint64_t sector) {
  uint64_t *set = &cache->tags[(sector * UINT64_C(0x9e3779b97f4a7c15) >> 40) % SETS * WAYS];
  int way = 0;
  while (way < WAYS - 1 && set[way] != sector) way++;
  bool is_hit = set[way] == sector;
  for (; way > 0; way--) set[way] = set[way - 1];
  set[0] = sector;
  return is_hit;
}

/* Never 0, which is the name of nothing. */
static uint64_t sector_of(const SimRun *run, uint64_t address) {
  for (int i = 0; i < run->machine->allocations.count; i++) {
    const SimAllocation *all = &run->machine->allocations.at[i];
    uint64_t at = (uintptr_t)all->at;
    if (address >= at && address < at + (uint64_t)all->bytes)
      return (uint64_t)(i + 1) << 48 | (address - at) / 32;
  }
  return address / 32 + 1;
}

/* Lanes read one behind the other, and at least 16 bytes. */
static bool are_neighbours(const uint64_t *address, uint32_t mask, int bytes) {
  int count = 0;
  uint64_t last = 0;
  for (uint32_t rest = mask; rest; rest &= rest - 1, count++) {
    uint64_t at = address[__builtin_ctz(rest)];
    if (count && at != last + (uint64_t)bytes) return false;
    last = at;
  }
  return count * bytes >= 16;
}

void sim_count_global(SimWarp *w, const uint64_t *address, uint32_t mask, int bytes,
                      bool is_store) {
  SimCta *cta = w->cta;
  uint64_t seen[SIM_LANES];
  int count = 0;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    uint64_t sector = sector_of(cta->run, address[__builtin_ctz(rest)]);
    int i = count;
    while (i > 0 && seen[i - 1] != sector) i--;
    if (!i) seen[count++] = sector;
  }
  /* an aligned access of up to 16 bytes lies in one sector */
  if (w->path) cta->paths->wavefronts += (count + 3) / 4;
  if (is_store) {
    cta->counts.store_requests++;
    cta->counts.store_sectors += count;
    return;
  }
  int missed = 0;
  for (int i = 0; i < count; i++) missed += !is_cached(&cta->cache, seen[i]);
  cta->counts.load_requests++;
  cta->counts.wide_loads += bytes == 16;
  cta->counts.narrow_loads += bytes < 16 && are_neighbours(address, mask, bytes);
  cta->counts.load_sectors += missed;
  if (w->path) cta->paths->is_missed |= missed > 0;
}

/* Wavefronts for some of the lanes. */
static int wavefronts(const uint64_t *address, uint32_t mask, int words) {
  uint64_t seen[SIM_LANES * 4];
  int count = 0, in_bank[32] = {0}, most = 0;
  for (uint32_t rest = mask; rest; rest &= rest - 1)
    for (int k = 0; k < words; k++) {
      uint64_t word = address[__builtin_ctz(rest)] / 4 + (uint64_t)k;
      int i = count;
      while (i > 0 && seen[i - 1] != word) i--;
      if (i) continue;
      seen[count++] = word;
      if (++in_bank[word % 32] > most) most = in_bank[word % 32];
    }
  return most;
}

void sim_count_shared(SimWarp *w, const uint64_t *address, uint32_t mask, int bytes) {
  int lanes = bytes == 16 ? 8 : bytes == 8 ? 16 : 32, words = bytes < 4 ? 1 : bytes / 4;
  uint32_t part = lanes == 32 ? ~0u : (1u << lanes) - 1;
  for (int first = 0; first < SIM_LANES; first += lanes) {
    uint32_t here = mask & part << first;
    if (!here) continue;
    int needed = wavefronts(address, here, words);
    w->cta->counts.shared_accesses++;
    w->cta->counts.bank_conflicts += needed - 1;
    if (w->path) w->cta->paths->wavefronts += needed;
  }
}

void sim_count_add(SimCounts *to, const SimCounts *from) {
  to->launches += from->launches;
  to->warps += from->warps;
  to->instructions += from->instructions;
  to->thread_instructions += from->thread_instructions;
  to->load_sectors += from->load_sectors;
  to->store_sectors += from->store_sectors;
  to->load_requests += from->load_requests;
  to->store_requests += from->store_requests;
  to->wide_loads += from->wide_loads;
  to->narrow_loads += from->narrow_loads;
  to->shared_accesses += from->shared_accesses;
  to->bank_conflicts += from->bank_conflicts;
  to->branches += from->branches;
  to->divergent_branches += from->divergent_branches;
  to->blocks += from->blocks;
  to->issued += from->issued;
  to->f32 += from->f32;
  to->multiply += from->multiply;
  to->integer += from->integer;
  to->special += from->special;
  to->wgmma += from->wgmma;
  to->mma += from->mma;
  to->wavefronts += from->wavefronts;
  to->path += from->path;
  if (from->longest_path > to->longest_path) to->longest_path = from->longest_path;
}
