/* cuda_blas: see cuda_blas.h. cuBLASLt counts columns first and ft rows first: d = a b of ft is, in
 * the same memory, d' = b' a' of the library, so operands change places and nothing is transposed;
 * ft's bias over columns is the library's over rows. */
#include "runtime/device/cuda/cuda_blas.h"
#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OLDEST = 110600 }; /* cuBLASLt 11.6: all epilogues used here */

/* ── the library ──────────────────────────────────────────────────────────────────────────── */
static const struct {
  const char *symbol;
  size_t place;
} cuda_blas_entries[] = {
#define BLAS(name, symbol, parameters) {symbol, offsetof(CudaBlas, name)},
#include "runtime/device/cuda/cuda_blas.def"
#undef BLAS
};

/* Python's packages bring it along, where no loader looks. */
static void *open_in(const char *variable, const char *pattern) {
  const char *root = getenv(variable);
  glob_t found;
  char path[512];
  void *library = NULL;
  if (!root || !root[0] ||
      snprintf(path, sizeof path, "%s/%s", root, pattern) >= (int)sizeof path ||
      glob(path, 0, NULL, &found) != 0)
    return NULL;
  for (size_t i = found.gl_pathc; i > 0 && !library; i--) /* the newest first */
    library = dlopen(found.gl_pathv[i - 1], RTLD_NOW | RTLD_LOCAL);
  globfree(&found);
  return library;
}

static void *cuda_blas_open_library(void) {
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11",
                                      "libcublasLt.so", "/usr/local/cuda/lib64/libcublasLt.so"};
  const char *path = getenv("FT_CUBLASLT_LIBRARY");
  if (path && path[0]) return dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void *library = NULL;
  for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
    library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (!library)
    library =
        open_in("VIRTUAL_ENV", "lib/python3*/site-packages/nvidia/*/lib/libcublasLt.so.1[1-9]");
  return library ? library : open_in("CONDA_PREFIX", "lib/libcublasLt.so.1[1-9]");
}

/* 12.4.5 is 120405; before 12 the middle number has two digits less: 11.6.5 is 110605 too. */
static bool cuda_blas_find_entries(CudaBlas *blas) {
  union {
    void *data;
    size_t (*version)(void);
  } symbol = {dlsym(blas->library, "cublasLtGetVersion")};
  if (!symbol.data) return false;
  blas->version = symbol.version();
  for (size_t i = 0; i < sizeof cuda_blas_entries / sizeof *cuda_blas_entries; i++) {
    void *found = dlsym(blas->library, cuda_blas_entries[i].symbol);
    if (!found) return false;
    *(void **)((char *)blas + cuda_blas_entries[i].place) = found;
  }
  return blas->version >= OLDEST;
}

size_t cuda_blas_version(bool *is_usable) {
  CudaBlas blas = {.library = cuda_blas_open_library()};
  *is_usable = blas.library && cuda_blas_find_entries(&blas);
  return blas.version;
}

static bool plan_offers_calls(const Plan *plan) {
  int count = 0;
  for (int i = 0; i < plan->graphs.count; i++) count += plan->graphs.at[i].insteads.count;
  return count > 0;
}

Status cuda_blas_open(Device *device, bool is_wanted, const char **text) {
  const char *chosen = getenv("FT_CUBLASLT");
  *text = "";
  if (!is_wanted || !plan_offers_calls(device->artifact->plan)) return STATUS_OK;
  if (chosen && !strcmp(chosen, "own")) return STATUS_OK;
  CudaBlas *blas = calloc(1, sizeof *blas);
  if (!blas) return status_fail(STATUS_FAULT, "out of memory");
  blas->library = cuda_blas_open_library();
  *text = ", without cuBLASLt: it is not found";
  if (blas->library && !cuda_blas_find_entries(blas))
    *text = ", without cuBLASLt: the one found is older than 11.6";
  else if (blas->library && blas->create(&blas->handle) != 0)
    *text = ", without cuBLASLt: it does not start";
  if (!blas->handle) { /* the library stays open: it leaves threads and handlers at exit */
    free(blas);
    return STATUS_OK;
  }
  *text = ", with cuBLASLt";
  blas->takes_first = chosen && !strcmp(chosen, "library");
  blas->workspace_bytes = device->major >= 9 ? 32 << 20 : 8 << 20; /* as NVIDIA advises */
  device->blas = blas;
  return cuda_tune_open(device);
}

