/* bpe under any bytes: the input up to the first 0 byte is a vocab.json (a tokenizer.json if
 * another 0 follows at once), then merges.txt up to the next, then a text. Whatever is taken as a
 * tokenizer must give the text back, byte for byte. */
#include "runtime/text/bpe.h"
#include <stdlib.h>
#include <string.h>

static size_t part(const char *at, size_t left) {
  const char *end = memchr(at, 0, left);
  return end ? (size_t)(end - at) : left;
}

static void check(Bpe *bpe, const char *text, size_t count) {
  BpeTokens tokens = {0};
  if (bpe_encode(bpe, text, count, &tokens) != STATUS_OK) abort();
  size_t at = 0;
  for (size_t i = 0; i < tokens.count; i++) {
    size_t bytes;
    const char *token = bpe_bytes(bpe, tokens.at[i], &bytes);
    if (!bytes || bytes > count - at || memcmp(token, text + at, bytes) != 0) abort();
    at += bytes;
  }
  if (at != count) abort();
  free(tokens.at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *json = (const char *)data;
  size_t first = part(json, size), left = size - first - (first < size);
  const char *merges = json + size - left;
  size_t second = part(merges, left);
  const char *text = merges + second + (second < left);
  Bpe *bpe = NULL;
  Status status = bpe_parse(json, first, second ? merges : NULL, second, &bpe);
  if (status == STATUS_OK) check(bpe, text, size - (size_t)(text - json));
  bpe_free(status == STATUS_OK ? bpe : NULL);
  return 0;
}
