/* attention_softmax: what the kernels of attention share: addresses of tensors, masks and the
 * causal order, and the online softmax over scores in registers, which is corrected as tiles of
 * keys come (Milakov and Gimelshein 2018). A header of products is included before this one:
 * attention_mma.h, attention_fma.h or attention_wgmma.h. It says which elements a lane has. */
#ifndef FT_KERNELS_ATTENTION_SOFTMAX_H
#define FT_KERNELS_ATTENTION_SOFTMAX_H
#include "kernels/attention_panel.h"

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
/* In the workspace, of the same shape: sums of dy * out, and what is added to a score, a power of two,
 * so that it becomes a weight. */
void *attention_deltas(void *const *args), *attention_bases(void *const *args);

int attention_heads(void), attention_groups(void), attention_queries(void), attention_keys(void);
int attention_causal(void);
int attention_scale(void); /* the bits of an f32 */
/* The cap's bits; 0: scores stay as they are. tanh(x), as exact as results of 16 bits or of f32 ask for; is it enough that
 * it is exact to 2^-21 of 1, not of itself? */
int attention_softcap(void), attention_bends_fast(void);
float attention_tanh(float x);
/* The mask's kind: 0 none, 1 bool, 2 added to the scores. Its element `index`; of a bool, is the
 * key seen? */
int attention_mask(void);
/* Is a bool mask applied by attention_bits.h, and not by `hide`? Is an added one by attention_added.h, and
 * loaded before the scores are complete (ADDS_EARLY) or then (ADDS_LATE)? */
enum { ADDS_EARLY = 1, ADDS_LATE };
int attention_has_bits(void), attention_adds(void);
int attention_mask_batch(void), attention_mask_head(void), attention_mask_row(void);
float attention_mask_element(void *const *args, int index);
/* Dropout (attention_draws.h): a weight is dropped if its draw, a number of 24 bits, is below this, 0 where there is no dropout; the bits of the
 * f32 that the others are multiplied by. */
int attention_drop_below(void), attention_drop_gain(void);

#define LOG2_E 1.44269504088896340736f
#define LN_2 0.69314718055994530942f
static const float infinity = __builtin_inff();

typedef struct {
  void *const *args;
  int thread, lane, warp, batch, head, group;
  int first; /* row of the block */
  /* of wgmma: pairs of tiles that came before, and which of the places for rows has these */
  int begin, place;
} Here;

ALWAYS Here here(void *const *args, int batch, int first, int thread) {
  return (Here){args, thread, thread % 32, thread / 32, batch, 0, 0, first, 0, 0};
}

ALWAYS int smaller(int a, int b) { return a < b ? a : b; }
ALWAYS float exp2_of(float x) { return __nvvm_ex2_approx_ftz_f(x); }
ALWAYS float scale(void) { return __builtin_bit_cast(float, attention_scale()); }

/* Soft-capped scores: x becomes cap tanh(scale x / cap) (Gemma 2). `bend` makes the tanh of it; from
 * there on the cap is what the scale is otherwise. */
ALWAYS int caps(void) { return attention_softcap() != 0; }
ALWAYS float cap(void) { return __builtin_bit_cast(float, attention_softcap()); }
ALWAYS float drop_gain(void) { return __builtin_bit_cast(float, attention_drop_gain()); }
ALWAYS float scale_of_scores(void) { return caps() ? cap() : scale(); }

/* Exponentials are powers of two: e^x = 2^(x log2 e). Where no mask is added and the scale is
 * positive, the factor is applied as the largest score is subtracted, where it costs nothing. */
ALWAYS int scales_first(void) { return attention_mask() == 2 || !(scale_of_scores() > 0); }
ALWAYS float factor(void) { return scales_first() ? 1.0f : scale_of_scores() * LOG2_E; }

/* Row i sees the keys before i + 1 + offset(). */
ALWAYS int offset(void) { return attention_keys() - attention_queries(); }

/* The most keys that any row before `row` sees. */
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

/* tanh(x) = 2 / (1 + e^-2x) - 1 */
ALWAYS float bent(float x) {
  if (!attention_bends_fast()) return attention_tanh(x * (scale() / cap()));
  float e = exp2_of(x * (scale() / cap() * (-2 * LOG2_E)));
  return 2.0f * __nvvm_rcp_approx_ftz_f(1.0f + e) - 1.0f;
}
/* Where scores are capped, makes the tanh of them. gain: the tanh's derivative, 1 - tanh^2, where `gain_of` cannot find it
 * from the tanh, since masks are added to it. */
ALWAYS void bend(float s[MAX_ROWS][MAX_COLUMNS], float gain[MAX_ROWS][MAX_COLUMNS]) {
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each() && caps(); i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j++) {
      s[i][j] = bent(s[i][j]);
      if (attention_mask() == 2) gain[i][j] = 1.0f - s[i][j] * s[i][j];
    }
}
/* s: a tanh, or -inf where a key is hidden: its weight is 0, and so is the product. */
ALWAYS float gain_of(float s, float gain) {
  return attention_mask() == 2 ? gain : __builtin_fmaxf(1.0f - s * s, 0.0f);
}

/* Applies the mask, and makes scores -inf where a query does not see a key. is_transposed: rows are
 * keys, and columns are queries. */
