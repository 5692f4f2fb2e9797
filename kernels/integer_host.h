/* integer_host: how kernels/integer_x86.c computes a product whose operands are whole numbers of at
 * most 8 bits: for ftc, which writes an IntegerProduct into the artifact, and for the kernel itself.
 * Operands and sums are f32 in memory. The second operand is packed first, by a launch of its own, to a
 * form that is the same on all processors. */
#ifndef FT_KERNELS_INTEGER_HOST_H
#define FT_KERNELS_INTEGER_HOST_H
#include "kernels/gemm_host.h"

enum {
  INTEGER_LANES = GEMM_LANES, /* 32-bit sums in a vector */
  INTEGER_MOST_VECTORS = GEMM_MAX_VECTORS,
  INTEGER_MOST_ROWS = 12,       /* of a register tile */
  INTEGER_MOST_DEPTH = 1 << 16, /* steps of k */
  INTEGER_BLOCK = 48,           /* rows that a work item packs, … */
  INTEGER_MOST_HEIGHT = 256,    /* rows of an image */
  INTEGER_ROOM = 1 << 18,       /* … and their bytes */
  INTEGER_MOST_POOL = 4,        /* rows, and columns, of a convolution that a pooling takes together */
  INTEGER_SHARE = 24,           /* rows whose sums wait for the epilogue; a pooling's: of each */
  INTEGER_WIDTH = INTEGER_MOST_VECTORS * INTEGER_LANES
};

/* What ftc says of one product; codegen/host_integer.c writes it field by field in this order. */
typedef struct {
  int64_t batch, m, n, k;
  int64_t ta, tb;        /* a is stored [k, m]; b is stored [n, k] */
  int64_t low_a, high_a; /* between these, of -128 … 127 or 0 … 255, are the numbers of a; */
  int64_t low_b, high_b; /* others make their rows or columns be computed in f32 */
  int64_t vectors;       /* of a strip of columns */
  int64_t rows, strips;  /* of a work item */
  int64_t may_be_vnni;   /* false: --disable=vnni */
  /* The numbers of b that are not such whole numbers are NaN. The product reads them where they are
   * packed, and not b itself. */
  int64_t is_sure;
  /* k is so many segments that a holds apart, of `length` neighbours. A convolution (of images NHWC
   * by weights OHWI): batch images, m columns and out_height rows of n channels; a segment is a row
   * of the window, and `rows` are rows of the result: the largest of pool_height by pool_width places each,
   * which do not overlap (1 by 1: all of them). */
  int64_t segments, length;
  int64_t is_conv, height, width, channels, out_height, pool_height, pool_width;
  int64_t stride_height, stride_width, dilation_height, pad_top, pad_left;
  int64_t arg_a, arg_b, arg_c, arg_packed; /* where in args; arg_c without an epilogue only */
  GemmEpilogue *epilogue;                  /* NULL: the sums are the result; gets args + 1 */
} IntegerProduct;

/* A packed strip: for each four steps of k a vector or several of 32-bit words with a column's 8-bit
 * numbers; then the sum of each column, what is added to its results (0, or NaN), and whether there is a
 * number in the strip that makes it be computed in f32. */
static inline int64_t integer_data_bytes(const IntegerProduct *p) {
  return p->segments * ((p->length + 3) / 4) * p->vectors * INTEGER_LANES * 4;
}
static inline int64_t integer_strip_bytes(const IntegerProduct *p) {
  return integer_data_bytes(p) + 2 * p->vectors * INTEGER_LANES * 4 + 64;
}

static inline int64_t integer_strips(const IntegerProduct *p) {
  int64_t width = p->vectors * INTEGER_LANES;
  return (p->n + width - 1) / width;
}
static inline int64_t integer_packed_bytes(const IntegerProduct *p) {
  return (p->is_conv ? 1 : p->batch) * integer_strips(p) * integer_strip_bytes(p);
}
/* Of an image of the result, behind the pooling. */
static inline int64_t integer_result_height(const IntegerProduct *p) {
  return p->out_height / p->pool_height;
}
static inline int64_t integer_result_width(const IntegerProduct *p) { return p->m / p->pool_width; }
static inline int64_t integer_items(const IntegerProduct *p) {
  int64_t all = p->is_conv ? integer_result_height(p) : p->m;
  return p->batch * ((all + p->rows - 1) / p->rows) *
         ((integer_strips(p) + p->strips - 1) / p->strips);
}

/* Of an image with its padding: bytes of a row, in 16 bits; rows that so many rows of the result see; how
 * many of those there is room for. */
static inline int64_t integer_conv_width(const IntegerProduct *p) {
  return ((p->m - 1) * p->stride_width * p->channels + p->length) * 2;
}
static inline int64_t integer_conv_height(const IntegerProduct *p, int64_t rows) {
  return (rows * p->pool_height - 1) * p->stride_height + (p->segments - 1) * p->dilation_height + 1;
}
static inline int64_t integer_conv_rows(const IntegerProduct *p) {
  int64_t rows = 0, bytes = integer_conv_width(p);
  while (rows < INTEGER_BLOCK && integer_conv_height(p, rows + 1) <= INTEGER_MOST_HEIGHT &&
         integer_conv_height(p, rows + 1) * bytes <= INTEGER_ROOM)
    rows++;
  return rows;
}

/* Chooses strips and work items, on registers of vector_bytes (16, 32, 64). */
static inline void integer_choose(IntegerProduct *p, int vector_bytes) {
  enum { FEW = 8 };
  int64_t columns = (p->n + INTEGER_LANES - 1) / INTEGER_LANES, least = INT64_MAX;
  for (int64_t vectors = 1; vectors <= (vector_bytes >= 64 ? 4 : 1); vectors *= 2) {
    int64_t cost = (columns + vectors - 1) / vectors * (vectors + 1); /* 1: reading a */
    if (cost < least) least = cost, p->vectors = vectors;
  }
  int64_t all = p->is_conv ? integer_result_height(p) : p->m;
  p->rows = p->is_conv ? integer_conv_rows(p) : INTEGER_ROOM / ((p->k + 3) / 4 * 8);
  if (p->rows > INTEGER_BLOCK) p->rows = INTEGER_BLOCK;
  if (p->rows > all) p->rows = all;
  p->strips = integer_strips(p);
  while (p->is_conv && integer_items(p) < FEW && p->rows * p->pool_height > 4)
    p->rows = (p->rows + 1) / 2;
  if (p->is_conv) return;
  while (integer_items(p) < FEW && p->strips > 4) p->strips = (p->strips + 1) / 2;
  while (integer_items(p) < FEW && p->rows > INTEGER_MOST_ROWS) p->rows = (p->rows + 1) / 2;
}

/* Packs strips [begin, end) of all batches. args: b, packed. */
void integer_pack_run(const IntegerProduct *product, void *const *args, int64_t begin, int64_t end);
/* Work items [begin, end). args: packed, then those of the node. */
void integer_run(const IntegerProduct *product, void *const *args, int64_t begin, int64_t end);
#endif
