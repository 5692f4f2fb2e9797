/* attention_ptx: the body of kernels/attention16_ptx.c (f16, bf16), attention32_ptx.c (f32 rounded
 * to tf32) and attentionf_ptx.c (f32 as it is): attention and its gradient tile by tile, so that
 * scores exist in registers only (FlashAttention-2: Dao 2023; the softmax that is corrected as it
 * goes: Milakov and Gimelshein 2018).
 *
 * A block has some rows, a share of them each warp, and streams tiles of columns by two stages of
 * asynchronous copies. Three kernels have this form:
 *   forward    rows: queries; columns: keys with values
 *   backward   rows: queries with slopes (dy); columns: keys with values; gives dq
 *   sideways   rows: keys with values; columns: queries with slopes, of all heads that share the
 *              keys, one head after the other; gives dk and dv
 * Nothing is summed by two blocks, so all runs give the same bits. Tiles that the causal order
 * hides are skipped. What multiplies is in attention_mma.h and attention_fma.h, included before
 * this: own_row, own_column, own_feature   which elements of a tile of scores, and of rows of
 * features, a lane has; ROW_LANES neighbouring lanes have the same rows multiply     scores += rows
 * x columns, over features accumulate   sums += scores x columns, over columns round_weights scores
 * as accumulate rounded them */
#ifndef FT_KERNELS_ATTENTION_PTX_H
#define FT_KERNELS_ATTENTION_PTX_H
#include "kernels/attention_panel.h"
#ifdef ATTENTION_MMA
#include "kernels/attention_mma.h"
#else
#include "kernels/attention_fma.h"
#endif

/* A tensor [batch][heads][positions][features], wherever these lie. */
#define TENSOR(name)                                                                               \
  void *attention_##name(void *const *args);                                                       \
  int attention_##name##_batch(void), attention_##name##_head(void), attention_##name##_row(void); \
  ALWAYS Rows rows_of_##name(void *const *args, int b, int h) {                                    \
    int at = b * attention_##name##_batch() + h * attention_##name##_head();                       \
    return (Rows){(GLOBAL ELEMENT *)attention_##name(args) + at, attention_##name##_row()};        \
  }
TENSOR(query)
TENSOR(key)
TENSOR(value)
TENSOR(out)
TENSOR(slope)
TENSOR(query_grad)
TENSOR(key_grad)
TENSOR(value_grad)
void *attention_logarithms(void *const *args); /* f32 [batch][heads][queries], log-sum-exp */
void *attention_deltas(void *const *args);     /* the same, sums of dy * out; in the workspace */

int attention_heads(void), attention_groups(void), attention_queries(void), attention_keys(void);
int attention_causal(void);
int attention_scale(void); /* the bits of an f32 */
/* 0: none; 1: bool, 2: added to the scores. Element `index`, or whether a key is seen. */
int attention_mask(void);
int attention_mask_batch(void), attention_mask_head(void), attention_mask_row(void);
float attention_mask_element(void *const *args, int index);

#define LOG2_E 1.44269504088896340736f
#define LN_2 0.69314718055994530942f
static const float infinity = __builtin_inff();

typedef struct {
  void *const *args;
  int thread, lane, warp, batch, head, group;
  int first; /* row of the block */
} Here;

ALWAYS Here here(void *const *args, int batch, int first, int thread) {
  return (Here){args, thread, thread % 32, thread / 32, batch, 0, 0, first};
}

ALWAYS int smaller(int a, int b) { return a < b ? a : b; }
ALWAYS float exp2_of(float x) { return __nvvm_ex2_approx_ftz_f(x); }
ALWAYS float scale(void) { return __builtin_bit_cast(float, attention_scale()); }

/* Scores are made powers of two: e^x = 2^(x log2 e). Where nothing is in the way the factor waits
 * until the largest score is subtracted, where it costs nothing. */
ALWAYS int scales_first(void) { return attention_mask() == 2 || !(scale() > 0); }
ALWAYS float factor(void) { return scales_first() ? 1.0f : scale() * LOG2_E; }

/* Row i sees the keys before i + 1 + offset(). */
ALWAYS int offset(void) { return attention_keys() - attention_queries(); }

