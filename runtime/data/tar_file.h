/* tar_file: the members of a tar archive, one after the other: POSIX ustar and pax, GNU's and the old
 * form, as Python's tarfile reads them. The archive is hostile input: every number is checked against
 * the file before it is used. A failure's sentence follows the file's name. */
#ifndef FT_RUNTIME_TAR_FILE_H
#define FT_RUNTIME_TAR_FILE_H
#include "base/text.h"
#include "runtime/common/status.h"
#include <stdint.h>

enum { TAR_BLOCK = 512 };

typedef struct {
  const char *name; /* until the next call; may hold anything but NUL */
  uint64_t offset;  /* of the content, from the archive's beginning; behind the member's head */
  uint64_t size;
  uint32_t head_sum; /* tar_head_sum of the head */
} TarMember;

typedef struct {
  int fd;
  uint64_t base, size; /* the archive is bytes [base, base + size) of the file */
  uint64_t at;         /* of the next head, from base */
  Text name, longer;   /* of the member; from a head of a GNU or pax kind in front of it, or none */
  bool has_longer, has_size;
  uint64_t pax_size;
  bool is_sparse;
  uint8_t *window; /* of the archive, bytes [window_at, window_at + window_count) */
  uint64_t window_at;
  size_t window_count;
} TarFile;

STATUS_CHECKED Status tar_file_start(int fd, uint64_t base, uint64_t size, TarFile *out);
void tar_file_end(TarFile *tar);
/* The next regular file; others (folders, links, devices) are passed over. *is_end: there is none. */
STATUS_CHECKED Status tar_file_next(TarFile *tar, TarMember *out, bool *is_end);
/* Tells one head from another, to see that a file is still what it was. */
uint32_t tar_head_sum(const uint8_t head[TAR_BLOCK]);
#endif
