/* attention_wgmma_backward_keys_ptx: the gradients of attention's keys and values, of f16 or bf16
 * on Hopper's tensor cores. The scores are transposed: rows are keys with values. A pair of tiles
 * is queries with their bases, and dy ("slopes") with their deltas; all heads that share the
 * keys follow one another. The tensor cores add a tile's part to dv while weights become gradients
 * of scores, and to dk while the next tile's scores are computed. */
#define ELEMENT unsigned short
#include "kernels/attention_ring.h"

#include "kernels/attention_gradient.h"

enum { QUERIES = KEYS, SLOPES = VALUES };

/* The first keys are seen by the most queries. */
ALWAYS Here item_here(void *const *args, int number, int thread) {
  Item item = item_at(number, (attention_keys() + block_rows() - 1) / block_rows());
  Here w = here(args, item.plane / attention_groups(), item.block * block_rows(), thread);
  w.group = item.plane % attention_groups();
  w.warp %= attention_warps() / attention_split();
  return w;
}
/* tiles_of_queries; of a list all, from the first on. */
ALWAYS int tiles_of_head(const Here *w, int *start) {
  if (!attention_has_lists()) return tiles_of_queries(w, start);
  *start = 0;
  return tiles_listed(w);
}
/* The first query of step t, of `count` for each head. */
ALWAYS int first_query(const Here *w, int t, int start, int count) {
  int tile = start + tile_of(t, count);
  return (attention_has_lists() ? tile_listed(w, tile) : tile) * attention_tile();
}
ALWAYS int item_tiles(const Here *w) {
  int start;
  return has_alive(w) ? heads_that_share() * tiles_of_head(w, &start) : 0;
}
/* Where warpgroups have the same rows, the first one has a panel of keys, and the second one two. */
ALWAYS void load_rows(const Here *w, Panel memory) {
  Rows keys = rows_of_key(w->args, w->batch, w->group);
  Rows values = rows_of_value(w->args, w->batch, w->group);
  int second = attention_split() > 1 ? own_group(w) : 0;
  load_own(w, rows_panel(w, memory, second), keys, attention_keys());
  if (attention_split() == 1 || second)
    load_own(w, rows_panel(w, memory, second + 1), values, attention_keys());
}

ALWAYS TilePlace tile_place(const Here *w, int t) {
  int start, count = tiles_of_head(w, &start);
  return (TilePlace){head_of(w, t, count), first_query(w, t, start, count)};
}
ALWAYS const void *numbers(const Here *w, int which) {
  return which == QUERIES ? attention_bases(w->args) : attention_deltas(w->args);
}

/* Starts the copies of the numbers of a tile, of the queries from `first` on. */
ALWAYS void load_numbers(const Here *w, Floats to, const void *from, int first) {
#pragma clang loop unroll(full)
  for (int i = 0; i < attention_tile(); i += HALF_GROUP) {
    int own = i + w->thread % HALF_GROUP;
    int is_there = attention_queries() % attention_tile() == 0 || first + own < attention_queries();
    copy_async(to + own, from, is_there ? first_number(w) + first + own : -1, 1, sizeof(float));
  }
}

ALWAYS void load_tile(const Here *w, Panel memory, int which, int t) {
  TilePlace place = tile_place(w, t);
  Here from = *w;
  from.head = place.head;
  load_numbers(&from, tile_numbers(memory, which, w->begin + t), numbers(w, which), place.row);
  Rows queries = rows_of_query(w->args, w->batch, place.head);
  Rows slopes = rows_of_slope(w->args, w->batch, place.head);
  load_strips(w, memory, which, t, which == QUERIES ? queries : slopes, place.row,
               attention_queries());
}

/* Are there registers for scores and dy . values at once? Then the latter product runs while scores
 * become weights; else the tensor cores have another warpgroup's products meanwhile. */
ALWAYS int has_room(void) { return attention_width() <= 64 && groups_of_rows() < 3; }

/* The gradients of scores, from weights, of which only the rounded form is kept in registers: a
 * pair at a time, so that no more than two are f32 at once. */
ALWAYS void pull_weights(Weights *pulls, const Weights *weights, float slope[][MAX_COLUMNS],
                         Floats deltas, int lane) {
#pragma clang loop unroll(full)
  for (int j = 0; j < columns_each(); j += 2) {
    float low = deltas[own_column(lane, j)], high = deltas[own_column(lane, j + 1)];
#pragma clang loop unroll(full)
    for (int i = 0; i < rows_each(); i++) {
      unsigned pair = weights->at[j / 4][j % 4 + i];
      pulls->at[j / 4][j % 4 + i] =
          attention_pair(attention_number(pair & 0xffff) * (slope[i][j] - low),
                         attention_number(pair >> 16) * (slope[i][j + 1] - high));
    }
  }
}