/* How many keys the rows before `row` see at most. */
ALWAYS int keys_seen(int row) {
  if (!attention_causal()) return attention_keys();
  int seen = smaller(row, attention_queries()) + offset();
  return seen < 0 ? 0 : smaller(seen, attention_keys());
}

/* ── scores ──────────────────────────────────────────────────────────────────────────────────── */

ALWAYS void clear(float x[MAX_ROWS][MAX_COLUMNS], int columns) {
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < columns; j++) x[i][j] = 0;
}

/* The mask, and -inf where a key is not seen. is_turned: rows are keys. */
ALWAYS void hide(const Here *w, float s[MAX_ROWS][MAX_COLUMNS], int column0, int is_turned) {
  int row0 = w->first + w->warp * attention_micro();
  int limit = is_turned ? attention_queries() : attention_keys();
  int is_whole = column0 + attention_tile() <= limit;
  if (attention_causal())
    is_whole &= is_turned ? row0 + attention_micro() - 1 <= column0 + offset()
                          : column0 + attention_tile() - 1 <= row0 + offset();
  int mask0 = w->batch * attention_mask_batch() + w->head * attention_mask_head();
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each() && (scales_first() || attention_mask()); i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j++) {
      int row = row0 + own_row(w->lane, i), column = column0 + own_column(w->lane, j);
      int query = is_turned ? column : row, key = is_turned ? row : column;
      if (scales_first()) s[i][j] *= scale() * LOG2_E;
      if (!attention_mask()) continue;
      int is_there = query < attention_queries() && key < attention_keys();
      float mask = attention_mask_element(
          w->args, is_there ? mask0 + query * attention_mask_row() + key : 0);
      if (attention_mask() == 1)
        s[i][j] = mask != 0 ? s[i][j] : -infinity;
      else
        s[i][j] += mask * LOG2_E;
    }
  if (is_whole) return;
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j++) {
      int row = row0 + own_row(w->lane, i), column = column0 + own_column(w->lane, j);
      int is_hidden = column >= limit;
      if (attention_causal())
        is_hidden |= is_turned ? row > column + offset() : column > row + offset();
      s[i][j] = is_hidden ? -infinity : s[i][j];
    }
}

/* Over the lanes that have the same rows. */
ALWAYS float largest_of_row(float x) {
#pragma clang loop unroll(full)
  for (int mask = 1; mask < ROW_LANES; mask *= 2)
    x = __builtin_fmaxf(x, __nvvm_shfl_sync_bfly_f32(0xffffffffu, x, mask, 31));
  return x;
}
ALWAYS float sum_of_row(float x) {
#pragma clang loop unroll(full)
  for (int mask = 1; mask < ROW_LANES; mask *= 2)
    x += __nvvm_shfl_sync_bfly_f32(0xffffffffu, x, mask, 31);
  return x;
}

/* ── forward ─────────────────────────────────────────────────────────────────────────────────── */

typedef struct {
  float most[MAX_ROWS], sum[MAX_ROWS]; /* of scores so far; the sum: this lane's part of it */
  float out[MAX_ROWS][MAX_COLUMNS];
} Forward;

/* Scores to weights relative to the largest so far; what was summed before is corrected. */
ALWAYS void weigh(Forward *f, float s[MAX_ROWS][MAX_COLUMNS]) {
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++) {
    float most = f->most[i];
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j++) most = __builtin_fmaxf(most, s[i][j]);
    most = largest_of_row(most);
    float base = most == -infinity ? 0.0f : most * factor(); /* nothing seen: all weights are 0 */
    float correction = exp2_of(f->most[i] * factor() - base), sum = f->sum[i] * correction;
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j++) {
      s[i][j] = exp2_of(s[i][j] * factor() - base);
      sum += s[i][j];
    }
    f->most[i] = most;
    f->sum[i] = sum;
#pragma clang loop unroll(full)
    for (int j = 0; j < features_each(); j++) f->out[i][j] *= correction;
  }
}

