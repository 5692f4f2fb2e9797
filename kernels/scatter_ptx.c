/* scatter_ptx: sums of f32, f16 and bf16. */
#define REAL float
#include "kernels/scatter_ptx.h"