int64_t cuda_blas_workspace(const Device *device) {
  return device->blas ? device->blas->workspace_bytes : 0;
}

void cuda_blas_ready(Device *device) {
  if (device->blas) device->blas->workspace = cuda_take(device, device->blas->workspace_bytes);
}

void cuda_blas_close(Device *device) {
  if (!device->blas) return;
  cuda_tune_close(device);
  device->blas->destroy(device->blas->handle);
  free(device->blas);
  device->blas = NULL;
}

static Status blas_check(int result, const char *what) {
  if (!result) return STATUS_OK;
  return status_fail(STATUS_FAULT, "cuBLASLt: %s failed with status %d", what, result);
}
#define BLAS_TRY(call, what) STATUS_TRY(blas_check(call, what))

/* ── a call's descriptors ─────────────────────────────────────────────────────────────────── */
static int type_of(DType dtype) {
  return dtype == DT_F16 ? BLAS_TYPE_F16 : dtype == DT_BF16 ? BLAS_TYPE_BF16 : BLAS_TYPE_F32;
}

/* Sums are in f32; f32 operands may be rounded on the way where the plan says so. */
static int compute_of(CallCompute compute, DType operands) {
  if (operands != DT_F32 || compute == COMPUTE_F32) return BLAS_COMPUTE_F32;
  return compute == COMPUTE_TF32   ? BLAS_COMPUTE_FAST_TF32
         : compute == COMPUTE_BF16 ? BLAS_COMPUTE_FAST_BF16
                                   : BLAS_COMPUTE_FAST_F16;
}

static uint32_t epilogue_of(const MatmulShape *shape) {
  static const uint32_t of_act[] = {[ACT_NONE] = 0,
                                    [ACT_RELU] = BLAS_EPILOGUE_RELU,
                                    [ACT_GELU] = BLAS_EPILOGUE_GELU,
                                    [ACT_RELU_GRADIENT] = BLAS_EPILOGUE_RELU_GRADIENT,
                                    [ACT_GELU_GRADIENT] = BLAS_EPILOGUE_GELU_GRADIENT};
  uint32_t epilogue = of_act[shape->act];
  if (shape->bias >= 0) epilogue |= BLAS_EPILOGUE_BIAS;
  if (shape->aux >= 0) epilogue |= BLAS_EPILOGUE_AUX;
  if (shape->sums >= 0)
    epilogue |= shape->of == SUMS_RESULT ? BLAS_EPILOGUE_SUMS
                : shape->of == SUMS_A    ? BLAS_EPILOGUE_SUMS_B /* our a is its b */
                                         : BLAS_EPILOGUE_SUMS_A;
  return epilogue ? epilogue : BLAS_EPILOGUE_DEFAULT;
}

/* A matrix of ft stored [rows, columns], seen by the library as its transpose. */
static Status make_layout(CudaBlas *blas, DType dtype, int64_t rows, int64_t columns,
                          int64_t batches, void **out) {
  BLAS_TRY(blas->layout_create(out, type_of(dtype), (uint64_t)columns, (uint64_t)rows, columns),
           "a layout");
  int32_t count = (int32_t)batches;
  int64_t stride = rows * columns;
  if (batches == 1) return STATUS_OK;
  BLAS_TRY(blas->layout_set(*out, BLAS_LAYOUT_BATCHES, &count, sizeof count), "a layout");
  return blas_check(blas->layout_set(*out, BLAS_LAYOUT_STRIDE, &stride, sizeof stride), "a layout");
}

