/* generator: continues texts: token after token is drawn by the model's scores of what follows.
 * Several texts advance side by side, one token at a time: while the longer prompt of one is still
 * being read, another may be generating already. Each gets the tokens that it would get alone,
 * except for the rounding of products. */
#ifndef FT_RUNTIME_GENERATOR_H
#define FT_RUNTIME_GENERATOR_H
#include "runtime/execute/decoder.h"
#include "runtime/command/sample.h"

typedef struct Generator Generator;

/* The Exec must have the graphs of decoder_graphs, outlive it, and run nothing else between
 * generator_begin and the last generator_next. */
STATUS_CHECKED Status generator_new(Exec *exec, bool is_windowed, Generator **out);
void generator_free(Generator *generator);          /* NULL is fine */
int64_t generator_most(const Generator *generator); /* texts at once */

/* Forgets all texts. is_same: the next texts begin as these do, and nothing else has run: what they
 * share is not read again. */
void generator_clear(Generator *generator, bool is_same);
/* The same texts are read again: weights have changed, or other graphs have run. */
void generator_forget(Generator *generator);
/* Adds a text of count > 0 tokens, which must be smaller than the vocabulary; seed: of its draws.
 */
STATUS_CHECKED Status generator_begin(Generator *generator, const int64_t *prompt, int64_t count,
                                      uint64_t seed);
/* Adds a token to a text, as if it had been drawn. */
STATUS_CHECKED Status generator_append(Generator *generator, int64_t text, int64_t token);
/* No token of this text is wanted any more. */
void generator_end(Generator *generator, int64_t text);
/* The scores of what follows the shortest of the texts that go on. */
STATUS_CHECKED Status generator_scores(Generator *generator, const float **score);
/* Draws one more token for each of the shortest texts; *drawn: for how many, 0 if all have ended.
 * The seed of `sample` is not read: each text has its own. */
STATUS_CHECKED Status generator_next(Generator *generator, const SampleOptions *sample,
                                     int64_t *drawn);
/* A text as far as it goes; valid until it grows. */
const int64_t *generator_text(const Generator *generator, int64_t text, int64_t *count);
int64_t generator_count(const Generator *generator); /* texts */
int64_t generator_vocabulary(const Generator *generator);
#endif
