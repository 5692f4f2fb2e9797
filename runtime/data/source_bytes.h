/* source_bytes: the content of one data file at a stable address: a plain file is mapped (guard.h),
 * a gzip or zstd file (told by its magic, not its name) is inflated once into memory by a thread of its
 * own, so that a reader can use the first bytes while the rest is still being inflated. Use: open,
 * look at the head, tell the expected length, then wait for what you read. Every failure names the
 * file. */
#ifndef FT_RUNTIME_SOURCE_BYTES_H
#define FT_RUNTIME_SOURCE_BYTES_H
#include "runtime/common/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct SourceBytes SourceBytes;

STATUS_CHECKED Status source_bytes_open(const char *path, SourceBytes **out);
/* The same, but a compressed file is unpacked at once, into a temporary file that is mapped like a plain
 * one: of any length, in no memory of its own. */
STATUS_CHECKED Status source_bytes_open_unpacked(const char *path, SourceBytes **out);
void source_bytes_close(SourceBytes *bytes); /* NULL is fine; stops the thread */

/* The first bytes (at most 64 KiB, all of a shorter file); *count says how many. */
const uint8_t *source_bytes_head(const SourceBytes *bytes, size_t *count);
/* The length of a plain file; false if it is compressed: then only reading it would tell. */
bool source_bytes_size(const SourceBytes *bytes, size_t *count);
/* Says how long the (inflated) content must be. A plain file is checked at once; for a compressed
 * one memory is reserved. Call once. */
STATUS_CHECKED Status source_bytes_expect(SourceBytes *bytes, size_t count);
/* Starts inflating in the background; a wait does so too. A failure shows in the next wait. */
void source_bytes_start(SourceBytes *bytes);
/* The content; address valid after expect. Bytes [0, upto) may be read after a wait for `upto`. */
const uint8_t *source_bytes_at(const SourceBytes *bytes);
/* Returns when [0, upto) is there; fails if the file turned out to be damaged or of another length.
 * Any number of threads may wait. */
STATUS_CHECKED Status source_bytes_wait(SourceBytes *bytes, size_t upto);
/* Without blocking: is [0, upto) there and sound so far? */
bool source_bytes_has(const SourceBytes *bytes, size_t upto);
/* Is it being inflated? Not before a start or a wait. */
bool source_bytes_is_inflating(SourceBytes *bytes);
/* Returns when the whole content is there and its checksums are right. */
STATUS_CHECKED Status source_bytes_check(SourceBytes *bytes);
/* Of what was read so far: fails if the file has become shorter meanwhile. */
STATUS_CHECKED Status source_bytes_intact(const SourceBytes *bytes);
const char *source_bytes_path(const SourceBytes *bytes);
/* Bytes of memory that inflating took (0 for a mapped file). */
size_t source_bytes_memory(const SourceBytes *bytes);
#endif
