/* source_inflate: see source_inflate.h. */
#include "runtime/source_inflate.h"
#include <limits.h>
#include <string.h>
#include <zlib.h>

enum { GZIP_WINDOW = 15 + 16, CHUNK = 1 << 20 };

bool inflate_is_gzip(const uint8_t *in, size_t in_count) {
  return in_count >= 18 && in[0] == 0x1f && in[1] == 0x8b;
}

bool inflate_head(const uint8_t *in, size_t in_count, uint8_t *out, size_t capacity,
                  size_t *count) {
  z_stream stream = {0};
  if (inflateInit2(&stream, GZIP_WINDOW) != Z_OK) return false;
  stream.next_in = (uint8_t *)(uintptr_t)in;
  stream.avail_in = in_count < CHUNK ? (uInt)in_count : CHUNK;
  stream.next_out = out;
  stream.avail_out = (uInt)capacity;
  int result;
  do {
    result = inflate(&stream, Z_NO_FLUSH);
  } while (result == Z_STREAM_END && stream.avail_out &&
           inflate_is_gzip(stream.next_in, stream.avail_in) &&
           inflateReset2(&stream, GZIP_WINDOW) == Z_OK);
  *count = capacity - stream.avail_out;
  inflateEnd(&stream);
  return result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR;
}

static const char *const truncated = "is truncated: the gzip data ends too early";
static const char *const damaged = "is damaged: the gzip data is not valid";
static const char *const too_long = "holds more bytes than its header promises";
static const char *const too_short = "is truncated: it holds fewer bytes than its header promises";

const char *inflate_all(const uint8_t *in, size_t in_count, uint8_t *out, size_t count,
                        InflateProgress *progress, void *context) {
  z_stream stream = {0};
  if (inflateInit2(&stream, GZIP_WINDOW) != Z_OK) return "cannot be inflated: out of memory";
  size_t in_at = 0, out_at = 0;
  uint8_t beyond;
  const char *failure = NULL;
  while (!failure) {
    size_t in_left = in_count - in_at, out_left = count - out_at;
    uInt in_now = (uInt)(in_left < CHUNK ? in_left : CHUNK);
    uInt out_now = (uInt)(out_left < CHUNK ? out_left : CHUNK);
    stream.next_in = (uint8_t *)(uintptr_t)(in + in_at);
    stream.avail_in = in_now;
    stream.next_out = out_left ? out + out_at : &beyond;
    stream.avail_out = out_left ? out_now : 1;
    int result = inflate(&stream, Z_NO_FLUSH);
    in_at += in_now - stream.avail_in;
    if (out_left) {
      out_at += out_now - stream.avail_out;
    } else if (!stream.avail_out) {
      failure = too_long;
      break;
    }
    if (result == Z_STREAM_END) {
      if (in_at == in_count) break;
      if (!inflate_is_gzip(in + in_at, in_count - in_at)) failure = damaged;
      else inflateReset2(&stream, GZIP_WINDOW);
    } else if (result == Z_BUF_ERROR || (result == Z_OK && in_at == in_count && stream.avail_out)) {
      failure = truncated;
    } else if (result != Z_OK) {
      failure = damaged;
    }
    if (!failure && !progress(context, out_at)) failure = "was not read to its end";
  }
  inflateEnd(&stream);
  if (!failure && out_at != count) failure = too_short;
  return failure;
}
