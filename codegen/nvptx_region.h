/* nvptx_region: convolutions that load a region of their images once for all places of the window (kernels/wgmma_region.h). */
#ifndef FT_CODEGEN_NVPTX_REGION_H
#define FT_CODEGEN_NVPTX_REGION_H
#include "codegen/nvptx_contract.h"

/* By tiles of wgmma: forward or the gradient of the input, in NHWC and 16 bits, with a stride of 1 and whole rows of channels. */
bool nvptx_may_region(const Contract *c);
/* Sets tile->region, ->regions and ->region_mean for the tile's rows. */
void nvptx_lay_region(const Contract *c, Tile *tile);
#endif
