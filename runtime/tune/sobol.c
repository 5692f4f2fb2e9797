/* sobol: a sequence of low discrepancy (Sobol 1967) with the direction numbers of Joe and Kuo 2008 ("Constructing Sobol
 * sequences with better two-dimensional projections", their table for criterion D6), scrambled as Owen has it by hashes (Burley
 * 2020, "Practical hash-based Owen scrambling"). */
#include "runtime/tune/sampler_private.h"

/* Of each dimension but the first: a primitive polynomial over the field of two elements, a bit for each coefficient, and the first
 * direction numbers. */
static const struct {
  uint16_t polynomial;
  uint16_t first[9];
} directions[SOBOL_MOST - 1] = {
    {3, {1}},
    {7, {1, 3}},
    {11, {1, 3, 1}},
    {13, {1, 1, 1}},
    {19, {1, 1, 3, 3}},
    {25, {1, 3, 5, 13}},
    {37, {1, 1, 5, 5, 17}},
    {41, {1, 1, 5, 5, 5}},
    {47, {1, 1, 7, 11, 19}},
    {55, {1, 1, 5, 1, 1}},
    {59, {1, 1, 1, 3, 11}},
    {61, {1, 3, 5, 5, 31}},
    {67, {1, 3, 3, 9, 7, 49}},
    {91, {1, 1, 1, 15, 21, 21}},
    {97, {1, 3, 1, 13, 27, 49}},
    {103, {1, 1, 1, 15, 7, 5}},
    {109, {1, 3, 1, 15, 13, 25}},
    {115, {1, 1, 5, 5, 19, 61}},
    {131, {1, 3, 7, 11, 23, 15, 103}},
    {137, {1, 3, 7, 13, 13, 15, 69}},
    {143, {1, 1, 3, 13, 7, 35, 63}},
    {145, {1, 3, 5, 9, 1, 25, 53}},
    {157, {1, 3, 1, 13, 9, 35, 107}},
    {167, {1, 3, 1, 5, 27, 61, 31}},
    {171, {1, 1, 5, 11, 19, 41, 61}},
    {185, {1, 3, 5, 3, 3, 13, 69}},
    {191, {1, 1, 7, 13, 1, 19, 1}},
    {193, {1, 3, 7, 5, 13, 19, 59}},
    {203, {1, 1, 3, 9, 25, 29, 41}},
    {211, {1, 3, 5, 13, 23, 1, 55}},
    {213, {1, 3, 7, 3, 13, 59, 17}},
    {229, {1, 3, 1, 3, 5, 53, 69}},
    {239, {1, 1, 5, 5, 23, 33, 13}},
    {241, {1, 1, 7, 7, 1, 61, 123}},
    {247, {1, 1, 7, 9, 13, 61, 49}},
    {253, {1, 3, 3, 5, 3, 55, 33}},
    {285, {1, 3, 1, 15, 31, 13, 49, 245}},
    {299, {1, 3, 5, 15, 31, 59, 63, 97}},
    {301, {1, 3, 1, 11, 11, 11, 77, 249}},
    {333, {1, 3, 1, 11, 27, 43, 71, 9}},
    {351, {1, 1, 7, 15, 21, 11, 81, 45}},
    {355, {1, 3, 7, 3, 25, 31, 65, 79}},
    {357, {1, 3, 1, 1, 19, 11, 3, 205}},
    {361, {1, 1, 5, 9, 19, 21, 29, 157}},
    {369, {1, 3, 7, 11, 1, 33, 89, 185}},
    {391, {1, 3, 3, 3, 15, 9, 79, 71}},
    {397, {1, 3, 7, 11, 15, 39, 119, 27}},
    {425, {1, 1, 3, 1, 11, 31, 97, 225}},
    {451, {1, 1, 1, 3, 23, 43, 57, 177}},
    {463, {1, 3, 7, 7, 17, 17, 37, 71}},
    {487, {1, 3, 1, 5, 27, 63, 123, 213}},
    {501, {1, 1, 3, 5, 11, 43, 53, 133}},
    {529, {1, 3, 5, 5, 29, 17, 47, 173, 479}},
    {539, {1, 3, 3, 11, 3, 1, 109, 9, 69}},
    {545, {1, 1, 1, 5, 17, 39, 23, 5, 343}},
    {557, {1, 3, 1, 5, 25, 15, 31, 103, 499}},
    {563, {1, 1, 1, 11, 11, 17, 63, 105, 183}},
    {601, {1, 1, 5, 11, 9, 29, 97, 231, 363}},
    {607, {1, 1, 5, 15, 19, 45, 41, 7, 383}},
    {617, {1, 3, 7, 7, 31, 19, 83, 137, 221}},
    {623, {1, 1, 1, 3, 23, 15, 111, 223, 83}},
    {631, {1, 1, 5, 13, 31, 15, 55, 25, 161}},
    {637, {1, 1, 3, 13, 25, 47, 39, 87, 257}},
};

static uint32_t reverse_bits(uint32_t x) {
  uint32_t out = 0;
  for (int i = 0; i < 32; i++) out |= (x >> i & 1) << (31 - i);
  return out;
}

/* A bijection of 32 bits in which each bit depends on itself and those below (Laine and Karras 2011, with Burley's
 * constants), between two reversals: the bits above. */
static uint32_t scramble(uint32_t x, uint32_t seed) {
  x = reverse_bits(x);
  x ^= x * 0x3d20adea;
  x += seed;
  x *= (seed >> 16) | 1;
  x ^= x * 0x05526c56;
  x ^= x * 0x53a22864;
  return reverse_bits(x);
}

static uint32_t mix_seeds(uint32_t a, uint32_t b) {
  uint64_t x = ((uint64_t)a << 32 | b) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9u;
  return (uint32_t)(x >> 32);
}

void sobol_prepare(SobolTable *table) {
  for (int d = 0; d < SOBOL_MOST; d++) {
    uint32_t *v = table->direction[d];
    int polynomial = d ? directions[d - 1].polynomial : 1,
        degree = 31 - __builtin_clz((unsigned)polynomial);
    for (int i = 0; i < 32; i++) {
      if (d == 0) {
        v[i] = (uint32_t)1 << (31 - i);
      } else if (i < degree) {
        v[i] = (uint32_t)directions[d - 1].first[i] << (31 - i);
      } else {
        v[i] = v[i - degree] ^ v[i - degree] >> degree;
        for (int k = 1; k < degree; k++)
          if (polynomial >> (degree - k) & 1) v[i] ^= v[i - k];
      }
    }
  }
}

void sobol_point(const SobolTable *table, int dims, uint64_t seed, int64_t number, double *unit) {
  uint32_t base = mix_seeds((uint32_t)seed, (uint32_t)(seed >> 32));
  /* aligned blocks of the sequence stay aligned blocks */
  uint32_t order = scramble((uint32_t)number, mix_seeds(base, 0xffff));
  for (int d = 0; d < dims; d++) {
    uint32_t x = 0;
    for (int i = 0; i < 32; i++) x ^= table->direction[d][i] & -(order >> i & 1);
    unit[d] = ((double)scramble(x, mix_seeds(base, (uint32_t)d)) + 0.5) * 0x1p-32;
  }
}
