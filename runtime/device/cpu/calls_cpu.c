/* calls_cpu: see calls_cpu.h. This file has the common part, copy, fill and gemm; convolutions are
 * in conv_cpu.c. A gemm is cut into one block per thread, each a oneDNN matmul made for one thread
 * (measured: 1.3 to 1.5 times faster than oneDNN's own split for the sizes of small models, and no
 * fork and join); OpenBLAS does it where oneDNN has only its reference code. */
#include "runtime/device/cpu/blas.h"
#include "runtime/device/cpu/calls_internal.h"
#include "runtime/common/pool.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Less work than this is not worth a second thread. */
static const double small_gemm_flops = 60e3;

Status cpu_dnnl(dnnl_status_t status, const char *what) {
  if (status == dnnl_success) return STATUS_OK;
  return status_fail(STATUS_FAULT, "oneDNN cannot %s (status %d)", what, (int)status);
}

/* ── the library ──────────────────────────────────────────────────────────────────────────── */
Status cpu_library_new(int threads, int reserved, CpuLibrary **out) {
  CpuLibrary *library = calloc(1, sizeof *library);
  CpuThread *thread = calloc((size_t)(threads + reserved), sizeof *thread);
  if (!library || !thread) {
    free(library);
    free(thread);
    return status_fail(STATUS_FAULT, "out of memory");
  }
  library->threads = threads;
  library->all_threads = threads + reserved;
  library->thread = thread;
  *out = library;
  return STATUS_OK;
}

/* oneDNN's engine, and a stream of it for each thread. */
Status cpu_need_engine(CpuLibrary *library) {
  if (library->engine) return STATUS_OK;
  STATUS_TRY(dnnl_library_open());
  dnnl_engine_t engine;
  STATUS_TRY(cpu_dnnl(dnnl.engine_create(&engine, dnnl_cpu, 0), "start"));
  for (int i = 0; i < library->all_threads; i++) {
    dnnl_stream_t *stream = &library->thread[i].stream;
    Status status = *stream
                        ? STATUS_OK
                        : cpu_dnnl(dnnl.stream_create(stream, engine, dnnl_stream_default_flags),
                                   "make a stream");
    if (status == STATUS_OK) continue;
    dnnl.engine_destroy(engine);
    return status;
  }
  library->engine = engine;
  return STATUS_OK;
}

void cpu_library_free(CpuLibrary *library) {
  if (!library) return;
  for (int i = 0; i < library->all_threads; i++) {
    if (library->thread[i].stream) dnnl.stream_destroy(library->thread[i].stream);
    free(library->thread[i].scratch);
  }
  free(library->common);
  if (library->engine) dnnl.engine_destroy(library->engine);
  free(library->thread);
  free(library);
}

static Status grow(void **memory, size_t bytes) {
  void *fresh = aligned_alloc(4096, bytes);
  if (!fresh) return status_fail(STATUS_FAULT, "out of memory: %zu bytes for oneDNN", bytes);
  free(*memory);
  *memory = fresh;
  return STATUS_OK;
}

/* Makes the scratch of every thread, or the common one, at least so large. */
static Status need_scratch(CpuLibrary *library, bool is_common, size_t bytes) {
  size_t *have = is_common ? &library->common_bytes : &library->scratch_bytes;
  if (bytes <= *have) return STATUS_OK;
  bytes = (bytes + 4095) & ~(size_t)4095;
  if (is_common) STATUS_TRY(grow(&library->common, bytes));
  for (int i = 0; i < library->all_threads && !is_common; i++)
    STATUS_TRY(grow(&library->thread[i].scratch, bytes));
  *have = bytes;
  return STATUS_OK;
}

/* ── one primitive with its memories ──────────────────────────────────────────────────────── */
/* Scratch is ours, so that running allocates nothing. */
static dnnl_status_t make_attr(const_dnnl_post_ops_t post, dnnl_primitive_attr_t *out) {
  dnnl_status_t status = dnnl.primitive_attr_create(out);
  if (status == dnnl_success)
    status = dnnl.primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
  if (status == dnnl_success && post) status = dnnl.primitive_attr_set_post_ops(*out, post);
  return status;
}

/* oneDNN 2.6 writes code into memory without asking whether there was any (Xbyak notes the error
 * and goes on, at address 0). */
