/* nvptx_waits: ftc --debug-waits: the constants by which kernels bound their waits at mbarriers. */
#ifndef FT_CODEGEN_NVPTX_WAITS_H
#define FT_CODEGEN_NVPTX_WAITS_H
#include "codegen/nvptx_private.h"

/* Defines PREFIX_wait_polls and PREFIX_wait_kernel of a body (kernels/mbarrier.h) for the entry of
 * this name. */
void nvptx_define_waits(Job *job, const char *suffix, const char *prefix, const char *entry);
#endif
