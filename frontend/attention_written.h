/* attention_written: attention in a form for which there is no kernel, written as matrix products, a
 * softmax and pointwise work: the scores are stored, [B, H, T, S]. */
#ifndef FT_FRONTEND_ATTENTION_WRITTEN_H
#define FT_FRONTEND_ATTENTION_WRITTEN_H
#include "frontend/builder.h"

typedef struct {
  bool causal;
  double scale;
  double cap;     /* c: a score s becomes c * tanh(s / c); 0: none */
  Node *bias;     /* added after the cap; four dimensions, each 1 or that of the scores; NULL: none */
  double dropout; /* share of the softmax's results that are 0, the others scaled up */
} AttentionMore;

/* q[B,H,T,D], k[B,G,S,D], v[B,G,S,E], mask (NULL: none) in inputs -> [B,H,T,E]; rows that see
 * nothing are 0. NULL after an error. */
Node *attention_written(Builder *b, Node *const inputs[4], const AttentionMore *more, Loc loc);
#endif
