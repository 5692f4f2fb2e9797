/* integers: what the attribute `integers` of a product promises, for the pass that sets it and the code
 * generator. */
#ifndef FT_PASSES_INTEGERS_H
#define FT_PASSES_INTEGERS_H
#include <stdbool.h>
#include <stdint.h>

enum { INTEGERS_MOST_DEPTH = 1 << 16 }; /* what is added up for a result */

/* Do numbers between these, and 0, go into 8 bits? */
static inline bool integers_fit_byte(int64_t low, int64_t high) {
  return low <= 0 && high >= 0 && (high <= 127 ? low >= -128 : low == 0 && high <= 255);
}

/* Are all sums of `depth` products of such numbers 32-bit numbers, and is there room for a row? */
static inline bool integers_suit(int64_t depth, const int64_t range[4]) {
  int64_t most[2];
  for (int i = 0; i < 2; i++) {
    int64_t low = range[2 * i], high = range[2 * i + 1];
    if (!integers_fit_byte(low, high)) return false;
    most[i] = -low > high ? -low : high;
  }
  return depth > 0 && depth <= INTEGERS_MOST_DEPTH && depth * most[0] * most[1] <= INT32_MAX;
}
#endif
