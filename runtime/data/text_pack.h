/* text_pack: rows of T tokens out of documents: which pieces of which documents are in which row. The same
 * documents always give the same rows. */
#ifndef FT_RUNTIME_TEXT_PACK_H
#define FT_RUNTIME_TEXT_PACK_H
#include "runtime/common/status.h"
#include <stdbool.h>
#include <stdint.h>

/* Tokens [start, start + length) of the text, of one document. */
typedef struct {
  int64_t start;
  int32_t length;
} TextPiece;

/* Row i has pieces [first[i], first[i + 1]). */
typedef struct {
  TextPiece *piece;
  int64_t *first;
  int64_t pieces, rows;
} TextPack;
/* behind: by document the token behind its last one. A document of more than `width` tokens is cut into
 * pieces of that many and a rest. cut: rows are filled one behind the other, and a document that does not
 * fit goes on in the next; else each piece goes into the row where it leaves the least room, longest
 * pieces first (best fit decreasing), and a row's pieces stand in the text's order. Documents without
 * tokens are left out. */
STATUS_CHECKED Status text_pack(const int64_t *behind, int64_t documents, int64_t width, bool cut,
                                TextPack *out);
void text_pack_free(TextPack *pack);
int64_t text_pack_memory(const TextPack *pack);
#endif