ALWAYS void finish_forward(const Here *w, Forward *f, Panel panel) {
  GLOBAL float *lse = (GLOBAL float *)attention_logarithms(w->args) +
                      (w->batch * attention_heads() + w->head) * attention_queries();
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++) {
    float sum = sum_of_row(f->sum[i]), share = sum == 0 ? 0.0f : 1.0f / sum;
    int row = w->first + w->warp * attention_micro() + own_row(w->lane, i);
    if (w->lane % ROW_LANES == 0 && row < attention_queries())
      lse[row] =
          sum == 0 ? -infinity : (f->most[i] * factor() + __nvvm_lg2_approx_ftz_f(sum)) * LN_2;
#pragma clang loop unroll(full)
    for (int j = 0; j < features_each(); j++) f->out[i][j] *= share;
  }
  leave(panel, f->out, w->lane, w->warp);
  store_rows(rows_of_out(w->args, w->batch, w->head), panel, w->first, attention_queries(), w->lane,
             w->warp);
}

/* The tile of keys and values number t, on its way to its stage. */
ALWAYS void stream_keys(const Here *w, Panel memory, int t) {
  int first = t * attention_tile();
  bring(stream_panel(memory, t % 2, 0), rows_of_key(w->args, w->batch, w->group), first,
        attention_keys(), attention_tile(), w->thread);
  bring(stream_panel(memory, t % 2, 1), rows_of_value(w->args, w->batch, w->group), first,
        attention_keys(), attention_tile(), w->thread);
}

ALWAYS void arrive(void) {
  __nvvm_cp_async_wait_group(0);
  __nvvm_bar_sync(0);
}

ALWAYS int block_rows(void) { return attention_warps() * attention_micro(); }

/* A block of queries: in the causal order the last rows have most to do, so they go first. */
ALWAYS Here here_of_queries(void *const *args, int block, int head, int batch, int thread) {
  int blocks = (attention_queries() + block_rows() - 1) / block_rows();
  Here w = here(args, batch, (blocks - 1 - block) * block_rows(), thread);
  w.head = head;
  w.group = head / (attention_heads() / attention_groups());
  return w;
}
/* How many tiles of keys its rows see. */
ALWAYS int tiles_of_keys(const Here *w) {
  return (keys_seen(w->first + block_rows()) + attention_tile() - 1) / attention_tile();
}

__attribute__((always_inline)) void attention_forward(void *const *args, SHARED void *shared,
                                                      int block, int head, int batch, int thread) {
  Panel memory = (Panel)shared;
  Here w = here_of_queries(args, block, head, batch, thread);
  int count = tiles_of_keys(&w);
  Forward f;
  Kept kept;
  clear(f.out, features_each());
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++) f.most[i] = -infinity, f.sum[i] = 0;
  bring(rows_panel(memory, 0), rows_of_query(args, batch, head), w.first, attention_queries(),
        block_rows(), thread);
  if (count) stream_keys(&w, memory, 0);
  __nvvm_cp_async_commit_group();
  arrive();
  keep_rows(&kept, rows_panel(memory, 0), w.lane, w.warp);
#pragma clang loop unroll(disable)
  for (int t = 0; t < count; t++) {
    float s[MAX_ROWS][MAX_COLUMNS];
    if (t + 1 < count) stream_keys(&w, memory, t + 1);
    __nvvm_cp_async_commit_group();
    clear(s, columns_each());
    multiply(s, rows_panel(memory, 0), &kept, stream_panel(memory, t % 2, 0), w.lane, w.warp);
    hide(&w, s, t * attention_tile(), 0);
    weigh(&f, s);
    accumulate(f.out, s, stream_panel(memory, t % 2, 1), scratch(memory, w.warp), w.lane);
    arrive();
  }
  finish_forward(&w, &f, rows_panel(memory, 0));
}

/* ── backward ────────────────────────────────────────────────────────────────────────────────── */

/* Weights again, from scores and their row's log-sum-exp. */
ALWAYS float base_of(float logarithm) { return logarithm == -infinity ? 0.0f : logarithm * LOG2_E; }

