/* floor: what this machine can do at most, for the distance-to-floor column of bench/cpu/run.
 * Prints JSON: f32 rate of a large matrix product through OpenBLAS and of a register-only FMA loop
 * (GFLOP/s), bandwidth of a copy out of cache and within L2 (GB/s, bytes read plus bytes written),
 * with all threads. Medians of nine. */
#include <cblas-openblas.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 9 };

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median_seconds(void (*work)(void *), void *data) {
  double seconds[REPEATS];
  work(data);
  for (int i = 0; i < REPEATS; i++) {
    double start = omp_get_wtime();
    work(data);
    seconds[i] = omp_get_wtime() - start;
  }
  qsort(seconds, REPEATS, sizeof *seconds, ascending);
  return seconds[REPEATS / 2];
}

enum { N = 1536 };
static float *a, *b, *c;
static void product(void *unused) {
  (void)unused;
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, N, N, N, 1, a, N, b, N, 0, c, N);
}

typedef float Lanes __attribute__((vector_size(64)));
static float sink;
enum { CHAINS = 12, FMAS = 2000000 };
static void multiply_add(void *unused) {
  (void)unused;
  float total = 0;
#pragma omp parallel reduction(+ : total)
  {
    Lanes sum[CHAINS], x = {0}, y = {0};
    for (int i = 0; i < 16; i++) x[i] = 1.0f + 1e-7f * (float)i, y[i] = 1e-9f * (float)(i + 1);
    for (int k = 0; k < CHAINS; k++) sum[k] = x * (float)k; /* chains alike would be one chain */
    for (int i = 0; i < FMAS; i++)
      for (int k = 0; k < CHAINS; k++) sum[k] = sum[k] * x + y;
    for (int k = 0; k < CHAINS; k++) total += sum[k][0];
  }
  sink = total;
}

typedef struct {
  size_t bytes; /* per thread */
  int times;
} Copy;
static char *from, *to;
static void copy(void *data) {
  const Copy *job = data;
#pragma omp parallel
  {
    size_t at = (size_t)omp_get_thread_num() * job->bytes;
    for (int i = 0; i < job->times; i++) {
      memcpy(to + at, from + at, job->bytes);
      __asm__ volatile("" ::: "memory");
    }
  }
}

int main(void) {
  int threads = omp_get_max_threads();
  size_t large = (size_t)256 << 20;
  a = malloc(sizeof(float) * N * N), b = malloc(sizeof(float) * N * N),
  c = malloc(sizeof(float) * N * N);
  from = malloc(large * (size_t)threads), to = malloc(large * (size_t)threads);
  if (!a || !b || !c || !from || !to) return fputs("out of memory\n", stderr), 3;
  for (int i = 0; i < N * N; i++) a[i] = (float)(i % 17) / 17, b[i] = (float)(i % 13) / 13;
  memset(from, 1, large * (size_t)threads), memset(to, 2, large * (size_t)threads);
  double gemm = 2.0 * N * N * N / median_seconds(product, NULL);
  double fma = 2.0 * 16 * CHAINS * (double)FMAS * threads / median_seconds(multiply_add, NULL);
  Copy out = {large, 1}, in = {200 << 10, 2000};
  double memory = 2.0 * (double)large * threads / median_seconds(copy, &out);
  double cache = 2.0 * (double)in.bytes * in.times * threads / median_seconds(copy, &in);
  printf("{\"threads\": %d, \"gemm_gflops\": %.1f, \"fma_gflops\": %.1f, \"copy_gbs\": %.1f, "
         "\"l2_copy_gbs\": %.1f}\n",
         threads, gemm / 1e9, fma / 1e9, memory / 1e9, cache / 1e9);
}
