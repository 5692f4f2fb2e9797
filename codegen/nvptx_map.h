/* nvptx_map: the tensor maps of a product's or convolution's operands. */
#ifndef FT_CODEGEN_NVPTX_MAP_H
#define FT_CODEGEN_NVPTX_MAP_H
#include "codegen/nvptx_contract.h"

/* Sets the job's maps: of a, of b, or of both, as the operands and the tile say. */
void nvptx_make_maps(Contract *c);
#endif
