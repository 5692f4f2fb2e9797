/* sample: draws a token by its scores. The same arguments give the same token, on every machine
 * with the same exp. */
#ifndef FT_RUNTIME_SAMPLE_H
#define FT_RUNTIME_SAMPLE_H
#include <stdint.h>

typedef struct {
  double temperature; /* scores are divided by it; 0: always the likeliest */
  int64_t top_k;      /* among the k likeliest; 0: all */
  double top_p;       /* and among the likeliest that together have this probability; 1: all */
  uint64_t seed;
} SampleOptions;

/* `random` is uniform in [0, 1). `order` has room for `count`. Of tokens with equal scores the one
 * with the smaller number is likelier. Scores that are NaN are never drawn; -1 if all are. */
int64_t sample_draw(const SampleOptions *options, const float *score, int64_t count, double random,
                    int64_t *order);
/* Uniform in [0, 1): the n-th number of this seed. */
double sample_uniform(uint64_t seed, uint64_t n);
#endif
