/* philox: a block of four random numbers of 32 bits, by Philox4x32-10 (Salmon et al., SC'11). The key is the seed; the
 * counter is the block's number, the step, and the stream, which tells apart what is drawn at one step. */
#ifndef FT_KERNELS_PHILOX_H
#define FT_KERNELS_PHILOX_H
#include <stdint.h>

static inline __attribute__((always_inline)) void philox_block(uint64_t seed, uint32_t step, uint32_t stream, uint64_t block, uint32_t bits[4]) {
  uint32_t a = (uint32_t)block, b = (uint32_t)(block >> 32), c = step, d = stream;
  uint32_t key_a = (uint32_t)seed, key_b = (uint32_t)(seed >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; round++) {
    uint64_t left = (uint64_t)a * 0xd2511f53u, right = (uint64_t)c * 0xcd9e8d57u;
    a = (uint32_t)(right >> 32) ^ b ^ key_a;
    b = (uint32_t)right;
    c = (uint32_t)(left >> 32) ^ d ^ key_b;
    d = (uint32_t)left;
    key_a += 0x9e3779b9u;
    key_b += 0xbb67ae85u;
  }
  bits[0] = a;
  bits[1] = b;
  bits[2] = c;
  bits[3] = d;
}
#endif
