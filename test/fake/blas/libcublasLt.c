/* libcublasLt: a cuBLASLt without a GPU, for tests: products in plain loops, in double, enqueued in
 * the fake driver's streams. Column-major, as the real one; all epilogues that ftrun uses. Proposes
 * three algorithms, of which the first two fail or do not run, when asked to:
 *   FT_FAKE_BLAS_SLOW=1   a product takes long: our own kernels are faster
 *   FT_FAKE_BLAS_BAD=1    the first proposal fails when it is run
 *   FT_FAKE_BLAS_REFUSE=N nothing is proposed for epilogues that have any of these bits */
#include "runtime/device/cuda/cuda_blas.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define BLAS(name, symbol, parameters) EXPORT int blas_##name parameters __asm__(symbol);
#include "runtime/device/cuda/cuda_blas.def"
#undef BLAS
EXPORT size_t blas_version(void) __asm__("cublasLtGetVersion");

typedef struct {
  int type;
  uint64_t rows, columns;
  int64_t leading, stride;
  int32_t batches;
} Layout;
typedef struct {
  int compute, scale;
  int32_t op_a, op_b;
  uint32_t epilogue;
  uint64_t bias, aux;
  int64_t aux_leading;
} Desc;

static void die(const char *what) {
  fprintf(stderr, "fake cuBLASLt: %s\n", what);
  abort();
}

size_t blas_version(void) {
  const char *version = getenv("FT_FAKE_BLAS_VERSION");
  return version ? (size_t)atol(version) : 120405;
}

int blas_create(void **handle) {
  *handle = calloc(1, 8);
  return 0;
}
int blas_destroy(void *handle) {
  free(handle);
  return 0;
}
int blas_desc_create(void **desc, int compute, int scale_type) {
  Desc *made = calloc(1, sizeof *made);
  *made = (Desc){.compute = compute, .scale = scale_type, .epilogue = BLAS_EPILOGUE_DEFAULT};
  *desc = made;
  return scale_type == BLAS_TYPE_F32 ? 0 : 7;
}
int blas_desc_destroy(void *desc) {
  free(desc);
  return 0;
}

int blas_desc_set(void *desc, int attribute, const void *value, size_t bytes) {
  Desc *d = desc;
  const struct {
    int attribute;
    void *at;
    size_t bytes;
  } known[] = {{BLAS_DESC_OP_A, &d->op_a, 4},         {BLAS_DESC_OP_B, &d->op_b, 4},
               {BLAS_DESC_EPILOGUE, &d->epilogue, 4}, {BLAS_DESC_BIAS, &d->bias, 8},
               {BLAS_DESC_AUX, &d->aux, 8},           {BLAS_DESC_AUX_LEADING, &d->aux_leading, 8}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i].attribute == attribute) {
      if (known[i].bytes != bytes) die("an attribute of the wrong size");
      memcpy(known[i].at, value, bytes);
      return 0;
    }
  die("an unknown attribute");
  return 7;
}

int blas_layout_create(void **layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  Layout *made = calloc(1, sizeof *made);
  *made = (Layout){type, rows, columns, leading, 0, 1};
  *layout = made;
  return leading >= (int64_t)rows ? 0 : 7;
}
int blas_layout_destroy(void *layout) {
  free(layout);
  return 0;
}
int blas_layout_set(void *layout, int attribute, const void *value, size_t bytes) {
  Layout *l = layout;
  if (attribute == BLAS_LAYOUT_BATCHES && bytes == 4)
    memcpy(&l->batches, value, 4);
  else if (attribute == BLAS_LAYOUT_STRIDE && bytes == 8)
    memcpy(&l->stride, value, 8);
  else
    die("an unknown layout attribute");
  return 0;
}

int blas_preference_create(void **preference) {
  *preference = calloc(1, 8);
  return 0;
}
int blas_preference_destroy(void *preference) {
  free(preference);
  return 0;
}
int blas_preference_set(void *preference, int attribute, const void *value, size_t bytes) {
  (void)preference;
  if (attribute == BLAS_PREFERENCE_WORKSPACE && bytes == 8) return 0;
  uint32_t alignment;
  if (attribute < BLAS_PREFERENCE_ALIGN_A || attribute > BLAS_PREFERENCE_ALIGN_A + 3 || bytes != 4)
    die("an unknown preference");
  memcpy(&alignment, value, 4);
  if (alignment & (alignment - 1)) die("an alignment that is no power of two");
  return 0;
}

