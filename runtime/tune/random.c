/* random: see random.h. */
#define _GNU_SOURCE /* M_PI */
#include "runtime/tune/random.h"
#include "runtime/common/philox.h"
#include <math.h>

Random random_new(uint64_t seed, uint64_t trial, uint32_t purpose) {
  return (Random){.key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
                  .counter = {0, (uint32_t)trial, (uint32_t)(trial >> 32), purpose}};
}

uint32_t random_word(Random *random) {
  if (!random->left) {
    philox(random->key, random->counter, random->word);
    random->counter[0]++;
    random->left = 4;
  }
  return random->word[--random->left];
}

double random_unit(Random *random) {
  uint64_t high = random_word(random), low = random_word(random);
  return ((double)((high << 20) ^ (low >> 12)) + 0.5) * 0x1p-52;
}

/* Box and Muller, 1958. */
double random_normal(Random *random) {
  if (random->has_spare) {
    random->has_spare = 0;
    return random->spare;
  }
  double radius = sqrt(-2 * log(random_unit(random))), angle = 2 * M_PI * random_unit(random);
  random->spare = radius * sin(angle);
  random->has_spare = 1;
  return radius * cos(angle);
}

int random_below(Random *random, int count) {
  int value = (int)(random_unit(random) * count);
  return value < count ? value : count - 1;
}

/* log of the mass below x. */
static double normal_log_below(double x) {
  if (x > -10) return log(0.5 * erfc(-x * M_SQRT1_2));
  double square =
      1 / (x * x); /* the asymptotic series, of which four terms are exact to 1e-8 here */
  return -0.5 * x * x - log(-x) - 0.5 * log(2 * M_PI) +
         log1p(-square * (1 - 3 * square * (1 - 5 * square)));
}

double normal_log_mass(double a, double b) {
  if (a > 0) { /* the upper tail is the lower one of the mirror image */
    double mirrored = -a;
    a = -b;
    b = mirrored;
  }
  if (b > 0) return log(0.5 * (erf(b * M_SQRT1_2) - erf(a * M_SQRT1_2)));
  double below_b = normal_log_below(b), below_a = normal_log_below(a);
  return below_b + log1p(-exp(below_a - below_b));
}

/* The x that this much of the mass lies below, by bisection of a monotonous function: some 60 steps, as exact as the
 * number's own digits allow. */
double random_normal_within(Random *random, double mean, double deviation, double low,
                            double high) {
  double a = (low - mean) / deviation, b = (high - mean) / deviation;
  if (!(a < b)) return low;
  double whole = normal_log_mass(a, b), wanted = log(random_unit(random));
  double from = a, to = b;
  for (int i = 0; i < 60 && from < to; i++) {
    double middle = 0.5 * (from + to);
    if (middle <= from || middle >= to) break;
    if (normal_log_mass(a, middle) - whole < wanted)
      from = middle;
    else
      to = middle;
  }
  double value = mean + deviation * 0.5 * (from + to);
  return fmin(fmax(value, low), high);
}
