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
  return smaller(tiles_of_keys(w), (keys_alive(w) + attention_tile() - 1) / attention_tile());
}
ALWAYS TilePlace tile_place(const Here *w, int t) {
  return (TilePlace){w->group, t * attention_tile()};
}
ALWAYS const void *numbers(const Here *w, int which) {
  (void)w, (void)which;
  return 0;
}
ALWAYS void load_tile(const Here *w, Panel memory, int which, int t) {
  load_keys(w, memory, which, t);
}
#endif
