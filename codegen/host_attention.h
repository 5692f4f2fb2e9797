/* host_attention: attention and its gradient by kernels/attention_x86.c. */
#ifndef FT_CODEGEN_HOST_ATTENTION_H
#define FT_CODEGEN_HOST_ATTENTION_H
#include "codegen/host_private.h"

void host_emit_attention(HostKernel *kernel, Kernel *out);
#endif
