/* attention_tiles_ptx: lists the tiles of attention in which a mask of bools shows a key (attention_tiles.h). A block of
 * threads has a block of rows: each warp looks at one tile after the other, 16 bytes a lane, until it finds a byte that is
 * not 0. Tiles that the causal mask hides are not looked at. */
#define ELEMENT unsigned short
#include "kernels/attention_wgmma.h"

#include "kernels/attention_tiles.h"

enum { LIST_THREADS = 256, LIST_WARPS = LIST_THREADS / 32, LOOKS = 8 /* loads in flight */ };

/* The mask's bytes of 16 keys from `key` on, all of them there but for the last ones: in their place the last one again, so
 * that no load waits for a condition. */
ALWAYS Quad piece_there(const Here *w, int query, int key) {
  const GLOBAL unsigned char *from =
      (const GLOBAL unsigned char *)attention_mask_bytes(w->args) +
      (w->batch * attention_mask_batch() + w->head * attention_mask_head() + query * attention_mask_row());
  if (attention_keys() % PIECE == 0) return *(const GLOBAL Quad *)(from + key);
  Quad piece = {0, 0, 0, 0};
#pragma clang loop unroll(full)
  for (int e = 0; e < PIECE; e++) piece[e / 4] |= (unsigned)from[smaller(key + e, attention_keys() - 1)] << e % 4 * 8;
  return piece;
}

/* Does the mask of w->head show one of `keys` keys from `key` on to one of `queries` queries from `query` on? */
ALWAYS int shows_any(const Here *w, int query, int queries, int key, int keys) {
  int across = (keys + PIECE - 1) / PIECE, all = queries * across;
#pragma clang loop unroll(disable)
  for (int i = 0; i < all; i += 32 * LOOKS) {
    unsigned any = 0;
#pragma clang loop unroll(full)
    for (int look = 0; look < LOOKS; look++) {
      int number = smaller(i + look * 32 + w->lane, all - 1);
      int row = smaller(query + number / across, attention_queries() - 1);
      int at = smaller(key + number % across * PIECE, (attention_keys() - 1) / PIECE * PIECE);
      any |= any_of(piece_there(w, row, at)); /* beyond an end: again what the tile has there */
    }
    if (lanes_with(any)) return 1;
  }
  return 0;
}

/* Is anything of tile t seen by the block of rows? */
ALWAYS int is_tile_shown(const Here *w, int t) {
  int from = t * attention_tile();
  if (!attention_rows_are_keys()) {
    if (attention_causal() && from >= keys_seen(w->first + block_rows())) return 0;
    return shows_any(w, w->first, block_rows(), from, attention_tile());
  }
  if (attention_causal() && w->first >= keys_seen(from + attention_tile())) return 0;
  Here own = *w;
  int heads = attention_mask_head() ? attention_heads() / attention_groups() : 1;
#pragma clang loop unroll(disable)
  for (int i = 0; i < heads; i++) {
    own.head = w->group * heads + i;
    if (shows_any(&own, from, attention_tile(), w->first, block_rows())) return 1;
  }
  return 0;
}

/* shared: for each warp, the bits of the tiles that it looked at. */
__attribute__((always_inline)) void attention_list_tiles(void *const *args, SHARED void *shared, int block, int plane,
                                                         int batch, int thread) {
  SHARED unsigned *shown = (SHARED unsigned *)shared;
  Here w = here(args, batch, block * block_rows(), thread);
  w.head = w.group = plane;
  GLOBAL int *list = tile_list(&w);
  int count = 0;
#pragma clang loop unroll(disable)
  for (int first = 0; first < all_tiles(); first += LIST_THREADS) {
    unsigned bits = 0;
#pragma clang loop unroll(disable)
    for (int i = 0; i < 32 && first + i * LIST_WARPS + w.warp < all_tiles(); i++)
      bits |= (unsigned)is_tile_shown(&w, first + i * LIST_WARPS + w.warp) << i;
    if (w.lane == 0) shown[w.warp] = bits;
    __nvvm_bar_sync(0);
    /* this thread's tile is first + thread; those before it are bits 0 … of all warps, and its own bit of the warps before */
    int row = thread / LIST_WARPS, before = 0, all = 0;
#pragma clang loop unroll(full)
    for (int i = 0; i < LIST_WARPS; i++) {
      unsigned word = shown[i];
      int own = i < thread % LIST_WARPS;
      before += __builtin_popcount(word & ((1u << row) - 1)) + (int)(own ? word >> row & 1 : 0);
      all += __builtin_popcount(word);
    }
    if (shown[thread % LIST_WARPS] >> row & 1) list[1 + count + before] = first + thread;
    count += all;
    __nvvm_bar_sync(0); /* all have read the bits */
  }
  if (thread == 0) list[0] = count;
}
