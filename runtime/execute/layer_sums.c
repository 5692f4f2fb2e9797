/* layer_sums: sums over numbers, for layers.h. In f64, in lanes of their own, so that the result does
 * not depend on the machine's vectors. */
#include "runtime/execute/layers.h"
#include <math.h>
#include <string.h>

enum { LANES = 8, BLOCK = 1 << 12 };

typedef struct {
  double sum[LANES], squares[LANES];
  float most[LANES];
  uint32_t zeros[LANES], bad[LANES];
} Lanes;

static inline void add_lanes(Lanes *to, const float *values) {
  for (int k = 0; k < LANES; k++) {
    uint32_t bits;
    memcpy(&bits, &values[k], sizeof bits);
    uint32_t size_bits = bits & 0x7fffffffu, is_bad = size_bits >= 0x7f800000u;
    bits = is_bad ? 0 : bits;
    float x, size;
    memcpy(&x, &bits, sizeof x);
    size = fabsf(x);
    to->sum[k] += (double)x;
    to->squares[k] += (double)x * (double)x;
    to->most[k] = size > to->most[k] ? size : to->most[k];
    to->zeros[k] += size_bits == 0;
    to->bad[k] += is_bad;
  }
}

/* A block, whose counts fit 32 bits. */
static void add_block(LayerSums *sums, const float *values, int64_t count) {
  Lanes lanes = {0};
  int64_t whole = count / LANES * LANES;
  for (int64_t i = 0; i < whole; i += LANES) add_lanes(&lanes, values + i);
  if (whole < count) {
    float rest[LANES] = {0};
    memcpy(rest, values + whole, (size_t)(count - whole) * sizeof *rest);
    add_lanes(&lanes, rest);
    sums->zeros -= (double)(whole + LANES - count); /* those that only fill it */
  }
  for (int k = 0; k < LANES; k++) {
    sums->sum += lanes.sum[k];
    sums->squares += lanes.squares[k];
    sums->zeros += lanes.zeros[k];
    sums->bad += lanes.bad[k];
    if (lanes.most[k] > sums->most) sums->most = lanes.most[k];
  }
  sums->count += (double)count;
}

void layer_sums_add(LayerSums *sums, const float *values, int64_t count) {
  for (int64_t i = 0; i < count; i += BLOCK)
    add_block(sums, values + i, count - i < BLOCK ? count - i : BLOCK);
}

void layer_sums_join(LayerSums *sums, const LayerSums *more) {
  sums->count += more->count;
  sums->zeros += more->zeros;
  sums->bad += more->bad;
  sums->sum += more->sum;
  sums->squares += more->squares;
  if (more->most > sums->most) sums->most = more->most;
}

/* Zeros stay zeros, whatever the factor: of a batch in which nothing counts it is infinite. */
void layer_sums_scale(LayerSums *sums, double factor) {
  if (sums->most == 0) return;
  sums->sum *= factor;
  sums->squares *= factor * factor;
  sums->most *= fabs(factor);
}

double layer_norm_of(const LayerSums *sums) { return sqrt(sums->squares); }

static double finite_count(const LayerSums *sums) {
  double count = sums->count - sums->bad;
  return count > 0 ? count : 1;
}

double layer_rms(const LayerSums *sums) { return sqrt(sums->squares / finite_count(sums)); }

double layer_mean(const LayerSums *sums) { return sums->sum / finite_count(sums); }

double layer_deviation(const LayerSums *sums) {
  double mean = layer_mean(sums), variance = sums->squares / finite_count(sums) - mean * mean;
  return variance > 0 ? sqrt(variance) : 0;
}
