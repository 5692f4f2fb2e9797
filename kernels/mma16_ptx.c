/* mma16_ptx: products of f16 or bf16 on tensor cores, 16 steps of k at a time. */
#define ELEMENT unsigned short
#include "kernels/mma_ptx.h"