/* ── what the real one refuses, by its header (cublasLt.h of CUDA 13) and its table of types ── */
static bool is_epilogue(uint32_t epilogue) {
  enum {
    DRELU = BLAS_EPILOGUE_RELU_GRADIENT | BLAS_EPILOGUE_AUX,
    DGELU = BLAS_EPILOGUE_GELU_GRADIENT | BLAS_EPILOGUE_AUX,
  };
  uint32_t forward = epilogue & ~(uint32_t)(BLAS_EPILOGUE_BIAS | BLAS_EPILOGUE_AUX);
  if (epilogue == BLAS_EPILOGUE_DEFAULT || epilogue == BLAS_EPILOGUE_BIAS ||
      epilogue == BLAS_EPILOGUE_SUMS_A || epilogue == BLAS_EPILOGUE_SUMS_B)
    return true;
  return forward == BLAS_EPILOGUE_RELU || forward == BLAS_EPILOGUE_GELU || epilogue == DRELU ||
         epilogue == DGELU || epilogue == (DRELU | BLAS_EPILOGUE_SUMS) ||
         epilogue == (DGELU | BLAS_EPILOGUE_SUMS);
}

static int64_t bytes_of(int type) { return type == BLAS_TYPE_F32 ? 4 : 2; }

/* c is of d's type; operands of 16 bits are multiplied in f32. The vector, bias or sums, is of d's
 * type too (CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE). */
static bool types_fit(const Desc *desc, const Layout *a, const Layout *b, const Layout *c,
                      const Layout *d) {
  bool is_wide = a->type == BLAS_TYPE_F32;
  if (a->type != b->type || c->type != d->type || (d->type != a->type && d->type != BLAS_TYPE_F32))
    return false;
  return desc->compute == BLAS_COMPUTE_F32 || (is_wide && desc->compute >= BLAS_COMPUTE_FAST_F16 &&
                                               desc->compute <= BLAS_COMPUTE_FAST_TF32);
}

static bool fits(const Desc *desc, const Layout *a, const Layout *b, const Layout *c,
                 const Layout *d) {
  enum {
    VECTOR = BLAS_EPILOGUE_BIAS | BLAS_EPILOGUE_SUMS | BLAS_EPILOGUE_SUMS_A | BLAS_EPILOGUE_SUMS_B
  };
  uint64_t m = desc->op_a ? a->columns : a->rows, k = desc->op_a ? a->rows : a->columns;
  uint64_t n = desc->op_b ? b->rows : b->columns;
  if (m != d->rows || n != d->columns || k != (desc->op_b ? b->columns : b->rows)) return false;
  if (c->rows != d->rows || c->columns != d->columns) return false;
  if (!types_fit(desc, a, b, c, d) || !is_epilogue(desc->epilogue)) return false;
  if (desc->epilogue & VECTOR && (!desc->bias || desc->bias % (uint64_t)bytes_of(d->type)))
    return false;
  if (!(desc->epilogue & BLAS_EPILOGUE_AUX)) return true;
  bool is_relu = desc->epilogue & (BLAS_EPILOGUE_RELU | BLAS_EPILOGUE_RELU_GRADIENT);
  return desc->aux && desc->aux_leading >= (int64_t)m &&
         desc->aux_leading % (is_relu ? 128 : 8) == 0;
}

int blas_heuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference,
                   int wanted, CudaBlasFound *found, int *count) {
  (void)handle, (void)preference;
  const char *refused = getenv("FT_FAKE_BLAS_REFUSE");
  if (refused && ((const Desc *)desc)->epilogue & (uint32_t)atoi(refused)) return 15;
  if (!fits(desc, a, b, c, d)) return 15;
  *count = wanted < 3 ? wanted : 3;
  for (int i = 0; i < *count; i++)
    found[i] = (CudaBlasFound){.algorithm = {{(uint64_t)i + 1, 0xfeed}}, .state = i == 1 ? 15 : 0};
  return 0;
}

