/* Any documents packed into rows of any width: every token is in one row, once, no row is fuller than
 * its width, and a row's pieces stand in the text's order. */
#include "runtime/data/text_pack.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 3) return 0;
  int64_t width = 1 + data[0] + 256 * (data[1] & 3), documents = (int64_t)size - 2, behind = 0;
  bool cut = data[1] & 4;
  int64_t *ends = malloc((size_t)documents * sizeof *ends);
  for (int64_t i = 0; i < documents; i++) ends[i] = behind += data[2 + i] * (data[1] & 8 ? 9 : 1);
  TextPack pack;
  if (text_pack(ends, documents, width, cut, &pack) == STATUS_OK) {
    uint8_t *seen = calloc((size_t)behind + 1, 1);
    for (int64_t row = 0; row < pack.rows; row++) {
      int64_t filled = 0, before = 0;
      if (pack.first[row] >= pack.first[row + 1]) abort();
      for (int64_t i = pack.first[row]; i < pack.first[row + 1]; i++) {
        TextPiece piece = pack.piece[i];
        if (piece.length < 1 || piece.start < before || piece.start + piece.length > behind) abort();
        before = piece.start + piece.length;
        filled += piece.length;
        for (int64_t k = piece.start; k < before; k++)
          if (seen[k]++) abort();
      }
      if (filled > width) abort();
    }
    for (int64_t i = 0; i < behind; i++)
      if (!seen[i]) abort();
    if (pack.first[pack.rows] != pack.pieces) abort();
    free(seen);
    text_pack_free(&pack);
  } else if (behind) {
    abort();
  }
  free(ends);
  return 0;
}
