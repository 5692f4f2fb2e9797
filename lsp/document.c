/* document: see document.h. */
#include "lsp/document.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>

static void find_lines(Document *document) {
  const char *text = text_cstr(&document->text), *end = text + document->text.count;
  size_t lines = 1;
  for (const char *c = text; (c = memchr(c, '\n', (size_t)(end - c))) != NULL; c++) lines++;
  size_t *at = realloc(document->line_at, lines * sizeof *at);
  if (!at) memory_none();
  document->line_at = at;
  document->lines = 0;
  at[document->lines++] = 0;
  for (const char *c = text; (c = memchr(c, '\n', (size_t)(end - c))) != NULL; c++)
    at[document->lines++] = (size_t)(c + 1 - text);
}

void document_set(Document *document, const char *bytes, size_t count) {
  document->text.count = 0;
  text_append(&document->text, bytes, count);
  find_lines(document);
}

void document_edit(Document *document, size_t from, size_t to, const char *bytes, size_t count) {
  Text fresh = {0};
  text_append(&fresh, text_cstr(&document->text), from);
  text_append(&fresh, bytes, count);
  text_append(&fresh, text_cstr(&document->text) + to, document->text.count - to);
  text_free(&document->text);
  document->text = fresh;
  find_lines(document);
}

void document_free(Document *document) {
  text_free(&document->text);
  free(document->line_at);
  *document = (Document){0};
}

const char *document_line_text(const Document *document, size_t line, size_t *length) {
  const char *text = text_cstr(&document->text);
  size_t begin = document->line_at[line];
  size_t end = line + 1 < document->lines ? document->line_at[line + 1] - 1 : document->text.count;
  if (end > begin && text[end - 1] == '\r') end--;
  *length = end - begin;
  return text + begin;
}

/* Bytes of the character here; a byte that is no UTF-8 is one by itself. */
static size_t document_bytes_of(const char *at, size_t left) {
  unsigned char c = (unsigned char)*at;
  size_t length = c < 0xC0 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
  if (length > left) return 1;
  for (size_t i = 1; i < length; i++)
    if (((unsigned char)at[i] & 0xC0) != 0x80) return 1;
  return length;
}

size_t document_offset(const Document *document, Position position, bool is_utf8) {
  if (position.line >= document->lines) return document->text.count;
  size_t length, units = 0, at = 0;
  const char *line = document_line_text(document, position.line, &length);
  while (at < length && units < position.character) {
    size_t bytes = document_bytes_of(line + at, length - at);
    at += bytes;
    units += is_utf8 ? bytes : bytes == 4 ? 2 : 1;
  }
  return document->line_at[position.line] + at;
}

size_t document_line(const Document *document, size_t offset) {
  size_t low = 0, high = document->lines;
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    if (document->line_at[middle] <= offset)
      low = middle;
    else
      high = middle;
  }
  return low;
}

Position document_position(const Document *document, size_t offset, bool is_utf8) {
  if (offset > document->text.count) offset = document->text.count;
  size_t line = document_line(document, offset), length, units = 0, at = 0;
  const char *text = document_line_text(document, line, &length);
  size_t wanted = offset - document->line_at[line];
  if (wanted > length) wanted = length;
  while (at < wanted) {
    size_t bytes = document_bytes_of(text + at, length - at);
    at += bytes;
    units += is_utf8 ? bytes : bytes == 4 ? 2 : 1;
  }
  return (Position){(uint32_t)line, (uint32_t)units};
}
