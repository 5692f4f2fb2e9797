/* grouped_host: how kernels/grouped_x86.c computes a convolution of f32 images [n, h, w, c] by weights [o, kh, kw, c of a group], whose
 * channels may be in groups: for ftc, which writes a GroupedConv into the artifact, and for the kernel itself. */
#ifndef FT_KERNELS_GROUPED_HOST_H
#define FT_KERNELS_GROUPED_HOST_H
#include "kernels/gemm_host.h"

enum {
  GROUPED_LANES = GEMM_LANES,     /* channels of the result that are computed together */
  GROUPED_MOST_PIXELS = 64,       /* of a row of results that go to the epilogue together */
  GROUPED_ROOM = 1 << 16,         /* floats of an image's part that a work item copies for them, at most, … */
  GROUPED_GOOD_ROOM = 6 << 10,    /* … and where it can choose: they stay in the first-level cache */
  GROUPED_PORTABLE_ROOM = 1 << 13 /* at most where it is written as C, for small machines */
};

/* What ftc says of one convolution; codegen/host_grouped.c writes it field by field in this order. */
typedef struct {
  int64_t images, height, width, channels; /* of the operand, in all groups */
  int64_t out_height, out_width, outs;     /* of the result, in all groups */
  int64_t ins, each;                       /* channels of a group: of the operand, of the result */
  int64_t kernel_height, kernel_width, stride_height, stride_width, dilation_height, dilation_width;
  int64_t pad_top, pad_left;
  int64_t lines, pixels;                   /* of the result, of a work item */
  int64_t arg_x, arg_w, arg_y, arg_packed; /* where in args; arg_y without an epilogue only. Results are made of args whose first are the packed weights */
  GemmEpilogue *epilogue;                  /* NULL: the sums are the result; gets args + 1 */
} GroupedConv;

static inline int64_t grouped_depth(const GroupedConv *p) { return p->kernel_height * p->kernel_width * p->ins; }
static inline int64_t grouped_blocks(const GroupedConv *p) { return (p->outs + GROUPED_LANES - 1) / GROUPED_LANES; }
/* Packed weights: for each block of channels [kh, kw, c] vectors; those beyond `outs` are 0. */
static inline int64_t grouped_packed_bytes(const GroupedConv *p) {
  return grouped_blocks(p) * grouped_depth(p) * GROUPED_LANES * (int64_t)sizeof(float);
}
static inline int64_t grouped_parts_down(const GroupedConv *p) { return (p->out_height + p->lines - 1) / p->lines; }
static inline int64_t grouped_parts_across(const GroupedConv *p) { return (p->out_width + p->pixels - 1) / p->pixels; }
static inline int64_t grouped_items(const GroupedConv *p) {
  return p->images * grouped_parts_down(p) * grouped_parts_across(p);
}

/* Of an image with its padding: rows and columns that so many of the result see; floats that a work item copies, of a row and in all. */
static inline int64_t grouped_rows_seen(const GroupedConv *p, int64_t lines) {
  return (lines - 1) * p->stride_height + (p->kernel_height - 1) * p->dilation_height + 1;
}
static inline int64_t grouped_columns_seen(const GroupedConv *p, int64_t pixels) {
  return (pixels - 1) * p->stride_width + (p->kernel_width - 1) * p->dilation_width + 1;
}
static inline int64_t grouped_line(const GroupedConv *p) {
  return grouped_columns_seen(p, p->pixels) * p->ins * GROUPED_LANES;
}
static inline int64_t grouped_room(const GroupedConv *p) { return grouped_rows_seen(p, p->lines) * grouped_line(p); }

/* Chooses work items. False: there is no room for what one result sees. */
static inline bool grouped_choose(GroupedConv *p, bool is_portable) {
  enum { FEW = 8 };
  int64_t most = is_portable ? GROUPED_PORTABLE_ROOM : GROUPED_ROOM;
  p->lines = p->out_height;
  p->pixels = p->out_width < GROUPED_MOST_PIXELS ? p->out_width : GROUPED_MOST_PIXELS;
  while (p->lines > 1 && grouped_room(p) > GROUPED_GOOD_ROOM) p->lines = (p->lines + 1) / 2;
  while (p->lines > 1 && grouped_items(p) < FEW) p->lines = (p->lines + 1) / 2;
  while (p->pixels > 1 && grouped_room(p) > most) p->pixels = (p->pixels + 1) / 2;
  return grouped_room(p) <= most;
}

/* Packs blocks [begin, end) of weights. */
void grouped_pack_run(const GroupedConv *conv, void *const *args, int64_t begin, int64_t end);
/* Work items [begin, end). */
void grouped_run(const GroupedConv *conv, void *const *args, int64_t begin, int64_t end);
#endif
