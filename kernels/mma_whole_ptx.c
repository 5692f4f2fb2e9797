/* mma_whole_ptx: products of whole numbers of at most 8 bits on tensor cores, 32 steps of k at a time, which first bring
 * their operands into 8 bits (gemm_whole.h). Sums are 32-bit integers, and exact. */
#define ELEMENT unsigned char
#define REAL int
#define VALUE float
#define WHOLE
#include "kernels/mma_ptx.h"
