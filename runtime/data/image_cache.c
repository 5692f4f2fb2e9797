/* image_cache: see image_cache.h. A picture is published whole and never changed, so readers take no
 * lock; of two threads with the same sample the first one keeps it. All pictures lie one behind the other in one
 * mapping of the budget's length: memory that malloc() would keep for each of many threads would come on top of the
 * budget. Pages that no picture has reached take no memory. */
#include "runtime/data/image_cache.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct ImageCache {
  int64_t count, budget;
  char *at; /* of `room` bytes: the budget, or what addresses there are for */
  int64_t room;
  _Atomic int64_t used; /* of them; the list of pictures is counted in front, as if it lay there */
  _Atomic(KeptImage *) *kept; /* by sample; &being_kept: a thread is copying it */
};
static KeptImage being_kept;

Status image_cache_new(int64_t count, int64_t budget, ImageCache **out) {
  ImageCache *cache = calloc(1, sizeof *cache);
  *out = cache;
  if (!cache) return status_errno(ENOMEM, "data.cache");
  cache->count = count;
  cache->budget = budget;
  cache->kept = calloc((size_t)count + 1, sizeof *cache->kept);
  for (cache->room = budget; cache->room > 0; cache->room /= 2) {
    void *at = mmap(NULL, (size_t)cache->room, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) continue;
    cache->at = at;
    break;
  }
  if (!cache->kept || !cache->at) {
    image_cache_free(cache);
    *out = NULL;
    return status_errno(ENOMEM, "data.cache");
  }
  atomic_store(&cache->used, (int64_t)((size_t)count * sizeof *cache->kept));
  return STATUS_OK;
}

void image_cache_free(ImageCache *cache) {
  if (!cache) return;
  if (cache->at) munmap(cache->at, (size_t)cache->room);
  free((void *)cache->kept);
  free(cache);
}

const KeptImage *image_cache_find(const ImageCache *cache, int64_t index) {
  const KeptImage *kept = atomic_load_explicit(&cache->kept[index], memory_order_acquire);
  return kept == &being_kept ? NULL : kept;
}

void image_cache_keep(ImageCache *cache, int64_t index, const Image *image, int64_t label) {
  size_t bytes = (size_t)image->height * (size_t)image->width * (size_t)image->channels;
  enum { ALIGNED = _Alignof(KeptImage) };
  int64_t size = (int64_t)((sizeof(KeptImage) + bytes + ALIGNED - 1) / ALIGNED * ALIGNED);
  int64_t used = atomic_load(&cache->used);
  KeptImage *none = NULL;
  if (used > cache->room - size) return;
  if (!atomic_compare_exchange_strong(&cache->kept[index], &none, &being_kept)) return;
  KeptImage *kept = NULL;
  do
    if (used > cache->room - size) break;
  while (!atomic_compare_exchange_weak(&cache->used, &used, used + size));
  if (used <= cache->room - size) {
    kept = (KeptImage *)(cache->at + used);
    *kept = (KeptImage){image->height, image->width, image->channels, label};
    memcpy(kept->at, image->at, bytes);
  }
  atomic_store_explicit(&cache->kept[index], kept, memory_order_release);
}

int64_t image_cache_budget(const ImageCache *cache) { return cache->budget; }

int64_t image_cache_memory(const ImageCache *cache) { return atomic_load(&cache->used); }
