/* nvptx_across: what products by packed weights share whose columns are the tensor cores' 16 rows (kernels/gemm_across.h): nvptx_rounded.c, nvptx_sparse.c. */
#ifndef FT_CODEGEN_NVPTX_ACROSS_H
#define FT_CODEGEN_NVPTX_ACROSS_H
#include "codegen/nvptx_contract.h"

enum {
  ACROSS_COLUMNS = 16, /* of a tile of packed weights, */
  ACROSS_ROWS = 8,     /* and rows of a, that an instruction takes */
  ACROSS_WARPS = 8,    /* of a block */
  ACROSS_THREADS = 256
};

/* What the block's warps do beside each other. */
typedef struct {
  int rows, columns; /* tiles of a warp */
  int across;        /* warps; the others share k, */
  bool shares_rows;  /* or the rows */
} AcrossForm;

/* The tile of a form, with `blocks` of `steps` steps of k in at most so many splits, and shared memory for its sums. */
Tile nvptx_across_tile(const AcrossForm *form, int64_t blocks, int64_t steps, int64_t splits);
/* The packed weights' position among a kernel's arguments, behind that of a packed first operand. */
int nvptx_across_weights(const Contract *c);
/* Constants and callbacks of kernels/gemm_across.h, and of the weights: as they are, packed, and `behind` bytes further. */
void nvptx_across_define(Contract *c, int64_t blocks, const char *behind_name, int64_t behind);
/* The launch of gemm_pack_b by so many threads; the one behind it has the product's parameters. */
void nvptx_across_pack(Contract *c, int64_t threads);
#endif
