/* text_part: what an input gets of a row of a text: see text_set.h. A row is a list of pieces, each of one
 * document, and padding behind them. */
#include "runtime/common/philox.h"
#include "runtime/data/text_set.h"
#include <string.h>

Status text_set_tokens(const TextSet *text, int64_t at, int64_t count, int64_t *out) {
  if (text->texts.tokens) {
    const char *from = text->texts.tokens;
    int64_t each = element_bytes(text->element);
    (void)element_convert(from + at * each, text->element, false, count, DT_I64, out);
    return STATUS_OK;
  }
  while (count) {
    const ColumnFile *file = column_find(&text->column, at);
    const DataArray *array = file->array;
    Element element = array->header.element;
    int64_t left = file->first + array->header.shape.dim[0] - at;
    int64_t some = left < count ? left : count;
    const uint8_t *from = array_at(array) + (at - file->first) * element_bytes(element);
    (void)element_convert(from, element, false, some, DT_I64, out);
    STATUS_TRY(source_bytes_intact(array->bytes));
    at += some;
    out += some;
    count -= some;
  }
  return STATUS_OK;
}

/* Piece k of a row; false: it has no more. */
static bool row_piece(const TextSet *text, int64_t index, int64_t k, TextPiece *out) {
  const int64_t *behind = text->texts.behind;
  if (text->form.rows == TEXT_PACK) {
    bool has = text->pack.first[index] + k < text->pack.first[index + 1];
    if (has) *out = text->pack.piece[text->pack.first[index] + k];
    return has;
  }
  int64_t start = text->form.rows == TEXT_WINDOWS ? index * text->width : 0;
  int64_t length = text->width;
  if (text->form.rows == TEXT_PAD) {
    start = index ? behind[index - 1] : 0;
    if (behind[index] - start < length) length = behind[index] - start;
  }
  *out = (TextPiece){start, (int32_t)length};
  return k == 0;
}

/* The token behind the document with token `at`; of windows, all is one. */
static int64_t document_end(const TextSet *text, int64_t at) {
  int64_t low = 0, high = text->texts.documents - 1; /* the first that ends behind it */
  if (text->form.rows == TEXT_WINDOWS) return text->tokens;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (text->texts.behind[middle] > at)
      high = middle;
    else
      low = middle + 1;
  }
  return text->texts.behind[low];
}

/* ── masking ──────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  uint32_t key[2], counter[4];
  uint64_t asked, replaced, random; /* shares of 2^32, the last two added up */
  int64_t token, vocabulary, end;
} Masking;

static Masking masking_of(const TextSet *text, int64_t index, uint64_t seed, uint64_t epoch) {
  const Transform *mask = text->form.mask;
  double replace = transform_argument(mask, "replace")->number[0];
  double random = transform_argument(mask, "random")->number[0];
  uint64_t sample = (uint64_t)index;
  return (Masking){
      .key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
      .counter = {(uint32_t)sample,
                  (uint32_t)(sample >> 32 & 0xFFFF) | (uint32_t)text->form.mask_place << 16,
                  (uint32_t)epoch, 0},
      .asked = (uint64_t)(transform_argument(mask, "p")->number[0] * 0x1p32),
      .replaced = (uint64_t)(replace * 0x1p32),
      .random = (uint64_t)((replace + random) * 0x1p32),
      .token = (int64_t)transform_argument(mask, "token")->number[0],
      .vocabulary = (int64_t)transform_argument(mask, "vocabulary")->number[0],
      .end = text->end};
}

/* Is the token at a place of the row asked for? Then *given is what stands there instead. */
static bool is_masked(Masking *masking, int64_t place, int64_t token, int64_t *given) {
  uint32_t word[4];
  masking->counter[3] = 0x40000000u | (uint32_t)place;
  philox(masking->key, masking->counter, word);
  *given = token;
  if (word[0] >= masking->asked || token == masking->end) return false;
  if (word[1] < masking->replaced)
    *given = masking->token;
  else if (word[1] < masking->random)
    *given = (int64_t)((uint64_t)word[2] * (uint64_t)masking->vocabulary >> 32);
  return true;
}

static void mask_row(const TextSet *text, int64_t index, int64_t filled, TextPart part,
                     uint64_t seed, uint64_t epoch, int64_t *out) {
  Masking masking = masking_of(text, index, seed, epoch);
  for (int64_t i = 0; i < filled; i++) {
    int64_t given;
    bool is_asked = is_masked(&masking, i, out[i], &given);
    if (part == TEXT_TOKENS) out[i] = given;
    if (part == TEXT_TARGETS && !is_asked) out[i] = -1;
  }
}

/* ── parts ────────────────────────────────────────────────────────────────────────────────── */
/* Those of the same document that come `shift` later, also where a row is over; -1: there is none. */
static Status part_targets(const TextSet *text, TextPiece piece, int64_t *out) {
  int64_t at = piece.start + text->form.shift;
  int64_t left = document_end(text, piece.start) - at;
  int64_t count = left < 0 ? 0 : left < piece.length ? left : piece.length;
  if (count) STATUS_TRY(text_set_tokens(text, at, count, out));
  for (int64_t i = count; i < piece.length; i++) out[i] = -1;
  return STATUS_OK;
}

static Status fill_piece(const TextSet *text, TextPiece piece, int64_t number, TextPart part,
                         int64_t *out) {
  bool has_tokens = part == TEXT_TOKENS || (part == TEXT_TARGETS && text->form.mask);
  if (has_tokens) return text_set_tokens(text, piece.start, piece.length, out);
  if (part == TEXT_TARGETS) return part_targets(text, piece, out);
  for (int64_t i = 0; i < piece.length; i++) out[i] = part == TEXT_DOCUMENTS ? number : i;
  return STATUS_OK;
}

Status text_set_part(const TextSet *text, int64_t index, TextPart part, uint64_t seed,
                     uint64_t epoch, int64_t *out) {
  const Transform *layout = text->form.layout;
  int64_t filled = 0;
  TextPiece piece;
  if (part == TEXT_LABEL) {
    *out = text->texts.label[index];
    return STATUS_OK;
  }
  for (int64_t k = 0; row_piece(text, index, k, &piece); k++) {
    if (part != TEXT_LENGTHS) STATUS_TRY(fill_piece(text, piece, k + 1, part, out + filled));
    filled += piece.length;
  }
  if (part == TEXT_LENGTHS) {
    *out = filled;
    return STATUS_OK;
  }
  bool is_token = part == TEXT_TOKENS || part == TEXT_TARGETS;
  if (text->form.mask && is_token) mask_row(text, index, filled, part, seed, epoch, out);
  int64_t padding = part == TEXT_TARGETS ? -1 : 0;
  if (part == TEXT_TOKENS && layout)
    padding = (int64_t)transform_argument(layout, "token")->number[0];
  for (; filled < text->width; filled++) out[filled] = padding;
  return STATUS_OK;
}
