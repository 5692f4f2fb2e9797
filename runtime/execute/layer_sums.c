/* layer_sums: sums over numbers, for layers.h. In f64, in lanes of their own, so that the result does
 * not depend on the machine's vectors. */
#include "runtime/execute/layers.h"
#include <math.h>
#include <string.h>

enum { LANES = 8, BLOCK = 1 << 12 };

/* A block, whose counts fit 32 bits. */
static void add_block(LayerSums *sums, const float *values, int64_t count) {
  double sum[LANES] = {0}, squares[LANES] = {0};
  float most[LANES] = {0};
  uint32_t zeros[LANES] = {0}, bad[LANES] = {0};
  for (int64_t i = 0; i < count; i += LANES) {
    float lane[LANES];
    int64_t left = count - i < LANES ? count - i : LANES;
    memset(lane, 0, sizeof lane);
    memcpy(lane, values + i, (size_t)left * sizeof *lane);
    for (int k = 0; k < LANES; k++) {
      uint32_t bits;
      memcpy(&bits, &lane[k], sizeof bits);
      uint32_t is_bad = (bits & 0x7f800000u) == 0x7f800000u;
      float x = is_bad ? 0 : lane[k], size = fabsf(x);
      sum[k] += (double)x;
      squares[k] += (double)x * (double)x;
      most[k] = size > most[k] ? size : most[k];
      zeros[k] += (bits & 0x7fffffffu) == 0 && k < left;
      bad[k] += is_bad;
    }
  }
  for (int k = 0; k < LANES; k++) {
    sums->sum += sum[k];
    sums->squares += squares[k];
    sums->zeros += zeros[k];
    sums->bad += bad[k];
    if (most[k] > sums->most) sums->most = most[k];
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
