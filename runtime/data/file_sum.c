/* file_sum: see file_sum.h. */
#include "runtime/data/file_sum.h"
#include "runtime/common/fnv.h"
#include "runtime/data/spool.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 64 << 10 };

Status file_sum(const char *path, int64_t most_pieces, FileSum *out) {
  struct stat info;
  char *piece = malloc(PIECE);
  int fd = spool_open(path);
  int error = !piece ? ENOMEM : fd < 0 || fstat(fd, &info) != 0 ? errno : 0;
  *out = (FileSum){.sum = FNV_START};
  if (!error) out->size = info.st_size;
  int64_t pieces = (out->size + PIECE - 1) / PIECE, step = 1;
  if (pieces > most_pieces) step = pieces / most_pieces;
  for (int64_t i = 0; i < pieces && !error; i += step) {
    if (i + step >= pieces) i = pieces - 1;
    int64_t at = i + 1 < pieces || out->size < PIECE ? i * PIECE : out->size - PIECE;
    ssize_t count = pread(fd, piece, PIECE, (off_t)at);
    if (count < 0) error = errno;
    if (count > 0) out->sum = fnv_add(out->sum, piece, (size_t)count);
  }
  if (fd >= 0) close(fd);
  free(piece);
  return error ? status_errno(error, "cannot read %s", path) : STATUS_OK;
}
