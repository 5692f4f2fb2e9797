/* bench/integers/run: what rates.py asks of ft through ft.h, and what this processor does at best. */
#include "runtime/ft.h"
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* On one thread; NULL, and the reason on stderr. */
void *rates_open(const char *path, const char *weights) {
  FtModel *model;
  FtOptions options = {.threads = 1, .uses = FT_PREDICT};
  if (!ft_open_with(path, &options, &model) && !ft_init(model, 1) && !ft_load_weights(model, weights))
    return model;
  fprintf(stderr, "%s: %s\n", path, ft_error());
  return NULL;
}

/* Seconds of `calls` predictions of one batch, whose results are read once. */
double rates_predict(void *model, const void *images, int calls, float *logits, size_t bytes) {
  const void *inputs[] = {images, NULL};
  double start = seconds();
  for (int i = 0; i < calls; i++)
    if (ft_predict(model, inputs)) return -1;
  double taken = seconds() - start;
  return ft_read_output(model, "logits", logits, bytes) ? -1 : taken;
}

/* Multiplications of bytes, each with its addition, in a second: vpdpbusd on registers. 0: there is none. */
__attribute__((target("avx512f,avx512vnni"))) double rates_vnni(void) {
  enum { SUMS = 16, ROUNDS = 20000000 };
  if (!__builtin_cpu_supports("avx512vnni")) return 0;
  __m512i sum[SUMS], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-5);
#pragma GCC unroll 16
  for (int i = 0; i < SUMS; i++) sum[i] = _mm512_set1_epi32(i);
  double start = seconds();
  for (int r = 0; r < ROUNDS; r++)
#pragma GCC unroll 16
    for (int i = 0; i < SUMS; i++) {
      sum[i] = _mm512_dpbusd_epi32(sum[i], a, b);
      __asm__ volatile("" : "+v"(sum[i]));
    }
  double taken = seconds() - start;
#pragma GCC unroll 16
  for (int i = 1; i < SUMS; i++) sum[0] = _mm512_add_epi32(sum[0], sum[i]);
  return taken > 0 && _mm512_reduce_add_epi32(sum[0]) ? (double)SUMS * ROUNDS * 64 / taken : 0;
}