/* ── the product ──────────────────────────────────────────────────────────────────────────── */
typedef struct {
  Desc desc;
  Layout a, b, d;
  const char *a_at, *b_at, *c_at;
  char *d_at;
  float beta;
  void (*mark)(const void *at, size_t bytes);
  void (*took)(double milliseconds);
} Work;

static double load(const char *at, int type, int64_t i) {
  if (type == BLAS_TYPE_F32) return ((const float *)at)[i];
  uint16_t bits = ((const uint16_t *)at)[i];
  if (type == BLAS_TYPE_BF16) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
  }
  int exponent = bits >> 10 & 31, part = bits & 1023;
  double value = exponent ? ldexp(part + 1024, exponent - 25) : ldexp(part, -24);
  return bits >> 15 ? -value : value;
}

/* To the nearest, ties to even, as the real one. */
static uint16_t to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if (value != value) return 0x7fff;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t to_f16(double value) {
  uint16_t sign = signbit(value) ? 0x8000 : 0;
  double size = fabs(value);
  int exponent;
  if (value != value) return 0x7fff;
  frexp(size, &exponent); /* size < 2^exponent */
  if (size == 0 || exponent < -13) return (uint16_t)(sign | (uint16_t)nearbyint(ldexp(size, 24)));
  double part = nearbyint(ldexp(size, 11 - exponent)); /* 1024 to 2048 */
  if (part == 2048) part = 1024, exponent++;
  if (exponent > 16) return sign | 0x7c00;
  return (uint16_t)(sign | (exponent + 14) << 10 | ((uint16_t)part & 1023));
}

static void store(char *at, int type, int64_t i, double value) {
  if (type == BLAS_TYPE_F32) ((float *)at)[i] = (float)value;
  if (type == BLAS_TYPE_BF16) ((uint16_t *)at)[i] = to_bf16((float)value);
  if (type == BLAS_TYPE_F16) ((uint16_t *)at)[i] = to_f16(value);
}

static double gelu(double x) {
  return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}
static double gelu_slope(double x) {
  double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * x * x);
}

/* The epilogue of one element; row and column as the library counts. */
static double finish(const Work *w, double value, int64_t row, int64_t column) {
  uint32_t e = w->desc.epilogue;
  char *bias = (char *)(uintptr_t)w->desc.bias, *aux = (char *)(uintptr_t)w->desc.aux;
  int64_t at = column * w->desc.aux_leading + row;
  if (e & BLAS_EPILOGUE_BIAS) value += load(bias, w->d.type, row);
  if (e & BLAS_EPILOGUE_RELU) {
    if (e & BLAS_EPILOGUE_AUX) {
      unsigned char *byte = (unsigned char *)aux + at / 8, bit = (unsigned char)(1 << at % 8);
      *byte = (unsigned char)(value > 0 ? *byte | bit : *byte & ~bit);
    }
    value = value > 0 ? value : 0;
  }
  if (e & BLAS_EPILOGUE_GELU) {
    if (e & BLAS_EPILOGUE_AUX) store(aux, w->d.type, at, value);
    value = gelu(value);
  }
  if (e & BLAS_EPILOGUE_RELU_GRADIENT && !(((unsigned char *)aux)[at / 8] >> at % 8 & 1)) value = 0;
  if (e & BLAS_EPILOGUE_GELU_GRADIENT) value *= gelu_slope(load(aux, w->d.type, at));
  return value;
}

static double element(const Layout *l, int32_t op, const char *at, int64_t batch, int64_t row,
                      int64_t column) {
  int64_t place = op ? row * l->leading + column : column * l->leading + row;
  return load(at, l->type, batch * l->stride + place);
}

