/* calls_matmul: the products that a GPU's library may make (calls.def, "matmul"), on the host: for
 * the simulator. In f32 by OpenBLAS, with what stands behind them in plain loops; results of 16
 * bits are rounded once, as the library rounds them. Aux and sums: plan/calls.def. */
#include "runtime/device/cpu/blas.h"
#include "runtime/device/cpu/calls_internal.h"
#include "runtime/common/element.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  CpuCall call;
  MatmulShape shape;
  DType operands, result;
  BlasGemm *blas;
  char *arg[CALL_MAX_ARGS];
  float *a, *b, *d, *row; /* of one product of the batch, in f32; a row of d, or a vector */
} MatmulCall;

/* ── numbers ──────────────────────────────────────────────────────────────────────────────── */
static void load(DType dtype, const char *from, int64_t first, int64_t count, float *to) {
  Element element = dtype == DT_BF16 ? ELEMENT_BF16 : dtype == DT_F16 ? ELEMENT_F16 : ELEMENT_F32;
  element_convert(from + first * dtype_bytes(dtype), element, false, count, DT_F32, to);
}

static void store(DType dtype, const float *from, char *to, int64_t first, int64_t count) {
  element_convert(from, ELEMENT_F32, false, count, dtype, to + first * dtype_bytes(dtype));
}

static double inner(double x) { return tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)); }
static double gelu(double x) { return 0.5 * x * (1 + inner(x)); }
static double gelu_slope(double x) {
  double t = inner(x), slope = 0.7978845608028654 * (1 + 0.134145 * x * x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope;
}

/* ── behind the product ───────────────────────────────────────────────────────────────────── */
/* Relu's bits: written by forward, read by the gradient. */
static void relu_row(const MatmulCall *m, float *x, int64_t row) {
  const MatmulShape *s = &m->shape;
  unsigned char *bits = s->aux < 0 ? NULL : (unsigned char *)m->arg[s->aux] + row * s->aux_row / 8;
  for (int64_t j = 0; j < s->n; j++) {
    unsigned char bit = (unsigned char)(1 << j % 8);
    bool passes = s->act == ACT_RELU ? x[j] > 0 : bits[j / 8] & bit;
    if (s->act == ACT_RELU && bits)
      bits[j / 8] = (unsigned char)(passes ? bits[j / 8] | bit : bits[j / 8] & ~bit);
    if (!passes) x[j] = 0;
  }
}

static void gelu_row(const MatmulCall *m, float *x, int64_t row) {
  const MatmulShape *s = &m->shape;
  if (s->act == ACT_GELU && s->aux >= 0)
    store(m->result, x, m->arg[s->aux], row * s->aux_row, s->n);
  if (s->act == ACT_GELU_GRADIENT) load(m->result, m->arg[s->aux], row * s->aux_row, s->n, m->row);
  for (int64_t j = 0; j < s->n; j++)
    x[j] = (float)(s->act == ACT_GELU ? gelu(x[j]) : x[j] * gelu_slope(m->row[j]));
}

static void finish_row(const MatmulCall *m, float *x, int64_t row) {
  const MatmulShape *s = &m->shape;
  if (s->bias >= 0) load(m->result, m->arg[s->bias], 0, s->n, m->row);
  for (int64_t j = 0; j < s->n && s->bias >= 0; j++) x[j] += m->row[j];
  if (s->act == ACT_RELU || s->act == ACT_RELU_GRADIENT) relu_row(m, x, row);
  if (s->act == ACT_GELU || s->act == ACT_GELU_GRADIENT) gelu_row(m, x, row);
}

/* Sums of the columns of a stored matrix, or of its rows. */
static void add_sums(const MatmulCall *m) {
  const MatmulShape *s = &m->shape;
  const float *of = s->of == SUMS_RESULT ? m->d : s->of == SUMS_A ? m->a : m->b;
  bool by_rows = s->of == SUMS_RESULT || (s->of == SUMS_A ? s->ta : !s->tb);
  int64_t count = s->of == SUMS_A ? s->m : s->n, length = s->of == SUMS_RESULT ? s->m : s->k;
  for (int64_t j = 0; j < count; j++) {
    double sum = 0;
    for (int64_t i = 0; i < length; i++) sum += by_rows ? of[i * count + j] : of[j * length + i];
    m->row[j] = (float)sum;
  }
  store(m->result, m->row, m->arg[s->sums], 0, count);
}

/* ── the call ─────────────────────────────────────────────────────────────────────────────── */
static bool matmul_run(CpuCall *call, int phase, int part, int thread) {
  (void)phase, (void)part, (void)thread;
  const MatmulCall *m = (const MatmulCall *)call;
  const MatmulShape *s = &m->shape;
  for (int64_t batch = 0; batch < s->batch; batch++) {
    int64_t at = batch * s->m * s->n;
    load(m->operands, m->arg[0], batch * s->m * s->k, s->m * s->k, m->a);
    load(m->operands, m->arg[1], batch * s->k * s->n, s->k * s->n, m->b);
    if (s->c >= 0) load(m->result, m->arg[s->c], at, s->m * s->n, m->d);
    m->blas(CblasRowMajor, s->ta ? CblasTrans : CblasNoTrans, s->tb ? CblasTrans : CblasNoTrans,
            (int)s->m, (int)s->n, (int)s->k, 1, m->a, (int)(s->ta ? s->m : s->k), m->b,
            (int)(s->tb ? s->k : s->n), s->c >= 0, m->d, (int)s->n);
    for (int64_t i = 0; i < s->m; i++) finish_row(m, m->d + i * s->n, i);
    store(m->result, m->d, m->arg[s->d], at, s->m * s->n);
  }
  if (s->sums >= 0) add_sums(m);
  return true;
}

static void matmul_move(CpuCall *call, int arg, char *address) {
  ((MatmulCall *)call)->arg[arg] = address;
}

static void matmul_free(CpuCall *call) {
  MatmulCall *m = (MatmulCall *)call;
  free(m->a);
  free(m->b);
  free(m->d);
  free(m->row);
}

Status cpu_matmul_new(CpuLibrary *library, const PlanStep *step, const PlanBuffer *buffers,
                      char *const *args, CpuCall **out) {
  MatmulCall *m = calloc(1, sizeof *m);
  if (!m) return status_fail(STATUS_FAULT, "out of memory");
  MatmulShape *s = &m->shape;
  call_matmul_shape(step, s);
  m->call = (CpuCall){.library = library, .phases = 1, .parts = {1}};
  m->call.run = matmul_run, m->call.move = matmul_move, m->call.free = matmul_free;
  snprintf(m->call.text, sizeof m->call.text, "openblas");
  m->operands = buffers[step->args[0]].type.dtype;
  m->result = buffers[step->args[s->d]].type.dtype;
  memcpy(m->arg, args, sizeof *args * (size_t)step->arg_count);
  m->a = malloc(sizeof(float) * (size_t)(s->m * s->k));
  m->b = malloc(sizeof(float) * (size_t)(s->k * s->n));
  m->d = malloc(sizeof(float) * (size_t)(s->m * s->n));
  m->row = malloc(sizeof(float) * (size_t)(s->m > s->n ? s->m : s->n));
  *out = &m->call;
  Status status = blas_open(&m->blas);
  if (status == STATUS_OK && !(m->a && m->b && m->d && m->row))
    status = status_fail(STATUS_FAULT, "out of memory");
  if (status != STATUS_OK) cpu_call_free(*out);
  return status;
}