/* Sums of slopes x results of this lane's rows; one lane of each row writes them down. */
ALWAYS void find_deltas(const Here *w, Panel slopes, float delta[MAX_ROWS]) {
  Rows out = rows_of_out(w->args, w->batch, w->head);
  GLOBAL float *deltas = (GLOBAL float *)attention_deltas(w->args) +
                         (w->batch * attention_heads() + w->head) * attention_queries();
  int wide = attention_wide(), lane = w->lane % ROW_LANES;
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++) {
    int local = w->warp * attention_micro() + own_row(w->lane, i), row = w->first + local;
    float sum = 0;
#pragma clang loop unroll(full)
    for (int c = 0; c < attention_width() / wide; c += ROW_LANES) {
      int d = (c + lane) * wide;
      ELEMENT piece[16 / sizeof(ELEMENT)];
      if (row >= attention_queries() || d >= attention_features()) continue;
      read_piece(piece, out.at + row * out.step + d);
#pragma clang loop unroll(full)
      for (int e = 0; e < wide; e++)
        sum += number_of(piece[e]) * number_of(slopes[local * pitch() + d + e]);
    }
    delta[i] = sum_of_row(sum);
    if (lane == 0 && row < attention_queries()) deltas[row] = delta[i];
  }
}

__attribute__((always_inline)) void attention_backward(void *const *args, SHARED void *shared,
                                                       int block, int head, int batch, int thread) {
  Panel memory = (Panel)shared;
  Here w = here_of_queries(args, block, head, batch, thread);
  int count = tiles_of_keys(&w);
  float sum[MAX_ROWS][MAX_COLUMNS], delta[MAX_ROWS], base[MAX_ROWS];
  clear(sum, features_each());
  bring(rows_panel(memory, 0), rows_of_query(args, batch, head), w.first, attention_queries(),
        block_rows(), thread);
  bring(rows_panel(memory, 1), rows_of_slope(args, batch, head), w.first, attention_queries(),
        block_rows(), thread);
  if (count) stream_keys(&w, memory, 0);
  __nvvm_cp_async_commit_group();
  const GLOBAL float *lse = (const GLOBAL float *)attention_logarithms(args) +
                            (batch * attention_heads() + head) * attention_queries();
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++) {
    int row = w.first + w.warp * attention_micro() + own_row(w.lane, i);
    base[i] = row < attention_queries() ? base_of(lse[row]) : 0.0f;
  }
  arrive();
  find_deltas(&w, rows_panel(memory, 1), delta);
#pragma clang loop unroll(disable)
  for (int t = 0; t < count; t++) {
    float s[MAX_ROWS][MAX_COLUMNS], slope[MAX_ROWS][MAX_COLUMNS];
    Panel key = stream_panel(memory, t % 2, 0), value = stream_panel(memory, t % 2, 1);
    if (t + 1 < count) stream_keys(&w, memory, t + 1);
    __nvvm_cp_async_commit_group();
    clear(s, columns_each());
    multiply(s, rows_panel(memory, 0), 0, key, w.lane, w.warp);
    hide(&w, s, t * attention_tile(), 0);
    clear(slope, columns_each());
    multiply(slope, rows_panel(memory, 1), 0, value, w.lane, w.warp);
#pragma clang loop unroll(full)
    for (int i = 0; i < rows_each(); i++)
#pragma clang loop unroll(full)
      for (int j = 0; j < columns_each(); j++)
        s[i][j] = exp2_of(s[i][j] * factor() - base[i]) * (slope[i][j] - delta[i]);
    accumulate(sum, s, key, scratch(memory, w.warp), w.lane);
    arrive();
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < features_each(); j++) sum[i][j] *= scale();
  leave(rows_panel(memory, 0), sum, w.lane, w.warp);
  store_rows(rows_of_query_grad(args, batch, head), rows_panel(memory, 0), w.first,
             attention_queries(), w.lane, w.warp);
}

ALWAYS int heads_that_share(void) { return attention_heads() / attention_groups(); }
/* The head and the tile of step t of `count` for each head. */
ALWAYS int head_of(const Here *w, int t, int count) {
  return w->group * heads_that_share() + (heads_that_share() > 1 ? t / count : 0);
}
ALWAYS int tile_of(int t, int count) { return heads_that_share() > 1 ? t % count : t; }

/* The queries and slopes of step t: heads of a group one after the other, `count` tiles each, from
 * tile `start` on; with their logarithms and deltas. */
