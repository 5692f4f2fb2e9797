/* random: the numbers that samplers draw. Each proposal has a stream of its own, by (seed, trial, purpose), so that it is
 * the same whoever makes it. */
#ifndef FT_RUNTIME_TUNE_RANDOM_H
#define FT_RUNTIME_TUNE_RANDOM_H
#include <stdint.h>

typedef struct {
  uint32_t key[2], counter[4], word[4];
  int left; /* of word */
  double spare;
  int has_spare;
} Random;

Random random_new(uint64_t seed, uint64_t trial, uint32_t purpose);
uint32_t random_word(Random *random);
double random_unit(Random *random);   /* in (0, 1) */
double random_normal(Random *random); /* mean 0, variance 1 */
/* A normal number of this mean and deviation that lies in [low, high]: by inversion, in its lower or its upper tail. */
double random_normal_within(Random *random, double mean, double deviation, double low, double high);
int random_below(Random *random, int count);
/* The logarithm of the normal distribution's mass between a and b (a < b), exact in both tails. */
double normal_log_mass(double a, double b);
#endif
