/* tokenize: text files to a file of tokens that the language's tokens(...) reads. */
#ifndef FT_RUNTIME_TOKENIZE_H
#define FT_RUNTIME_TOKENIZE_H
#include "runtime/common/status.h"
#include <stdbool.h>

typedef struct {
  const char *tokenizer;    /* runtime/text/bpe.h */
  const char *const *texts; /* each is a document, and begins with <|endoftext|> */
  int text_count;
  const char *member; /* not NULL: each is JSON lines with documents, this member, that end with it */
  const char *output; /* .bin; NULL: numbers to standard output, texts as they are */
  bool no_header;     /* without the 1024 bytes that llm.c writes in front */
} TokenizeOptions;

/* u16 if all tokens of the tokenizer fit, else u32. */
STATUS_CHECKED Status tokenize_run(const TokenizeOptions *options);
#endif
