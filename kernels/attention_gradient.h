/* attention_gradient: the steps of the gradient of attention that are the same whatever unit
 * multiplies. There are two kernels: dq's has queries as rows, and dk and dv's has keys as rows, so
 * its scores are transposed. Both recompute the weights from scores and the log-sum-exp of each
 * query. The gradient of a score, its slope, is weight * (dy . value - delta), where delta is the
 * sum of dy * out of the query. With dropout it is weight * (dy . value / (1-p), or 0, - delta): it is rounded
 * to the type of the operands without the factor 1 / (1-p), which the sums of f32 take. At p = 0.9 and in fp16 it would be
 * infinite ten times sooner else than in PyTorch's FlashAttention, which does so, too. */
#ifndef FT_KERNELS_ATTENTION_GRADIENT_H
#define FT_KERNELS_ATTENTION_GRADIENT_H
#include "kernels/attention_softmax.h"

ALWAYS float base_of(float logarithm) {
  return logarithm == -infinity ? 0.0f : -(logarithm * LOG2_E);
}
ALWAYS int first_number(const Here *w) { /* of a head's logarithms, or deltas */
  return (w->batch * attention_heads() + w->head) * attention_queries();
}

/* ── rows are queries ────────────────────────────────────────────────────────────────────────── */

/* The bases of this lane's rows; one lane of each row also stores its base. */
ALWAYS void find_bases(const Here *w, float base[MAX_ROWS]) {
  const GLOBAL float *lse = (const GLOBAL float *)attention_logarithms(w->args) + first_number(w);
  GLOBAL float *bases = (GLOBAL float *)attention_bases(w->args) + first_number(w);
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++) {
    int row = w->first + w->warp * attention_micro() + own_row(w->lane, i);
    base[i] = row < attention_queries() ? base_of(lse[row]) : 0.0f;
    if (w->lane % ROW_LANES == 0 && row < attention_queries()) bases[row] = base[i];
  }
}

/* The deltas of this lane's rows, sums of dy * out (without dropout's factor); one lane of each row also stores its delta. */
ALWAYS void find_deltas(const Here *w, Panel slopes, float delta[MAX_ROWS]) {
  Rows out = rows_of_out(w->args, w->batch, w->head);
  GLOBAL float *deltas = (GLOBAL float *)attention_deltas(w->args) + first_number(w);
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
        sum += number_of(piece[e]) * number_of(slopes[place(block_rows(), local, d) + e]);
    }
    delta[i] = sum_of_row(sum) / drop_gain();
    if (lane == 0 && row < attention_queries()) deltas[row] = delta[i];
  }
}

/* Scores become weights, where these are capped times the tanh's derivative. */
ALWAYS void weigh_rows(float s[MAX_ROWS][MAX_COLUMNS], float gain[MAX_ROWS][MAX_COLUMNS],
                       const float base[MAX_ROWS]) {
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j++) {
      float weight = exp2_of(s[i][j] * factor() + base[i]);
      s[i][j] = caps() ? weight * gain_of(s[i][j], gain[i][j]) : weight;
    }
}
/* Replaces weights by slopes; `slope` has dy . value. */
ALWAYS void pull_rows(float s[MAX_ROWS][MAX_COLUMNS], float slope[MAX_ROWS][MAX_COLUMNS],
                      const float delta[MAX_ROWS]) {
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < columns_each(); j++) s[i][j] *= slope[i][j] - delta[i];
}

ALWAYS void scale_sums(float x[MAX_ROWS][MAX_COLUMNS], float by) {
#pragma clang loop unroll(full)
  for (int i = 0; i < rows_each(); i++)
#pragma clang loop unroll(full)
    for (int j = 0; j < features_each(); j++) x[i][j] *= by;
}

ALWAYS void finish_queries(const Here *w, float dq[MAX_ROWS][MAX_COLUMNS], Panel panel) {
  scale_sums(dq, scale() * drop_gain());
  stage_sums(panel, dq, w->lane, w->warp);
  store_rows(rows_of_query_grad(w->args, w->batch, w->head), panel, w->first, attention_queries(),
             w->lane, w->warp);
}

/* ── rows are keys ───────────────────────────────────────────────────────────────────────────── */

ALWAYS int heads_that_share(void) { return attention_heads() / attention_groups(); }
/* The head and the tile of step t of `count` for each head. */
ALWAYS int head_of(const Here *w, int t, int count) {
  return w->group * heads_that_share() + (heads_that_share() > 1 ? t / count : 0);
}
ALWAYS int tile_of(int t, int count) { return heads_that_share() > 1 ? t % count : t; }

/* How many tiles of queries see keys of this block: of each head, from tile *start on. */
ALWAYS int tiles_of_queries(const Here *w, int *start) {
  int count = (attention_queries() + attention_tile() - 1) / attention_tile();
  *start = 0;
  if (attention_causal() && w->first > offset()) *start = (w->first - offset()) / attention_tile();
  return *start < count ? count - *start : 0;
}

/* weigh_rows and pull_rows for columns of queries, by the bases and deltas of a tile. Weights are
 * wanted as they are; where scores are capped, gain becomes their product with the derivative. */
ALWAYS void weigh_columns(float s[MAX_ROWS][MAX_COLUMNS], float gain[MAX_ROWS][MAX_COLUMNS],
                          Floats bases, int lane) {
#pragma clang loop unroll(full)
  for (int j = 0; j < columns_each(); j++) {
    float base = bases[own_column(lane, j)];
#pragma clang loop unroll(full)
    for (int i = 0; i < rows_each(); i++) {
      float weight = exp2_of(s[i][j] * factor() + base);
      if (caps()) gain[i][j] = weight * gain_of(s[i][j], gain[i][j]);
      s[i][j] = weight;
    }
  }
}
ALWAYS void pull_columns(float s[MAX_ROWS][MAX_COLUMNS], float slope[MAX_ROWS][MAX_COLUMNS],
                         Floats deltas, int lane) {
#pragma clang loop unroll(full)
  for (int j = 0; j < columns_each(); j++) {
    float delta = deltas[own_column(lane, j)];
#pragma clang loop unroll(full)
    for (int i = 0; i < rows_each(); i++) s[i][j] *= slope[i][j] - delta;
  }
}

ALWAYS void finish_keys(const Here *w, float dk[MAX_ROWS][MAX_COLUMNS], Panel panel) {
  scale_sums(dk, scale() * drop_gain());
  stage_sums(panel, dk, w->lane, w->warp);
  store_rows(rows_of_key_grad(w->args, w->batch, w->group), panel, w->first, attention_keys(),
             w->lane, w->warp);
}
ALWAYS void finish_values(const Here *w, float dv[MAX_ROWS][MAX_COLUMNS], Panel panel) {
  if (attention_drop_below()) scale_sums(dv, drop_gain());
  stage_sums(panel, dv, w->lane, w->warp);
  store_rows(rows_of_value_grad(w->args, w->batch, w->group), panel, w->first, attention_keys(),
             w->lane, w->warp);
}
#endif
