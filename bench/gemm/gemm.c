/* gemm: how fast this machine multiplies the matrices that our benchmarks have, by OpenBLAS, oneDNN
 * (sgemm and the matmul primitive, plain and with weights it may reorder beforehand) and our own
 * kernels/gemm_x86.c, against the rate of a register-only FMA loop. Then oneDNN's matmul and ours of operands in
 * bf16, with results in f32. One table, GFLOP/s, medians.
 * Usage: gemm THREADS. Each product runs warm: in a training step, operands were just written. */
#include <cblas-openblas.h>
#include <math.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* bench/gemm/run describes each shape of shapes.inc to kernels/gemm_x86.c */
typedef void Kernel(void *const *args, int64_t begin, int64_t end);
#define SHAPE(NAME, M, N, K, TA, TB)                                                               \
  Kernel gemm_##NAME##_0, gemm_##NAME##_1;                                                         \
  int64_t gemm_work_##NAME##_0(void), gemm_work_##NAME##_1(void);
#include "shapes.inc"
#undef SHAPE

typedef struct {
  const char *name;
  int64_t m, n, k;
  bool ta, tb;
  Kernel *kernel[2]; /* of f32, of bf16 */
  int64_t (*work[2])(void);
} Shape;
static const Shape shapes[] = {
#define SHAPE(NAME, M, N, K, TA, TB)                                                               \
  {#NAME, M, N, K, TA, TB, {gemm_##NAME##_0, gemm_##NAME##_1}, {gemm_work_##NAME##_0, gemm_work_##NAME##_1}},
#include "shapes.inc"
#undef SHAPE
};

static float *a, *b, *c, *expected;
static uint16_t *narrow_a, *narrow_b; /* the same in bf16, exactly */
static int threads;

typedef struct {
  const Shape *shape;
  bool is_bf16;
  dnnl_primitive_t primitive;
  dnnl_exec_arg_t args[3];
  dnnl_stream_t stream;
} Job;

static double median(void (*work)(Job *), Job *job, double flops) {
  enum { BLOCKS = 15 };
  double rate[BLOCKS];
  work(job);
  double start = omp_get_wtime();
  work(job);
  int repeats = (int)(4e-3 / (omp_get_wtime() - start + 1e-7)) + 1;
  for (int i = 0; i < BLOCKS; i++) {
    start = omp_get_wtime();
    for (int j = 0; j < repeats; j++) work(job);
    rate[i] = flops * repeats / (omp_get_wtime() - start) * 1e-9;
  }
  for (int i = 0; i < BLOCKS; i++)
    for (int j = i; j > 0 && rate[j] < rate[j - 1]; j--) {
      double swap = rate[j];
      rate[j] = rate[j - 1];
      rate[j - 1] = swap;
    }
  return rate[BLOCKS / 2];
}

static void run_openblas(Job *job) {
  const Shape *s = job->shape;
  cblas_sgemm(CblasRowMajor, s->ta ? CblasTrans : CblasNoTrans, s->tb ? CblasTrans : CblasNoTrans,
              (int)s->m, (int)s->n, (int)s->k, 1, a, (int)(s->ta ? s->m : s->k), b,
              (int)(s->tb ? s->k : s->n), 0, c, (int)s->n);
}
static void run_dnnl_sgemm(Job *job) {
  const Shape *s = job->shape;
  dnnl_sgemm(s->ta ? 'T' : 'N', s->tb ? 'T' : 'N', s->m, s->n, s->k, 1, a, s->ta ? s->m : s->k, b,
             s->tb ? s->k : s->n, 0, c, s->n);
}
static void run_dnnl_primitive(Job *job) {
  dnnl_primitive_execute(job->primitive, job->stream, 3, job->args);
  dnnl_stream_wait(job->stream);
}
/* As the runtime does: the items cut into one contiguous part per thread. */
static void run_ours(Job *job) {
  void *args[3] = {job->is_bf16 ? (void *)narrow_a : a, job->is_bf16 ? (void *)narrow_b : b, c};
  int64_t work = job->shape->work[job->is_bf16]();
  Kernel *kernel = job->shape->kernel[job->is_bf16];
  if (threads == 1) {
    kernel(args, 0, work);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    int64_t id = omp_get_thread_num(), count = omp_get_num_threads();
    kernel(args, work * id / count, work * (id + 1) / count);
  }
}

static dnnl_engine_t engine;
static dnnl_stream_t stream;
/* The matmul primitive; `is_free` lets it choose the layout of b, whose reorder is not timed. */
static double time_primitive(Job *job, bool is_free) {
  const Shape *s = job->shape;
  dnnl_dims_t a_dims = {s->m, s->k}, b_dims = {s->k, s->n}, c_dims = {s->m, s->n};
  dnnl_memory_desc_t a_desc, b_desc, c_desc;
  dnnl_data_type_t type = job->is_bf16 ? dnnl_bf16 : dnnl_f32;
  dnnl_memory_desc_init_by_tag(&a_desc, 2, a_dims, type, s->ta ? dnnl_ba : dnnl_ab);
  dnnl_memory_desc_init_by_tag(&b_desc, 2, b_dims, type,
                               is_free ? dnnl_format_tag_any
                               : s->tb ? dnnl_ba
                                       : dnnl_ab);
  dnnl_memory_desc_init_by_tag(&c_desc, 2, c_dims, dnnl_f32, dnnl_ab);
  dnnl_matmul_desc_t desc;
  dnnl_matmul_desc_init(&desc, &a_desc, &b_desc, NULL, &c_desc);
  dnnl_primitive_desc_t pd;
  if (dnnl_primitive_desc_create(&pd, &desc, NULL, engine, NULL) != dnnl_success) return 0;
  dnnl_primitive_create(&job->primitive, pd);
  const dnnl_memory_desc_t *weights = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
  dnnl_memory_t memory[3];
  dnnl_memory_create(&memory[0], &a_desc, engine, job->is_bf16 ? (void *)narrow_a : a);
  dnnl_memory_create(&memory[1], weights, engine, DNNL_MEMORY_ALLOCATE);
  dnnl_memory_create(&memory[2], &c_desc, engine, c);
  if (!is_free) dnnl_memory_set_data_handle(memory[1], job->is_bf16 ? (void *)narrow_b : b);
  job->args[0] = (dnnl_exec_arg_t){DNNL_ARG_SRC, memory[0]};
  job->args[1] = (dnnl_exec_arg_t){DNNL_ARG_WEIGHTS, memory[1]};
  job->args[2] = (dnnl_exec_arg_t){DNNL_ARG_DST, memory[2]};
  job->stream = stream;
  double rate = median(run_dnnl_primitive, job, 2.0 * (double)s->m * (double)s->n * (double)s->k);
  dnnl_primitive_destroy(job->primitive);
  dnnl_primitive_desc_destroy(pd);
  for (int i = 0; i < 3; i++) dnnl_memory_destroy(memory[i]);
  return rate;
}

typedef float Lanes __attribute__((vector_size(64)));
static volatile float sink;
static void run_peak(Job *job) {
  (void)job;
#pragma omp parallel num_threads(threads)
  {
    Lanes sum[24], x, y;
    for (int i = 0; i < 16; i++) x[i] = 1.0f + 1e-7f * (float)i, y[i] = 1e-9f * (float)(i + 1);
    for (int k = 0; k < 24; k++) sum[k] = x * (float)k;
    for (int i = 0; i < 20000; i++)
#pragma GCC unroll 24
      for (int k = 0; k < 24; k++) sum[k] = sum[k] * x + y;
    for (int k = 0; k < 24; k++) sink = sum[k][0];
  }
}

/* The largest difference from OpenBLAS relative to the size of the sums. */
static double difference(const Shape *s) {
  double worst = 0;
  for (int64_t i = 0; i < s->m * s->n; i++) {
    double d = fabs((double)c[i] - (double)expected[i]) / sqrt((double)s->k);
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

int main(int count, char **words) {
  threads = count > 1 ? atoi(words[1]) : 1;
  omp_set_num_threads(threads);
  openblas_set_num_threads(threads);
  size_t bytes = sizeof(float) * 4096 * 1536;
  a = aligned_alloc(64, bytes), b = aligned_alloc(64, bytes), c = aligned_alloc(64, bytes);
  expected = aligned_alloc(64, bytes);
  narrow_a = aligned_alloc(64, bytes / 2), narrow_b = aligned_alloc(64, bytes / 2);
  for (size_t i = 0; i < bytes / sizeof(float); i++) { /* seven bits: exact in bf16 */
    uint32_t word;
    a[i] = (float)((i * 2654435761u >> 8) & 127) / 64.0f - 1;
    b[i] = (float)((i * 40503u >> 4) & 127) / 64.0f - 1;
    memcpy(&word, &a[i], 4), narrow_a[i] = (uint16_t)(word >> 16);
    memcpy(&word, &b[i], 4), narrow_b[i] = (uint16_t)(word >> 16);
  }
  memset(c, 0, bytes);
  dnnl_engine_create(&engine, dnnl_cpu, 0);
  dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
  Job job = {0};
  double peak = median(run_peak, &job, 2.0 * 16 * 24 * 20000 * threads);
  printf("%d thread%s; register-only FMA loop: %.0f GFLOP/s\n", threads, threads > 1 ? "s" : "",
         peak);
  printf("%-10s %16s %2s %2s %9s %9s %9s %9s %9s %6s %8s %9s | %9s %9s %9s %9s\n", "name", "m x n x k", "ta", "tb",
         "OpenBLAS", "dnnl gemm", "matmul", "blocked", "ours", "peak%", "us ours", "error", "matmul16",
         "blocked16", "ours16", "error");
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const Shape *s = job.shape = &shapes[i];
    double flops = 2.0 * (double)s->m * (double)s->n * (double)s->k;
    double blas = median(run_openblas, &job, flops);
    memcpy(expected, c, sizeof(float) * (size_t)(s->m * s->n));
    double sgemm = median(run_dnnl_sgemm, &job, flops);
    double matmul = time_primitive(&job, false), blocked = time_primitive(&job, true);
    memset(c, 0, sizeof(float) * (size_t)(s->m * s->n));
    double ours = median(run_ours, &job, flops);
    char size[32];
    snprintf(size, sizeof size, "%dx%dx%d", (int)s->m, (int)s->n, (int)s->k);
    printf("%-10s %16s %2d %2d %9.1f %9.1f %9.1f %9.1f %9.1f %5.0f%% %8.2f %9.1e", s->name, size,
           s->ta, s->tb, blas, sgemm, matmul, blocked, ours, 100 * ours / peak, flops / ours * 1e-3,
           difference(s));
    job.is_bf16 = true;
    matmul = time_primitive(&job, false), blocked = time_primitive(&job, true);
    memset(c, 0, sizeof(float) * (size_t)(s->m * s->n));
    ours = median(run_ours, &job, flops);
    job.is_bf16 = false;
    printf(" | %9.1f %9.1f %9.1f %9.1e\n", matmul, blocked, ours, difference(s));
  }
  return 0;
}
