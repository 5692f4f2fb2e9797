/* damaged: see damaged.h. */
#include "runtime/data/damaged.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

struct Damaged {
  int64_t count;
  _Atomic uint64_t bits[];
};

Status damaged_new(int64_t count, Damaged **out) {
  *out = calloc(1, sizeof **out + (size_t)(count / 64 + 1) * sizeof(uint64_t));
  if (!*out) return status_errno(ENOMEM, "the list of damaged samples");
  (*out)->count = count;
  return STATUS_OK;
}

void damaged_free(Damaged *damaged) { free(damaged); }

bool damaged_has(const Damaged *damaged, int64_t index) {
  return atomic_load_explicit(&damaged->bits[index / 64], memory_order_relaxed) >> (index % 64) & 1;
}

void damaged_add(Damaged *damaged, int64_t index) {
  atomic_fetch_or_explicit(&damaged->bits[index / 64], (uint64_t)1 << (index % 64),
                           memory_order_relaxed);
}

int64_t damaged_count(const Damaged *damaged, int64_t *first) {
  int64_t count = 0;
  *first = -1;
  for (int64_t i = damaged->count; i-- > 0;)
    if (damaged_has(damaged, i)) {
      *first = i;
      count++;
    }
  return count;
}
