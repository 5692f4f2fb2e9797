/* scatter64_ptx: sums of f64. */
#define REAL double
#include "kernels/scatter_ptx.h"