static Status need_room_for_code(void) {
  enum { MIB = 16 }; /* the largest generators take one, a primitive has a few of them */
  if (blas_has_room(MIB << 20)) return STATUS_OK;
  return status_fail(STATUS_FAULT,
                     "oneDNN, which makes this product, takes %d MiB of address space for its "
                     "code, and the limit leaves less: raise it (ulimit -v)",
                     MIB);
}

static Status make_primitive(CpuPrimitive *p, dnnl_status_t status) {
  if (status == dnnl_success) status = dnnl.primitive_create(&p->primitive, p->desc);
  if (status == dnnl_success) {
    const char *text = "";
    dnnl.primitive_desc_query(p->desc, dnnl_query_impl_info_str, 0, &text);
    snprintf(p->text, sizeof p->text, "onednn %s", text);
    p->is_reference = strstr(text, "ref") != NULL;
  }
  return cpu_dnnl(status, "make a primitive");
}

Status cpu_primitive_new(CpuLibrary *library, const_dnnl_op_desc_t desc, const_dnnl_post_ops_t post,
                         const_dnnl_primitive_desc_t hint, CpuPrimitive *out) {
  dnnl_primitive_attr_t attr = NULL;
  *out = (CpuPrimitive){.library = library};
  STATUS_TRY(need_room_for_code());
  dnnl_status_t status = make_attr(post, &attr);
  if (status == dnnl_success)
    status = dnnl.primitive_desc_create(&out->desc, desc, attr, library->engine, hint);
  if (attr) dnnl.primitive_attr_destroy(attr);
  return make_primitive(out, status);
}

Status cpu_reorder_new(CpuLibrary *library, const dnnl_memory_desc_t *from,
                       const dnnl_memory_desc_t *to, CpuPrimitive *out) {
  dnnl_primitive_attr_t attr = NULL;
  *out = (CpuPrimitive){.library = library};
  STATUS_TRY(need_room_for_code());
  dnnl_status_t status = make_attr(NULL, &attr);
  if (status == dnnl_success)
    status = dnnl.reorder_primitive_desc_create(&out->desc, from, library->engine, to,
                                                library->engine, attr);
  if (attr) dnnl.primitive_attr_destroy(attr);
  return make_primitive(out, status);
}

const dnnl_memory_desc_t *cpu_primitive_query(const CpuPrimitive *p, dnnl_query_t what) {
  return dnnl.primitive_desc_query_md(p->desc, what, 0);
}

static Status primitive_bind(CpuPrimitive *p, int arg, const dnnl_memory_desc_t *desc,
                             void *address, Place place, int64_t offset) {
  dnnl_memory_t memory = NULL;
  STATUS_TRY(
      cpu_dnnl(dnnl.memory_create(&memory, desc, p->library->engine, address), "bind memory"));
  p->place[p->arg_count] = place;
  p->offset[p->arg_count] = offset;
  p->args[p->arg_count++] = (dnnl_exec_arg_t){arg, memory};
  return STATUS_OK;
}

Status cpu_primitive_bind(CpuPrimitive *p, int arg, const dnnl_memory_desc_t *desc, void *address) {
  return primitive_bind(p, arg, desc, address, PLACE_ADDRESS, 0);
}

Status cpu_primitive_bind_scratch(CpuPrimitive *p, int arg, const dnnl_memory_desc_t *desc,
                                  Place place, int64_t offset) {
  size_t bytes = (size_t)offset + dnnl.memory_desc_get_size(desc);
  STATUS_TRY(need_scratch(p->library, place == PLACE_COMMON, bytes));
  return primitive_bind(p, arg, desc, NULL, place, offset);
}

size_t cpu_primitive_scratchpad(const CpuPrimitive *p) {
  return dnnl.memory_desc_get_size(cpu_primitive_query(p, dnnl_query_scratchpad_md));
}

Status cpu_primitive_finish(CpuPrimitive *p, int64_t offset) {
  if (!cpu_primitive_scratchpad(p)) return STATUS_OK;
  return cpu_primitive_bind_scratch(p, DNNL_ARG_SCRATCHPAD,
                                    cpu_primitive_query(p, dnnl_query_scratchpad_md), PLACE_SCRATCH,
                                    offset);
}

void cpu_primitive_move(CpuPrimitive *p, int arg, void *address) {
  for (int i = 0; i < p->arg_count; i++)
    if (p->args[i].arg == arg) dnnl.memory_set_data_handle(p->args[i].memory, address);
}

