/* attention_wgmma_backward_ptx: the gradient of attention's queries, of f16 or bf16 on Hopper's
 * tensor cores. Rows are queries with dy ("slopes"), pairs of tiles are keys and values. The tensor
 * cores compute dy . values while a tile's scores become weights, and add the product with the keys
 * to dq while the next tile's scores are computed. */
#define ELEMENT unsigned short
#include "kernels/attention_queries.h"

#include "kernels/attention_gradient.h"

ALWAYS void load_rows(const Here *w, Panel memory) {
  load_own(w, rows_panel(w, memory, KEYS), rows_of_query(w->args, w->batch, w->head),
           attention_queries());
  load_own(w, rows_panel(w, memory, VALUES), rows_of_slope(w->args, w->batch, w->head),
           attention_queries());
}

/* Sums dq over `count` tiles, at least one. */
ALWAYS void sum_pulls(const Here *w, Panel memory, int group, int count, float dq[][MAX_COLUMNS],
                      const float base[], const float delta[]) {
  Panel queries = own_rows(w, memory, group, KEYS), slopes = own_rows(w, memory, group, VALUES);
  Weights weights;
#pragma clang loop unroll(disable)
  for (int t = 0; t < count; t++) {
    float s[MAX_ROWS][MAX_COLUMNS], slope[MAX_ROWS][MAX_COLUMNS], gain[MAX_ROWS][MAX_COLUMNS];
    int n = w->begin + t, column0 = first_key(w, t);
    MaskBytes bytes;
    MaskBits bits;
    Added added;
    load_mask(w, &bytes, column0, 0);
    load_added(w, &added, column0, 0, ADDS_EARLY);
    Panel keys = begin_scores(w, s, memory, queries, KEYS, t);
    begin_scores(w, slope, memory, slopes, VALUES, t);
    exchange_bits(w, &bits, &bytes, 0);
    wgmma_wait(1); /* dq has the tile before, and the scores are complete */
    hold(dq, features_each());
    hold(s, columns_each());
    if (t) store_tile(memory, KEYS, n - 1, w->lane);
    bend(s, gain);
    load_added(w, &added, column0, 0, ADDS_LATE);
    add_mask(s, &added);
    hide(w, s, column0, 0);
    hide_by_bits(s, &bits, 0);
    weigh_rows(s, gain, base);
    hold(s, columns_each());
    await_tile(memory, KEYS,
               smaller(n + 1, w->begin + count - 1)); /* a loop, over which ptxas moves no wait */
    wgmma_wait(0);
    hold(slope, columns_each());
    store_tile(memory, VALUES, n, w->lane);
    pull_rows(s, slope, delta);
    turn_weights(&weights, s);
    begin_sums(dq, &weights, keys);
  }
  wgmma_wait(0);
  hold(dq, features_each());
  store_tile(memory, KEYS, w->begin + count - 1, w->lane);
}

ALWAYS void compute(Here *w, Panel memory, int count) {
  int group = own_group(w), first = w->first + group * GROUP_ROWS;
  int own = tiles_needed(first, count);
  float dq[MAX_ROWS][MAX_COLUMNS], base[MAX_ROWS], delta[MAX_ROWS];
  clear(dq, features_each());
  find_bases(w, base);
  find_deltas(w, rows_panel(w, memory, VALUES), delta);
  if (own > 0) sum_pulls(w, memory, group, own, dq, base, delta);
#pragma clang loop unroll(disable)
  for (int t = own; t < count; t++) pass_tiles(w, memory, w->begin + t);
  group_barrier(group); /* all of its queries have been read */
  finish_queries(w, dq, rows_panel(w, memory, KEYS));
}

__attribute__((always_inline)) void attention_backward(void *const *args, SHARED void *shared,
                                                       int block, int head, int batch, int thread) {
  (void)head, (void)batch;
  share_items(args, shared, block, thread);
}