/* ── a warpgroup for each result ─────────────────────────────────────────────────────────────── */

/* Sums dv over all tiles, of which there is at least one. */
ALWAYS void sum_values(Here *w, Panel memory, int start, int count, float dv[][MAX_COLUMNS]) {
  Panel keys = own_rows(w, memory, 0, 0);
  Weights weights;
#pragma clang loop unroll(disable)
  for (int t = 0; t < heads_that_share() * count; t++) {
    float s[MAX_ROWS][MAX_COLUMNS], gain[MAX_ROWS][MAX_COLUMNS];
    int n = w->begin + t, column0 = first_query(w, t, start, count);
    MaskBytes bytes;
    MaskBits bits;
    Added added;
    w->head = head_of(w, t, count);
    load_mask(w, &bytes, column0, 1);
    begin_scores(w, s, memory, keys, QUERIES, t);
    exchange_bits(w, &bits, &bytes, 1);
    wgmma_wait(0); /* dv has the tile before, and the scores are complete */
    hold(dv, features_each());
    hold(s, columns_each());
    if (t) store_tile(memory, SLOPES, n - 1, w->lane);
    bend(s, gain);
    load_added(w, &added, column0, 1, ADDS_LATE);
    add_mask(s, &added);
    hide(w, s, column0, 1);
    hide_by_bits(s, &bits, 1);
    weigh_columns(s, gain, tile_numbers(memory, QUERIES, n), w->lane);
    store_tile(memory, QUERIES, n, w->lane);
    turn_weights(&weights, s);
    begin_sums(dv, &weights, await_tile(memory, SLOPES, n));
  }
  wgmma_wait(0);
  hold(dv, features_each());
  store_tile(memory, SLOPES, w->begin + heads_that_share() * count - 1, w->lane);
}

/* Sums dk. */
ALWAYS void sum_keys(Here *w, Panel memory, int start, int count, float dk[][MAX_COLUMNS]) {
  Panel keys = own_rows(w, memory, 0, 1), values = own_rows(w, memory, 0, 2);
  Weights pulls;
#pragma clang loop unroll(disable)
  for (int t = 0; t < heads_that_share() * count; t++) {
    float s[MAX_ROWS][MAX_COLUMNS], slope[MAX_ROWS][MAX_COLUMNS], gain[MAX_ROWS][MAX_COLUMNS];
    int n = w->begin + t, column0 = first_query(w, t, start, count);
    MaskBytes bytes;
    MaskBits bits;
    Added added;
    w->head = head_of(w, t, count);
    load_mask(w, &bytes, column0, 1);
    Panel queries = begin_scores(w, s, memory, keys, QUERIES, t);
    exchange_bits(w, &bits, &bytes, 1);
    wgmma_wait(0); /* dk has the tile before, and the scores are complete */
    hold(dk, features_each());
    hold(s, columns_each());
    if (t) store_tile(memory, QUERIES, n - 1, w->lane);
    bend(s, gain);
    load_added(w, &added, column0, 1, ADDS_LATE);
    add_mask(s, &added);
    hide(w, s, column0, 1);
    hide_by_bits(s, &bits, 1);
    weigh_columns(s, gain, tile_numbers(memory, QUERIES, n), w->lane);
    hold(s, columns_each());
    if (caps()) hold(gain, columns_each());
    begin_scores(w, slope, memory, values, SLOPES, t);
    wgmma_wait(0);
    hold(slope, columns_each());
    pull_columns(caps() ? gain : s, slope, tile_numbers(memory, SLOPES, n), w->lane);
    store_tile(memory, SLOPES, n, w->lane);
    turn_weights(&pulls, caps() ? gain : s);
    begin_sums(dk, &pulls, queries);
  }
  wgmma_wait(0);
  hold(dk, features_each());
  store_tile(memory, QUERIES, w->begin + heads_that_share() * count - 1, w->lane);
}

/* ── items ───────────────────────────────────────────────────────────────────────────────────── */

/* How many of the block's `all` tiles come before the first one that this warpgroup needs. Where
 * several heads share the keys, it goes through all tiles. */
ALWAYS int tiles_before(const Here *w, int group, int start, int all) {
  int first = w->first + group * GROUP_ROWS;
  if (first >= attention_keys()) return all;
  if (!attention_causal() || attention_has_lists() || heads_that_share() > 1 || first < offset())
    return 0;
  return smaller((first - offset()) / attention_tile() - start, all);
}

