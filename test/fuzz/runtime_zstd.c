/* Any bytes as a file of zstd frames: what ours reads, which has the content's length and copies of
 * pieces, libzstd's own call for a whole reads too (which takes some that a stream refuses). And what
 * libzstd makes of the bytes is read as them. */
#include "runtime/data/source_zstd.h"
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

static bool continues(void *context, size_t used, size_t ready) {
  (void)context, (void)used, (void)ready;
  return true;
}

enum { LARGEST = 1 << 20, HEAD = 1 << 10 };
static uint8_t theirs[LARGEST], ours[LARGEST], head[HEAD];

/* Does it hold these `count` bytes, and not one more or less? */
static void holds(const uint8_t *file, size_t size, const uint8_t *want, size_t count) {
  size_t head_count;
  if (zstd_all(file, size, ours, count, continues, NULL) || memcmp(ours, want, count) != 0) abort();
  if (!zstd_all(file, size, ours, count + 1, continues, NULL)) abort();
  if (count && !zstd_all(file, size, ours, count - 1, continues, NULL)) abort();
  if (zstd_head(file, size, head, HEAD, &head_count)) abort();
  if (head_count != (count < HEAD ? count : HEAD) || memcmp(head, want, head_count) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size > LARGEST / 2) return 0;
  size_t packed = ZSTD_compress(theirs, LARGEST, data, size, 1);
  if (ZSTD_isError(packed)) abort();
  holds(theirs, packed, data, size);
  if (!zstd_is(data, size)) return 0;
  size_t count = ZSTD_decompress(theirs, LARGEST, data, size);
  bool is_good = !ZSTD_isError(count);
  if (!is_good) count = size;
  bool is_read = !zstd_all(data, size, ours, count, continues, NULL);
  if (is_read && is_good) holds(data, size, theirs, count);
  if (is_read && !is_good) abort();
  return 0;
}
