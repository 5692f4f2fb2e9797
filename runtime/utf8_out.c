/* utf8_out: see utf8_out.h. */
#include "runtime/utf8_out.h"

/* Bytes of the character that begins with this one; 1 for what begins none. */
static int length_of(unsigned char first) {
  return first >= 0xc2 && first < 0xe0   ? 2
         : first >= 0xe0 && first < 0xf0 ? 3
         : first >= 0xf0 && first < 0xf5 ? 4
                                         : 1;
}

/* May `byte` be byte `index` (from 1) of a character that begins with `first`? */
static int continues(unsigned char first, int index, unsigned char byte) {
  if ((byte & 0xc0) != 0x80) return 0;
  if (index > 1) return 1;
  return !(first == 0xe0 && byte < 0xa0) && !(first == 0xed && byte > 0x9f) &&
         !(first == 0xf0 && byte < 0x90) && !(first == 0xf4 && byte > 0x8f);
}

void utf8_out_end(Utf8Out *out) {
  fwrite(out->held, 1, (size_t)out->count, out->to);
  out->count = 0;
}

void utf8_out_write(Utf8Out *out, const void *bytes, size_t count) {
  const unsigned char *at = bytes;
  for (size_t i = 0; i < count; i++) {
    if (out->count && !continues(out->held[0], out->count, at[i])) utf8_out_end(out);
    out->held[out->count++] = at[i];
    if (out->count == length_of(out->held[0])) utf8_out_end(out);
  }
}
