/* rounded_host: how kernels/rounded_x86.c computes a product of f32 whose second operand is weights that were
 * rounded: in each run of `group` steps of k, whole numbers times one scale. For ftc, which writes a
 * RoundedProduct into the artifact, and for the kernel itself. The weights are packed first, by a launch of its
 * own: numbers of 4 bits or 8, and the scales in f32. */
#ifndef FT_KERNELS_ROUNDED_HOST_H
#define FT_KERNELS_ROUNDED_HOST_H
#include "kernels/gemm_host.h"
#include <stdbool.h>

enum {
  ROUNDED_FEW =
      4, /* so many rows are multiplied as weights are unpacked; more, by panels of them: */
  ROUNDED_DEPTH = 256, /* steps of k of a panel */
  ROUNDED_BLOCK = 96,  /* rows of a work item, at most */
  ROUNDED_PIECE = 64,  /* steps of k, at most, that share a unit where one row is made of whole numbers */
  ROUNDED_ROW = 1 << 15,  /* steps of k of such a row, at most */
  ROUNDED_SPARE = 8       /* rows behind those of bytes, so that a tile may stick out */
};
/* What the numbers of a are, as passes/integers.h has it: any; all bf16; whole numbers of -128 to 127, or NaN; the same as a rule; of 0 to 255. */
enum { FIRST_ANY, FIRST_BF16, FIRST_WHOLE, FIRST_WHOLE_RULE, FIRST_BYTE, FIRST_BYTE_RULE };

/* What ftc says of one product; codegen/host_rounded.c writes it field by field in this order. */
typedef struct {
  int64_t batch, m, n, k;
  int64_t ta, tb;              /* a is stored [k, m]; b is stored [n, k] */
  int64_t low, high;           /* the numbers of b are between these, of -128 to 127 */
  int64_t bits;                /* of a packed number: 4 or 8 */
  int64_t group;               /* steps of k that share a scale; a divisor of k */
  int64_t may_be_vnni;         /* false: --disable=vnni */
  int64_t first, may_use;      /* what the numbers of a are; how those of bf16 may be multiplied, as GemmProduct has it */
  int64_t rows, vectors;       /* of a register tile; a strip of columns has so many vectors */
  int64_t arg_a, arg_b, arg_c; /* where in args; arg_c without an epilogue only */
  int64_t arg_packed, arg_rows; /* rows of whole numbers as bytes: rounded_rows_bytes */
  GemmTileKernel *tile[4]; /* as GemmProduct has them; null for few rows */
  GemmEpilogue *epilogue;  /* NULL: the sums are the result; gets args + 1 */
} RoundedProduct;

static inline int64_t rounded_width(const RoundedProduct *p) { return p->vectors * GEMM_LANES; }
static inline int64_t rounded_strips(const RoundedProduct *p) {
  return (p->n + rounded_width(p) - 1) / rounded_width(p);
}

/* A packed strip: for each group, rows of words, one for each column, of a number for each of four steps of k, a byte each;
 * of 4 bits, for eight, the first four in the low halves of the bytes. Zeros behind the group's last step. Then, for each group,
 * the scale of each column. */
static inline int64_t rounded_steps(const RoundedProduct *p) { return 32 / p->bits; } /* of a row */
static inline int64_t rounded_group_bytes(const RoundedProduct *p) {
  return (p->group + rounded_steps(p) - 1) / rounded_steps(p) * rounded_width(p) * 4;
}
static inline int64_t rounded_data_bytes(const RoundedProduct *p) {
  return (p->k / p->group * rounded_group_bytes(p) + 63) / 64 * 64;
}
static inline int64_t rounded_strip_bytes(const RoundedProduct *p) {
  return rounded_data_bytes(p) + p->k / p->group * rounded_width(p) * 4;
}
static inline int64_t rounded_packed_bytes(const RoundedProduct *p) {
  return p->batch * rounded_strips(p) * rounded_strip_bytes(p);
}
/* Rows of a work item: whole tiles, but for the last. */
static inline int64_t rounded_block(const RoundedProduct *p) {
  return ROUNDED_BLOCK / p->rows * p->rows;
}
static inline int64_t rounded_blocks(const RoundedProduct *p) {
  return (p->m + rounded_block(p) - 1) / rounded_block(p);
}
static inline int64_t rounded_items(const RoundedProduct *p) {
  return p->batch * rounded_strips(p) * rounded_blocks(p);
}

/* Are rows of a made bytes first, by a launch of its own? One row alone is not. */
static inline bool rounded_packs_rows(const RoundedProduct *p) {
  return p->first >= FIRST_WHOLE && p->m > 1 && !p->ta;
}
/* What makes its whole numbers unsigned bytes. */
static inline int32_t rounded_offset(const RoundedProduct *p) { return p->first >= FIRST_BYTE ? 0 : 128; }
/* Words of such a row, four steps of k each, in groups as weights have them; the place behind the last number is written up to a vector, and rows
 * are no multiple of 128 bytes apart, so that they share no set of a cache. Then, for each row, whether it has other numbers. */
static inline int64_t rounded_row_words(const RoundedProduct *p) {
  int64_t steps = rounded_steps(p), words = p->k / p->group * ((p->group + steps - 1) / steps * (steps / 4));
  return (words + 4 + 15) / 16 * 16 | 16;
}
static inline int64_t rounded_row_faults(const RoundedProduct *p) { return (p->batch * p->m + ROUNDED_SPARE) * rounded_row_words(p) * 4; }
static inline int64_t rounded_rows_bytes(const RoundedProduct *p) { return rounded_row_faults(p) + p->batch * p->m * 4; }

/* Chooses tile and strips, on registers of vector_bytes (16, 32, 64). */
static inline void rounded_choose(RoundedProduct *p, int vector_bytes) {
  int64_t columns = (p->n + GEMM_LANES - 1) / GEMM_LANES;
  p->bits = p->low >= -8 && p->high <= 7 ? 4 : 8;
  if (p->m <= ROUNDED_FEW) {
    p->rows = p->m;
    p->vectors = vector_bytes >= 64 ? 4 : 2;
    if (p->vectors > columns) p->vectors = columns;
    return;
  }
  int64_t depth = p->k < ROUNDED_DEPTH ? p->k : ROUNDED_DEPTH;
  GemmTile tile = gemm_choose(1, p->m, p->n, depth, false, OPERAND_F32, vector_bytes);
  p->rows = tile.rows;
  p->vectors = tile.vectors;
  if (p->first != FIRST_ANY && vector_bytes >= 64) {
    p->vectors = columns < 4 ? columns : 4; /* wide strips: each lays out its rows anew */
    p->rows = 6;
  }
}

/* Packs strips [begin, end) of all batches. args: b, packed. */
void rounded_pack_run(const RoundedProduct *product, void *const *args, int64_t begin, int64_t end);
/* Makes bytes of rows [begin, end) of all batches. args: a, the bytes. */
void rounded_rows_run(const RoundedProduct *product, void *const *args, int64_t begin, int64_t end);
/* Work items [begin, end). args: packed, then those of the node; behind them the bytes of rows. */
void rounded_run(const RoundedProduct *product, void *const *args, int64_t begin, int64_t end);
#endif
