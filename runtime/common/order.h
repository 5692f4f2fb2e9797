/* order: in which order the samples of an epoch are visited, as a closed form: position -> sample
 * for any (seed, epoch) without a list, so that a run starts anywhere in O(1) and every worker and
 * rank computes its own part.
 * The permutation is a keyed Feistel network on the smallest power of two >= count, with cycle
 * walking: positions that land outside [0, count) are mapped again until they land inside
 * (Black and Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002: both constructions). */
#ifndef FT_RUNTIME_ORDER_H
#define FT_RUNTIME_ORDER_H
#include <stdbool.h>
#include <stdint.h>

/* "static" where the source is included to be compiled for a device (gpu/gather.c). */
#ifndef ORDER_LINKAGE
#define ORDER_LINKAGE
#endif

enum { ORDER_ROUNDS = 6 };

typedef struct {
  int64_t count; /* samples, >= 1 */
  bool shuffled;
  int high_bits, low_bits;
  uint64_t key[ORDER_ROUNDS];
} Order;

/* The order of one epoch. shuffle false: 0, 1, 2, … in every epoch. */
ORDER_LINKAGE Order order_new(int64_t count, bool shuffle, uint64_t seed, uint64_t epoch);
/* The sample at `position`, 0 <= position < count. */
ORDER_LINKAGE int64_t order_sample(const Order *order, int64_t position);
#endif
