/* Our inflate against zlib's: the input is a raw deflate stream, wrapped as gzip with the checksum
 * that zlib computes. Both must accept it with the same bytes, or both refuse it. */
#include "runtime/data/source_inflate.h"
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { LARGEST = 1 << 18 };
static bool go_on(void *context, size_t used, size_t ready) {
  (void)context, (void)used, (void)ready;
  return true;
}

static void store_32(uint8_t *to, uint32_t value) {
  for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> (8 * i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static uint8_t theirs[LARGEST];
  z_stream stream = {.next_in = (uint8_t *)(uintptr_t)data,
                     .avail_in = (uInt)size,
                     .next_out = theirs,
                     .avail_out = LARGEST};
  if (inflateInit2(&stream, -15) != Z_OK) return 0;
  int result = inflate(&stream, Z_FINISH);
  size_t used = size - stream.avail_in, count = LARGEST - stream.avail_out;
  inflateEnd(&stream);
  if (result == Z_BUF_ERROR && !stream.avail_out) return 0; /* too large for this test */
  bool is_good = result == Z_STREAM_END;
  if (!is_good) used = size;
  uint8_t *gzip = malloc(used + 18), *ours = malloc(count + 1);
  memcpy(gzip, "\x1f\x8b\x08\0\0\0\0\0\0\3", 10);
  memcpy(gzip + 10, data, used);
  store_32(gzip + 10 + used, (uint32_t)crc32(0, theirs, (uInt)count));
  store_32(gzip + 14 + used, (uint32_t)count);
  const char *failure = inflate_all(gzip, used + 18, ours, count, go_on, NULL);
  if (is_good && (failure || memcmp(ours, theirs, count) != 0)) abort();
  /* a stream that zlib finds cut short may end by chance in the bytes of the trailer, but then the
   * trailer is not where it should be */
  if (!is_good && !failure) abort();
  free(gzip);
  free(ours);
  return 0;
}
