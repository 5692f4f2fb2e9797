/* attention_wgmma_forward_ptx: attention of f16 or bf16 on Hopper's tensor cores. Rows are queries,
 * pairs of tiles are keys and values. */
#define ELEMENT unsigned short
#include "kernels/attention_queries.h"

ALWAYS void load_rows(const Here *w, Panel memory) {
  load_own(w, rows_panel(w, memory, 0), rows_of_query(w->args, w->batch, w->head),
           attention_queries());
}

/* Warpgroups take turns in issuing products, so that while one computes exponentials, the tensor
 * cores have another's products. There is a turn for each tile of all items; turn t of the first
 * warpgroup follows turn t - 1 of the last. */
ALWAYS void await_turn(Panel memory, int group, int t) {
  if (group == 0) t--;
  if (t >= 0) mbarrier_wait(turn(memory, group), t % 2, wait_for(WAIT_TURN, group));
}
ALWAYS void pass_turn(Panel memory, int group, int lane) {
  warp_arrives(turn(memory, group + 1 == groups_of_rows() ? 0 : group + 1), lane);
}

ALWAYS void end_sums(Forward *f, Weights *weights) {
  wgmma_wait(0);
  hold(f->out, features_each());
  hold_weights(weights);
}

/* The scores of a tile become weights while those of the tile before it are multiplied. */
ALWAYS void attend_to(const Here *w, Panel memory, int group, int count, Forward *f) {
  float s[MAX_ROWS][MAX_COLUMNS], gain[MAX_ROWS][MAX_COLUMNS], correction[MAX_ROWS];
  Weights weights;
  MaskBytes bytes;
  MaskBits bits;
  Added added;
  Panel queries = own_rows(w, memory, group, 0);
  int column0 = first_key(w, 0);
  load_mask(w, &bytes, column0, 0);
  load_added(w, &added, column0, 0, ADDS_EARLY);
  await_turn(memory, group, w->begin);
  begin_scores(w, s, memory, queries, KEYS, 0);
  pass_turn(memory, group, w->lane);
  exchange_bits(w, &bits, &bytes, 0);
  wgmma_wait(0);
  hold(s, columns_each());
  store_tile(memory, KEYS, w->begin, w->lane);
  bend(s, gain);
  add_mask(s, &added);
  hide(w, s, column0, 0);
  hide_by_bits(s, &bits, 0);
  weigh(f, s, correction);
  turn_weights(&weights, s);
  Panel values = await_tile(memory, VALUES, w->begin);
#pragma clang loop unroll(disable)
  for (int t = 1; t < count; t++) {
    int n = w->begin + t;
    column0 = first_key(w, t);
    load_mask(w, &bytes, column0, 0);
    load_added(w, &added, column0, 0, ADDS_EARLY);
    await_turn(memory, group, n);
    begin_scores(w, s, memory, queries, KEYS, t);
    begin_sums(f->out, &weights, values);
    pass_turn(memory, group, w->lane);
    exchange_bits(w, &bits, &bytes, 0);
    wgmma_wait(1);
    hold(s, columns_each());
    store_tile(memory, KEYS, n, w->lane);
    bend(s, gain);
    add_mask(s, &added);
    hide(w, s, column0, 0);
    hide_by_bits(s, &bits, 0);
    weigh(f, s, correction);
    hold(s, columns_each());
    values = await_tile(memory, VALUES, n); /* a loop, over which ptxas moves no waiting */
    end_sums(f, &weights);
    store_tile(memory, VALUES, n - 1, w->lane);
    correct(f, correction);
    turn_weights(&weights, s);
  }
  begin_sums(f->out, &weights, values);
  end_sums(f, &weights);
  store_tile(memory, VALUES, w->begin + count - 1, w->lane);
}

ALWAYS void pass_with_turn(const Here *w, Panel memory, int group, int t) {
  await_turn(memory, group, t);
  pass_turn(memory, group, w->lane);
  pass_tiles(w, memory, t);
}

ALWAYS void compute(Here *w, Panel memory, int count) {
  int group = own_group(w), first = w->first + group * GROUP_ROWS;
  int own = tiles_needed(first, count);
  Forward f;
  begin_forward(&f);
  if (own) attend_to(w, memory, group, own, &f);
#pragma clang loop unroll(disable)
  for (int t = own; t < count; t++) pass_with_turn(w, memory, group, w->begin + t);
  group_barrier(group); /* all of its queries have been read */
  finish_forward(w, &f, rows_panel(w, memory, 0));
}

__attribute__((always_inline)) void attention_forward(void *const *args, SHARED void *shared,
                                                      int block, int head, int batch, int thread) {
  (void)head, (void)batch;
  share_items(args, shared, block, thread);
}
