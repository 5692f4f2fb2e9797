/* winograd_host: how kernels/winograd_x86.c computes a convolution of f32 images [n, h, w, c] by 3 x 3 weights
 * [o, 3, 3, c] with a stride of 1, and both of its gradients: for ftc, which writes a WinogradProduct into the artifact, and
 * for the kernel itself.
 *
 * Winograd's minimal filtering F(m x m, 3 x 3) (Lavin and Gray: Fast algorithms for convolutional neural networks, CVPR 2016)
 * computes m x m neighbours of the result from a tile of (m + 2) x (m + 2) pixels by as many multiplications: for m = 2 by 16 in place of
 * 36, for m = 4 by 36 in place of 144.
 *   y = A' ((G w G') * (B' x B)) A,  where * is by element; for m = 2 A' = [1 1 1 0; 0 1 -1 -1],
 *   G = [1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1],  B' = [1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1]
 * For each of the places in a tile the sum over channels is a matrix product: tiles by channels by the results' channels.
 * F(4 x 4) is Toom and Cook's algorithm at the points 0, +-5/8, +-13/8 and infinity, where it loses half of what it loses at 0, +-1, +-2
 * (winograd_transforms.h; Barabasz et al.: Error analysis and improving the accuracy of Winograd convolution for deep neural networks,
 * ACM TOMS 2020, says why such points are better). Errors beside those of plain sums in f32 (root mean squares, 16 to 128 channels, images
 * about 0, rectified, and far from 0):
 *   m = 2: results and the images' gradients 0.4 to 1, the weights' gradients 0.3 to 2; sums of small integers are exact, since its transforms
 *   add and subtract, and halve weights
 *   m = 4: results and the images' gradients 0.9 to 2.7, the weights' gradients 0.4 to 1.4, those of a few hundred pixels up to 5
 * A pixel that is infinite or NaN makes all results of its tiles NaN, where the definition may have an infinity, or,
 * where a window does not see it, a number. Transformed pixels are up to 35 times as large as pixels (m = 2: 4 times), and overflow so much sooner. */
#ifndef FT_KERNELS_WINOGRAD_HOST_H
#define FT_KERNELS_WINOGRAD_HOST_H
#include "kernels/gemm_host.h"

enum {
  WINOGRAD_TILES = 32,     /* of a work item at most: products by them are about as fast as by many, and they fit a small second-level cache */
  WINOGRAD_LEFT = 1 << 18, /* floats of the transformed pixels of a work item at most, ... */
  WINOGRAD_NEAR = 1 << 17, /* ... and, unless it has few tiles, at most what a second-level cache of 1 MiB has beside weights */
  WINOGRAD_FEW_TILES = 16, /* work items have so many in any case */
  WINOGRAD_SUMS = 36 * (WINOGRAD_TILES + GEMM_MAX_ROWS) * GEMM_MAX_VECTORS * GEMM_LANES, /* floats of the sums of a strip at most */
  WINOGRAD_ITEMS = 16,     /* at least, where there are so many rows of tiles, for threads to share */
  WINOGRAD_BLOCK = 64,     /* channels of both kinds in a work item of the gradient of weights at most, ... */
  WINOGRAD_FEW_PARTS = 8, WINOGRAD_MOST_PARTS = 32, /* ... and of such items, where each would take 2^18 cycles */
  WINOGRAD_SLOPES = 64,    /* tiles that it takes at a time at most: sums are read and written once for each */
  WINOGRAD_APART = 16,     /* floats between matrices which would all begin at one address modulo a page */
  WINOGRAD_ROOM = 36 * (WINOGRAD_SLOPES * WINOGRAD_BLOCK + WINOGRAD_APART) /* floats of either transformed operand of it at most */
};

/* What ftc says of one convolution, of one of its gradient with respect to images, or with respect to weights;
 * codegen/host_winograd.c writes it field by field in this order. All counts of channels are multiples of GEMM_LANES. */
