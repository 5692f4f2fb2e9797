/* nvptx_mma: tensor cores' instructions as callbacks of kernel bodies in C. */
#ifndef FT_CODEGEN_NVPTX_MMA_H
#define FT_CODEGEN_NVPTX_MMA_H
#include "codegen/nvptx_private.h"

/* Defines <prefix>_mma, _matrices, _matrices_across and, for tf32, _round under `suffix`; dtype is
 * that of the operands. */
void nvptx_define_mma(Job *job, const char *suffix, const char *prefix, DType dtype, bool is_tf32);
/* <prefix>_mma, _matrices and _matrices_across, for 8-bit floats, of which a and b may have different ones. */
void nvptx_define_mma8(Job *job, const char *suffix, const char *prefix, DType a, DType b);
/* The same for integers of 8 bits, with a sign or without; sums are i32. */
void nvptx_define_mma_whole(Job *job, const char *suffix, const char *prefix, bool is_a_signed, bool is_b_signed);
#endif
