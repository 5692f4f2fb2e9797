/* generate: goes on with a text: the eval graph gives scores for the token behind each position,
 * one token is drawn from the last ones, and so on. The model must take tokens i32[B,T] and have an
 * output of scores f32[B,T,V]. Longer texts are seen through a window of their last T tokens. */
#ifndef FT_RUNTIME_GENERATE_H
#define FT_RUNTIME_GENERATE_H
#include "runtime/train.h"

typedef struct {
  RunOptions run;
  const char *weights;
  const char *prompt;        /* bytes, for models of bytes (V = 256) */
  const char *prompt_tokens; /* or numbers, "464 3290" or "464,3290" */
  int64_t tokens;            /* to generate */
  double temperature;        /* 0: always the likeliest */
  int64_t top_k;             /* draw among the k likeliest; 0: all */
  double top_p; /* and among the likeliest that together have this probability; 1: all */
  uint64_t seed;
} GenerateOptions;
/* Prints the prompt and what follows, each token as soon as it is there. */
STATUS_CHECKED Status generate_run(const GenerateOptions *options);

/* Draws a token by its scores; `random` is uniform in [0, 1). `order` has room for `count`. The
 * same arguments give the same token. Scores that are NaN are never drawn; -1 if all are. */
int64_t generate_draw(const float *score, int64_t count, double temperature, int64_t top_k,
                      double top_p, double random, int64_t *order);
#endif
