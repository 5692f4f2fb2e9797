/* nvptx: GPU skeletons. One call emits all that one node needs on the GPU.
 * Invariant: kernels take .u64 pointers only, in the order operands, results, workspace. */
#ifndef FT_CODEGEN_NVPTX_H
#define FT_CODEGEN_NVPTX_H
#include "codegen/emit.h"

/* Emits the kernel of `node`: a FUSED node of any kind, or a DOT, CONV, CONV_GRAD_INPUT,
 * CONV_GRAD_WEIGHT SCATTER_ADD or PUT outside of bodies. `name` is the entry's name; further
 * entries of the same node append to it ("<name>_combine"). `alias[i]`: for result i the operand
 * that lies at the same address (in-place), -1 for none, -2 for unclear. `result`: the types of the
 * results as they lie in memory; NULL: without pitches. rows: the kernel goes by so many (codegen/chain.h,
 * chain_by_rows says that it may); 0: it does not. Fills *out (launches with grid, block,
 * shared; workspace). False with an error in module->diag if it cannot. */
bool nvptx_emit(Module *module, const Node *node, const char *name, const Type *result,
                const int *alias, int64_t rows, Kernel *out);
#endif
