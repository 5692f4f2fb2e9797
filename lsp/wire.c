/* wire: see wire.h. */
#include "lsp/wire.h"
#include <stdint.h>
#include <string.h>
#include <strings.h>

static const char length_key[] = "Content-Length:";
enum { LENGTH_KEY = sizeof length_key - 1, MOST_DIGITS = 18 };

/* Bytes of a body that is too long are not kept. */
void wire_give(Wire *wire, const char *bytes, size_t count) {
  if (wire->begin > 0 && wire->begin >= wire->kept.count / 2) {
    wire->kept.count -= wire->begin;
    memmove(wire->kept.at, wire->kept.at + wire->begin, wire->kept.count);
    wire->kept.at[wire->kept.count] = 0;
    wire->begin = 0;
  }
  size_t passed = wire->kept.count == wire->begin && wire->skip < count ? wire->skip : 0;
  if (wire->kept.count == wire->begin && wire->skip >= count) passed = count;
  wire->skip -= passed;
  if (count > passed) text_append(&wire->kept, bytes + passed, count - passed);
}

static WireResult fail_wire(Wire *wire, const char *why) {
  wire->why = why;
  return WIRE_BAD;
}

/* The number behind Content-Length in a line; -1: there is none that can be read. */
static int64_t read_length(const char *at, const char *end) {
  int64_t value = 0;
  int digits = 0;
  while (at < end && (*at == ' ' || *at == '\t')) at++;
  for (; at < end && *at >= '0' && *at <= '9'; at++, digits++)
    if (digits < MOST_DIGITS) value = value * 10 + (*at - '0');
  while (at < end && (*at == ' ' || *at == '\t')) at++;
  return digits && digits < MOST_DIGITS && at == end ? value : -1;
}

/* Where the header that begins at `at` ends, behind its empty line; NULL: not yet. */
static const char *header_end(const char *at, const char *end) {
  for (const char *line = at; line < end;) {
    const char *newline = memchr(line, '\n', (size_t)(end - line));
    if (!newline) return NULL;
    if (newline == line || (newline == line + 1 && *line == '\r')) return newline + 1;
    line = newline + 1;
  }
  return NULL;
}

/* Skips to what may be the next header: a line that begins with Content-Length. */
static bool find_header(Wire *wire) {
  const char *at = wire->kept.at + wire->begin, *end = wire->kept.at + wire->kept.count;
  for (const char *c = at; c < end; c++) {
    size_t left = (size_t)(end - c), length = left < LENGTH_KEY ? left : LENGTH_KEY;
    if (strncasecmp(c, length_key, length) != 0) continue;
    wire->begin = (size_t)(c - wire->kept.at);
    return left >= LENGTH_KEY;
  }
  wire->begin = wire->kept.count;
  return false;
}

/* The number of its Content-Length; -1: it has none that can be read. */
static int64_t length_of_header(const char *at, const char *behind) {
  int64_t length = -1;
  for (const char *line = at; line < behind;) {
    const char *newline = memchr(line, '\n', (size_t)(behind - line));
    const char *stop = newline > line && newline[-1] == '\r' ? newline - 1 : newline;
    if (stop - line >= LENGTH_KEY && strncasecmp(line, length_key, LENGTH_KEY) == 0)
      length = read_length(line + LENGTH_KEY, stop);
    line = newline + 1;
  }
  return length;
}

/* The next header that can be read, taken. What cannot be is said once, and skipped. */
static WireResult take_wire_header(Wire *wire) {
  for (;;) {
    if (wire->is_lost && !find_header(wire)) return WIRE_NOTHING;
    const char *end = wire->kept.at + wire->kept.count, *at = wire->kept.at + wire->begin;
    size_t left = (size_t)(end - at);
    bool is_long = left > WIRE_MOST_HEADER, was_lost = wire->is_lost;
    const char *behind = header_end(at, is_long ? at + WIRE_MOST_HEADER : end);
    if (!behind && !is_long) return WIRE_NOTHING;
    int64_t length = behind ? length_of_header(at, behind) : -1;
    wire->is_lost = length < 0;
    wire->begin += length < 0 ? 1 : (size_t)(behind - at);
    wire->body = (size_t)length;
    if (length >= 0) return WIRE_MESSAGE;
    if (!was_lost)
      return fail_wire(wire, behind ? "a header without a Content-Length that can be read"
                                    : "a header of more than 4096 bytes");
  }
}

/* A body that is too long goes by. */
static WireResult skip_body(Wire *wire) {
  size_t left = wire->kept.count - wire->begin, passed = left < wire->body ? left : wire->body;
  wire->begin += passed;
  wire->skip = wire->body - passed;
  return fail_wire(wire, "a message of more than 4 MiB");
}

WireResult wire_take(Wire *wire, const char **body, size_t *count) {
  if (!wire->kept.at) return WIRE_NOTHING;
  if (!wire->has_header) {
    WireResult result = take_wire_header(wire);
    if (result != WIRE_MESSAGE) return result;
    if (wire->body > WIRE_MOST_BODY) return skip_body(wire);
    wire->has_header = true;
  }
  if (wire->kept.count - wire->begin < wire->body) return WIRE_NOTHING;
  *body = wire->kept.at + wire->begin;
  *count = wire->body;
  wire->begin += wire->body;
  wire->has_header = false;
  return WIRE_MESSAGE;
}

void wire_free(Wire *wire) { text_free(&wire->kept); }
