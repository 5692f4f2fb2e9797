/* nvptx_rounded: products by weights that were rounded, on a GPU (passes/integers.h, kernels/rounded_ptx.c): how they are
 * cut, where the packed weights lie, and the launch that packs them, once for all runs where pass prepare says so. */
#ifndef FT_CODEGEN_NVPTX_ROUNDED_H
#define FT_CODEGEN_NVPTX_ROUNDED_H
#include "codegen/nvptx_contract.h"

/* Has the product of this step such a kernel? Not where something else of the step reads the weights, and so packing them
 * would be for this run alone. */
bool nvptx_rounded_suits(const Node *step, const Node *product);
/* Chooses c->tile, whose micro_m and micro_n are what a warp makes, and says how many bytes the packed weights have. */
void nvptx_rounded_choose(Contract *c);
/* Constants and callbacks of kernels/rounded_ptx.c. */
void nvptx_rounded_define(Contract *c);
/* The launch that packs; the one behind it has the product's parameters. */
void nvptx_rounded_pack(Contract *c);
#endif
