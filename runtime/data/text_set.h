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

/* What files of JSON lines hold, tokenized (once.h). */
typedef struct {
  JsonlTexts texts;
  Element element;
  int64_t end;
  Arena *arena; /* of names of classes */
} TextLines;

typedef struct {
  SampleSet set;
  const char *label; /* the split */
  TextForm form;
  int64_t width; /* tokens of a row */
  int64_t end;   /* the token that ends a document, which is never masked; -1: none */
  /* Where the tokens are: in memory, which splits share, or in files. */
  TextLines *lines; /* NULL: files of tokens or bytes */
  JsonlTexts
      texts; /* those of `lines`; of other files only where documents end, and the set's own */
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
