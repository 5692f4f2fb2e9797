/* attention_queries: a block of the wgmma kernels whose rows are queries, that is, forward and
 * dq's. The file that includes this one defines what a consumer computes of them: attend. */
#ifndef FT_KERNELS_ATTENTION_QUERIES_H
#define FT_KERNELS_ATTENTION_QUERIES_H
#include "kernels/attention_ring.h"

/* The work of a consumer warpgroup, over `count` tiles of keys. */
ALWAYS void attend(const Here *w, Panel memory, int count);

ALWAYS void share_block(void *const *args, SHARED void *shared, int block, int head, int batch,
                        int thread) {
  Panel memory = (Panel)shared;
  Here w = here_of_queries(args, block, head, batch, thread);
  int count = tiles_of_keys(&w);
  open_mbarriers(memory, thread);
  if (w.warp < attention_warps()) {
    take_registers();
    attend(&w, memory, count);
  } else {
    give_registers();
    load_tiles(&w, memory, count);
  }
}
#endif
