/* source_zstd: see source_zstd.h. The file is hostile and may change while it is read, which libzstd
 * need not stand: it is given copies. */
#include "runtime/data/source_zstd.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

enum { PIECE = 1 << 17 /* bytes: a block of zstd's */ };

typedef struct {
  ZSTD_DStream *stream;
  const uint8_t *in;
  size_t in_count, used; /* used: bytes of it that were copied to `copy` */
  ZSTD_inBuffer copy;    /* of PIECE bytes */
  bool is_open;          /* in the middle of a frame */
} Unpacked;

bool zstd_is(const uint8_t *in, size_t in_count) {
  if (in_count < 4) return false;
  bool is_skipped = (in[0] & 0xf0) == 0x50 && !memcmp(in + 1, "\x2a\x4d\x18", 3);
  return is_skipped || !memcmp(in, "\x28\xb5\x2f\xfd", 4);
}

static bool unpack_start(Unpacked *u, const uint8_t *in, size_t in_count) {
  *u = (Unpacked){.in = in, .in_count = in_count, .stream = ZSTD_createDStream()};
  u->copy.src = malloc(PIECE);
  return u->stream && u->copy.src;
}

static void unpack_end(Unpacked *u) {
  ZSTD_freeDStream(u->stream);
  free((void *)(uintptr_t)u->copy.src);
}

static const char zstd_none[] = "cannot be unpacked: no memory is left";

/* Fills `out` further, or stops where the file ends. NULL, or what is wrong. */
static const char *unpack_some(Unpacked *u, ZSTD_outBuffer *out) {
  while (out->pos < out->size) {
    if (u->copy.pos == u->copy.size) {
      size_t count = u->in_count - u->used < PIECE ? u->in_count - u->used : PIECE;
      memcpy((void *)(uintptr_t)u->copy.src, u->in + u->used, count);
      u->used += count;
      u->copy.pos = 0, u->copy.size = count;
    }
    size_t before_in = u->copy.pos, before_out = out->pos;
    size_t result = ZSTD_decompressStream(u->stream, out, &u->copy);
    if (ZSTD_isError(result)) {
      switch (ZSTD_getErrorCode(result)) {
      case ZSTD_error_memory_allocation:
        return zstd_none;
      case ZSTD_error_frameParameter_windowTooLarge:
        return "is not read: it was compressed with zstd --long or --ultra for a window of more "
               "than 128 MB";
      case ZSTD_error_checksum_wrong:
        return "is damaged: its zstd checksum is wrong";
      default:
        return "is damaged: the zstd data is not valid";
      }
    }
    bool is_idle = u->copy.pos == before_in && out->pos == before_out;
    if (u->copy.pos != before_in || out->pos != before_out) u->is_open = result != 0;
    if (is_idle && u->used == u->in_count) return NULL;
    if (is_idle && u->copy.pos < u->copy.size) return "is damaged: the zstd data is not valid";
  }
  return NULL;
}

int zstd_head(const uint8_t *in, size_t in_count, uint8_t *out, size_t capacity, size_t *count) {
  Unpacked u;
  ZSTD_outBuffer to = {out, capacity, 0};
  const char *failure = unpack_start(&u, in, in_count) ? unpack_some(&u, &to) : zstd_none;
  unpack_end(&u);
  *count = to.pos;
  if (failure == zstd_none) return ENOMEM;
  return failure && !to.pos ? EINVAL : 0;
}

static const char *unpack_all(Unpacked *u, uint8_t *out, size_t count, InflateProgress *progress,
                              void *context) {
  const char *failure = NULL;
  size_t done = 0;
  while (!failure && done < count) {
    ZSTD_outBuffer to = {out + done, count - done < PIECE ? count - done : PIECE, 0};
    failure = unpack_some(u, &to);
    if (!failure && to.pos < to.size)
      return u->is_open ? "is truncated: the zstd data ends too early"
                        : "is truncated: it holds fewer bytes than its header promises";
    done += to.pos;
    size_t used = u->used - (u->copy.size - u->copy.pos);
    if (!failure && !progress(context, used, done)) return "was not read to its end";
  }
  if (failure) return failure;
  uint8_t more; /* the end of the frame, with its checksum, and nothing else */
  ZSTD_outBuffer to = {&more, 1, 0};
  failure = unpack_some(u, &to);
  if (failure) return failure;
  if (to.pos) return "is damaged: it holds more bytes than its header promises";
  return u->is_open ? "is truncated: the zstd data ends too early" : NULL;
}

const char *zstd_all(const uint8_t *in, size_t in_count, uint8_t *out, size_t count,
                     InflateProgress *progress, void *context) {
  Unpacked u;
  const char *failure =
      unpack_start(&u, in, in_count) ? unpack_all(&u, out, count, progress, context) : zstd_none;
  unpack_end(&u);
  return failure;
}
