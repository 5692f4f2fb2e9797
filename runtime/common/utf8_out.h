/* utf8_out: writes text that comes in pieces, which may end within a character, and never writes a
 * part of one. Bytes that cannot be part of any character are written as they are. */
#ifndef FT_RUNTIME_UTF8_OUT_H
#define FT_RUNTIME_UTF8_OUT_H
#include <stddef.h>
#include <stdio.h>

typedef struct {
  FILE *to;
  unsigned char held[4]; /* the start of a character */
  int count;
} Utf8Out;

void utf8_out_write(Utf8Out *out, const void *bytes, size_t count);
void utf8_out_end(Utf8Out *out); /* what is held, whole or not */
#endif
