/* attention32_ptx: attention of f32 rounded to tf32 on tensor cores. */
#define ELEMENT unsigned
#define ATTENTION_MMA
#include "kernels/attention_ptx.h"
