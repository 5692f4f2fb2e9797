/* nvptx_contract: a matrix product or convolution on its way to a GPU kernel: what is multiplied
 * (Contract), and how it is cut (Tile, chosen by nvptx_tile.c). */
#ifndef FT_CODEGEN_NVPTX_CONTRACT_H
#define FT_CODEGEN_NVPTX_CONTRACT_H
#include "codegen/nvptx_private.h"

enum { NVPTX_WGMMA_ROW = 128 /* bytes of a row of a panel, swizzled */ };
typedef enum { KIND_DOT, KIND_CONV, KIND_GRAD_INPUT, KIND_GRAD_WEIGHT } ContractKind;

/* What multiplies: ordinary arithmetic; tensor cores on 16-bit elements, on f32 as tf32, on 8-bit floats, or on whole
 * numbers (nvptx_whole.h), or f32 by rounded weights (nvptx_rounded.h); ordinary arithmetic on whole rows (nvptx_rows.h); those of
 * Hopper on 16-bit elements or 8-bit floats by instructions of four warps. */
typedef enum { UNIT_SIMT, UNIT_MMA16, UNIT_MMA32, UNIT_MMA8, UNIT_WHOLE, UNIT_ROUNDED, UNIT_SPARSE, UNIT_ROWS, UNIT_WGMMA } ContractUnit;

/* One way to cut a product: see kernels/gemm_ptx.h and, for tensor cores, mma_ptx.h, where the
 * micro tile is a warp's, and wgmma_ptx.h, where it is that of four. */
typedef struct {
  int tile_m, tile_n, micro_m, micro_n, slices, steps;
  int stages, passes;   /* follow from the rest */
  int64_t splits, part; /* blocks that share k, and the steps of k of each */
  int64_t shared;       /* bytes, */
  int64_t sums;         /* and where in them finished sums lie, */
  int64_t barriers;     /* and mbarriers */
  int64_t region;       /* of a convolution: rows of a part of the images that is loaded for all places of the window, */
  int regions;          /* how many of them there are room for, */
  int64_t lines;        /* where in shared memory the places of their rows lie, */
  double region_mean;   /* and their rows on the average */
  bool stays;           /* with tensor maps: blocks take one tile after the other, */
  int pair;             /* and two of them share panels of b, below each other (1), or of a (2) */
  double cycles;        /* estimate, of an H100 */
} Tile;

/* One operand: where it comes from, and how it lies. */
typedef struct {
  const Node *node; /* of the body; or the contraction, if it is not fused */
  int argument;     /* of the kernel */
  int64_t pitch;    /* of a product: elements between the beginnings of its rows */
  bool is_deep;     /* neighbours in memory are neighbours in k, else along the tile */
  bool is_async;    /* copied as it is */
  int wide;         /* so many neighbours, aligned: 16 or 4 bytes of them, or 1 */
  bool is_mapped;   /* of wgmma: comes by a tensor map */
} Operand;

/* An operand of whole numbers: how it lies in f32, and its packed form: rows, and a row's bytes. */
typedef struct {
  int64_t pitch;
  bool is_deep;
  int64_t rows, row_bytes;
  int64_t faults, bytes; /* where behind the packed numbers the rows' faults are, and where these end */
} WholeOperand;

typedef struct {
  Job *job;
  const Node *node; /* the contraction */
  char suffix[224];
  ContractKind kind;
  DType dtype;  /* of the operands */
  DType result; /* of the product: theirs, or f32 where they are narrow */
  ContractUnit unit;
  int bytes; /* of an element in a panel */
  Operand a, b;
  int64_t batches, m, n, k;
  int64_t classes; /* of input places modulo the stride: so many products of m rows, k shared out */
  int64_t rows;    /* of the result */
  ConvForm form;   /* of a convolution; k and columns count windows, then channels */
  int64_t windows;
  bool is_by_four;     /* epilogue of four columns */
  bool has_maps;       /* of wgmma: both operands come by tensor maps, which a warp of its own starts */
  Reductions sums;     /* of the result's columns, see nvptx_sums.h: */
  int totals, moments; /* plain ones, and pairs of moments; */
  int maxima;          /* so many of the plain ones are the largest, not the sum */
  WholeOperand whole[2]; /* of UNIT_WHOLE, … */
  int64_t run, packed_run; /* … in f32 and packed: channels of a convolution's group, or k; */
  int64_t joined;          /* so many places' channels are a packed run; and the convolution in f32 */
  ConvForm source;
  Tile tile;
} Contract;

/* Chooses c->tile from m, n, k, batches, dtype and how the operands lie, and UNIT_WGMMA in place of
 * c->unit where that is faster and the target has it. */
void nvptx_choose_tile(Contract *c);
int nvptx_tile_threads(const Contract *c);
void nvptx_tile_grid(const Contract *c, int64_t grid[3]);
/* Blocks that a multiprocessor should hold at once; 1: no promise. */
int nvptx_tile_resident(const Contract *c);
/* Groups of four columns that a thread's epilogue has under way at once. A block that stays on its multiprocessor has no
 * other one beside it that hides the epilogue's waits, and 232 registers a thread: where the epilogue reads tensors of the
 * result's size, all groups of a part of the tile. */
int nvptx_tile_ahead(const Contract *c);
#endif
