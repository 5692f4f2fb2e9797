/* gemm_ptx: products of f32, f16 and bf16, summed in f32. */
#define REAL float
#include "kernels/gemm_ptx.h"
