/* nvptx_wgmma: wgmma.mma_async of f16, bf16 and 8-bit floats into f32, as a callback of a kernel body. */
#ifndef FT_CODEGEN_NVPTX_WGMMA_H
#define FT_CODEGEN_NVPTX_WGMMA_H
#include "codegen/nvptx_private.h"

/* name(float sum[most_high][128], a, const uint64_t b[depths], int adds): high * 64 x columns of a warpgroup, over `depths`
 * times 16 steps of k, or 32 of 8-bit floats, by as many instructions in one asm statement: LLVM has less to do than with
 * one for each. a is `const uint64_t [depths][most_high]`, descriptors, or `const unsigned [depths][most_high][4]`,
 * registers. A flat panel, not of 8-bit floats: neighbours in memory are neighbours along the tile, not along k. */
typedef struct {
  const char *name;
  DType dtype;   /* of a, */
  DType of_b;    /* and of b, where they are 8-bit floats; else the same */
  int columns, depths, high, most_high;
  bool is_a_kept, is_a_flat, is_b_flat;
} Wgmma;

void nvptx_define_wgmma(Job *job, const char *suffix, const Wgmma *form);
#endif
