/* utf8_out: see utf8_out.h. */
#include "runtime/common/utf8_out.h"
#include "runtime/common/utf8.h"

void utf8_out_end(Utf8Out *out) {
  fwrite(out->held, 1, (size_t)out->count, out->to);
  out->count = 0;
}

void utf8_out_write(Utf8Out *out, const void *bytes, size_t count) {
  const unsigned char *at = bytes;
  for (size_t i = 0; i < count; i++) {
    if (out->count && !utf8_continues(out->held[0], out->count, at[i])) utf8_out_end(out);
    out->held[out->count++] = at[i];
    if (out->count == utf8_length(out->held[0])) utf8_out_end(out);
  }
}