/* The scratch is another one than that of the last run: another thread's, or it has grown. */
static void rebind(CpuPrimitive *p, char *scratch, char *common) {
  for (int i = 0; i < p->arg_count; i++)
    if (p->place[i] != PLACE_ADDRESS)
      dnnl.memory_set_data_handle(p->args[i].memory,
                                  (p->place[i] == PLACE_COMMON ? common : scratch) + p->offset[i]);
  p->scratch = scratch;
  p->common = common;
}

bool cpu_primitive_run(CpuPrimitive *p, int thread) {
  const CpuThread *own = &p->library->thread[thread];
  void *common = p->library->common;
  if (p->scratch != own->scratch || p->common != common) rebind(p, own->scratch, common);
  return dnnl.primitive_execute(p->primitive, own->stream, p->arg_count, p->args) == dnnl_success;
}

void cpu_primitive_free(CpuPrimitive *p) {
  for (int i = 0; i < p->arg_count; i++) dnnl.memory_destroy(p->args[i].memory);
  if (p->primitive) dnnl.primitive_destroy(p->primitive);
  if (p->desc) dnnl.primitive_desc_destroy(p->desc);
  *p = (CpuPrimitive){0};
}

/* ── gemm ─────────────────────────────────────────────────────────────────────────────────── */
/* One part's block of the product: batches [b0, b1), rows [m0, m1), columns [n0, n1). */
typedef struct {
  int64_t b0, b1, m0, m1, n0, n1;
} GemmBlock;

typedef struct {
  CpuCall call;
  GemmShape shape;
  GemmBlock *block;        /* one a part */
  CpuPrimitive *primitive; /* one a part; NULL: OpenBLAS, */
  BlasGemm *blas;          /* unless there is nothing to sum */
  char *arg[4];            /* a, b, (bias,) c */
} GemmCall;

static char *gemm_a(const GemmCall *g, const GemmBlock *k) {
  const GemmShape *s = &g->shape;
  return g->arg[0] + 4 * (k->b0 * s->m * s->k + k->m0 * (s->ta ? 1 : s->k));
}
static char *gemm_b(const GemmCall *g, const GemmBlock *k) {
  const GemmShape *s = &g->shape;
  return g->arg[1] + 4 * (k->b0 * s->k * s->n + k->n0 * (s->tb ? s->k : 1));
}
/* Only with a bias. */
static char *gemm_bias(const GemmCall *g, const GemmBlock *k) { return g->arg[2] + 4 * k->n0; }
static char *gemm_c(const GemmCall *g, const GemmBlock *k) {
  const GemmShape *s = &g->shape;
  return g->arg[s->has_bias ? 3 : 2] + 4 * (k->b0 * s->m * s->n + k->m0 * s->n + k->n0);
}

/* [begin, end) of part `index` of `parts`, in units of `unit` elements. */
static void cut(int64_t size, int64_t unit, int parts, int index, int64_t *begin, int64_t *end) {
  int64_t units = (size + unit - 1) / unit;
  *begin = units * index / parts * unit;
  *end = units * (index + 1) / parts * unit;
  if (*end > size) *end = size;
}

/* The largest block's cost when rows are cut in `rows` and columns in `columns`: arithmetic with
 * registers filled to their width, and the operands read and packed (measured: a transposed b costs
 * as much as eight multiplications an element, so that columns are cut rather than rows). */
static double cut_cost(const GemmShape *s, int rows, int columns) {
  int64_t begin, end;
  cut(s->m, 8, rows, 0, &begin, &end);
  double m = (double)(end - begin);
  cut(s->m, 8, rows, rows - 1, &begin, &end);
  if (end - begin > m) m = (double)(end - begin);
  cut(s->n, 16, columns, columns - 1, &begin, &end);
  double n = (double)(end - begin + 15 - (end - begin + 15) % 16);
  cut(s->n, 16, columns, 0, &begin, &end);
  if (end - begin > n) n = (double)(end - begin);
  return (double)s->k * (m * n + (s->ta ? 3 : 1) * m + (s->tb ? 8 : 2) * n);
}

