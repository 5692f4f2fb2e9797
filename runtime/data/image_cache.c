/* image_cache: see image_cache.h. A picture is put in its place whole and never changed, so readers
 * take no lock; of two threads with the same sample the second one's copy is dropped. */
#include "runtime/data/image_cache.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct ImageCache {
  int64_t count, budget;
  _Atomic int64_t used;
  _Atomic(KeptImage *) *kept; /* by sample */
};

Status image_cache_new(int64_t count, int64_t budget, ImageCache **out) {
  ImageCache *cache = calloc(1, sizeof *cache);
  *out = cache;
  if (cache) cache->kept = calloc((size_t)count + 1, sizeof *cache->kept);
  if (!cache || !cache->kept) {
    free(cache);
    *out = NULL;
    return status_errno(ENOMEM, "data.cache");
  }
  cache->count = count;
  cache->budget = budget;
  atomic_store(&cache->used, (int64_t)((size_t)count * sizeof *cache->kept));
  return STATUS_OK;
}

void image_cache_free(ImageCache *cache) {
  if (!cache) return;
  for (int64_t i = 0; i < cache->count; i++) free(atomic_load(&cache->kept[i]));
  free((void *)cache->kept);
  free(cache);
}

const KeptImage *image_cache_find(const ImageCache *cache, int64_t index) {
  return atomic_load_explicit(&cache->kept[index], memory_order_acquire);
}

void image_cache_keep(ImageCache *cache, int64_t index, const Image *image, int64_t label) {
  size_t bytes = (size_t)image->height * (size_t)image->width * (size_t)image->channels;
  int64_t size = (int64_t)(sizeof(KeptImage) + bytes), used = atomic_load(&cache->used);
  do
    if (used > cache->budget - size) return;
  while (!atomic_compare_exchange_weak(&cache->used, &used, used + size));
  KeptImage *kept = malloc((size_t)size), *none = NULL;
  if (kept) {
    *kept = (KeptImage){image->height, image->width, image->channels, label};
    memcpy(kept->at, image->at, bytes);
  }
  if (!kept || !atomic_compare_exchange_strong(&cache->kept[index], &none, kept)) {
    free(kept);
    atomic_fetch_sub(&cache->used, size);
  }
}

int64_t image_cache_budget(const ImageCache *cache) { return cache->budget; }

int64_t image_cache_memory(const ImageCache *cache) { return atomic_load(&cache->used); }
