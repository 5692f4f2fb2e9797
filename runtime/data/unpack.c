/* unpack: see unpack.h. Invariant: bytes [taken, held) of the buffer are what was read of the file and
 * not yet given to the decoder. */
#define _GNU_SOURCE /* O_TMPFILE */
#include "runtime/data/unpack.h"
#include "base/text.h"
#include "runtime/data/source_inflate.h"
#include "runtime/data/source_zstd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

enum { BUFFER = 1 << 17, PIECE_OUT = 1 << 20 };

struct Unpack {
  int fd;
  bool is_zstd, is_open, is_end; /* is_open: in the middle of a member or frame */
  uint64_t at;                   /* of the file: behind what was read */
  size_t taken, held;
  z_stream zlib;
  bool has_zlib;
  ZSTD_DStream *zstd;
  uint8_t buffer[BUFFER];
};

static Status unpack_fill(Unpack *u) {
  if (u->taken < u->held || u->is_end) return STATUS_OK;
  ssize_t count;
  do count = pread(u->fd, u->buffer, BUFFER, (off_t)u->at);
  while (count < 0 && errno == EINTR);
  if (count < 0) return status_errno(errno, "cannot be read");
  u->taken = 0;
  u->held = (size_t)count;
  u->at += (uint64_t)count;
  u->is_end = count == 0;
  return STATUS_OK;
}

Status unpack_open(int fd, Unpack **out) {
  *out = NULL;
  Unpack *u = calloc(1, sizeof *u);
  if (!u) return status_errno(ENOMEM, "cannot be unpacked");
  u->fd = fd;
  Status status = unpack_fill(u);
  bool is_gzip = status == STATUS_OK && inflate_is_gzip(u->buffer, u->held);
  u->is_zstd = status == STATUS_OK && !is_gzip && zstd_is(u->buffer, u->held);
  bool is_made = true;
  if (is_gzip) is_made = u->has_zlib = inflateInit2(&u->zlib, 15 + 16) == Z_OK;
  if (u->is_zstd) is_made = (u->zstd = ZSTD_createDStream()) != NULL;
  if (status == STATUS_OK && !is_made) status = status_errno(ENOMEM, "cannot be unpacked");
  if (status == STATUS_OK && (is_gzip || u->is_zstd))
    *out = u;
  else
    unpack_free(u);
  return status;
}

void unpack_free(Unpack *u) {
  if (!u) return;
  if (u->has_zlib) inflateEnd(&u->zlib);
  ZSTD_freeDStream(u->zstd);
  free(u);
}

/* Behind a gzip member stands another one, or zeros up to the end. */
static Status unpack_next_member(Unpack *u) {
  while (!u->is_end && !u->buffer[u->taken]) {
    u->taken++;
    STATUS_TRY(unpack_fill(u));
  }
  if (u->is_end) return STATUS_OK;
  inflateReset(&u->zlib);
  u->is_open = true;
  return STATUS_OK;
}

static Status unpack_gzip(Unpack *u, uint8_t *to, size_t capacity, size_t *count) {
  z_stream *z = &u->zlib;
  if (!u->is_open) {
    STATUS_TRY(unpack_next_member(u));
    if (u->is_end) return STATUS_OK;
  }
  z->next_in = u->buffer + u->taken;
  z->avail_in = (uInt)(u->held - u->taken);
  z->next_out = to;
  z->avail_out = (uInt)capacity;
  int state = inflate(z, Z_NO_FLUSH);
  u->taken = u->held - z->avail_in;
  *count = capacity - z->avail_out;
  u->is_open = state != Z_STREAM_END;
  if (state == Z_MEM_ERROR) return status_errno(ENOMEM, "cannot be unpacked");
  if (state != Z_OK && state != Z_STREAM_END && state != Z_BUF_ERROR)
    return status_fail(STATUS_USER, "is damaged: the gzip data is not valid");
  return STATUS_OK;
}

static Status unpack_zstd(Unpack *u, uint8_t *to, size_t capacity, size_t *count) {
  ZSTD_inBuffer in = {u->buffer, u->held, u->taken};
  ZSTD_outBuffer out = {to, capacity, 0};
  size_t result = ZSTD_decompressStream(u->zstd, &out, &in);
  if (ZSTD_isError(result)) {
    switch (ZSTD_getErrorCode(result)) {
    case ZSTD_error_memory_allocation:
      return status_errno(ENOMEM, "cannot be unpacked");
    case ZSTD_error_frameParameter_windowTooLarge:
      return status_fail(STATUS_USER, "is not read: it was compressed with zstd --long or --ultra "
                                      "for a window of more than 128 MB");
    case ZSTD_error_checksum_wrong:
      return status_fail(STATUS_USER, "is damaged: its zstd checksum is wrong");
    default:
      return status_fail(STATUS_USER, "is damaged: the zstd data is not valid");
    }
  }
  bool is_idle = in.pos == u->taken && !out.pos;
  if (!is_idle) u->is_open = result != 0;
  u->taken = in.pos;
  *count = out.pos;
  if (is_idle && u->taken < u->held)
    return status_fail(STATUS_USER, "is damaged: the zstd data is not valid");
  return STATUS_OK;
}

/* What a decoder still holds back needs no further bytes of the file. */
Status unpack_read(Unpack *u, uint8_t *to, size_t capacity, size_t *count) {
  *count = 0;
  while (*count < capacity) {
    size_t got = 0, room = capacity - *count < PIECE_OUT ? capacity - *count : PIECE_OUT;
    STATUS_TRY(unpack_fill(u));
    if (u->is_end && !u->is_open) return STATUS_OK;
    STATUS_TRY(u->is_zstd ? unpack_zstd(u, to + *count, room, &got)
                          : unpack_gzip(u, to + *count, room, &got));
    *count += got;
    if (!got && u->is_end && u->is_open)
      return status_fail(STATUS_USER, "is truncated: the %s data ends too early",
                         u->is_zstd ? "zstd" : "gzip");
  }
  return STATUS_OK;
}

Status unpack_to_file(Unpack *u, int to, uint64_t *count) {
  uint8_t *piece = malloc(PIECE_OUT);
  Status status = piece ? STATUS_OK : status_errno(ENOMEM, "cannot be unpacked");
  size_t got = PIECE_OUT;
  *count = 0;
  while (status == STATUS_OK && got == PIECE_OUT) {
    status = unpack_read(u, piece, PIECE_OUT, &got);
    int error = status == STATUS_OK ? text_write_all(to, piece, got) : 0;
    *count += got;
    if (error)
      status =
          status_errno(error, "cannot be unpacked into a temporary file (%llu MiB are written)",
                       (unsigned long long)(*count >> 20));
  }
  free(piece);
  return status;
}

Status unpack_temporary(int *fd) {
  const char *folder = getenv("TMPDIR");
  Text path = {0};
  if (!folder || !*folder) folder = "/var/tmp";
  *fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  text_printf(&path, "%s/ft-XXXXXX", folder);
  if (*fd < 0 && (*fd = mkostemp(path.at, O_CLOEXEC)) >= 0) unlink(path.at);
  text_free(&path);
  if (*fd >= 0) return STATUS_OK;
  return status_errno(errno,
                      "needs a temporary file in %s (TMPDIR says where)",
                      folder);
}
