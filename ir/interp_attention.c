/* interp_attention: attention by its definition, one row of scores at a time. A row that sees no
 * key gives zeros and a log-sum-exp of -inf, and takes and gives no gradient. */
#include "ir/interp.h"
#include "base/memory.h"
#include <math.h>
#include <stdlib.h>

/* Where the heads of an operand or result are: row i of head h of sample b is at
 * b * batch + h * head + i * row. */
typedef struct {
  double *at;
  int64_t batch, head, row;
} Place;

typedef struct {
  AttentionForm form;
  Place q, k, v;
  const Tensor *mask;
  const Tensor *draws[4]; /* NULL: none; the draws; or seed, step, the number of each head's first, and stream */
  bool causal;
  double scale, cap; /* cap 0: none */
  double share;      /* that dropout leaves out; draws are compared with it in f32 */
} Attention;

/* Derived here once more, as the mask's index below is: kernels take theirs from attention_places,
 * and the interpreter is what they are tested against. */
static Place interp_operand_place(const AttentionForm *f, const Tensor *x, int64_t start) {
  const int64_t *dim = x->type.shape.dim;
  if (f->is_beside) return (Place){x->f + start, dim[1] * dim[2], f->features, dim[2]};
  return (Place){x->f, dim[1] * dim[2] * dim[3], dim[2] * dim[3], dim[3]};
}

static Attention attention_of(const Eval *eval, int at) {
  AttentionForm f = attention_form(eval->node);
  const Node *node = eval->node;
  bool draws_itself = attention_draws_itself(node);
  return (Attention){.form = f,
                     .q = interp_operand_place(&f, eval->in[at], f.start[0]),
                     .k = interp_operand_place(&f, eval->in[at + 1], f.start[1]),
                     .v = interp_operand_place(&f, eval->in[at + 2], f.start[2]),
                     .mask = f.mask >= 0 ? eval->in[f.mask] : NULL,
                     .draws = {f.draws >= 0 ? eval->in[f.draws] : NULL, draws_itself ? eval->in[f.draws + 1] : NULL,
                               draws_itself ? eval->in[f.draws + 2] : NULL, draws_itself ? eval->in[f.draws + 3] : NULL},
                     .causal = node_int(node, ATTR_CAUSAL, 0),
                     .scale = node_float(node, ATTR_SCALE, 1),
                     .cap = node_float(node, ATTR_SOFTCAP, 0),
                     .share = node_float(node, ATTR_DROPOUT, 0)};
}

static double attention_dot(const double *a, const double *b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}

static double *row_of(Place x, int64_t b, int64_t h, int64_t i) {
  return x.at + b * x.batch + h * x.head + i * x.row;
}

/* The score of row i with key j before the mask; *slope: its derivative by the product of the two. */
static double interp_score(const Attention *a, int64_t b, int64_t h, int64_t i, int64_t j,
                           double *slope) {
  int64_t g = h / (a->form.heads / a->form.groups);
  double product = attention_dot(row_of(a->q, b, h, i), row_of(a->k, b, g, j), a->form.features);
  *slope = a->scale;
  if (a->cap == 0) return a->scale * product;
  double bent = tanh(a->scale * product / a->cap);
  *slope *= 1 - bent * bent;
  return a->cap * bent;
}

/* score[j] for all keys of row i; -inf where the mask or the order hides one. */
static void interp_scores(const Attention *a, int64_t b, int64_t h, int64_t i, double *score,
                          double *slope) {
  const AttentionForm *f = &a->form;
  for (int64_t j = 0; j < f->keys; j++) {
    bool hidden = a->causal && j > i + f->keys - f->rows;
    score[j] = interp_score(a, b, h, i, j, &slope[j]);
    if (a->mask) {
      const int64_t *dim = a->mask->type.shape.dim;
      int64_t row = ((dim[0] > 1 ? b : 0) * dim[1] + (dim[1] > 1 ? h : 0)) * dim[2];
      int64_t at = (row + (dim[2] > 1 ? i : 0)) * f->keys + j;
      if (a->mask->i) hidden |= !a->mask->i[at];
      if (a->mask->f) score[j] += a->mask->f[at];
    }
    if (hidden) score[j] = -INFINITY;
  }
}

