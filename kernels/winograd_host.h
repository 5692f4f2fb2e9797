/* winograd_host: how kernels/winograd_x86.c computes a convolution of f32 images [n, h, w, c] by 3 x 3 weights
 * [o, 3, 3, c] with a stride of 1, and both of its gradients: for ftc, which writes a WinogradProduct into the artifact, and
 * for the kernel itself.
 *
 * Winograd's minimal filtering F(2 x 2, 3 x 3) (Lavin and Gray: Fast algorithms for convolutional neural networks, CVPR 2016)
 * computes four neighbours of the result from a tile of 4 x 4 pixels by 16 multiplications in place of 36:
 *   y = A' ((G w G') * (B' x B)) A,  where * is by element, A' = [1 1 1 0; 0 1 -1 -1],
 *   G = [1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1],  B' = [1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1]
 * For each of the 16 places in a tile the sum over channels is a matrix product: tiles by channels by the results' channels.
 * The transforms add and subtract, and halve weights, so that sums of small integers are exact. Otherwise the errors of results and of the images'
 * gradients were 0.4 to 1 of those of plain sums in f32 (root mean squares, 16 to 128 channels, images about 0 and far from it), those of the
 * weights' gradients 0.3 to 2. A pixel that is infinite or NaN makes all four results of its tiles NaN, where the definition may have an infinity, or,
 * where a window does not see it, a number. */
#ifndef FT_KERNELS_WINOGRAD_HOST_H
#define FT_KERNELS_WINOGRAD_HOST_H
#include "kernels/gemm_host.h"

enum {
  WINOGRAD_PLACES = 16,    /* of a tile */
  WINOGRAD_TILES = 32,     /* of a work item at most: products by them are about as fast as by many, and they fit a small second-level cache */
  WINOGRAD_LEFT = 1 << 18, /* floats of the transformed pixels of a work item at most */
  WINOGRAD_SUMS = WINOGRAD_PLACES * (WINOGRAD_TILES + GEMM_MAX_ROWS) * GEMM_MAX_VECTORS * GEMM_LANES, /* and of the sums of a strip */
  WINOGRAD_ITEMS = 16,     /* at least, where there are so many rows of tiles, for threads to share */
  WINOGRAD_BLOCK = 64,     /* channels of both kinds in a work item of the gradient of weights at most, ... */
  WINOGRAD_FEW_PARTS = 8, WINOGRAD_MOST_PARTS = 32, /* ... and of such items, where each would take 2^18 cycles */
  WINOGRAD_APART = 16      /* floats between matrices which would all begin at one address modulo a page */
};

/* What ftc says of one convolution, of one of its gradient with respect to images, or with respect to weights;
 * codegen/host_winograd.c writes it field by field in this order. All counts of channels are multiples of GEMM_LANES. */
typedef struct {
  int64_t images, height, width, channels; /* of the operand; the gradient of images: of the result's gradient */
  int64_t out_height, out_width, outs;     /* of the result */
  int64_t pad_top, pad_left;               /* at most 2 */
  int64_t is_turned;     /* weights are [channels, 3, 3, outs], and their windows are turned round */
  int64_t rows, vectors; /* of a register tile; gradient of weights: channels of the result by vectors of those of the operand */
  int64_t lines, across; /* of a work item, or of what it takes at a time: rows of tiles, and tiles of each */
  int64_t parts, block_outs, block_channels; /* gradient of weights: see winograd_choose_weights */
  int64_t arg_x, arg_w, arg_y, arg_packed;   /* where in args; arg_w of the gradient of weights: the result's gradient */
  GemmTileKernel *tile[4];                   /* as a GemmProduct has them */
  GemmEpilogue *epilogue;                    /* NULL: the sums are the result */
} WinogradProduct;

static inline int64_t winograd_across(const WinogradProduct *p) { return (p->out_width + 1) / 2; }
static inline int64_t winograd_down(const WinogradProduct *p) { return (p->out_height + 1) / 2; }
/* Rows of tiles of all images. */
static inline int64_t winograd_lines(const WinogradProduct *p) { return p->images * winograd_down(p); }
static inline int64_t winograd_chunks(const WinogradProduct *p) { return (winograd_across(p) + p->across - 1) / p->across; }
static inline int64_t winograd_strips(const WinogradProduct *p) {
  int64_t width = p->vectors * GEMM_LANES;
  return (p->outs + width - 1) / width;
}
/* Floats from one place's matrix to the next: tiles by so many channels. Register tiles read whole rows of tiles. */
static inline int64_t winograd_pitch(const WinogradProduct *p, int64_t channels) {
  return (p->lines * p->across + p->rows - 1) / p->rows * p->rows * channels + WINOGRAD_APART;
}

