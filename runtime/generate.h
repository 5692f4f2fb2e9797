/* generate: goes on with a text: one token after the other is drawn by the model's scores of what
 * follows (runtime/decoder.h says of how much text) and shown at once. With a tokenizer the text
 * ends where the model draws <|endoftext|>. */
#ifndef FT_RUNTIME_GENERATE_H
#define FT_RUNTIME_GENERATE_H
#include "runtime/sample.h"
#include "runtime/train.h"

typedef struct {
  RunOptions run;
  const char *weights;
  const char *prompt;        /* for models of bytes (V = 256), or with a tokenizer */
  const char *prompt_tokens; /* or numbers, "464 3290" or "464,3290" */
  const char *tokenizer;     /* runtime/bpe.h: a folder or file; NULL: none */
  int64_t tokens;            /* to generate */
  SampleOptions sample;
  bool no_cache; /* evaluate the whole window for every token */
} GenerateOptions;
/* Prints the prompt and what follows, each token as soon as it is there: as text, or as numbers if
 * the prompt is numbers and there is no tokenizer. */
STATUS_CHECKED Status generate_run(const GenerateOptions *options);
#endif