/* Sums dk and dv over the tiles from `begin` on, of which there is at least one. */
ALWAYS void sum_heads(Here *w, Panel memory, int begin, int start, int count,
                      float dk[][MAX_COLUMNS], float dv[][MAX_COLUMNS]) {
  int group = own_group(w);
  Panel keys = own_rows(w, memory, group, 0), values = own_rows(w, memory, group, 1);
  Weights weights, pulls;
  Panel slopes;
#pragma clang loop unroll(disable)
  for (int t = begin; t < heads_that_share() * count; t++) {
    float s[MAX_ROWS][MAX_COLUMNS], slope[MAX_ROWS][MAX_COLUMNS], gain[MAX_ROWS][MAX_COLUMNS];
    int n = w->begin + t, column0 = first_query(w, t, start, count);
    MaskBytes bytes;
    MaskBits bits;
    Added added;
    w->head = head_of(w, t, count);
    load_mask(w, &bytes, column0, 1);
    load_added(w, &added, column0, 1, ADDS_EARLY);
    Panel queries = begin_scores(w, s, memory, keys, QUERIES, t);
    exchange_bits(w, &bits, &bytes, 1);
    wgmma_wait(0); /* dk and dv have the tile before, and the scores are complete */
    hold(dk, features_each());
    hold(dv, features_each());
    hold(s, columns_each());
    if (t > begin) store_tile(memory, QUERIES, n - 1, w->lane);
    if (t > begin) store_tile(memory, SLOPES, n - 1, w->lane);
    if (has_room()) slopes = begin_scores(w, slope, memory, values, SLOPES, t);
    bend(s, gain);
    load_added(w, &added, column0, 1, ADDS_LATE);
    add_mask(s, &added);
    hide(w, s, column0, 1);
    hide_by_bits(s, &bits, 1);
    weigh_columns(s, gain, tile_numbers(memory, QUERIES, n), w->lane);
    turn_weights(&weights, s);
    hold_weights(&weights);
    if (caps()) turn_weights(&pulls, gain);
    if (caps()) hold_weights(&pulls);
    if (!has_room()) slopes = begin_scores(w, slope, memory, values, SLOPES, t);
    begin_sums(dv, &weights, slopes);
    wgmma_wait(1);
    hold(slope, columns_each());
    pull_weights(&pulls, caps() ? &pulls : &weights, slope, tile_numbers(memory, SLOPES, n), w->lane);
    begin_sums(dk, &pulls, queries);
  }
  wgmma_wait(0);
  hold(dk, features_each());
  hold(dv, features_each());
  store_tile(memory, QUERIES, w->begin + heads_that_share() * count - 1, w->lane);
  store_tile(memory, SLOPES, w->begin + heads_that_share() * count - 1, w->lane);
}

/* A warpgroup that has all of its rows' results. */
ALWAYS void compute_both(Here *w, Panel memory, int all) {
  int group = own_group(w), start, count = tiles_of_head(w, &start);
  int begin = tiles_before(w, group, start, all);
  float dk[MAX_ROWS][MAX_COLUMNS], dv[MAX_ROWS][MAX_COLUMNS];
  clear(dk, features_each());
  clear(dv, features_each());
#pragma clang loop unroll(disable)
  for (int t = 0; t < begin; t++) pass_tiles(w, memory, w->begin + t);
  if (begin < all) sum_heads(w, memory, begin, start, count, dk, dv);
  group_barrier(group); /* all of its keys and values have been read */
  finish_keys(w, dk, rows_panel(w, memory, 0));
  finish_values(w, dv, rows_panel(w, memory, 1));
}

/* Two warpgroups have the same keys, and the sums of one result each. */
ALWAYS void compute_one(Here *w, Panel memory, int all) {
  int group = own_group(w), start, count = tiles_of_head(w, &start);
  if (group == 0) {
    float dv[MAX_ROWS][MAX_COLUMNS];
    clear(dv, features_each());
    if (all) sum_values(w, memory, start, count, dv);
    group_barrier(group);
    finish_values(w, dv, rows_panel(w, memory, 0));
  } else {
    float dk[MAX_ROWS][MAX_COLUMNS];
    clear(dk, features_each());
    if (all) sum_keys(w, memory, start, count, dk);
    group_barrier(group);
    finish_keys(w, dk, rows_panel(w, memory, 1));
  }
}

ALWAYS void compute(Here *w, Panel memory, int all) {
  if (attention_split() > 1)
    compute_one(w, memory, all);
  else
    compute_both(w, memory, all);
}

__attribute__((always_inline)) void attention_backward_keys(void *const *args, SHARED void *shared,
                                                            int block, int group, int batch,
                                                            int thread) {
  (void)group, (void)batch;
  share_items(args, shared, block, thread);
}
