/* tokens: see tokens.h. */
#include "runtime/data/tokens.h"
#include <string.h>

/* What llm.c writes: one magic and version for u16 (GPT-2's tokens), others for u32 (Llama 3's). */
static const struct {
  uint32_t magic, version;
  Element element;
} formats[] = {{20240520, 1, ELEMENT_U16}, {20240801, 7, ELEMENT_U32}};

static uint32_t tokens_word(const uint8_t *head, int at) {
  const uint8_t *b = head + 4 * at;
  return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

void tokens_header(int bytes, uint32_t count, uint8_t out[TOKENS_HEADER]) {
  const uint32_t words[] = {formats[bytes > 2].magic, formats[bytes > 2].version, count};
  memset(out, 0, TOKENS_HEADER);
  for (int i = 0; i < 12; i++) out[i] = (uint8_t)(words[i / 4] >> 8 * (i % 4));
}

static Status tokens_parse_header(const uint8_t *head, size_t size, int format, ArrayHeader *out) {
  uint32_t version = tokens_word(head, 1), count = tokens_word(head, 2);
  size_t bytes = (size_t)count * (size_t)element_bytes(formats[format].element);
  if (version != formats[format].version)
    return status_fail(STATUS_USER,
                       "is a token file of version %u; the version that can be read is %u", version,
                       formats[format].version);
  if (formats[format].element != out->element)
    return status_fail(STATUS_USER, "holds %s tokens, as its header says: write dtype=%s",
                       element_text(formats[format].element),
                       element_text(formats[format].element));
  if (size != TOKENS_HEADER + bytes)
    return status_fail(
        STATUS_USER, "is %s: it holds %zu bytes but its header promises %u tokens, %zu bytes",
        size < TOKENS_HEADER + bytes ? "truncated" : "damaged", size, count, TOKENS_HEADER + bytes);
  out->offset = TOKENS_HEADER;
  out->shape.dim[0] = count;
  return STATUS_OK;
}

Status bytes_parse(const ArrayFile *file, ArrayHeader *out) {
  *out = (ArrayHeader){.element = ELEMENT_U8, .shape = {.rank = 1, .dim = {(int64_t)file->size}}};
  return STATUS_OK;
}

Status tokens_parse(const ArrayFile *file, ArrayHeader *out) {
  bool is_wide = !strcmp(source_kind_text(file->options, "dtype", "u16"), "u32");
  *out = (ArrayHeader){.element = is_wide ? ELEMENT_U32 : ELEMENT_U16,
                       .shape = {.rank = 1, .dim = {0}}};
  for (int i = 0; i < 2 && file->count >= TOKENS_HEADER; i++)
    if (tokens_word(file->at, 0) == formats[i].magic)
      return tokens_parse_header(file->at, file->size, i, out);
  size_t each = (size_t)element_bytes(out->element);
  if (file->size % each)
    return status_fail(STATUS_USER,
                       "is not a file of %s tokens: its %zu bytes are no multiple of %zu",
                       element_text(out->element), file->size, each);
  out->shape.dim[0] = (int64_t)(file->size / each);
  return STATUS_OK;
}
