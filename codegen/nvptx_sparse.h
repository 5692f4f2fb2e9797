/* nvptx_sparse: products by weights of which, of each four neighbours of what is summed up, at most two are not 0, on a GPU's sparse tensor cores
 * (passes/sparse.h, kernels/sparse_ptx.c): how they are cut, where the packed weights lie, and the launch that packs them, once for all
 * runs where pass prepare says so. */
#ifndef FT_CODEGEN_NVPTX_SPARSE_H
#define FT_CODEGEN_NVPTX_SPARSE_H
#include "codegen/nvptx_contract.h"

/* Has the product of this step such a kernel? Not where something else of the step reads the weights. */
bool nvptx_sparse_suits(const Node *step, const Node *product);
/* Chooses c->tile, whose micro_m and micro_n are what a warp makes, and says how many bytes the packed weights have. */
void nvptx_sparse_choose(Contract *c);
/* Constants and callbacks of kernels/sparse_ptx.c. */
void nvptx_sparse_define(Contract *c);
/* The launch that packs; the one behind it has the product's parameters. */
void nvptx_sparse_pack(Contract *c);
#endif
