/* cuda_blas: products of cuBLASLt in place of launches of our own, where the plan offers one (an
 * `instead`, plan/plan.h), the library is there, and it is faster on this GPU. Which one is faster
 * is timed once and written beside the artifact (cuda_tune.c).
 *   FT_CUBLASLT=own       our own kernels only (as --deterministic does)
 *   FT_CUBLASLT=library   the library's first proposal, without timing
 *   FT_CUBLASLT_LIBRARY   the library's file; else the loader finds it, or it lies in the Python
 *                         environment that is active */
#ifndef FT_RUNTIME_CUDA_BLAS_H
#define FT_RUNTIME_CUDA_BLAS_H
#include "plan/plan_calls.h"
#include "runtime/device/cuda/cuda_private.h"

/* ── the library's own types and numbers ──────────────────────────────────────────────────── */
typedef struct {
  uint64_t data[8];
} CudaBlasAlgorithm;
typedef struct {
  CudaBlasAlgorithm algorithm;
  size_t workspace;
  int state; /* 0: usable */
  float waves;
  int reserved[4];
} CudaBlasFound;
enum {
  BLAS_TYPE_F32 = 0,
  BLAS_TYPE_F16 = 2,
  BLAS_TYPE_BF16 = 14,
  BLAS_COMPUTE_F32 = 68,
  BLAS_COMPUTE_FAST_F16 = 74,
  BLAS_COMPUTE_FAST_BF16 = 75,
  BLAS_COMPUTE_FAST_TF32 = 77,
  BLAS_OP_TRANSPOSE = 1,
  BLAS_DESC_OP_A = 3,
  BLAS_DESC_OP_B = 4,
  BLAS_DESC_EPILOGUE = 7,
  BLAS_DESC_BIAS = 8,
  BLAS_DESC_AUX = 11,
  BLAS_DESC_AUX_LEADING = 12,
  BLAS_LAYOUT_BATCHES = 5,
  BLAS_LAYOUT_STRIDE = 6,
  BLAS_PREFERENCE_WORKSPACE = 1,
  BLAS_PREFERENCE_ALIGN_A = 5, /* then B, C, D */
  BLAS_EPILOGUE_DEFAULT = 1,
  BLAS_EPILOGUE_RELU = 2,
  BLAS_EPILOGUE_BIAS = 4,
  BLAS_EPILOGUE_RELU_GRADIENT = 8,
  BLAS_EPILOGUE_SUMS = 16,
  BLAS_EPILOGUE_GELU = 32,
  BLAS_EPILOGUE_GELU_GRADIENT = 64,
  BLAS_EPILOGUE_AUX = 128,
  BLAS_EPILOGUE_SUMS_A = 256,
  BLAS_EPILOGUE_SUMS_B = 512,
};

/* ── a call ───────────────────────────────────────────────────────────────────────────────── */
struct CudaCall {
  const PlanStep *step;
  MatmulShape shape;
  void *desc, *a, *b, *d; /* in the library's sense: columns first, so a is our b */
  CudaBlasAlgorithm algorithm;
};

/* Calls that may be made in place of some launches, with what the library proposes for each. */
enum { CUDA_BLAS_PROPOSALS = 8 };
typedef struct {
  const PlanInstead *instead;
  CudaCall *call[INSTEAD_CALLS];
  CudaBlasFound found[INSTEAD_CALLS][CUDA_BLAS_PROPOSALS];
  int found_count[INSTEAD_CALLS];
  int chosen[INSTEAD_CALLS]; /* among them; -1: the launches are faster */
} CudaOffer;

typedef struct CudaTune CudaTune; /* cuda_tune.c */
struct CudaBlas {
  void *library, *handle;
  size_t version;
  int64_t workspace_bytes;
  CudaAddress workspace;
  bool takes_first; /* without timing */
  CudaTune *tune;
#define BLAS(name, symbol, parameters) int(*name) parameters;
#include "runtime/device/cuda/cuda_blas.def"
#undef BLAS
};

/* The number that the library here gives, 0: there is none; usable: new enough and whole. */
size_t cuda_blas_version(bool *is_usable);
/* Looks for the library; that it is missing or too old is no failure, `text` says so. */
Status cuda_blas_open(Device *device, bool is_wanted, const char **text);
/* Bytes of workspace that calls want from the one allocation, after cuda_blas_open. */
int64_t cuda_blas_workspace(const Device *device);
/* Takes the workspace, when the allocation is made. */
void cuda_blas_ready(Device *device);
void cuda_blas_close(Device *device);
/* Fills the graph's items, in order: launches, and calls in place of some where they are wanted. */
Status cuda_blas_items(DeviceGraph *graph);
Status cuda_blas_enqueue(DeviceGraph *graph, const CudaItem *item, int slot, CudaStream stream);
void cuda_blas_forget(DeviceGraph *graph);

/* ── cuda_tune.c: the choice ──────────────────────────────────────────────────────────────── */
Status cuda_tune_open(Device *device);
/* Writes what was new beside the artifact; that it cannot be written is no failure. */
void cuda_tune_close(Device *device);
/* Fills `chosen`: which of the proposals to take, or the items `own` that do the same. */
Status cuda_tune_choose(DeviceGraph *graph, CudaOffer *offer, const CudaItem *own, int own_count);
#endif
