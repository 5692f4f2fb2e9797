/* text_set: a text as a set of samples (sample_set.h): rows of documents packed or padded, labels, masked
 * tokens, as plan/text_form.h has them. What a row is depends on the data alone, what of it is masked on
 * seed, epoch and row. */
#ifndef FT_RUNTIME_TEXT_SET_H
#define FT_RUNTIME_TEXT_SET_H
#include "plan/text_form.h"
#include "runtime/data/jsonl.h"
#include "runtime/data/sample_set.h"
#include "runtime/data/sample_value.h"
#include "runtime/data/source_column.h"
#include "runtime/data/text_pack.h"

typedef struct {
  SampleSet set;
  const char *label; /* the split */
  TextForm form;
  int64_t width; /* tokens of a row */
  int64_t end;   /* the token that ends a document, which is never masked; -1: none */
  /* Where the tokens are: in memory, or in files. */
  JsonlTexts texts; /* of other files only where documents end */
  Column column;
  Element element; /* of tokens in memory */
  int64_t tokens;
  TextPack pack;
  SampleValue *values; /* by input */
  char **paths;
  Arena *arena;
} TextSet;

/* `count` tokens from `at` on, which are there. */
STATUS_CHECKED Status text_set_tokens(const TextSet *text, int64_t at, int64_t count, int64_t *out);
/* What an input gets of row `index`: `width` numbers, or one. */
STATUS_CHECKED Status text_set_part(const TextSet *text, int64_t index, TextPart part,
                                    uint64_t seed, uint64_t epoch, int64_t *out);
#endif
