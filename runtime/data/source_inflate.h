/* source_inflate: gzip (RFC 1952) to memory of a known size, with progress. */
#ifndef FT_RUNTIME_SOURCE_INFLATE_H
#define FT_RUNTIME_SOURCE_INFLATE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool inflate_is_gzip(const uint8_t *in, size_t in_count);
/* The first bytes of the content, at most `capacity`. Returns 0, ENOMEM, or EINVAL: not
 * even those can be inflated. */
int inflate_head(const uint8_t *in, size_t in_count, uint8_t *out, size_t capacity, size_t *count);
/* Told now and then how many bytes of `in` are done with and of `out` are final; false stops. */
typedef bool InflateProgress(void *context, size_t used, size_t ready);
/* Inflates all members; the content must be exactly `count` bytes with right checksums.
 * Returns NULL, or what is wrong: a sentence that follows the file's name. */
const char *inflate_all(const uint8_t *in, size_t in_count, uint8_t *out, size_t count,
                        InflateProgress *progress, void *context);
#endif