/* Rows of tiles, and tiles of each, for a work item of `most` tiles at most. */
static inline void winograd_cut(WinogradProduct *p, int64_t most) {
  int64_t across = winograd_across(p), lines = winograd_lines(p);
  p->across = gemm_part(across, most);
  p->lines = p->across < across ? 1 : gemm_part(lines, most / across);
}

/* ── convolutions, and gradients of images ──────────────────────────────────────────────────── */
static inline int64_t winograd_items(const WinogradProduct *p) {
  return (winograd_lines(p) + p->lines - 1) / p->lines * winograd_chunks(p);
}
/* Packed weights: for each strip, place and channel a row of the strip's columns. */
static inline int64_t winograd_packed_bytes(const WinogradProduct *p) {
  return WINOGRAD_PLACES * p->channels * p->outs * (int64_t)sizeof(float);
}
static inline int64_t winograd_pack_items(const WinogradProduct *p) { return p->outs / GEMM_LANES; }

/* Chooses tiles and work items on registers of vector_bytes. False: there is no room. */
static inline bool winograd_choose(WinogradProduct *p, int vector_bytes) {
  winograd_cut(p, WINOGRAD_TILES);
  while (p->lines > 1 && winograd_items(p) < WINOGRAD_ITEMS) p->lines = (p->lines + 1) / 2;
  int64_t tiles = p->lines * p->across;
  GemmTile tile = gemm_choose(WINOGRAD_PLACES * winograd_items(p), tiles, p->outs, p->channels, false, OPERAND_F32, vector_bytes);
  p->rows = tile.rows < tiles ? tile.rows : tiles;
  p->vectors = tile.vectors;
  return p->rows > 0 && winograd_pitch(p, p->channels) * WINOGRAD_PLACES <= WINOGRAD_LEFT;
}

/* ── gradients of weights ───────────────────────────────────────────────────────────────────── */
/* A work item has the sums of a part of the rows of tiles, and of blocks of both kinds of channels; another launch adds up the
 * parts, whose number does not depend on threads, and transforms the sums. Their order in memory: part, channel of the result, place,
 * channel of the operand; floats from one channel of the result to the next: */
static inline int64_t winograd_sums_pitch(const WinogradProduct *p) { return WINOGRAD_PLACES * p->channels + WINOGRAD_APART; }
static inline int64_t winograd_sums_bytes(const WinogradProduct *p) {
  return p->parts * p->outs * winograd_sums_pitch(p) * (int64_t)sizeof(float);
}
static inline int64_t winograd_blocks(const WinogradProduct *p) {
  return p->outs / p->block_outs * (p->channels / p->block_channels);
}
/* Equal blocks. */
static inline int64_t winograd_block(int64_t channels) {
  int64_t vectors = channels / GEMM_LANES, most = WINOGRAD_BLOCK / GEMM_LANES;
  while (vectors % most) most--;
  return most * GEMM_LANES;
}
static inline bool winograd_choose_weights(WinogradProduct *p, int vector_bytes) {
  p->block_outs = winograd_block(p->outs);
  p->block_channels = winograd_block(p->channels);
  winograd_cut(p, WINOGRAD_TILES);
  int64_t lines = winograd_lines(p), blocks = winograd_blocks(p), most = (lines + p->lines - 1) / p->lines;
  int64_t items = lines * winograd_across(p) * p->outs / 2 * p->channels >> 18;
  items = items < WINOGRAD_FEW_PARTS ? WINOGRAD_FEW_PARTS : items > WINOGRAD_MOST_PARTS ? WINOGRAD_MOST_PARTS : items;
  p->parts = (items + blocks - 1) / blocks < most ? (items + blocks - 1) / blocks : most;
  GemmTile tile = gemm_choose(WINOGRAD_PLACES * blocks, p->block_outs, p->block_channels, p->lines * p->across, false, OPERAND_F32, vector_bytes);
  p->rows = tile.rows;
  p->vectors = tile.vectors;
  return p->rows > 0;
}

/* Transforms the weights of vectors of outs [begin, end): args[arg_w] to args[arg_packed]. */
void winograd_pack_run(const WinogradProduct *product, void *const *args, int64_t begin, int64_t end);
/* Work items [begin, end) of a convolution. */
void winograd_run(const WinogradProduct *product, void *const *args, int64_t begin, int64_t end);
/* Of a gradient of weights: work items (parts by blocks), to args[arg_packed], and then channels of the result, to args[arg_y]. */
void winograd_sum_run(const WinogradProduct *product, void *const *args, int64_t begin, int64_t end);
void winograd_weights_run(const WinogradProduct *product, void *const *args, int64_t begin, int64_t end);
#endif
