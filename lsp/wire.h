/* wire: the messages of the protocol as bytes: a header with Content-Length, an empty line, the body.
 * Bytes come in pieces of any size, from anybody: what is no header is skipped up to the next one, a
 * body that is too long is let pass by, and never is more kept than one body and one header. */
#ifndef FT_LSP_WIRE_H
#define FT_LSP_WIRE_H
#include "base/text.h"

enum { WIRE_MOST_BODY = 4 << 20, WIRE_MOST_HEADER = 4096 };

typedef enum {
  WIRE_NOTHING, /* more bytes are needed */
  WIRE_MESSAGE, /* *body, *count: until the next call */
  WIRE_BAD,     /* something was skipped; `why` is a sentence */
} WireResult;

typedef struct {
  Text kept; /* what has come and is not taken yet, from `begin` on */
  size_t begin;
  size_t body;              /* bytes of the body that comes next, if has_header */
  size_t skip;              /* bytes that are let pass by */
  bool has_header, is_lost; /* lost: looking for the next header */
  const char *why;
} Wire;

void wire_give(Wire *wire, const char *bytes, size_t count);
WireResult wire_take(Wire *wire, const char **body, size_t *count);
void wire_free(Wire *wire);
#endif
