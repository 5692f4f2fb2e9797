/* attention_tiles: which tiles a mask of bools with rows leaves anything of. Where a mask differs from query to query, a
 * launch before the kernels of Hopper lists for each block of rows the tiles in which it shows a key (attention_tiles_ptx.c);
 * the others are neither loaded nor multiplied. A tile that is hidden altogether adds zeros: results have the same bits. */
#ifndef FT_KERNELS_ATTENTION_TILES_H
#define FT_KERNELS_ATTENTION_TILES_H
#include "kernels/attention_bits.h"

/* Are there lists? For the kernel whose rows are keys, or queries? In the workspace, for each plane and block of rows:
 * how many tiles there are, and their numbers, upwards. A plane is what has a mask of its own: a batch, a head, both (where
 * rows are keys: all heads that share them), or everything. */
int attention_has_lists(void), attention_rows_are_keys(void);
void *attention_lists(void *const *args);

ALWAYS int planes_of_heads(void) {
  if (!attention_mask_head()) return 1;
  return attention_rows_are_keys() ? attention_groups() : attention_heads();
}
ALWAYS int all_tiles(void) {
  int streamed = attention_rows_are_keys() ? attention_queries() : attention_keys();
  return (streamed + attention_tile() - 1) / attention_tile();
}
ALWAYS int all_blocks(void) {
  int rows = attention_rows_are_keys() ? attention_keys() : attention_queries();
  return (rows + block_rows() - 1) / block_rows();
}
/* The list of the block of rows. */
ALWAYS GLOBAL int *tile_list(const Here *w) {
  int plane = (attention_mask_batch() ? w->batch : 0) * planes_of_heads();
  if (attention_mask_head()) plane += attention_rows_are_keys() ? w->group : w->head;
  return (GLOBAL int *)attention_lists(w->args) +
         (plane * all_blocks() + w->first / block_rows()) * (all_tiles() + 1);
}
ALWAYS int tiles_listed(const Here *w) { return tile_list(w)[0]; }
ALWAYS int tile_listed(const Here *w, int t) { return tile_list(w)[1 + t]; }
#endif