typedef struct {
  int64_t side;                            /* of the results of a tile: 2 or 4 */
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

static inline int64_t winograd_places(const WinogradProduct *p) { return (p->side + 2) * (p->side + 2); }
static inline int64_t winograd_across(const WinogradProduct *p) { return (p->out_width + p->side - 1) / p->side; }
static inline int64_t winograd_down(const WinogradProduct *p) { return (p->out_height + p->side - 1) / p->side; }
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
  return winograd_places(p) * p->channels * p->outs * (int64_t)sizeof(float);
}
static inline int64_t winograd_pack_items(const WinogradProduct *p) { return p->outs / GEMM_LANES; }

/* The register tile for the work items of p. */
static inline GemmTile winograd_tile(const WinogradProduct *p, int vector_bytes) {
  return gemm_choose(winograd_places(p) * winograd_items(p), p->lines * p->across, p->outs, p->channels, false, OPERAND_F32, vector_bytes);
}

/* Tiles of a work item at most. */
static inline int64_t winograd_most_tiles(int64_t side, int64_t channels) {
  int64_t most = WINOGRAD_NEAR / ((side + 2) * (side + 2) * channels);
  return most > WINOGRAD_TILES ? WINOGRAD_TILES : most < WINOGRAD_FEW_TILES ? WINOGRAD_FEW_TILES : most;
}

/* Chooses tiles and work items on registers of vector_bytes: of items of at least half as many tiles as there is room for those whose register
 * tiles take the least time. False: there is no room. */
static inline bool winograd_choose(WinogradProduct *p, int vector_bytes) {
  winograd_cut(p, winograd_most_tiles(p->side, p->channels));
  while (p->lines > 1 && winograd_items(p) < WINOGRAD_ITEMS) p->lines = (p->lines + 1) / 2;
  GemmTile best = winograd_tile(p, vector_bytes);
  WinogradProduct other = *p;
  for (other.lines = p->lines - 1; other.lines >= (p->lines + 1) / 2 && other.lines > 0; other.lines--) {
    GemmTile tile = winograd_tile(&other, vector_bytes);
    if (tile.cycles * p->lines * 25 < best.cycles * other.lines * 24) best = tile, p->lines = other.lines;
  }
  p->rows = best.rows < p->lines * p->across ? best.rows : p->lines * p->across;
  p->vectors = best.vectors;
  return p->rows > 0 && winograd_pitch(p, p->channels) * winograd_places(p) <= WINOGRAD_LEFT;
}

/* ── gradients of weights ───────────────────────────────────────────────────────────────────── */
/* A work item has the sums of a part of the rows of tiles, and of blocks of both kinds of channels; another launch adds up the
 * parts, whose number does not depend on threads, and transforms the sums. Their order in memory: part, channel of the result, place,
 * channel of the operand; floats from one channel of the result to the next: */
static inline int64_t winograd_sums_pitch(const WinogradProduct *p) { return winograd_places(p) * p->channels + WINOGRAD_APART; }
static inline int64_t winograd_sums_bytes(const WinogradProduct *p) {
  return p->parts * p->outs * winograd_sums_pitch(p) * (int64_t)sizeof(float);
}
/* Floats from one place's matrix to the next of either transformed operand. */
static inline int64_t winograd_weights_pitch(const WinogradProduct *p) {
  return p->lines * p->across * (p->block_outs > p->block_channels ? p->block_outs : p->block_channels) + WINOGRAD_APART;
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
  winograd_cut(p, WINOGRAD_SLOPES);
  int64_t lines = winograd_lines(p), blocks = winograd_blocks(p), most = (lines + p->lines - 1) / p->lines;
  int64_t items = lines * winograd_across(p) * winograd_places(p) * p->outs / 32 * p->channels >> 18;
  items = items < WINOGRAD_FEW_PARTS ? WINOGRAD_FEW_PARTS : items > WINOGRAD_MOST_PARTS ? WINOGRAD_MOST_PARTS : items;
  p->parts = (items + blocks - 1) / blocks < most ? (items + blocks - 1) / blocks : most;
  GemmTile tile = gemm_choose(winograd_places(p) * blocks, p->block_outs, p->block_channels, p->lines * p->across, false, OPERAND_F32, vector_bytes);
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
