/* wgmma8_ptx: products of 8-bit floats (e4m3, e5m2) on Hopper's tensor cores. */
#define ELEMENT unsigned char
#include "kernels/wgmma_ptx.h"
