/* attention_ptx: the body of kernels/attention16_ptx.c (f16, bf16), attention32_ptx.c (f32 rounded
 * to tf32) and attentionf_ptx.c (f32 as it is): attention and its gradient tile by tile, so that
 * scores exist in registers only (FlashAttention-2: Dao 2023; the softmax that is corrected as it
 * goes: Milakov and Gimelshein 2018).
 *
 * A block owns some rows, of which each warp has a share, and streams tiles of columns through two
 * stages of asynchronous copies. Three kernels have this form:
 *   attention_forward         rows: queries; columns: keys with values
 *   attention_backward        rows: queries with dy; columns: keys with values; gives dq
 *   attention_backward_keys   the scores are transposed. rows: keys with values; columns: queries
 *              with dy, of all heads that share the keys, one head after the other; gives dk and dv
 * No sum is shared by two blocks, so all runs give the same bits. Tiles that the causal mask hides
 * are skipped. attention_mma.h and attention_fma.h define, for tensor cores and for ordinary
 * arithmetic:
 *   own_row, own_column, own_feature   which elements of a tile of scores, and of rows of features,
 *              a lane has; ROW_LANES neighbouring lanes have the same rows
 *   multiply   scores += rows x columns, a sum over features
 *   accumulate sums += scores x columns, a sum over columns
 *   round_weights   rounds weights as accumulate rounds its operand */
#ifndef FT_KERNELS_ATTENTION_PTX_H
#define FT_KERNELS_ATTENTION_PTX_H
#ifdef ATTENTION_MMA
#include "kernels/attention_mma.h"
#else
#include "kernels/attention_fma.h"
#endif
#include "kernels/attention_draws.h"
#include "kernels/attention_gradient.h"

/* Starts the copies of tile t of keys and values to its stage. */
ALWAYS void stream_keys(const Here *w, Panel memory, int t) {
  int first = t * attention_tile();
  load_panel(stream_panel(memory, t % 2, 0), rows_of_key(w->args, w->batch, w->group), first,
        attention_keys(), attention_tile(), w->thread, threads());
  load_panel(stream_panel(memory, t % 2, 1), rows_of_value(w->args, w->batch, w->group), first,
        attention_keys(), attention_tile(), w->thread, threads());
}

ALWAYS void arrive(void) {
  __nvvm_cp_async_wait_group(0);
  __nvvm_bar_sync(0);
}

__attribute__((always_inline)) void attention_forward(void *const *args, SHARED void *shared,
                                                      int block, int head, int batch, int thread) {
  Panel memory = (Panel)shared;
  Here w = here_of_queries(args, block, head, batch, thread);
  int count = tiles_of_keys(&w);
  Forward f;
  Kept kept;
  begin_forward(&f);
  load_panel(rows_panel(memory, 0), rows_of_query(args, batch, head), w.first, attention_queries(),
        block_rows(), thread, threads());
  if (count) stream_keys(&w, memory, 0);
  __nvvm_cp_async_commit_group();
  arrive();
  keep_rows(&kept, rows_panel(memory, 0), w.lane, w.warp);
#pragma clang loop unroll(disable)
  for (int t = 0; t < count; t++) {
    float s[MAX_ROWS][MAX_COLUMNS], gain[MAX_ROWS][MAX_COLUMNS], correction[MAX_ROWS];
    if (t + 1 < count) stream_keys(&w, memory, t + 1);
    __nvvm_cp_async_commit_group();
    clear(s, columns_each());
    multiply(s, rows_panel(memory, 0), &kept, stream_panel(memory, t % 2, 0), w.lane, w.warp);
    bend(s, gain);
    hide(&w, s, t * attention_tile(), 0);
    weigh(&f, s, correction);
    Drawn drawn;
    draw_tile(&w, &drawn, t * attention_tile(), 0);
    keep_drawn(&drawn, s, s);
    correct(&f, correction);
    accumulate(f.out, s, stream_panel(memory, t % 2, 1), scratch(memory, w.warp), w.lane);
    arrive();
  }
  finish_forward(&w, &f, rows_panel(memory, 0));
}

/* ── backward ────────────────────────────────────────────────────────────────────────────────── */

__attribute__((always_inline)) void attention_backward(void *const *args, SHARED void *shared,
                                                       int block, int head, int batch, int thread) {
  Panel memory = (Panel)shared;
  Here w = here_of_queries(args, block, head, batch, thread);
  int count = tiles_of_keys(&w);
  float sum[MAX_ROWS][MAX_COLUMNS], delta[MAX_ROWS], base[MAX_ROWS];
  clear(sum, features_each());
  load_panel(rows_panel(memory, 0), rows_of_query(args, batch, head), w.first, attention_queries(),
        block_rows(), thread, threads());
  load_panel(rows_panel(memory, 1), rows_of_slope(args, batch, head), w.first, attention_queries(),
        block_rows(), thread, threads());
  if (count) stream_keys(&w, memory, 0);
  __nvvm_cp_async_commit_group();
  find_bases(&w, base);
  arrive();
  find_deltas(&w, rows_panel(memory, 1), delta);
#pragma clang loop unroll(disable)
  for (int t = 0; t < count; t++) {
    float s[MAX_ROWS][MAX_COLUMNS], slope[MAX_ROWS][MAX_COLUMNS], gain[MAX_ROWS][MAX_COLUMNS];
    Panel key = stream_panel(memory, t % 2, 0), value = stream_panel(memory, t % 2, 1);
    if (t + 1 < count) stream_keys(&w, memory, t + 1);
    __nvvm_cp_async_commit_group();
    clear(s, columns_each());
    multiply(s, rows_panel(memory, 0), 0, key, w.lane, w.warp);
    bend(s, gain);
    hide(&w, s, t * attention_tile(), 0);
    clear(slope, columns_each());
    multiply(slope, rows_panel(memory, 1), 0, value, w.lane, w.warp);
    weigh_rows(s, gain, base);
    Drawn drawn;
    draw_tile(&w, &drawn, t * attention_tile(), 0);
    keep_drawn(&drawn, slope, slope);
    pull_rows(s, slope, delta);
    accumulate(sum, s, key, scratch(memory, w.warp), w.lane);
    arrive();
  }
  finish_queries(&w, sum, rows_panel(memory, 0));
}