/* What the softmax's result of row i and key j is multiplied by. */
static double interp_kept(const Attention *a, int64_t b, int64_t h, int64_t i, int64_t j) {
  const AttentionForm *f = &a->form;
  if (!a->draws[0]) return 1;
  int64_t head = b * f->heads + h, at = i * f->keys + j;
  double draw;
  if (a->draws[1])
    draw = interp_draw((uint64_t)a->draws[0]->i[0], (uint64_t)a->draws[1]->i[0], (uint32_t)a->draws[3]->i[0],
                       (uint64_t)(a->draws[2]->i[head] + at));
  else
    draw = a->draws[0]->f[head * f->rows * f->keys + at];
  return draw >= (float)a->share ? 1 / (1 - a->share) : 0;
}

bool interp_attention(const Eval *eval) {
  Tensor **results = interp_results(eval);
  if (!results) return false;
  Attention a = attention_of(eval, 0);
  AttentionForm f = a.form;
  Place y = interp_operand_place(&f, results[0], 0);
  double *score = malloc(2 * sizeof *score * (size_t)(f.keys + 1)), *slope;
  if (!score) memory_none();
  slope = score + f.keys + 1;
  for (int64_t row = 0; row < f.batch * f.heads * f.rows; row++) {
    int64_t i = row % f.rows, h = row / f.rows % f.heads, b = row / f.rows / f.heads;
    double most = -INFINITY, sum = 0, *out = row_of(y, b, h, i);
    interp_scores(&a, b, h, i, score, slope);
    for (int64_t j = 0; j < f.keys; j++)
      if (!(score[j] <= most)) most = score[j]; /* a NaN stays */
    for (int64_t j = 0; j < f.keys && most != -INFINITY; j++) sum += exp(score[j] - most);
    results[1]->f[row] = most == -INFINITY ? most : most + log(sum);
    for (int64_t j = 0; j < f.keys && most != -INFINITY; j++)
      for (int64_t d = 0; d < f.values; d++)
        out[d] += exp(score[j] - most) / sum * interp_kept(&a, b, h, i, j) *
                  row_of(a.v, b, h / (f.heads / f.groups), j)[d];
  }
  free(score);
  return true;
}

bool interp_attention_grad(const Eval *eval) {
  Tensor **results = interp_results(eval);
  if (!results) return false;
  Attention a = attention_of(eval, 1);
  AttentionForm f = a.form;
  Place dy = interp_operand_place(&f, eval->in[0], 0), y = interp_operand_place(&f, eval->in[4], 0);
  bool is_joined = node_int(eval->node, ATTR_JOINED, 0);
  int64_t end = f.heads * f.features, more = f.groups * f.features;
  Place dq = interp_operand_place(&f, results[0], 0);
  Place dk = interp_operand_place(&f, results[is_joined ? 0 : 1], is_joined ? end : 0);
  Place dv = interp_operand_place(&f, results[is_joined ? 0 : 2], is_joined ? end + more : 0);
  const Tensor *lse = eval->in[5];
  double *score = malloc(2 * sizeof *score * (size_t)(f.keys + 1)), *slope;
  if (!score) memory_none();
  slope = score + f.keys + 1;
  for (int64_t row = 0; row < f.batch * f.heads * f.rows; row++) {
    int64_t i = row % f.rows, h = row / f.rows % f.heads, b = row / f.rows / f.heads;
    int64_t g = h / (f.heads / f.groups);
    const double *dy_row = row_of(dy, b, h, i), *q = row_of(a.q, b, h, i);
    double delta = attention_dot(dy_row, row_of(y, b, h, i), f.values),
           *q_slope = row_of(dq, b, h, i);
    interp_scores(&a, b, h, i, score, slope);
    for (int64_t j = 0; j < f.keys; j++) {
      if (score[j] == -INFINITY) continue;
      const double *k = row_of(a.k, b, g, j), *v = row_of(a.v, b, g, j);
      double *k_slope = row_of(dk, b, g, j), *v_slope = row_of(dv, b, g, j);
      double p = exp(score[j] - lse->f[row]), kept = interp_kept(&a, b, h, i, j);
      double ds = p * (kept * attention_dot(dy_row, v, f.values) - delta) * slope[j];
      for (int64_t d = 0; d < f.values; d++) v_slope[d] += p * kept * dy_row[d];
      for (int64_t d = 0; d < f.features; d++) {
        k_slope[d] += ds * q[d];
        q_slope[d] += ds * k[d];
      }
    }
  }
  free(score);
  return true;
}
