/* nvptx_wgmma: wgmma.mma_async of f16, bf16 and 8-bit floats into f32, as a callback of a kernel body. */
#ifndef FT_CODEGEN_NVPTX_WGMMA_H
#define FT_CODEGEN_NVPTX_WGMMA_H
#include "codegen/nvptx_private.h"

/* name(float *sum, a, uint64_t b, int adds): 64 x columns of a warpgroup, over 16 steps of k, or 32 of 8-bit floats. a is
 * a descriptor, or `const unsigned *` of four registers. A flat panel, not of 8-bit floats: neighbours in memory are
 * neighbours along the tile, not along k. */
typedef struct {
  const char *name;
  DType dtype;   /* of a, */
  DType of_b;    /* and of b, where they are 8-bit floats; else the same */
  int columns;
  bool is_a_kept, is_a_flat, is_b_flat;
} Wgmma;

void nvptx_define_wgmma(Job *job, const char *suffix, const Wgmma *form);
#endif
