/* nvptx_whole: products of whole numbers on a GPU (passes/integers.h, kernels/gemm_whole.h): where their packed operands
 * lie, and the launches that pack them: the first in every run; the second one once for all runs, where pass prepare says so. */
#ifndef FT_CODEGEN_NVPTX_WHOLE_H
#define FT_CODEGEN_NVPTX_WHOLE_H
#include "codegen/nvptx_contract.h"

/* What is multiplied are the packed operands: c->a and c->b as these lie, c->whole, and their bytes. */
void nvptx_whole_lay(Contract *c);
/* Constants and callbacks of kernels/gemm_whole.h. */
void nvptx_whole_define(Contract *c);
/* The launches that pack; the one behind them has the product's parameters. */
void nvptx_whole_pack(Contract *c);
/* From here on entries have the parameters of the product, of whole numbers or by rounded weights (nvptx_rounded.h), or
 * (is_second) of the launch that adds the parts of split sums. */
void nvptx_whole_parameters(Contract *c, bool is_second);
#endif