ALWAYS void copy_scores(float to[MAX_ROWS][MAX_COLUMNS], float from[MAX_ROWS][MAX_COLUMNS]) {
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j++) to[i][j] = from[i][j];
}

/* Starts the copies of step t: queries and dy, with their bases and deltas. The heads of a
 * group follow one another, with `count` tiles each, from tile `start` on. */
ALWAYS void stream_queries(const Here *w, Panel memory, int t, int start, int count) {
  int head = head_of(w, t, count), first = (start + tile_of(t, count)) * attention_tile();
  load_panel(stream_panel(memory, t % 2, 0), rows_of_query(w->args, w->batch, head), first,
        attention_queries(), attention_tile(), w->thread, threads());
  load_panel(stream_panel(memory, t % 2, 1), rows_of_slope(w->args, w->batch, head), first,
        attention_queries(), attention_tile(), w->thread, threads());
  int at = (w->batch * attention_heads() + head) * attention_queries();
#pragma clang loop unroll(full)
  for (int p = 0; p < 2 * attention_tile(); p += threads()) {
    int number = p + w->thread, row = first + number % attention_tile();
    if (number >= 2 * attention_tile()) continue;
    const void *from =
        number < attention_tile() ? attention_bases(w->args) : attention_deltas(w->args);
    copy_async(statistics(memory, t % 2) + number, from, row < attention_queries() ? at + row : -1,
               1, sizeof(float));
  }
}

__attribute__((always_inline)) void attention_backward_keys(void *const *args, SHARED void *shared,
                                                            int block, int group, int batch,
                                                            int thread) {
  Panel memory = (Panel)shared;
  Here w = here(args, batch, block * block_rows(), thread);
  w.group = group;
  int start, count = tiles_of_queries(&w, &start), share = heads_that_share();
  float dk[MAX_ROWS][MAX_COLUMNS], dv[MAX_ROWS][MAX_COLUMNS];
  clear(dk, features_each());
  clear(dv, features_each());
  load_panel(rows_panel(memory, 0), rows_of_key(args, batch, group), w.first, attention_keys(),
        block_rows(), thread, threads());
  load_panel(rows_panel(memory, 1), rows_of_value(args, batch, group), w.first, attention_keys(),
        block_rows(), thread, threads());
  if (count) stream_queries(&w, memory, 0, start, count);
  __nvvm_cp_async_commit_group();
  arrive();
#pragma clang loop unroll(disable)
  for (int t = 0; t < share * count; t++) {
    float s[MAX_ROWS][MAX_COLUMNS], slope[MAX_ROWS][MAX_COLUMNS], gain[MAX_ROWS][MAX_COLUMNS], kept[MAX_ROWS][MAX_COLUMNS];
    Drawn drawn;
    Panel query = stream_panel(memory, t % 2, 0), dy = stream_panel(memory, t % 2, 1);
    Floats numbers = statistics(memory, t % 2);
    if (t + 1 < share * count) stream_queries(&w, memory, t + 1, start, count);
    __nvvm_cp_async_commit_group();
    w.head = head_of(&w, t, count);
    clear(s, columns_each());
    multiply(s, rows_panel(memory, 0), 0, query, w.lane, w.warp);
    bend(s, gain);
    hide(&w, s, (start + tile_of(t, count)) * attention_tile(), 1);
    weigh_columns(s, gain, numbers, w.lane);
    draw_tile(&w, &drawn, (start + tile_of(t, count)) * attention_tile(), 1);
    keep_drawn(&drawn, kept, s);
    accumulate(dv, drops() ? kept : s, dy, scratch(memory, w.warp), w.lane);
    clear(slope, columns_each());
    multiply(slope, rows_panel(memory, 1), 0, dy, w.lane, w.warp);
    keep_drawn(&drawn, slope, slope);
    if (caps()) copy_scores(s, gain);
    round_weights(s); /* so that only the rounded weights stay live over the product */
    pull_columns(s, slope, numbers + attention_tile(), w.lane);
    accumulate(dk, s, query, scratch(memory, w.warp), w.lane);
    arrive();
  }
  finish_keys(&w, dk, rows_panel(memory, 0));
  finish_values(&w, dv, rows_panel(memory, 1));
}
#endif
