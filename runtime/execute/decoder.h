/* decoder: the scores of the tokens behind a few texts of one length, by a model of tokens
 * i32|i64[B,T] with an output of scores f32[B,T,V]. With the programme "generate" of the
 * plan, keys and values of the text so far are remembered and each token costs one position;
 * without them, or with is_windowed, each costs an evaluation of the whole window. As many texts go
 * on at once as the graph has room for: generate.batch, or of windows train.batch.
 *
 * The model sees at most T tokens. When a text outgrows that, the oldest half of the window is let
 * go, the rest is read again, and so on: of `count` tokens it sees the last decoder_seen(count),
 * from T - T/2 + 1 to T. Both ways see the same. */
#ifndef FT_RUNTIME_DECODER_H
#define FT_RUNTIME_DECODER_H
#include "runtime/execute/exec.h"

typedef struct Decoder Decoder;

/* What generation needs of a plan; a sentence if it has not got it. */
STATUS_CHECKED Status decoder_check(const Plan *plan);
/* The programme that it will run, for ExecOptions.only. */
const char *decoder_programme(const Plan *plan, bool is_windowed);
/* The Exec must outlive it and run nothing else meanwhile. */
STATUS_CHECKED Status decoder_new(Exec *exec, bool is_windowed, Decoder **out);
void decoder_free(Decoder *decoder); /* NULL is fine */
int64_t decoder_vocabulary(const Plan *plan);
int64_t decoder_texts(const Decoder *decoder); /* at once */
int64_t decoder_seen(int64_t window, int64_t count);
/* Of the token behind text[i][0 .. count), count > 0, into score + i * V, for `texts` texts, from 1
 * to decoder_texts. They are those of the call before with more tokens behind them, or after
 * decoder_restart any whose first `same` tokens are those of before. */
STATUS_CHECKED Status decoder_scores(Decoder *decoder, const int64_t *const *text, int64_t texts,
                                     int64_t count, float *score);
void decoder_restart(Decoder *decoder, int64_t same);
#endif
