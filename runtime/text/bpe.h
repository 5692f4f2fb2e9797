/* bpe: GPT-2's tokenizer: byte-level byte pair encoding (Sennrich et al. 2016, Radford et al. 2019)
 * with the files that Hugging Face and OpenAI give away: vocab.json (or encoder.json) and
 * merges.txt (or vocab.bpe), or tokenizer.json. Every text, UTF-8 or not, has tokens, whose bytes
 * are the text. */
#ifndef FT_RUNTIME_BPE_H
#define FT_RUNTIME_BPE_H
#include "runtime/common/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct Bpe Bpe;

/* `path`: a folder with those files, a tokenizer.json, or a vocab.json with merges.txt beside it.
 */
STATUS_CHECKED Status bpe_open(const char *path, Bpe **out);
/* The same from memory: `merges` NULL: `json` is a tokenizer.json, else a vocab.json. Texts need
 * not end in NUL. The failure's text goes on after a file's name. */
STATUS_CHECKED Status bpe_parse(const char *json, size_t json_bytes, const char *merges,
                                size_t merges_bytes, Bpe **out);
void bpe_free(Bpe *bpe); /* NULL is fine */

int64_t bpe_count(const Bpe *bpe);       /* the largest token + 1 */
int64_t bpe_end_of_text(const Bpe *bpe); /* <|endoftext|>, or -1 */
/* A token's bytes; 0 of them for a number that is no token. */
const char *bpe_bytes(const Bpe *bpe, int64_t token, size_t *count);

typedef struct {
  int64_t *at;
  size_t count, capacity;
} BpeTokens;
STATUS_CHECKED Status bpe_tokens_add(BpeTokens *out, int64_t token);
/* Appends the tokens of a text. Added tokens, <|endoftext|> among them, are found in it as such. */
STATUS_CHECKED Status bpe_encode(Bpe *bpe, const char *text, size_t count, BpeTokens *out);
#endif
