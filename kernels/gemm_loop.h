/* gemm_loop: a block's loop over k, with cp.async and a barrier for every panel. Shared by
 * gemm_ptx.h (ordinary arithmetic) and mma_ptx.h (mma.sync), which define the type Total, a
 * thread's sums, before they include it. */
#ifndef FT_KERNELS_GEMM_LOOP_H
#define FT_KERNELS_GEMM_LOOP_H

ALWAYS void clear(Total *sum);
ALWAYS void multiply(Panel a, Panel b, int thread, Total *sum);
ALWAYS void meet(void) { __nvvm_bar_sync(0); }
#include "kernels/gemm_epilogue.h"

__attribute__((always_inline)) void gemm_tile(void *const *args, SHARED void *shared, int row_block,
                                              int column_block, int batch_split, int thread) {
  Panel memory = (Panel)shared;
  int steps = gemm_steps(), stages = gemm_stages();
  Where w = where(row_block * gemm_tile_m(), column_block * gemm_tile_n(), batch_split, thread);
  int count = (w.end - w.begin + steps - 1) / steps;
  Total sum;
  ELEMENT kept_a[MAX_KEPT], kept_b[MAX_KEPT];
  clear(&sum);
  /* the first rounds only fill the stages: one copy of the code serves both */
#pragma clang loop unroll(disable)
  for (int t = 1 - stages; t < count; t++) {
    if (t >= 0) {
      async_wait(stages - 2);
      __nvvm_bar_sync(0);
    }
    int next = t + stages - 1, is_more = next < count, k0 = w.begin + next * steps;
    int at = (next + 1) % stages, ahead = next % stages; /* computed from t: saves two registers */
    if (is_more) {
      Where again = w; /* places are computed again: keeping them would cost registers */
      __asm__ volatile("" : "+r"(again.thread));
      fetch(args, &again, 1, k0, panel_of(memory, ahead, 1), kept_a);
      fetch(args, &w, 0, k0, panel_of(memory, ahead, 0), kept_b);
    }
    async_commit();
    if (t >= 0) multiply(panel_of(memory, at, 1), panel_of(memory, at, 0), thread, &sum);
    if (is_more) {
      keep(thread, 1, panel_of(memory, ahead, 1), kept_a);
      keep(thread, 0, panel_of(memory, ahead, 0), kept_b);
    }
  }
  store_tile(args, (Sums)shared, &w, &sum);
}
#endif