ALWAYS void hide(const Here *w, float s[MAX_ROWS][MAX_COLUMNS], int column0, int is_transposed) {
  int row0 = w->first + w->warp * attention_micro();
  int limit = is_transposed ? attention_queries() : attention_keys();
  int is_whole = column0 + attention_tile() <= limit;
  if (attention_causal())
    is_whole &= is_transposed ? row0 + attention_micro() - 1 <= column0 + offset()
                              : column0 + attention_tile() - 1 <= row0 + offset();
  int mask0 = w->batch * attention_mask_batch() + w->head * attention_mask_head();
  int across = is_transposed ? attention_mask_row() : 1; /* to the next column's element */
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each() && (scales_first() || attention_mask()) && !attention_adds(); i++) {
    int row = row0 + own_row(w->lane, i);
    int first = mask0 + row * (is_transposed ? 1 : attention_mask_row()) + column0 * across;
    __asm__ volatile("" : "+r"(first)); /* so that no address stays in a register over the loop */
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j++) {
      int own = own_column(w->lane, j), column = column0 + own;
      int query = is_transposed ? column : row, key = is_transposed ? row : column;
      if (scales_first()) s[i][j] *= scale_of_scores() * LOG2_E;
      if (!attention_mask() || attention_has_bits()) continue;
      int is_there = query < attention_queries() && key < attention_keys();
      float mask = attention_mask_element(w->args, is_there ? first + own * across : 0);
      if (attention_mask() == 1)
        s[i][j] = mask != 0 ? s[i][j] : -infinity;
      else
        s[i][j] += mask * LOG2_E;
    }
  }
  if (is_whole) return;
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j++) {
      int row = row0 + own_row(w->lane, i), column = column0 + own_column(w->lane, j);
      int is_hidden = column >= limit, first = row - offset() - column0 - own_column(w->lane, 0);
      if (attention_causal()) /* transposed: comparisons with constants need no registers */
        is_hidden |= is_transposed ? own_column(0, j) < first : column > row + offset();
      s[i][j] = is_hidden ? -infinity : s[i][j];
    }
}

/* These combine the lanes that have the same rows. */
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
  float base[MAX_ROWS], sum[MAX_ROWS]; /* the largest score so far times `factor`; of weights, this lane's part */
  float out[MAX_ROWS][MAX_COLUMNS];
} Forward;

ALWAYS void begin_forward(Forward *f) {
  clear(f->out, features_each());
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++) f->base[i] = -infinity, f->sum[i] = 0;
}

/* Replaces scores by weights relative to the largest score so far; `correct` then rescales the sums
 * of the tiles before. What weights are relative to is rounded once, and kept: from the unrounded
 * product with the factor (fma), a tile that changes nothing would rescale the sums by its rounding
 * error, 2^-18 for a score of 100. */
ALWAYS void weigh(Forward *f, float s[MAX_ROWS][MAX_COLUMNS], float correction[MAX_ROWS]) {
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++) {
    float most = s[i][0];
#pragma clang loop unroll(full)
    for (int j = 1; j < columns_each(); j++) most = __builtin_fmaxf(most, s[i][j]);
    float base = __builtin_fmaxf(f->base[i], largest_of_row(most) * factor());
    float from = base == -infinity ? 0.0f : base; /* nothing seen: all weights are 0 */
    correction[i] = exp2_of(f->base[i] - from);
    float sum = f->sum[i] * correction[i];
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j++) {
      s[i][j] = exp2_of(s[i][j] * factor() - from);
      sum += s[i][j];
    }
    f->base[i] = base;
    f->sum[i] = sum;
  }
}
/* Rescales the sums of the tiles before to the new largest score. */
ALWAYS void correct(Forward *f, const float correction[MAX_ROWS]) {
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < features_each(); j++) f->out[i][j] *= correction[i];
}

/* Blocks of queries run in reverse where attention is causal: the last rows have the most keys. */
ALWAYS Here here_of_queries(void *const *args, int block, int head, int batch, int thread) {
  int blocks = (attention_queries() + block_rows() - 1) / block_rows();
  Here w = here(args, batch, (blocks - 1 - block) * block_rows(), thread);
  w.head = head;
  w.group = head / (attention_heads() / attention_groups());
  return w;
}
/* How many tiles of keys the rows before `row` need. */
ALWAYS int tiles_seen(int row) {
  return (keys_seen(row) + attention_tile() - 1) / attention_tile();
}
/* How many tiles of keys the block needs. */
ALWAYS int tiles_of_keys(const Here *w) { return tiles_seen(w->first + block_rows()); }

ALWAYS void finish_forward(const Here *w, Forward *f, Panel panel) {
  GLOBAL float *lse = (GLOBAL float *)attention_logarithms(w->args) +
                      (w->batch * attention_heads() + w->head) * attention_queries();
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++) {
    float sum = sum_of_row(f->sum[i]), share = sum == 0 ? 0.0f : drop_gain() / sum;
    int row = w->first + w->warp * attention_micro() + own_row(w->lane, i);
    if (w->lane % ROW_LANES == 0 && row < attention_queries())
      lse[row] =
          sum == 0 ? -infinity : (f->base[i] + __nvvm_lg2_approx_ftz_f(sum)) * LN_2;
#pragma clang loop unroll(full)
    for (int j = 0; j < features_each(); j++) f->out[i][j] *= share;
  }
  stage_sums(panel, f->out, w->lane, w->warp);
  store_rows(rows_of_out(w->args, w->batch, w->head), panel, w->first, attention_queries(), w->lane,
             w->warp);
}
#endif
