/* attentionf_ptx: attention of f32 as it is. */
#define ELEMENT unsigned
#include "kernels/attention_ptx.h"
