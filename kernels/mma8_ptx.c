/* mma8_ptx: products of 8-bit floats (e4m3, e5m2) on tensor cores, 32 steps of k at a time. */
#define ELEMENT unsigned char
#include "kernels/mma_ptx.h"