static int cut_gemm(const GemmShape *s, int threads, GemmBlock *block) {
  double flops = 2.0 * (double)s->batch * (double)s->m * (double)s->n * (double)s->k;
  if (flops < small_gemm_flops) threads = 1;
  if (s->batch >= threads) { /* whole products */
    for (int i = 0; i < threads; i++) {
      block[i] = (GemmBlock){0, 0, 0, s->m, 0, s->n};
      cut(s->batch, 1, threads, i, &block[i].b0, &block[i].b1);
    }
    return threads;
  }
  int best = 1;
  double best_cost = -1;
  for (int rows = 1; rows <= threads; rows++) {
    if (threads % rows) continue;
    double cost = cut_cost(s, rows, threads / rows);
    if (best_cost < 0 || cost < best_cost) best = rows, best_cost = cost;
  }
  int columns = threads / best;
  for (int i = 0; i < threads; i++) {
    block[i] = (GemmBlock){.b1 = s->batch};
    cut(s->m, 8, best, i / columns, &block[i].m0, &block[i].m1);
    cut(s->n, 16, columns, i % columns, &block[i].n0, &block[i].n1);
  }
  return threads;
}

static bool gemm_is_empty(const GemmBlock *k) {
  return k->b0 >= k->b1 || k->m0 >= k->m1 || k->n0 >= k->n1;
}

static Status gemm_primitive(GemmCall *g, int part) {
  const GemmShape *s = &g->shape;
  const GemmBlock *k = &g->block[part];
  dnnl_dim_t batch = k->b1 - k->b0, m = k->m1 - k->m0, n = k->n1 - k->n0;
  dnnl_dims_t a_dims = {batch, m, s->k}, b_dims = {batch, s->k, n}, c_dims = {batch, m, n};
  dnnl_dims_t bias_dims = {1, 1, n}, bias_strides = {n, n, 1};
  dnnl_dims_t a_strides = {s->m * s->k, s->ta ? 1 : s->k, s->ta ? s->m : 1};
  dnnl_dims_t b_strides = {s->k * s->n, s->tb ? 1 : s->n, s->tb ? s->k : 1};
  dnnl_dims_t c_strides = {s->m * s->n, s->n, 1};
  /* without a batch the 2-D form: it has the better implementations */
  int from = s->batch == 1, rank = 3 - from;
  dnnl_memory_desc_t a, b, c, bias;
  dnnl_matmul_desc_t desc;
  dnnl.memory_desc_init_by_strides(&a, rank, a_dims + from, dnnl_f32, a_strides + from);
  dnnl.memory_desc_init_by_strides(&b, rank, b_dims + from, dnnl_f32, b_strides + from);
  dnnl.memory_desc_init_by_strides(&c, rank, c_dims + from, dnnl_f32, c_strides + from);
  dnnl.memory_desc_init_by_strides(&bias, rank, bias_dims + from, dnnl_f32, bias_strides + from);
  STATUS_TRY(cpu_dnnl(dnnl.matmul_desc_init(&desc, &a, &b, s->has_bias ? &bias : NULL, &c),
                      "describe a matrix product"));
  dnnl_post_ops_t post = NULL;
  if (s->has_relu) {
    STATUS_TRY(cpu_dnnl(dnnl.post_ops_create(&post), "make post-ops"));
    dnnl.post_ops_append_eltwise(post, 1, dnnl_eltwise_relu, 0, 0);
  }
  CpuPrimitive *p = &g->primitive[part];
  Status status = cpu_primitive_new(g->call.library, &desc, post, NULL, p);
  if (post) dnnl.post_ops_destroy(post);
  STATUS_TRY(status);
  STATUS_TRY(cpu_primitive_bind(p, DNNL_ARG_SRC, &a, gemm_a(g, k)));
  STATUS_TRY(cpu_primitive_bind(p, DNNL_ARG_WEIGHTS, &b, gemm_b(g, k)));
  STATUS_TRY(cpu_primitive_bind(p, DNNL_ARG_DST, &c, gemm_c(g, k)));
  if (s->has_bias) STATUS_TRY(cpu_primitive_bind(p, DNNL_ARG_BIAS, &bias, gemm_bias(g, k)));
  return cpu_primitive_finish(p, 0);
}

static void gemm_drop_primitives(GemmCall *g) {
  for (int i = 0; g->primitive && i < g->call.parts[0]; i++) cpu_primitive_free(&g->primitive[i]);
  free(g->primitive);
  g->primitive = NULL;
}

