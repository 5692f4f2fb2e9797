/* attention16_ptx: attention of f16 or bf16 on tensor cores. */
#define ELEMENT unsigned short
#define ATTENTION_MMA
#include "kernels/attention_ptx.h"
