/* wgmma16_ptx: products of f16 or bf16 on Hopper's tensor cores. */
#define ELEMENT unsigned short
#include "kernels/wgmma_ptx.h"
