/* gemm: how fast this machine multiplies the matrices that our benchmarks have: OpenBLAS, oneDNN (sgemm, the matmul
 * primitive, and that with weights that it reordered beforehand), MKL where there is one, and our own
 * kernels/gemm_x86.c, beside the rate of multiply-adds on registers. Then oneDNN's matmul, MKL and ours of operands in
 * bf16, with results in f32. GFLOP/s.
 *
 * Usage: gemm THREADS [SHAPE...]. MKL is $FT_MKL, a libmkl_rt.so (PyPI's package mkl has one).
 * The clock of a shared machine moves by half within seconds; so the contenders take turns of a millisecond, and each
 * number is the median of the turns. The last columns are medians of the ratios within a round: to the better
 * of the peers that get the operands as we do, and to the multiply-adds.
 * Each product runs warm: in a training step, operands were just written. */
#include <cblas-openblas.h>
#include <dlfcn.h>
#include <math.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* bench/gemm/run describes each shape of shapes.inc to kernels/gemm_x86.c */
typedef void Kernel(void *const *args, int64_t begin, int64_t end);
#define SHAPE(NAME, M, N, K, TA, TB)                                                               \
  Kernel gemm_##NAME##_0, gemm_##NAME##_1, gemm_pack_##NAME##_0, gemm_pack_##NAME##_1;             \
  int64_t gemm_work_##NAME##_0(void), gemm_work_##NAME##_1(void), gemm_packs_##NAME##_0(void), gemm_packs_##NAME##_1(void);
#include "shapes.inc"
#undef SHAPE

