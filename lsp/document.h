/* document: the text of one open file, as the editor has it, and its positions. A position is a line
 * and a number of UTF-16 code units in it, or of bytes where the editor agreed to UTF-8; offsets are bytes.
 * Invariant: line_at has the offset of each line's first byte. */
#ifndef FT_LSP_DOCUMENT_H
#define FT_LSP_DOCUMENT_H
#include "base/text.h"
#include <stdint.h>

enum { DOCUMENT_MOST = 512 << 10 }; /* bytes; a longer one is not looked at */

typedef struct {
  Text text;
  size_t *line_at;
  size_t lines; /* at least one */
} Document;

typedef struct {
  uint32_t line, character; /* from 0 */
} Position;

void document_set(Document *document, const char *bytes, size_t count);
/* Replaces the bytes from `from` to `to`. */
void document_edit(Document *document, size_t from, size_t to, const char *bytes, size_t count);
void document_free(Document *document);
/* Past a line's end means its end, past the last line the text's. */
size_t document_offset(const Document *document, Position position, bool is_utf8);
Position document_position(const Document *document, size_t offset, bool is_utf8);
size_t document_line(const Document *document, size_t offset); /* from 0 */
/* Without the characters that end it. */
const char *document_line_text(const Document *document, size_t line, size_t *length);
#endif
