/* attention_wgmma_forward_ptx: attention of f16 or bf16 on Hopper's tensor cores. Rows are queries,
 * pairs of tiles are keys and values. */
#define ELEMENT unsigned short
#include "kernels/attention_queries.h"

ALWAYS void load_tile(const Here *w, Panel memory, int which, int t) {
  load_keys(w, memory, which, t);
}

/* Warpgroups take turns in issuing products, so that while one computes exponentials, the tensor
 * cores have another's products. Turn t of the first warpgroup follows turn t - 1 of the last. */
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
  float s[MAX_ROWS][MAX_COLUMNS], correction[MAX_ROWS];
  Weights weights;
  begin_scores(s, memory, group, KEYS, 0);
  wgmma_wait(0);
  hold(s, columns_each());
  store_tile(memory, KEYS, 0, w->lane);
  hide(w, s, 0, 0);
  weigh(f, s, correction);
  turn_weights(&weights, s);
  Panel values = await_tile(memory, VALUES, 0);
#pragma clang loop unroll(disable)
  for (int t = 1; t < count; t++) {
    await_turn(memory, group, t - 1);
    begin_scores(s, memory, group, KEYS, t);
    begin_sums(f->out, &weights, values);
    pass_turn(memory, group, w->lane);
    wgmma_wait(1);
    hold(s, columns_each());
    store_tile(memory, KEYS, t, w->lane);
    hide(w, s, t * attention_tile(), 0);
    weigh(f, s, correction);
    hold(s, columns_each());
    values = await_tile(memory, VALUES, t); /* a loop, over which ptxas moves no waiting */
    end_sums(f, &weights);
    store_tile(memory, VALUES, t - 1, w->lane);
    correct(f, correction);
    turn_weights(&weights, s);
  }
  begin_sums(f->out, &weights, values);
  end_sums(f, &weights);
  store_tile(memory, VALUES, count - 1, w->lane);
}

ALWAYS void pass_with_turn(const Here *w, Panel memory, int group, int t) {
  if (t) {
    await_turn(memory, group, t - 1);
    pass_turn(memory, group, w->lane);
  }
  pass_tiles(w, memory, t);
}

ALWAYS void attend(const Here *w, Panel memory, int count) {
  int group = w->warp / 4, first = w->first + group * GROUP_ROWS;
  int own = first < attention_queries() ? tiles_seen(first + GROUP_ROWS) : 0;
  Forward f;
  begin_forward(&f);
  load_own(w, memory, rows_of_query(w->args, w->batch, w->head), attention_queries());
  await_own(w);
  if (own) attend_to(w, memory, group, own, &f);
#pragma clang loop unroll(disable)
  for (int t = own; t < count; t++) pass_with_turn(w, memory, group, t);
  group_barrier(group); /* all of its queries have been read */
  finish_forward(w, &f, memory);
}

__attribute__((always_inline)) void attention_forward(void *const *args, SHARED void *shared,
                                                      int block, int head, int batch, int thread) {
  share_block(args, shared, block, head, batch, thread);
}
