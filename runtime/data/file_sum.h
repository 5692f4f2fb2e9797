/* file_sum: a file's length and a sum over some of its bytes, by which one file is told from another
 * without reading all of it. */
#ifndef FT_RUNTIME_FILE_SUM_H
#define FT_RUNTIME_FILE_SUM_H
#include "runtime/common/status.h"
#include <stdint.h>

typedef struct {
  int64_t size;
  uint64_t sum;
} FileSum;

enum { FILE_SUM_PIECES = 8 };
/* Of the whole file (most_pieces INT64_MAX), or of so many pieces of 64 KiB, the last one at its end,
 * where a compressed file has a checksum of all. */
STATUS_CHECKED Status file_sum(const char *path, int64_t most_pieces, FileSum *out);
#endif
