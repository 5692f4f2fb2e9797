/* floor: what this machine can do at most, for the distance-to-floor column of bench/cpu/run.
 * Prints JSON: f32 rate of a large matrix product through OpenBLAS and of a register-only FMA loop
 * (GFLOP/s), the same for products of bf16 by AMX or vdpbf16ps, if that is more, bandwidth of a copy out of cache and within L2 (GB/s, bytes read plus bytes written),
 * with all threads. Medians of nine. */
#include <cblas-openblas.h>
#include <immintrin.h>
#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

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

/* What a register holds: all sums have to be in registers. */
#ifdef __AVX512F__
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif
typedef float Lanes __attribute__((vector_size(4 * LANES)));
static float sink;
enum { CHAINS = 12, FMAS = 2000000 };
static void multiply_add(void *unused) {
  (void)unused;
  float total = 0;
#pragma omp parallel reduction(+ : total)
  {
    Lanes sum[CHAINS], x = {0}, y = {0};
    for (int i = 0; i < LANES; i++) x[i] = 1.0f + 1e-7f * (float)i, y[i] = 1e-9f * (float)(i + 1);
    for (int k = 0; k < CHAINS; k++) sum[k] = x * (float)k; /* chains alike would be one chain */
    for (int i = 0; i < FMAS; i++)
      for (int k = 0; k < CHAINS; k++) sum[k] = sum[k] * x + y;
    for (int k = 0; k < CHAINS; k++) total += sum[k][0];
  }
  sink = total;
}

/* Floating-point operations of one thread, by what -march=native has for bf16: 0 if it has nothing. */
#ifdef __AMX_BF16__
enum { TILE_STEPS = 200000 };
static bool may_use_tiles(void) { return !syscall(SYS_arch_prctl, 0x1023, 18); }
static void multiply_bf16(void *unused) {
  (void)unused;
#pragma omp parallel
  {
    struct {
      unsigned char palette, start, reserved[14];
      unsigned short row_bytes[16];
      unsigned char rows[16];
    } tiles = {.palette = 1};
    for (int i = 0; i < 8; i++) tiles.row_bytes[i] = 64, tiles.rows[i] = 16;
    __asm__ volatile("" ::"r"(&tiles) : "memory"); /* gcc 12 believes that only 8 bytes are read */
    _tile_loadconfig(&tiles);
    for (int i = 0; i < TILE_STEPS; i++) {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
  }
}
static double bf16_operations(void) { return may_use_tiles() ? 4.0 * 16 * 16 * 32 * 2 * TILE_STEPS : 0; }
#elif defined __AVX512BF16__
static void multiply_bf16(void *unused) {
  (void)unused;
  float total = 0;
#pragma omp parallel reduction(+ : total)
  {
    __m512 sum[CHAINS];
    __m512bh x = (__m512bh)_mm512_set1_epi32(0x3f803f80);
#pragma GCC unroll 12
    for (int k = 0; k < CHAINS; k++) sum[k] = _mm512_set1_ps((float)k);
    for (int i = 0; i < FMAS; i++) /* unrolled, so that the sums are in registers */
#pragma GCC unroll 12
      for (int k = 0; k < CHAINS; k++) {
        sum[k] = _mm512_dpbf16_ps(sum[k], x, x);
        __asm__ volatile("" : "+v"(sum[k]));
      }
#pragma GCC unroll 12
    for (int k = 0; k < CHAINS; k++) total += _mm512_cvtss_f32(sum[k]);
  }
  sink = total;
}
static double bf16_operations(void) { return 64.0 * CHAINS * FMAS; }
#else
static void multiply_bf16(void *unused) { (void)unused; }
static double bf16_operations(void) { return 0; }
#endif

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
  double fma = 2.0 * LANES * CHAINS * (double)FMAS * threads / median_seconds(multiply_add, NULL);
  double bf16 = bf16_operations() * threads;
  if (bf16) bf16 /= median_seconds(multiply_bf16, NULL);
  Copy out = {large, 1}, in = {200 << 10, 2000};
  double memory = 2.0 * (double)large * threads / median_seconds(copy, &out);
  double cache = 2.0 * (double)in.bytes * in.times * threads / median_seconds(copy, &in);
  printf("{\"threads\": %d, \"gemm_gflops\": %.1f, \"fma_gflops\": %.1f, \"bf16_gflops\": %.1f, "
         "\"copy_gbs\": %.1f, \"l2_copy_gbs\": %.1f}\n",
         threads, gemm / 1e9, fma / 1e9, (bf16 > fma ? bf16 : fma) / 1e9, memory / 1e9, cache / 1e9);
}
