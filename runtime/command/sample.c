/* sample: see sample.h. */
#include "runtime/command/sample.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

static const float *sorted_by; /* qsort has no context; one thread draws */
static int likelier(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  if (sorted_by[x] != sorted_by[y]) return sorted_by[x] > sorted_by[y] ? -1 : 1;
  return x < y ? -1 : x > y;
}

static int64_t likeliest(const float *score, int64_t count) {
  int64_t best = -1;
  for (int64_t i = 0; i < count; i++)
    if (!isnan(score[i]) && (best < 0 || score[i] > score[best])) best = i;
  return best;
}

int64_t sample_draw(const SampleOptions *options, const float *score, int64_t count, double random,
                    int64_t *order) {
  int64_t best = likeliest(score, count), kept = 0;
  if (best < 0 || options->temperature <= 0 || isinf(score[best])) return best;
  double most = score[best], total = 0, sum = 0;
  for (int64_t i = 0; i < count; i++)
    if (!isnan(score[i])) order[kept++] = i;
  sorted_by = score;
  bool is_limited = (options->top_k > 0 && options->top_k < kept) || options->top_p < 1;
  if (is_limited) qsort(order, (size_t)kept, sizeof *order, likelier); /* takes longest of all */
  if (options->top_k > 0 && options->top_k < kept) kept = options->top_k;
  for (int64_t i = 0; i < kept; i++) total += exp((score[order[i]] - most) / options->temperature);
  int64_t among = 0;
  while (among < kept && (among == 0 || sum < options->top_p * total))
    sum += exp((score[order[among++]] - most) / options->temperature);
  double left = random * sum;
  for (int64_t i = 0; i < among; i++) {
    left -= exp((score[order[i]] - most) / options->temperature);
    if (left < 0) return order[i];
  }
  return order[among - 1];
}

/* SplitMix64: Steele, Lea and Flood, 2014. */
double sample_uniform(uint64_t seed, uint64_t n) {
  uint64_t z = seed * 0xd1342543de82ef95u + (n + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}
