/* image_cache: pictures kept in memory from their first use on, up to a number of bytes. Nothing is
 * ever let go: an epoch visits every sample once, so what was used last is what is needed last. Any
 * number of threads. */
#ifndef FT_RUNTIME_IMAGE_CACHE_H
#define FT_RUNTIME_IMAGE_CACHE_H
#include "runtime/image/image.h"

typedef struct ImageCache ImageCache;
typedef struct {
  int height, width, channels;
  int64_t label;
  uint8_t at[];
} KeptImage;

/* Of samples 0 .. count - 1. */
STATUS_CHECKED Status image_cache_new(int64_t count, int64_t budget, ImageCache **out);
void image_cache_free(ImageCache *cache); /* NULL is fine */
/* NULL: it is not there. */
const KeptImage *image_cache_find(const ImageCache *cache, int64_t index);
/* Keeps a copy, if there is room. */
void image_cache_keep(ImageCache *cache, int64_t index, const Image *image, int64_t label);
int64_t image_cache_budget(const ImageCache *cache);
/* Bytes of the pictures that it has, and of its own list. */
int64_t image_cache_memory(const ImageCache *cache);
#endif