ALWAYS void stream_queries(const Here *w, Panel memory, int t, int start, int count) {
  int head = head_of(w, t, count), first = (start + tile_of(t, count)) * attention_tile();
  bring(stream_panel(memory, t % 2, 0), rows_of_query(w->args, w->batch, head), first,
        attention_queries(), attention_tile(), w->thread);
  bring(stream_panel(memory, t % 2, 1), rows_of_slope(w->args, w->batch, head), first,
        attention_queries(), attention_tile(), w->thread);
  int at = (w->batch * attention_heads() + head) * attention_queries();
#pragma clang loop unroll(full)
  for (int p = 0; p < 2 * attention_tile(); p += threads()) {
    int number = p + w->thread, row = first + number % attention_tile();
    if (number >= 2 * attention_tile()) continue;
    const void *from =
        number < attention_tile() ? attention_logarithms(w->args) : attention_deltas(w->args);
    copy_async(statistics(memory, t % 2) + number, from, row < attention_queries() ? at + row : -1,
               1, sizeof(float));
  }
}

__attribute__((always_inline)) void attention_sideways(void *const *args, SHARED void *shared,
                                                       int block, int group, int batch,
                                                       int thread) {
  Panel memory = (Panel)shared;
  Here w = here(args, batch, block * block_rows(), thread);
  w.group = group;
  int start = 0, share = heads_that_share();
  int count = (attention_queries() + attention_tile() - 1) / attention_tile();
  if (attention_causal() && w.first > offset()) start = (w.first - offset()) / attention_tile();
  count = start < count ? count - start : 0;
  float dk[MAX_ROWS][MAX_COLUMNS], dv[MAX_ROWS][MAX_COLUMNS];
  clear(dk, features_each());
  clear(dv, features_each());
  bring(rows_panel(memory, 0), rows_of_key(args, batch, group), w.first, attention_keys(),
        block_rows(), thread);
  bring(rows_panel(memory, 1), rows_of_value(args, batch, group), w.first, attention_keys(),
        block_rows(), thread);
  if (count) stream_queries(&w, memory, 0, start, count);
  __nvvm_cp_async_commit_group();
  arrive();
#pragma clang loop unroll(disable)
  for (int t = 0; t < share * count; t++) {
    float s[MAX_ROWS][MAX_COLUMNS], slope[MAX_ROWS][MAX_COLUMNS];
    Panel query = stream_panel(memory, t % 2, 0), dy = stream_panel(memory, t % 2, 1);
    Floats numbers = statistics(memory, t % 2);
    if (t + 1 < share * count) stream_queries(&w, memory, t + 1, start, count);
    __nvvm_cp_async_commit_group();
    w.head = head_of(&w, t, count);
    clear(s, columns_each());
    multiply(s, rows_panel(memory, 0), 0, query, w.lane, w.warp);
    hide(&w, s, (start + tile_of(t, count)) * attention_tile(), 1);
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j++) {
      float base = base_of(numbers[own_column(w.lane, j)]);
#pragma clang loop unroll(full)
      for (int i = 0; i < rows_each(); i++) s[i][j] = exp2_of(s[i][j] * factor() - base);
    }
    accumulate(dv, s, dy, scratch(memory, w.warp), w.lane);
    clear(slope, columns_each());
    multiply(slope, rows_panel(memory, 1), 0, dy, w.lane, w.warp);
    round_weights(s); /* only this form of them waited in registers */
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j++) {
      float delta = numbers[attention_tile() + own_column(w.lane, j)];
#pragma clang loop unroll(full)
      for (int i = 0; i < rows_each(); i++) s[i][j] *= slope[i][j] - delta;
    }
    accumulate(dk, s, query, scratch(memory, w.warp), w.lane);
    arrive();
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < features_each(); j++) dk[i][j] *= scale();
  leave(rows_panel(memory, 0), dk, w.lane, w.warp);
  leave(rows_panel(memory, 1), dv, w.lane, w.warp);
  store_rows(rows_of_key_grad(args, batch, group), rows_panel(memory, 0), w.first, attention_keys(),
             w.lane, w.warp);
  store_rows(rows_of_value_grad(args, batch, group), rows_panel(memory, 1), w.first,
             attention_keys(), w.lane, w.warp);
}
#endif