/* oneDNN, unless it has nothing better than its reference code, or FT_GEMM=openblas. */
static void gemm_choose_library(GemmCall *g) {
  const char *chosen = getenv("FT_GEMM");
  snprintf(g->call.text, sizeof g->call.text, "openblas");
  g->primitive = chosen && !strcmp(chosen, "openblas")
                     ? NULL
                     : calloc((size_t)g->call.parts[0], sizeof *g->primitive);
  if (!g->primitive) return;
  bool is_good = g->shape.k > 0 && cpu_need_engine(g->call.library) == STATUS_OK;
  for (int i = 0; i < g->call.parts[0] && is_good; i++)
    is_good = gemm_is_empty(&g->block[i]) ||
              (gemm_primitive(g, i) == STATUS_OK && !g->primitive[i].is_reference);
  if (is_good)
    snprintf(g->call.text, sizeof g->call.text, "%s", g->primitive[0].text);
  else
    gemm_drop_primitives(g);
}

static void gemm_blas(const GemmCall *g, const GemmBlock *k) {
  const GemmShape *s = &g->shape;
  int m = (int)(k->m1 - k->m0), n = (int)(k->n1 - k->n0);
  const float *bias = s->has_bias ? (const float *)gemm_bias(g, k) : NULL;
  for (GemmBlock one = *k; one.b0 < k->b1; one.b0++) {
    float *c = (float *)gemm_c(g, &one);
    for (int i = 0; i < m; i++) /* the bias first, then beta = 1 */
      for (int j = 0; j < n; j++) c[i * s->n + j] = bias ? bias[j] : 0;
    if (s->k)
      g->blas(CblasRowMajor, s->ta ? CblasTrans : CblasNoTrans, s->tb ? CblasTrans : CblasNoTrans,
              m, n, (int)s->k, 1, (const float *)gemm_a(g, &one), (int)(s->ta ? s->m : s->k),
              (const float *)gemm_b(g, &one), (int)(s->tb ? s->k : s->n), 1, c, (int)s->n);
    for (int i = 0; s->has_relu && i < m; i++)
      for (int j = 0; j < n; j++) c[i * s->n + j] = c[i * s->n + j] < 0 ? 0 : c[i * s->n + j];
  }
}

static bool gemm_run(CpuCall *call, int phase, int part, int thread) {
  GemmCall *g = (GemmCall *)call;
  (void)phase;
  if (gemm_is_empty(&g->block[part])) return true;
  if (g->primitive) return cpu_primitive_run(&g->primitive[part], thread);
  gemm_blas(g, &g->block[part]);
  return true;
}

static void gemm_move(CpuCall *call, int arg, char *address) {
  GemmCall *g = (GemmCall *)call;
  g->arg[arg] = address;
  for (int i = 0; g->primitive && i < call->parts[0]; i++) {
    if (gemm_is_empty(&g->block[i])) continue;
    CpuPrimitive *p = &g->primitive[i];
    const GemmBlock *k = &g->block[i];
    if (arg == 0) cpu_primitive_move(p, DNNL_ARG_SRC, gemm_a(g, k));
    if (arg == 1) cpu_primitive_move(p, DNNL_ARG_WEIGHTS, gemm_b(g, k));
    if (arg == (g->shape.has_bias ? 3 : 2))
      cpu_primitive_move(p, DNNL_ARG_DST, gemm_c(g, k));
    else if (arg == 2)
      cpu_primitive_move(p, DNNL_ARG_BIAS, gemm_bias(g, k));
  }
}

static void gemm_free(CpuCall *call) {
  GemmCall *g = (GemmCall *)call;
  gemm_drop_primitives(g);
  free(g->block);
}

static Status gemm_new(CpuLibrary *library, const PlanStep *step, char *const *args,
                       CpuCall **out) {
  GemmCall *g = calloc(1, sizeof *g);
  GemmBlock *block = calloc((size_t)library->threads, sizeof *block);
  if (!g || !block) {
    free(g);
    free(block);
    return status_fail(STATUS_FAULT, "out of memory");
  }
  g->block = block;
  g->call = (CpuCall){.library = library, .run = gemm_run, .move = gemm_move, .free = gemm_free};
  call_gemm_shape(step, &g->shape);
  for (int i = 0; i < step->arg_count; i++) g->arg[i] = args[i];
  g->call.phases = 1;
  g->call.parts[0] = cut_gemm(&g->shape, library->threads, block);
  gemm_choose_library(g);
  *out = &g->call;
  Status status = g->primitive || !g->shape.k ? STATUS_OK : blas_open(&g->blas);
  if (status != STATUS_OK) cpu_call_free(*out);
  return status;
}

