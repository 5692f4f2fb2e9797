/* generate: `ftrun generate`: goes on with texts by runtime/command/generator.h and prints them.
 * With a tokenizer a text ends where the model draws <|endoftext|>. */
#ifndef FT_RUNTIME_GENERATE_H
#define FT_RUNTIME_GENERATE_H
#include "runtime/command/sample.h"
#include "runtime/command/train.h"

typedef struct {
  RunOptions run;
  const char *weights;
  const char *const *prompt; /* texts, for models of bytes (V = 256), or with a tokenizer; */
  int prompt_count;          /* or numbers, "464 3290" or "464,3290": prompts_are_numbers */
  bool prompts_are_numbers;
  int64_t samples;       /* of each prompt, with seeds one after the other */
  const char *tokenizer; /* runtime/text/bpe.h: a folder or file; NULL: none */
  int64_t tokens;        /* to generate, for each */
  SampleOptions sample;
  bool no_cache; /* evaluate the whole window for every token */
} GenerateOptions;
/* Prints the prompt and what follows, as text, or as numbers if prompts are numbers and there is no
 * tokenizer: of a single text each token as soon as it is there; else text by text under headings,
 * numbers a line for each. */
STATUS_CHECKED Status generate_run(const GenerateOptions *options);
#endif
