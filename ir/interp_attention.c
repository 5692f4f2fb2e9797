/* interp_attention: attention by its definition, one row of scores at a time. A row that sees no
 * key gives zeros and a log-sum-exp of -inf, and takes and gives no gradient. */
#include "ir/interp.h"
#include <math.h>
#include <stdlib.h>

typedef struct {
  const Tensor *q, *k, *v, *mask;
  int64_t batch, heads, groups, rows, keys, features, values;
  bool causal;
  double scale;
} Attention;

static Attention attention_of(const Eval *eval, int at) {
  const Tensor *q = eval->in[at], *k = eval->in[at + 1], *v = eval->in[at + 2];
  int mask = at ? 6 : 3;
  return (Attention){.q = q,
                     .k = k,
                     .v = v,
                     .mask = eval->node->input_count > mask ? eval->in[mask] : NULL,
                     .batch = q->type.shape.dim[0],
                     .heads = q->type.shape.dim[1],
                     .groups = k->type.shape.dim[1],
                     .rows = q->type.shape.dim[2],
                     .keys = k->type.shape.dim[2],
                     .features = q->type.shape.dim[3],
                     .values = v->type.shape.dim[3],
                     .causal = node_int(eval->node, ATTR_CAUSAL, 0),
                     .scale = node_float(eval->node, ATTR_SCALE, 1)};
}

static double dot(const double *a, const double *b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}

/* Row i of a [.., .., rows, width] tensor. */
static double *row_of(const Tensor *x, int64_t b, int64_t h, int64_t i) {
  const int64_t *dim = x->type.shape.dim;
  return x->f + ((b * dim[1] + h) * dim[2] + i) * dim[3];
}

/* score[j] for all keys of row i; -inf where the mask or the order hides one. */
static void scores_of(const Attention *a, int64_t b, int64_t h, int64_t i, double *score) {
  int64_t g = h / (a->heads / a->groups);
  for (int64_t j = 0; j < a->keys; j++) {
    bool hidden = a->causal && j > i + a->keys - a->rows;
    score[j] = a->scale * dot(row_of(a->q, b, h, i), row_of(a->k, b, g, j), a->features);
    if (a->mask) {
      const int64_t *dim = a->mask->type.shape.dim;
      int64_t row = ((dim[0] > 1 ? b : 0) * dim[1] + (dim[1] > 1 ? h : 0)) * dim[2];
      int64_t at = (row + (dim[2] > 1 ? i : 0)) * a->keys + j;
      if (a->mask->i) hidden |= !a->mask->i[at];
      if (a->mask->f) score[j] += a->mask->f[at];
    }
    if (hidden) score[j] = -INFINITY;
  }
}

void interp_attention(const Eval *eval, Tensor **results) {
  Attention a = attention_of(eval, 0);
  double *score = malloc(sizeof *score * (size_t)(a.keys + 1));
  for (int64_t row = 0; row < a.batch * a.heads * a.rows; row++) {
    int64_t i = row % a.rows, h = row / a.rows % a.heads, b = row / a.rows / a.heads;
    double most = -INFINITY, sum = 0, *out = row_of(results[0], b, h, i);
    scores_of(&a, b, h, i, score);
    for (int64_t j = 0; j < a.keys; j++)
      if (!(score[j] <= most)) most = score[j]; /* a NaN stays */
    for (int64_t j = 0; j < a.keys && most != -INFINITY; j++) sum += exp(score[j] - most);
    results[1]->f[row] = most == -INFINITY ? most : most + log(sum);
    for (int64_t j = 0; j < a.keys && most != -INFINITY; j++)
      for (int64_t d = 0; d < a.values; d++)
        out[d] += exp(score[j] - most) / sum * row_of(a.v, b, h / (a.heads / a.groups), j)[d];
  }
  free(score);
}

void interp_attention_grad(const Eval *eval, Tensor **results) {
  Attention a = attention_of(eval, 1);
  const Tensor *dy = eval->in[0], *out = eval->in[4], *lse = eval->in[5];
  double *score = malloc(sizeof *score * (size_t)(a.keys + 1));
  for (int64_t row = 0; row < a.batch * a.heads * a.rows; row++) {
    int64_t i = row % a.rows, h = row / a.rows % a.heads, b = row / a.rows / a.heads;
    int64_t g = h / (a.heads / a.groups);
    const double *dy_row = row_of(dy, b, h, i), *q = row_of(a.q, b, h, i);
    double delta = dot(dy_row, row_of(out, b, h, i), a.values), *dq = row_of(results[0], b, h, i);
    scores_of(&a, b, h, i, score);
    for (int64_t j = 0; j < a.keys; j++) {
      if (score[j] == -INFINITY) continue;
      const double *k = row_of(a.k, b, g, j), *v = row_of(a.v, b, g, j);
      double *dk = row_of(results[1], b, g, j), *dv = row_of(results[2], b, g, j);
      double p = exp(score[j] - lse->f[row]);
      double ds = p * (dot(dy_row, v, a.values) - delta) * a.scale;
      for (int64_t d = 0; d < a.values; d++) dv[d] += p * dy_row[d];
      for (int64_t d = 0; d < a.features; d++) {
        dk[d] += ds * q[d];
        dq[d] += ds * k[d];
      }
    }
  }
  free(score);
}
