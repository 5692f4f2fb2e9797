/* disk_cache: decoded pictures kept in files below a folder, for later epochs and trainings. Each is written beside its
 * place and renamed, so there are whole ones only, whoever is killed when; any number of threads and processes may share the
 * folder. One is used only while the file it was made of has the length and time of change that it had, and its sum is right; the
 * transforms, options and names it depends on are in the key, by which the pictures of a split have a folder of their own. What
 * cannot be read or written is no failure: it is made anew. */
#ifndef FT_RUNTIME_DISK_CACHE_H
#define FT_RUNTIME_DISK_CACHE_H
#include "base/text.h"
#include "runtime/image/image.h"

typedef struct DiskCache DiskCache;
/* Of a sample's file: its length, and its time of change in nanoseconds. */
typedef struct {
  uint64_t size, time;
} DiskStamp;

/* budget: bytes that all of the folder's pictures may take, of any key. Without may_write nothing is, and *out is NULL
 * where there is no such folder. */
STATUS_CHECKED Status disk_cache_open(const char *folder, uint64_t key, int64_t budget,
                                      bool may_write, DiskCache **out);
void disk_cache_close(DiskCache *cache); /* NULL is fine */
/* Reads sample `index` into *image, if it is there; channels: those that it has to have. */
bool disk_cache_find(const DiskCache *cache, int64_t index, DiskStamp stamp, int channels,
                     Image *image, int64_t *label);
/* Keeps it, if there is room. `stamp` was read before the file was. */
void disk_cache_keep(DiskCache *cache, int64_t index, DiskStamp stamp, const Image *image,
                     int64_t label);
/* Appends that pictures were not kept so far, why, and what is; false: all were. */
bool disk_cache_say_full(const DiskCache *cache, Text *out);
/* Bytes that all pictures in the folder take now; -1: not known. */
int64_t disk_cache_used(const DiskCache *cache);
#endif
