/* conv_host: how kernels/conv_x86.c computes a convolution of f32 images [n, h, w, c] by weights
 * [o, kh, kw, c], or the gradient of one's images, which for a stride of 1 is a convolution, too: for
 * ftc, which writes a ConvProduct into the artifact, and for the kernel itself. */
#ifndef FT_KERNELS_CONV_HOST_H
#define FT_KERNELS_CONV_HOST_H
#include "kernels/gemm_host.h"

enum {
  CONV_ROOM = 1 << 16,          /* floats of an image's rows that a work item copies, at most, … */
  CONV_GOOD_ROOM = 1 << 14,     /* … and where it can choose */
  CONV_PORTABLE_ROOM = 1 << 13, /* both where it is written as C, for small machines */
  CONV_MOST_LINES = 32,         /* rows of results of a work item */
  CONV_JOINED = 1 << 12         /* floats of rows that become one where windows are single pixels */
};

/* tile[i * stride + j] = the sum over `segments` runs of k neighbours of a, `segment` apart, by column j of
 * b, whose rows follow each other. a is at the first pixel; the next ones are `a_row` apart. All in floats. */
typedef void ConvTileKernel(const float *a, int64_t a_row, int64_t segment, int64_t segments,
                            const float *b, int64_t k, float *tile, int64_t stride);

/* What ftc says of one convolution; codegen/host_conv.c writes it field by field in this order. */
typedef struct {
  int64_t images, height, width, channels; /* of the operand */
  int64_t out_height, out_width, outs;     /* of the result */
  int64_t kernel_height, kernel_width, stride_height, stride_width, dilation_height;
  int64_t pad_top, pad_left;
  int64_t is_gradient;   /* weights are [channels, kh, kw, outs], and their windows are turned round */
  int64_t in_place;      /* no window goes beyond its image: rows are read where they lie */
  int64_t rows, vectors; /* of a register tile: pixels by vectors of channels of the result */
  int64_t lines;         /* rows of results of a work item */
  int64_t arg_x, arg_w, arg_y, arg_packed; /* where in args; arg_y without an epilogue only. Results are made of args whose first are the packed weights */
  ConvTileKernel *tile[4];                 /* + 1: the last pixels of a row; + 2: the last channels */
  GemmEpilogue *epilogue;                  /* NULL: the sums are the result */
} ConvProduct;

static inline int64_t conv_depth(const ConvProduct *p) {
  return p->kernel_height * p->kernel_width * p->channels;
}
static inline int64_t conv_strips(const ConvProduct *p) {
  int64_t width = p->vectors * GEMM_LANES;
  return (p->outs + width - 1) / width;
}
/* Packed weights: for each strip [kh, kw, c] rows of its channels; those beyond `outs` are 0. */
static inline int64_t conv_packed_bytes(const ConvProduct *p) {
  return conv_strips(p) * conv_depth(p) * p->vectors * GEMM_LANES * (int64_t)sizeof(float);
}
static inline int64_t conv_items(const ConvProduct *p) {
  return p->images * ((p->out_height + p->lines - 1) / p->lines);
}

/* Of the images with their padding: floats of a row, and rows that so many rows of results see. */
static inline int64_t conv_line(const ConvProduct *p) {
  return ((p->out_width - 1) * p->stride_width + p->kernel_width) * p->channels;
}
static inline int64_t conv_seen(const ConvProduct *p, int64_t lines) {
  return (lines - 1) * p->stride_height + (p->kernel_height - 1) * p->dilation_height + 1;
}

/* What the kernel has. */
static inline int64_t conv_room(bool is_portable) { return is_portable ? CONV_PORTABLE_ROOM : CONV_ROOM; }

/* Chooses tiles and work items on registers of vector_bytes, with so much room at most. False: the windows of
 * one row of results need more. */
static inline bool conv_choose(ConvProduct *p, int vector_bytes, int64_t room) {
  enum { FEW = 8 };
  int64_t good = room < CONV_GOOD_ROOM ? room : CONV_GOOD_ROOM;
  GemmTile tile = gemm_choose(p->images * p->out_height, p->out_width, p->outs, conv_depth(p),
                              false, false, vector_bytes);
  p->rows = tile.rows;
  p->vectors = tile.vectors;
  p->in_place = !p->pad_top && !p->pad_left && conv_line(p) <= p->width * p->channels &&
                conv_seen(p, p->out_height) <= p->height;
  p->lines = p->out_height < CONV_MOST_LINES ? p->out_height : CONV_MOST_LINES;
  while (p->lines > 1 && conv_seen(p, p->lines) * conv_line(p) > good)
    p->lines = (p->lines + 1) / 2;
  while (p->lines > 1 && conv_items(p) < FEW) p->lines = (p->lines + 1) / 2;
  return p->rows > 0 && (p->in_place || conv_seen(p, p->lines) * conv_line(p) <= room);
}

/* Packs strips [begin, end). */
void conv_pack_run(const ConvProduct *product, void *const *args, int64_t begin, int64_t end);
/* Work items [begin, end). */
void conv_run(const ConvProduct *product, void *const *args, int64_t begin, int64_t end);
#endif
