/* gemm64_ptx: products of f64. */
#define REAL double
#include "kernels/gemm_ptx.h"
