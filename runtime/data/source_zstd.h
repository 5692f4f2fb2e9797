/* source_zstd: zstd (RFC 8878) to memory of a known size, with progress, as source_inflate does it
 * for gzip; by libzstd. */
#ifndef FT_RUNTIME_SOURCE_ZSTD_H
#define FT_RUNTIME_SOURCE_ZSTD_H
#include "runtime/data/source_inflate.h"

/* By the first four bytes: a frame, or one to be skipped. */
bool zstd_is(const uint8_t *in, size_t in_count);
/* As inflate_head and inflate_all. */
int zstd_head(const uint8_t *in, size_t in_count, uint8_t *out, size_t capacity, size_t *count);
const char *zstd_all(const uint8_t *in, size_t in_count, uint8_t *out, size_t count,
                     InflateProgress *progress, void *context);
#endif