static const Type *argument_type(const DeviceGraph *graph, const CudaCall *call, int index) {
  return &graph->plan->buffers.at[call->step->args[index]].type;
}

static Status make_descriptors(DeviceGraph *graph, CudaCall *call) {
  CudaBlas *blas = graph->device->blas;
  const MatmulShape *s = &call->shape;
  DType operands = argument_type(graph, call, 0)->dtype;
  DType result = argument_type(graph, call, s->d)->dtype;
  int32_t transpose = BLAS_OP_TRANSPOSE;
  uint32_t epilogue = epilogue_of(s);
  BLAS_TRY(blas->desc_create(&call->desc, compute_of(s->compute, operands), BLAS_TYPE_F32),
           "a descriptor");
  if (s->tb)
    BLAS_TRY(blas->desc_set(call->desc, BLAS_DESC_OP_A, &transpose, sizeof transpose), "a flag");
  if (s->ta)
    BLAS_TRY(blas->desc_set(call->desc, BLAS_DESC_OP_B, &transpose, sizeof transpose), "a flag");
  BLAS_TRY(blas->desc_set(call->desc, BLAS_DESC_EPILOGUE, &epilogue, sizeof epilogue),
           "an epilogue");
  if (s->aux >= 0)
    BLAS_TRY(blas->desc_set(call->desc, BLAS_DESC_AUX_LEADING, &s->aux_row, sizeof s->aux_row),
             "an epilogue");
  STATUS_TRY(
      make_layout(blas, operands, s->tb ? s->n : s->k, s->tb ? s->k : s->n, s->batch, &call->a));
  STATUS_TRY(
      make_layout(blas, operands, s->ta ? s->k : s->m, s->ta ? s->m : s->k, s->batch, &call->b));
  return make_layout(blas, result, s->m, s->n, s->batch, &call->d);
}

static void free_call(CudaBlas *blas, CudaCall *call) {
  if (call->desc) blas->desc_destroy(call->desc);
  if (call->a) blas->layout_destroy(call->a);
  if (call->b) blas->layout_destroy(call->b);
  if (call->d) blas->layout_destroy(call->d);
}

/* The pointers that lie in the descriptor: what is said to the library just before a call. */
static Status set_pointers(DeviceGraph *graph, const CudaCall *call, int slot) {
  CudaBlas *blas = graph->device->blas;
  const int *args = call->step->args;
  const MatmulShape *s = &call->shape;
  int vector = s->bias >= 0 ? s->bias : s->sums;
  if (vector >= 0) {
    CudaAddress at = cuda_graph_address(graph, args[vector], slot);
    BLAS_TRY(blas->desc_set(call->desc, BLAS_DESC_BIAS, &at, sizeof at), "a bias");
  }
  if (s->aux >= 0) {
    CudaAddress at = cuda_graph_address(graph, args[s->aux], slot);
    BLAS_TRY(blas->desc_set(call->desc, BLAS_DESC_AUX, &at, sizeof at), "an epilogue");
  }
  return STATUS_OK;
}

/* ── proposals ────────────────────────────────────────────────────────────────────────────── */
static uint32_t alignment_of(CudaAddress address) {
  uint32_t alignment = 256;
  while (address % alignment) alignment /= 2;
  return alignment;
}

/* The argument that is added; where none is, the library wants some address all the same. */
static int added_of(const CudaCall *call) {
  return call->shape.c >= 0 ? call->shape.c : call->shape.d;
}

