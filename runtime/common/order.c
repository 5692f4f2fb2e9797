/* order: see order.h. Invariant: for a fixed Order, order_sample is a bijection on [0, count):
 * each round adds (xor) to one half a function of the other half only, which can be undone. */
#include "runtime/common/order.h"

/* The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): every input bit reaches every
 * output bit. */
static uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

Order order_new(int64_t count, bool shuffle, uint64_t seed, uint64_t epoch) {
  Order order = {.count = count, .shuffled = shuffle && count > 1};
  /* at least 6 bits: halves of a bit or two mix too little */
  int bits = 6;
  while (bits < 62 && ((int64_t)1 << bits) < count) bits++;
  order.high_bits = bits / 2;
  order.low_bits = bits - order.high_bits;
  uint64_t state = mix(mix(seed) ^ epoch);
  for (int round = 0; round < ORDER_ROUNDS; round++) order.key[round] = state = mix(state);
  return order;
}

int64_t order_sample(const Order *order, int64_t position) {
  if (!order->shuffled) return position;
  uint64_t low_mask = ((uint64_t)1 << order->low_bits) - 1;
  uint64_t high_mask = ((uint64_t)1 << order->high_bits) - 1;
  uint64_t value = (uint64_t)position;
  do {
    uint64_t low = value & low_mask, high = value >> order->low_bits;
    for (int round = 0; round < ORDER_ROUNDS; round += 2) {
      high ^= mix(low ^ order->key[round]) & high_mask;
      low ^= mix(high ^ order->key[round + 1]) & low_mask;
    }
    value = high << order->low_bits | low;
  } while (value >= (uint64_t)order->count);
  return (int64_t)value;
}
