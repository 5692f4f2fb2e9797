/* sim_bulk: bulk copies under way; see sim_mbarrier.h. Until a copy arrives, no thread may touch
 * its place (TOUCH_ASYNC); it arrives when a warp waits for its mbarrier, or, with a seed, when the
 * schedule says so. */
#include "runtime/device/sim/sim_mbarrier.h"
#include "runtime/device/sim/sim_box.h"
#include "runtime/device/sim/sim_clock.h"
#include "runtime/device/sim/sim_path.h"
#include <stdlib.h>
#include <string.h>

void mbarrier_settle(SimCta *cta, Mbarrier *m, uint32_t address) {
  cta->progress++;
  bool is_over = !m->missing && !m->bytes;
  if (cta->warps->path) sim_path_arrive(cta, address, is_over ? m->phase : -1);
  if (!is_over) return;
  m->missing = m->count;
  m->phase ^= 1;
  if (cta->epoch < TOUCH_EPOCHS - 1) cta->epoch++;
  if (cta->clock) sim_clock_phase(cta, address);
}

SimBulk *sim_bulk_new(SimCta *cta, uint32_t bytes) {
  if (cta->bulk_count == cta->bulk_capacity) {
    int capacity = cta->bulk_capacity ? cta->bulk_capacity * 2 : 16;
    SimBulk *bulk = capacity > 1 << 16 ? NULL : realloc(cta->bulk, sizeof *bulk * (size_t)capacity);
    if (!bulk) return NULL;
    cta->bulk = bulk;
    cta->bulk_capacity = capacity;
  }
  char *data = malloc(bytes ? bytes : 1);
  if (!data) return NULL;
  cta->bulk[cta->bulk_count] = (SimBulk){.bytes = bytes, .data = data};
  return &cta->bulk[cta->bulk_count++];
}

void sim_bulk_arrive(SimCta *cta, SimBulk *copy) {
  uint64_t now = cta->owner_shared | (uint64_t)cta->epoch << TOUCH_EPOCH |
                 (uint64_t)TOUCH_MANY << TOUCH_THREAD | 15;
  if (copy->from) memcpy(copy->data, copy->from, copy->bytes);
  memcpy(cta->shared + copy->to, copy->data, copy->bytes);
  for (uint32_t word = copy->to >> 2; word < (copy->to + copy->bytes) >> 2; word++) {
    cta->shared_writer[word] = now;
    cta->dirty[word] = 0;
  }
  uint64_t word;
  memcpy(&word, cta->shared + copy->mbarrier, 8);
  Mbarrier m = mbarrier_of(word);
  m.bytes -= copy->bytes;
  if (cta->paths) cta->paths->event = copy->arrives;
  if (cta->clock) sim_clock_copied(cta, copy);
  mbarrier_settle(cta, &m, copy->mbarrier);
  word = mbarrier_word(&m);
  memcpy(cta->shared + copy->mbarrier, &word, 8);
  copy->has_arrived = true;
}

/* Other blocks may add there, too. */
static void add_f32(char *to, const char *from) {
  uint32_t *at = (uint32_t *)(void *)to, old = __atomic_load_n(at, __ATOMIC_RELAXED), bits;
  float sum, more;
  do {
    memcpy(&sum, &old, 4);
    memcpy(&more, from, 4);
    sum += more;
    memcpy(&bits, &sum, 4);
  } while (!__atomic_compare_exchange_n(at, &old, bits, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

void sim_bulk_store(SimCta *cta, SimBulk *copy) {
  const SimTensorMap *map = &copy->map;
  uint64_t size = map->stride[0], wide = map->box[0] * size;
  for (uint64_t row = 0; row < copy->bytes / wide; row++) {
    uint64_t to, first, count = tensor_row(map, copy->start, row, &to, &first);
    for (uint64_t k = 0; k < count * size; k += size) {
      uint32_t from = tensor_swizzled(map, copy->to + (uint32_t)(row * wide + first * size + k));
      if (copy->is_sum)
        add_f32((char *)(uintptr_t)(to + k), cta->shared + from);
      else
        memcpy((char *)(uintptr_t)(to + k), cta->shared + from, size);
    }
  }
  copy->has_arrived = true;
}

void sim_bulk_await(SimCta *cta, uint32_t mbarrier) {
  int kept = 0;
  for (int i = 0; i < cta->bulk_count; i++) {
    SimBulk *copy = &cta->bulk[i];
    if (copy->mbarrier == mbarrier && !copy->has_arrived && !cta->random)
      sim_bulk_arrive(cta, copy);
    if (copy->mbarrier == mbarrier && copy->has_arrived)
      free(copy->data);
    else
      cta->bulk[kept++] = *copy;
  }
  cta->bulk_count = kept;
}