/* ── copy and fill ────────────────────────────────────────────────────────────────────────── */
typedef struct {
  CpuCall call;
  char *from, *to; /* from NULL: fill with zero */
  int64_t bytes;
} CopyCall;

enum { SMALL_COPY = 1 << 16 };

static bool copy_run(CpuCall *call, int phase, int part, int thread) {
  CopyCall *c = (CopyCall *)call;
  (void)phase, (void)thread;
  int64_t begin, end;
  cut(c->bytes, 64, call->parts[0], part, &begin, &end);
  if (c->from)
    memmove(c->to + begin, c->from + begin, (size_t)(end - begin));
  else
    memset(c->to + begin, 0, (size_t)(end - begin));
  return true;
}

static void copy_move(CpuCall *call, int arg, char *address) {
  CopyCall *c = (CopyCall *)call;
  if (c->from && arg == 0)
    c->from = address;
  else
    c->to = address;
}

static Status copy_new(CpuLibrary *library, const PlanStep *step, char *const *args,
                       CpuCall **out) {
  CopyCall *c = calloc(1, sizeof *c);
  if (!c) return status_fail(STATUS_FAULT, "out of memory");
  c->call = (CpuCall){.library = library, .run = copy_run, .move = copy_move};
  c->from = step->arg_count == 2 ? args[0] : NULL;
  c->to = args[step->arg_count - 1];
  c->bytes = step->work;
  int64_t worth = c->bytes / SMALL_COPY;
  c->call.phases = 1;
  c->call.parts[0] = worth < 1 ? 1 : worth < library->threads ? (int)worth : library->threads;
  snprintf(c->call.text, sizeof c->call.text, "memory");
  *out = &c->call;
  return STATUS_OK;
}

/* ── every call ───────────────────────────────────────────────────────────────────────────── */
static Status call_new(CpuLibrary *library, const PlanStep *step, char *const *args,
                       CpuCall **out) {
  CallId id;
  if (step->kind == STEP_COPY || step->kind == STEP_FILL) return copy_new(library, step, args, out);
  if (!call_parse(step->name, &id))
    return status_fail(STATUS_USER, "there is no library call %s", step->name);
  switch (id) {
  case CALL_GEMM:
    return gemm_new(library, step, args, out);
  case CALL_CONV:
  case CALL_CONV_GRAD_INPUT:
  case CALL_CONV_GRAD_WEIGHT:
    return cpu_conv_new(library, step, id, args, out);
  case CALL_MATMUL: /* only in place of launches: cpu_matmul_new */
  case CALL_COUNT:
    break;
  }
  return status_fail(STATUS_USER, "there is no library call %s", step->name);
}

/* Primitives are made for one thread, as they will run: oneDNN is opened before its threads are set. A product does without it. */
Status cpu_call_new(CpuLibrary *library, const PlanStep *step, char *const *args, CpuCall **out) {
  CallId id = CALL_COUNT;
  bool is_moving = step->kind == STEP_COPY || step->kind == STEP_FILL;
  if (!is_moving && call_parse(step->name, &id)) {
    Status opened = cpu_need_engine(library);
    if (opened != STATUS_OK && id != CALL_GEMM) return opened;
  }
  int before = pool_quiet_libraries();
  Status status = call_new(library, step, args, out);
  pool_restore_libraries(before);
  return status;
}

void cpu_call_free(CpuCall *call) {
  if (!call) return;
  if (call->free) call->free(call);
  free(call);
}

int cpu_call_phases(const CpuCall *call) { return call->phases; }
int cpu_call_parts(const CpuCall *call, int phase) { return call->parts[phase]; }
bool cpu_call_shares_scratch(const CpuCall *call) { return call->shares_scratch; }
bool cpu_call_run(CpuCall *call, int phase, int part, int thread) {
  return call->run(call, phase, part, thread);
}
void cpu_call_move(CpuCall *call, int arg, char *address) { call->move(call, arg, address); }
const char *cpu_call_text(const CpuCall *call) { return call->text; }
