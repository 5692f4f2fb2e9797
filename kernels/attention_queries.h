/* attention_queries: the items of the wgmma kernels whose rows are queries, that is, forward and
 * dq's. */
#ifndef FT_KERNELS_ATTENTION_QUERIES_H
#define FT_KERNELS_ATTENTION_QUERIES_H
#include "kernels/attention_ring.h"

/* The last queries see the most keys. */
ALWAYS Here item_here(void *const *args, int number, int thread) {
  int blocks = (attention_queries() + block_rows() - 1) / block_rows();
  Item item = item_at(number, blocks);
  Here w = here(args, item.plane / attention_heads(), (blocks - 1 - item.block) * block_rows(),
                thread);
  w.head = item.plane % attention_heads();
  w.group = w.head / (attention_heads() / attention_groups());
  return w;
}
ALWAYS int item_tiles(const Here *w) {
  if (attention_has_lists()) return tiles_listed(w);
  return smaller(tiles_of_keys(w), (keys_alive(w) + attention_tile() - 1) / attention_tile());
}
/* The first key of the item's tile t. */
ALWAYS int first_key(const Here *w, int t) {
  return (attention_has_lists() ? tile_listed(w, t) : t) * attention_tile();
}
/* How many of the item's `count` tiles a warpgroup needs whose rows begin at `first`. Of a list it takes all. */
ALWAYS int tiles_needed(int first, int count) {
  if (first >= attention_queries()) return 0;
  return attention_has_lists() ? count : smaller(tiles_seen(first + GROUP_ROWS), count);
}
ALWAYS TilePlace tile_place(const Here *w, int t) {
  return (TilePlace){w->group, first_key(w, t)};
}
ALWAYS const void *numbers(const Here *w, int which) {
  (void)w, (void)which;
  return 0;
}
ALWAYS void load_tile(const Here *w, Panel memory, int which, int t) {
  load_keys(w, memory, which, t);
}
#endif
