/* runtime_cuda_pieces: any text in pieces: no crash, and no piece longer than the text. */
#include "runtime/device/cuda/cuda_pieces.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!size) return 0;
  char *text = malloc(size), *piece[CUDA_PIECES];
  if (!text) return 0;
  Arena *arena = arena_new();
  memcpy(text, data + 1, size - 1);
  text[size - 1] = 0;
  int count = cuda_pieces_cut(arena, text, 1, 1 + data[0] % CUDA_PIECES, piece);
  if (count < 0 || count > CUDA_PIECES || count == 1) abort();
  for (int i = 0; i < count; i++)
    if (strlen(piece[i]) > strlen(text)) abort();
  arena_free(arena);
  free(text);
  return 0;
}