static void add_sums(const Work *w, int64_t m, int64_t n, int64_t k) {
  enum { ANY = BLAS_EPILOGUE_SUMS | BLAS_EPILOGUE_SUMS_A | BLAS_EPILOGUE_SUMS_B };
  uint32_t of = w->desc.epilogue & ANY;
  char *sums = (char *)(uintptr_t)w->desc.bias;
  int64_t count = of == BLAS_EPILOGUE_SUMS_B ? n : m, length = of == BLAS_EPILOGUE_SUMS ? n : k;
  for (int64_t at = 0; at < count && of; at++) {
    double sum = 0;
    for (int64_t i = 0; i < length; i++)
      sum += of == BLAS_EPILOGUE_SUMS     ? load(w->d_at, w->d.type, i * w->d.leading + at)
             : of == BLAS_EPILOGUE_SUMS_A ? element(&w->a, w->desc.op_a, w->a_at, 0, at, i)
                                          : element(&w->b, w->desc.op_b, w->b_at, 0, i, at);
    store(sums, w->d.type, at, sum);
  }
  if (of) w->mark(sums, (size_t)(count * bytes_of(w->d.type)));
}

static void multiply(void *context) {
  const Work *w = context;
  int64_t m = (int64_t)w->d.rows, n = (int64_t)w->d.columns;
  int64_t k = (int64_t)(w->desc.op_a ? w->a.rows : w->a.columns);
  for (int64_t batch = 0; batch < w->d.batches; batch++)
    for (int64_t column = 0; column < n; column++)
      for (int64_t row = 0; row < m; row++) {
        double sum = 0;
        int64_t place = batch * w->d.stride + column * w->d.leading + row;
        for (int64_t i = 0; i < k; i++)
          sum += element(&w->a, w->desc.op_a, w->a_at, batch, row, i) *
                 element(&w->b, w->desc.op_b, w->b_at, batch, i, column);
        if (w->beta != 0) sum += (double)w->beta * load(w->c_at, w->d.type, place);
        store(w->d_at, w->d.type, place, finish(w, sum, row, column));
      }
  for (int64_t batch = 0; batch < w->d.batches; batch++)
    w->mark(w->d_at + batch * w->d.stride * bytes_of(w->d.type),
            (size_t)(m * n * bytes_of(w->d.type)));
  bool is_relu = w->desc.epilogue & BLAS_EPILOGUE_RELU;
  bool reads_aux = w->desc.epilogue & (BLAS_EPILOGUE_RELU_GRADIENT | BLAS_EPILOGUE_GELU_GRADIENT);
  if (w->desc.epilogue & BLAS_EPILOGUE_AUX && !reads_aux)
    w->mark((void *)(uintptr_t)w->desc.aux,
            (size_t)(is_relu ? w->desc.aux_leading * n / 8
                             : w->desc.aux_leading * n * bytes_of(w->d.type)));
  add_sums(w, m, n, k);
  if (getenv("FT_FAKE_BLAS_SLOW")) w->took(1e5); /* milliseconds */
}

int blas_matmul(void *handle, void *desc, const void *alpha, const void *a, void *a_layout,
                const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
                void *d, void *d_layout, const CudaBlasAlgorithm *algorithm, void *workspace,
                size_t workspace_bytes, CudaStream stream) {
  (void)handle, (void)workspace_bytes;
  static void *driver;
  static int (*enqueue)(CudaStream stream, void (*work)(void *), const void *context, size_t bytes);
  static void (*mark)(const void *at, size_t bytes);
  static void (*took)(double milliseconds);
  if (!driver) {
    driver = dlopen(getenv("FT_CUDA_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
    if (!driver) die("the fake driver is not loaded");
    *(void **)&enqueue = dlsym(driver, "fake_library_enqueue");
    *(void **)&mark = dlsym(driver, "fake_library_mark");
    *(void **)&took = dlsym(driver, "fake_library_took");
  }
  if (algorithm->data[1] != 0xfeed) die("an algorithm that was never proposed");
  if (algorithm->data[0] == 1 && getenv("FT_FAKE_BLAS_BAD")) return 14;
  if (*(const float *)alpha != 1 || !c || !workspace) die("an unexpected argument");
  if (!fits(desc, a_layout, b_layout, c_layout, d_layout)) return 7;
  Work work = {*(Desc *)desc,
               *(Layout *)a_layout,
               *(Layout *)b_layout,
               *(Layout *)d_layout,
               a,
               b,
               c,
               d,
               *(const float *)beta,
               mark,
               took};
  return enqueue(stream, multiply, &work, sizeof work) ? 14 : 0;
}
