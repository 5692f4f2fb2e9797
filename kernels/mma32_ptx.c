/* mma32_ptx: products of f32 rounded to tf32 on tensor cores, 8 steps of k at a time. */
#define ELEMENT unsigned
#include "kernels/mma_ptx.h"
