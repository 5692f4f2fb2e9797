/* nvptx_sums: sums over the columns of a convolution's result, made by its own kernel: what
 * nvptx_contract.c asks for. */
#ifndef FT_CODEGEN_NVPTX_SUMS_H
#define FT_CODEGEN_NVPTX_SUMS_H
#include "codegen/nvptx_contract.h"

/* Finds the reductions of the kernel's body: c->sums, totals and moments. */
void nvptx_sums_collect(Contract *c);
int nvptx_sums_numbers(const Contract *c); /* of a column */
/* Bytes for those of all tiles. */
int64_t nvptx_sums_workspace(const Contract *c);
/* Constants, and the function that finishes a column's sums. */
void nvptx_sums_define(Contract *c);
/* In callbacks: adds what the epilogue makes at `index`, the thread's column `lane`, to its
 * numbers; or makes it their shift. */
void nvptx_sums_add(Contract *c, Emitter *emitter, LLVMValueRef columns, const Index *index,
                    int lane);
void nvptx_sums_shift(Contract *c, Emitter *emitter, LLVMValueRef columns, const Index *index,
                      int lane);
/* The second launch, if there are any. */
void nvptx_sums_entry(Contract *c);
#endif
