/* nvptx_rows: small products whose blocks make whole rows, on a GPU (kernels/rows_ptx.c), for launches that go by rows
 * (codegen/chain.h). */
#ifndef FT_CODEGEN_NVPTX_ROWS_H
#define FT_CODEGEN_NVPTX_ROWS_H
#include "codegen/chain.h"
#include "codegen/nvptx_contract.h"

/* Chooses c->tile: a block has job->block_rows rows and all columns. */
void nvptx_rows_choose(Contract *c);
/* Constants and callbacks of kernels/rows_ptx.c. */
void nvptx_rows_define(Contract *c);
/* In the entry `name` of a product whose k is split: a block adds the parts of its rows; `groups`: elements of the result, or groups of
 * four, that the epilogue takes. Closes the entry. */
void nvptx_rows_combine(Contract *c, Entry *entry, const char *name, int64_t groups);
#endif
