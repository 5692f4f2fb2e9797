/* unpack: the content of a gzip (RFC 1952) or zstd (RFC 8878) file of any length, piece by piece, by
 * zlib and libzstd, in memory that does not grow with it. The file is hostile input; checksums are
 * verified. A failure's sentence follows the file's name. */
#ifndef FT_RUNTIME_UNPACK_H
#define FT_RUNTIME_UNPACK_H
#include "runtime/common/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct Unpack Unpack;
/* fd stays the caller's and is read by pread from its beginning. *out is NULL where the first bytes
 * are those of neither. */
STATUS_CHECKED Status unpack_open(int fd, Unpack **out);
/* The next bytes: fewer than `capacity` only where the content ends. */
STATUS_CHECKED Status unpack_read(Unpack *unpack, uint8_t *to, size_t capacity, size_t *count);
void unpack_free(Unpack *unpack); /* NULL is fine */
/* Appends all of the content to a file; *count: its bytes. What writing needs of a disk is said in
 * the failure. */
STATUS_CHECKED Status unpack_to_file(Unpack *unpack, int to, uint64_t *count);
/* An open file without a name in TMPDIR or /var/tmp, which is gone with the process. */
STATUS_CHECKED Status unpack_temporary(int *fd);
#endif