static Status ask_library(DeviceGraph *graph, const CudaCall *call, void *preference,
                          CudaBlasFound *found, int *count) {
  CudaBlas *blas = graph->device->blas;
  const int *args = call->step->args;
  uint64_t bytes = (uint64_t)blas->workspace_bytes;
  /* in the library's order: a, b, c, d */
  const int order[4] = {args[1], args[0], args[added_of(call)], args[call->shape.d]};
  BLAS_TRY(blas->preference_set(preference, BLAS_PREFERENCE_WORKSPACE, &bytes, sizeof bytes),
           "a preference");
  for (int i = 0; i < 4; i++) {
    uint32_t alignment = alignment_of(cuda_graph_address(graph, order[i], 0));
    BLAS_TRY(
        blas->preference_set(preference, BLAS_PREFERENCE_ALIGN_A + i, &alignment, sizeof alignment),
        "a preference");
  }
  /* a library that can do it not at all says so by its status: our own kernels do it then */
  *count = 0;
  if (blas->heuristic(blas->handle, call->desc, call->a, call->b, call->d, call->d, preference,
                      CUDA_BLAS_PROPOSALS, found, count) != 0)
    *count = 0;
  int usable = 0;
  for (int i = 0; i < *count; i++)
    if (found[i].state == 0 && found[i].workspace <= bytes) found[usable++] = found[i];
  *count = usable;
  return STATUS_OK;
}

static Status propose(DeviceGraph *graph, const CudaCall *call, CudaBlasFound *found, int *count) {
  CudaBlas *blas = graph->device->blas;
  void *preference;
  STATUS_TRY(set_pointers(graph, call, 0));
  BLAS_TRY(blas->preference_create(&preference), "a preference");
  Status status = ask_library(graph, call, preference, found, count);
  blas->preference_destroy(preference);
  return status;
}

/* ── the choice ───────────────────────────────────────────────────────────────────────────── */
/* The largest replacement of steps from `first` on, not beyond `end`, that comes after row `after`
 * of the plan's list: what lies within another stands behind it. -1: none. */
static int find_instead(const PlanGraph *plan, int first, int end, int after) {
  for (int i = after + 1; i < plan->insteads.count; i++)
    if (plan->insteads.at[i].first == first && plan->insteads.at[i].end <= end) return i;
  return -1;
}

static bool writes_bits(const PlanStep *call, int buffer) {
  MatmulShape shape;
  call_matmul_shape(call, &shape);
  return shape.act == ACT_RELU && shape.aux >= 0 && call->args[shape.aux] == buffer;
}

/* Only calls write relu's bits (plan/plan.h): the one that writes this buffer is made, or the plan
 * has none. */
static bool bits_are_there(const DeviceGraph *graph, int buffer) {
  for (int i = 0; i < graph->item_count; i++) {
    const CudaCall *call = graph->item[i].call;
    if (call && call->shape.aux >= 0 && writes_bits(call->step, buffer)) return true;
  }
  for (int i = 0; i < graph->plan->insteads.count; i++)
    for (int k = 0; k < graph->plan->insteads.at[i].call_count; k++)
      if (writes_bits(&graph->plan->insteads.at[i].call[k], buffer)) return false;
  return true;
}

/* Descriptors of one call, and what the library proposes for it: perhaps nothing. */
static Status prepare(DeviceGraph *graph, CudaCall *call, CudaBlasFound *found, int *count) {
  STATUS_TRY(make_descriptors(graph, call));
  STATUS_TRY(propose(graph, call, found, count));
  if (*count || call->shape.act != ACT_RELU || call->shape.aux < 0) return STATUS_OK;
  /* without the bits then; relu's gradient is left to our kernels */
  free_call(graph->device->blas, call);
  call->desc = call->a = call->b = call->d = NULL;
  call->shape.aux = -1;
  STATUS_TRY(make_descriptors(graph, call));
  return propose(graph, call, found, count);
}

static Status choose(DeviceGraph *graph, CudaOffer *offer, const CudaItem *own, int own_count,
                     bool *is_taken) {
  *is_taken = false;
  for (int i = 0; i < offer->instead->call_count; i++) {
    STATUS_TRY(prepare(graph, offer->call[i], offer->found[i], &offer->found_count[i]));
    if (!offer->found_count[i]) return STATUS_OK;
  }
  if (!graph->device->blas->takes_first) /* else all are 0 */
    STATUS_TRY(cuda_tune_choose(graph, offer, own, own_count));
  for (int i = 0; i < offer->instead->call_count; i++) {
    if (offer->chosen[i] < 0) return STATUS_OK;
    offer->call[i]->algorithm = offer->found[i][offer->chosen[i]].algorithm;
    /* once now, on zeros, to zeros: the library loads its code at the first call, which it should
     * not do while a step is captured */
    CudaItem once = {.call = offer->call[i]};
    STATUS_TRY(cuda_blas_enqueue(graph, &once, 0, graph->device->compute));
  }
  *is_taken = true;
  return STATUS_OK;
}