typedef struct {
  const char *name;
  int64_t m, n, k;
  bool ta, tb;
  Kernel *kernel[2]; /* of f32, of bf16 */
  int64_t (*work[2])(void);
  Kernel *pack[2]; /* what goes before: how many items, and 0 where b is not packed */
  int64_t (*packs[2])(void);
} Shape;
static const Shape shapes[] = {
#define SHAPE(NAME, M, N, K, TA, TB)                                                               \
  {#NAME, M, N, K, TA, TB, {gemm_##NAME##_0, gemm_##NAME##_1}, {gemm_work_##NAME##_0, gemm_work_##NAME##_1},             \
   {gemm_pack_##NAME##_0, gemm_pack_##NAME##_1}, {gemm_packs_##NAME##_0, gemm_packs_##NAME##_1}},
#include "shapes.inc"
#undef SHAPE
};

static float *a, *b, *c, *expected;
static uint16_t *narrow_a, *narrow_b; /* the same in bf16, exactly */
static int threads;
static const Shape *shape;
static bool is_bf16;

/* ── contenders ─────────────────────────────────────────────────────────────────────────────── */
#if defined(__AVX512F__)
enum { PEAK_LANES = 16, PEAK_SUMS = 24 };
#else
enum { PEAK_LANES = 8, PEAK_SUMS = 12 };
#endif
typedef float Lanes __attribute__((vector_size(4 * PEAK_LANES)));
static volatile float sink;
enum { PEAK_LOOPS = 10000 };
static void run_peak(void) {
#pragma omp parallel num_threads(threads)
  {
    Lanes sum[PEAK_SUMS], x, y;
    for (int i = 0; i < PEAK_LANES; i++) x[i] = 1.0f + 1e-7f * (float)i, y[i] = 1e-9f * (float)(i + 1);
    for (int k = 0; k < PEAK_SUMS; k++) sum[k] = x * (float)k;
    for (int i = 0; i < PEAK_LOOPS; i++)
#pragma GCC unroll 24
      for (int k = 0; k < PEAK_SUMS; k++) sum[k] = sum[k] * x + y;
    for (int k = 0; k < PEAK_SUMS; k++) sink = sum[k][0];
  }
}

static void run_openblas(void) {
  const Shape *s = shape;
  cblas_sgemm(CblasRowMajor, s->ta ? CblasTrans : CblasNoTrans, s->tb ? CblasTrans : CblasNoTrans,
              (int)s->m, (int)s->n, (int)s->k, 1, a, (int)(s->ta ? s->m : s->k), b,
              (int)(s->tb ? s->k : s->n), 0, c, (int)s->n);
}

/* MKL's, whose names are those of CBLAS and whose integers have 32 bits. */
static void (*mkl_sgemm)(int, int, int, int, int, int, float, const float *, int, const float *, int, float,
                         float *, int);
static void (*mkl_bf16)(int, int, int, int, int, int, float, const uint16_t *, int, const uint16_t *, int, float,
                        float *, int);
static void open_mkl(void) {
  const char *path = getenv("FT_MKL");
  void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (path && !library) fprintf(stderr, "FT_MKL: %s\n", dlerror());
  if (!library) return;
  *(void **)&mkl_sgemm = dlsym(library, "cblas_sgemm");
  *(void **)&mkl_bf16 = dlsym(library, "cblas_gemm_bf16bf16f32");
  void (*set_threads)(int);
  *(void **)&set_threads = dlsym(library, "MKL_Set_Num_Threads");
  if (set_threads) set_threads(threads);
}
static void run_mkl(void) {
  const Shape *s = shape;
  int ta = s->ta ? CblasTrans : CblasNoTrans, tb = s->tb ? CblasTrans : CblasNoTrans;
  int lda = (int)(s->ta ? s->m : s->k), ldb = (int)(s->tb ? s->k : s->n);
  if (is_bf16)
    mkl_bf16(CblasRowMajor, ta, tb, (int)s->m, (int)s->n, (int)s->k, 1, narrow_a, lda, narrow_b, ldb, 0, c, (int)s->n);
  else
    mkl_sgemm(CblasRowMajor, ta, tb, (int)s->m, (int)s->n, (int)s->k, 1, a, lda, b, ldb, 0, c, (int)s->n);
}

static void run_dnnl_sgemm(void) {
  const Shape *s = shape;
  dnnl_sgemm(s->ta ? 'T' : 'N', s->tb ? 'T' : 'N', s->m, s->n, s->k, 1, a, s->ta ? s->m : s->k, b,
             s->tb ? s->k : s->n, 0, c, s->n);
}

/* As the runtime does: the items cut into one contiguous part per thread, first those of the packing. */
static float *packed;
static void run_ours(void) {
  void *right = is_bf16 ? (void *)narrow_b : b;
  void *args[4] = {packed, is_bf16 ? (void *)narrow_a : a, right, c}, *pack_args[2] = {right, packed};
  int64_t work = shape->work[is_bf16](), packs = shape->packs[is_bf16]();
  Kernel *kernel = shape->kernel[is_bf16], *pack = shape->pack[is_bf16];
  if (threads == 1) {
    pack(pack_args, 0, packs);
    kernel(args, 0, work);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    int64_t id = omp_get_thread_num(), count = omp_get_num_threads();
    if (packs) {
      pack(pack_args, packs * id / count, packs * (id + 1) / count);
#pragma omp barrier
    }
    kernel(args, work * id / count, work * (id + 1) / count);
  }
}

static dnnl_engine_t engine;
static dnnl_stream_t stream;
typedef struct {
  dnnl_primitive_t primitive; /* NULL: oneDNN has none */
  dnnl_memory_t memory[3];
  dnnl_exec_arg_t args[3];
} Matmul;
static Matmul plain, blocked;

/* The matmul primitive; `is_free` lets it choose the layout of b, whose reorder is not timed. */
static Matmul make_matmul(bool is_free) {
  const Shape *s = shape;
  dnnl_dims_t a_dims = {s->m, s->k}, b_dims = {s->k, s->n}, c_dims = {s->m, s->n};
  dnnl_memory_desc_t a_desc, b_desc, c_desc;
  dnnl_data_type_t type = is_bf16 ? dnnl_bf16 : dnnl_f32;
  dnnl_memory_desc_init_by_tag(&a_desc, 2, a_dims, type, s->ta ? dnnl_ba : dnnl_ab);
  dnnl_memory_desc_init_by_tag(&b_desc, 2, b_dims, type,
                               is_free ? dnnl_format_tag_any
                               : s->tb ? dnnl_ba
                                       : dnnl_ab);
  dnnl_memory_desc_init_by_tag(&c_desc, 2, c_dims, dnnl_f32, dnnl_ab);
  dnnl_matmul_desc_t desc;
  dnnl_matmul_desc_init(&desc, &a_desc, &b_desc, NULL, &c_desc);
  dnnl_primitive_desc_t pd;
  Matmul matmul = {0};
  if (dnnl_primitive_desc_create(&pd, &desc, NULL, engine, NULL) != dnnl_success) return matmul;
  dnnl_primitive_create(&matmul.primitive, pd);
  const dnnl_memory_desc_t *weights = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
  dnnl_memory_create(&matmul.memory[0], &a_desc, engine, is_bf16 ? (void *)narrow_a : a);
  dnnl_memory_create(&matmul.memory[1], weights, engine, DNNL_MEMORY_ALLOCATE);
  dnnl_memory_create(&matmul.memory[2], &c_desc, engine, c);
  if (!is_free) dnnl_memory_set_data_handle(matmul.memory[1], is_bf16 ? (void *)narrow_b : b);
  const int number[3] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
  for (int i = 0; i < 3; i++) matmul.args[i] = (dnnl_exec_arg_t){number[i], matmul.memory[i]};
  dnnl_primitive_desc_destroy(pd);
  return matmul;
}
static void end_matmul(const Matmul *matmul) {
  if (!matmul->primitive) return;
  dnnl_primitive_destroy(matmul->primitive);
  for (int i = 0; i < 3; i++) dnnl_memory_destroy(matmul->memory[i]);
}
static void run_plain(void) {
  dnnl_primitive_execute(plain.primitive, stream, 3, plain.args);
  dnnl_stream_wait(stream);
}
static void run_blocked(void) {
  dnnl_primitive_execute(blocked.primitive, stream, 3, blocked.args);
  dnnl_stream_wait(stream);
}

/* ── measuring ──────────────────────────────────────────────────────────────────────────────── */
enum { PEAK, OURS, OPENBLAS, SGEMM, MATMUL, MKL, BLOCKED, CONTENDERS, ROUNDS = 15 };
typedef struct {
  double rate[CONTENDERS]; /* GFLOP/s; 0: there is none */
  double of_peers, of_peak;
} Result;

static double median(double *numbers) {
  for (int i = 0; i < ROUNDS; i++)
    for (int j = i; j > 0 && numbers[j] < numbers[j - 1]; j--) {
      double swap = numbers[j];
      numbers[j] = numbers[j - 1];
      numbers[j - 1] = swap;
    }
  return numbers[ROUNDS / 2];
}

/* The rate of a turn of about a millisecond. `repeats` is 0 before the first. */
static double turn(void (*work)(void), double flops, int *repeats) {
  double start = omp_get_wtime();
  if (!*repeats) {
    work();
    start = omp_get_wtime();
    work();
    *repeats = (int)(1e-3 / (omp_get_wtime() - start + 1e-7)) + 1;
    start = omp_get_wtime();
  }
  for (int j = 0; j < *repeats; j++) work();
  return flops * *repeats / (omp_get_wtime() - start) * 1e-9;
}

static Result measure(void) {
  double flops = 2.0 * (double)shape->m * (double)shape->n * (double)shape->k;
  plain = make_matmul(false), blocked = make_matmul(true);
  void (*const work[CONTENDERS])(void) = {
    [PEAK] = run_peak,
    [OURS] = run_ours,
    [OPENBLAS] = is_bf16 ? NULL : run_openblas,
    [SGEMM] = is_bf16 ? NULL : run_dnnl_sgemm,
    [MATMUL] = plain.primitive ? run_plain : NULL,
    [MKL] = (is_bf16 ? (void *)mkl_bf16 : (void *)mkl_sgemm) ? run_mkl : NULL,
    [BLOCKED] = blocked.primitive ? run_blocked : NULL,
  };
  double rate[CONTENDERS][ROUNDS] = {{0}}, of_peers[ROUNDS], of_peak[ROUNDS];
  int repeats[CONTENDERS] = {0};
  for (int round = 0; round < ROUNDS; round++) {
    double best = 0;
    for (int i = 0; i < CONTENDERS; i++) {
      double peak = 2.0 * PEAK_LANES * PEAK_SUMS * PEAK_LOOPS * threads;
      if (work[i]) rate[i][round] = turn(work[i], i == PEAK ? peak : flops, &repeats[i]);
      if (i >= OPENBLAS && i <= MKL && rate[i][round] > best) best = rate[i][round];
    }
    of_peers[round] = best ? rate[OURS][round] / best : 0;
    of_peak[round] = rate[OURS][round] / rate[PEAK][round];
  }
  Result result = {.of_peers = median(of_peers), .of_peak = median(of_peak)};
  for (int i = 0; i < CONTENDERS; i++) result.rate[i] = median(rate[i]);
  end_matmul(&plain), end_matmul(&blocked);
  return result;
}

/* The largest difference of ours from OpenBLAS relative to the size of the sums. */
static double difference(void) {
  double worst = 0;
  for (int64_t i = 0; i < shape->m * shape->n; i++) {
    double d = fabs((double)c[i] - (double)expected[i]) / sqrt((double)shape->k);
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

/* As the runtime has it: large pages where the system has them. */
static void *pages(size_t bytes) {
  void *at = aligned_alloc(1 << 21, bytes);
  madvise(at, bytes, MADV_HUGEPAGE);
  return at;
}
static void fill(void) {
  size_t bytes = sizeof(float) * 4096 * 1536;
  a = pages(bytes), b = pages(bytes), c = pages(bytes), packed = pages(2 * bytes);
  narrow_a = pages(bytes / 2), narrow_b = pages(bytes / 2);
  expected = malloc(bytes);
  for (size_t i = 0; i < bytes / sizeof(float); i++) { /* seven bits: exact in bf16 */
    uint32_t word;
    a[i] = (float)((i * 2654435761u >> 8) & 127) / 64.0f - 1;
    b[i] = (float)((i * 40503u >> 4) & 127) / 64.0f - 1;
    memcpy(&word, &a[i], 4), narrow_a[i] = (uint16_t)(word >> 16);
    memcpy(&word, &b[i], 4), narrow_b[i] = (uint16_t)(word >> 16);
  }
  memset(c, 0, bytes);
}

static bool is_named(const char *name, char **words, int count) {
  for (int i = 2; i < count; i++)
    if (!strcmp(words[i], name)) return true;
  return count <= 2;
}

int main(int count, char **words) {
  threads = count > 1 ? atoi(words[1]) : 1;
  omp_set_num_threads(threads);
  openblas_set_num_threads(threads);
  open_mkl();
  fill();
  dnnl_engine_create(&engine, dnnl_cpu, 0);
  dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
  printf("%d thread%s\n%-13s %16s %2s %2s %5s %7s %7s %7s %7s %7s %7s %6s %6s %7s | %7s %7s %7s %7s %6s %7s\n", threads,
         threads > 1 ? "s" : "", "", "m x n x k", "ta", "tb", "peak", "OpenBLAS", "sgemm", "matmul", "MKL", "blocked",
         "ours", "/peers", "/peak", "error", "matmul", "MKL", "blocked", "ours16", "/peers", "error");
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const Shape *s = shape = &shapes[i];
    if (!is_named(s->name, words, count)) continue;
    char size[32];
    snprintf(size, sizeof size, "%dx%dx%d", (int)s->m, (int)s->n, (int)s->k);
    is_bf16 = false;
    Result f32 = measure();
    run_openblas();
    memcpy(expected, c, sizeof(float) * (size_t)(s->m * s->n));
    memset(c, 0, sizeof(float) * (size_t)(s->m * s->n));
    run_ours();
    printf("%-13s %16s %2d %2d %5.0f %8.1f %7.1f %7.1f %7.1f %7.1f %7.1f %6.2f %6.2f %7.1e", s->name, size, s->ta, s->tb,
           f32.rate[PEAK], f32.rate[OPENBLAS], f32.rate[SGEMM], f32.rate[MATMUL], f32.rate[MKL], f32.rate[BLOCKED],
           f32.rate[OURS], f32.of_peers, f32.of_peak, difference());
    is_bf16 = true;
    Result bf16 = measure();
    memset(c, 0, sizeof(float) * (size_t)(s->m * s->n));
    run_ours();
    printf(" | %7.1f %7.1f %7.1f %7.1f %6.2f %7.1e\n", bf16.rate[MATMUL], bf16.rate[MKL], bf16.rate[BLOCKED],
           bf16.rate[OURS], bf16.of_peers, difference());
    fflush(stdout);
  }
  return 0;
}