/* Items from number `before` on do what `instead` does too: takes it if it is wanted. */
static Status consider(DeviceGraph *graph, const PlanInstead *instead, int before) {
  CudaBlas *blas = graph->device->blas;
  CudaOffer offer = {.instead = instead};
  bool is_taken = false;
  for (int i = 0; i < instead->call_count; i++) {
    CudaCall *call = offer.call[i] = ARENA_NEW(graph->arena, CudaCall);
    call->step = &instead->call[i];
    call_matmul_shape(call->step, &call->shape);
    if (call->shape.act == ACT_RELU_GRADIENT &&
        !bits_are_there(graph, call->step->args[call->shape.aux]))
      return STATUS_OK;
  }
  Status status =
      choose(graph, &offer, &graph->item[before], graph->item_count - before, &is_taken);
  if (status != STATUS_OK || !is_taken) {
    for (int i = 0; i < instead->call_count; i++) free_call(blas, offer.call[i]);
    return status;
  }
  for (int i = before; i < graph->item_count; i++)
    if (graph->item[i].call) free_call(blas, graph->item[i].call);
  graph->item_count = before;
  for (int i = 0; i < instead->call_count; i++)
    graph->item[graph->item_count++] =
        (CudaItem){.first = instead->first, .end = instead->end, .call = offer.call[i]};
  return STATUS_OK;
}

static Status add_items(DeviceGraph *graph, int first, int end, int within) {
  const PlanGraph *plan = graph->plan;
  for (int i = first; i < end;) {
    int row = graph->device->blas ? find_instead(plan, i, end, within) : -1, before;
    if (row < 0) {
      graph->item[graph->item_count++] =
          (CudaItem){.first = i, .end = i + 1, .function = graph->function[i]};
      i++;
      continue;
    }
    before = graph->item_count;
    i = plan->insteads.at[row].end;
    STATUS_TRY(add_items(graph, plan->insteads.at[row].first, i, row));
    STATUS_TRY(consider(graph, &plan->insteads.at[row], before));
  }
  return STATUS_OK;
}

Status cuda_blas_items(DeviceGraph *graph) {
  return add_items(graph, 0, graph->plan->steps.count, -1);
}

Status cuda_blas_enqueue(DeviceGraph *graph, const CudaItem *item, int slot, CudaStream stream) {
  static const float one = 1, zero = 0;
  CudaBlas *blas = graph->device->blas;
  const CudaCall *call = item->call;
  const int *args = call->step->args;
  void *c = (void *)(uintptr_t)cuda_graph_address(graph, args[added_of(call)], slot);
  void *d = (void *)(uintptr_t)cuda_graph_address(graph, args[call->shape.d], slot);
  STATUS_TRY(set_pointers(graph, call, slot));
  int result = blas->matmul(
      blas->handle, call->desc, &one, (void *)(uintptr_t)cuda_graph_address(graph, args[1], slot),
      call->a, (void *)(uintptr_t)cuda_graph_address(graph, args[0], slot), call->b,
      call->shape.c >= 0 ? &one : &zero, c, call->d, d, call->d, &call->algorithm,
      (void *)(uintptr_t)blas->workspace, (size_t)blas->workspace_bytes, stream);
  return blas_check(result, call->step->label);
}

void cuda_blas_forget(DeviceGraph *graph) {
  for (int i = 0; i < graph->item_count; i++)
    if (graph->item[i].call) free_call(graph->device->blas, graph->item[i].call);
}
