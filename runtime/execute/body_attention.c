/* body_attention: attention and its gradient by their definition, one element at a time
 * (body_private.h). A row that sees no key gives zeros, and takes and gives no gradient. */
#include "runtime/execute/body_private.h"
#include <math.h>

/* One element of a result. */
typedef struct {
  Body *body;
  const PlanOp *op;
  PlanAttention form;
  int64_t b, h, i, d; /* sample, head (of k and v: group), row (key), feature */
  bool is_known;
} Attend;

enum { Q, K, V, SLOPE, OUT, LSE }; /* what an operand is */

static int operand_of(const Attend *a, int what) {
  static const int backward[] = {1, 2, 3, 0, 4, 5};
  return a->form.is_grad ? backward[what] : what;
}

static int64_t head_at(const PlanHeads *x, int64_t b, int64_t h, int64_t i, int64_t d) {
  return x->start + b * x->batch + h * x->head + i * x->row + d;
}

static const PlanHeads *heads_of(const Attend *a, int what) {
  const PlanHeads *const places[] = {&a->form.q, &a->form.k, &a->form.v, &a->form.out,
                                     &a->form.out};
  return places[what];
}

static double attend_number(Attend *a, int operand, int64_t element) {
  Scalar x = {.f = 0};
  a->is_known = a->is_known && body_value(a->body, a->op->inputs[operand], element, &x);
  return a->is_known ? x.f : 0;
}

static double attend_at(Attend *a, int what, int64_t h, int64_t i, int64_t d) {
  return attend_number(a, operand_of(a, what), head_at(heads_of(a, what), a->b, h, i, d));
}

static int64_t group_with(const Attend *a, int64_t head) {
  return head / (a->form.heads / a->form.groups);
}

static int64_t lse_at(const Attend *a, int64_t h, int64_t i) {
  return (a->b * a->form.heads + h) * a->form.rows + i;
}

static int64_t mask_at(const Attend *a, int64_t h, int64_t i, int64_t j) {
  const PlanAttention *f = &a->form;
  return a->b * f->mask_batch + h * f->mask_head + i * f->mask_row + j;
}

static bool is_mask_added(const Attend *a) {
  return a->form.mask >= 0 &&
         dtype_is_float(body_type_of(a->body, a->op->inputs[a->form.mask])->dtype);
}

/* -inf where the key is hidden from the row. *slope: the score's derivative by the product of row and
 * key. */
static double score_with(Attend *a, int64_t h, int64_t i, int64_t j, double *slope) {
  const PlanAttention *f = &a->form;
  Scalar mask = {.i = 1};
  double sum = 0, added = 0;
  *slope = 0;
  if (f->is_causal && j > i + f->keys - f->rows) return -INFINITY;
  if (is_mask_added(a)) {
    added = attend_number(a, f->mask, mask_at(a, h, i, j));
  } else if (f->mask >= 0) {
    a->is_known &= body_value(a->body, a->op->inputs[f->mask], mask_at(a, h, i, j), &mask);
    if (!mask.i) return -INFINITY;
  }
  for (int64_t d = 0; d < f->features; d++)
    sum += attend_at(a, Q, h, i, d) * attend_at(a, K, group_with(a, h), j, d);
  sum *= a->op->value;
  *slope = a->op->value;
  if (f->cap > 0) {
    double bent = tanh(sum / f->cap);
    sum = f->cap * bent;
    *slope *= 1 - bent * bent;
  }
  return dtype_round(a->op->type.dtype == DT_F64 ? DT_F64 : DT_F32, sum + added);
}

/* What dropout multiplies the share of key j in row i by. */
static double attend_kept(Attend *a, int64_t h, int64_t i, int64_t j) {
  const PlanAttention *f = &a->form;
  Scalar seed, step, first, stream;
  if (f->draws < 0) return 1;
  const int *operand = a->op->inputs + f->draws;
  a->is_known = a->is_known && body_value(a->body, operand[0], 0, &seed) && body_value(a->body, operand[1], 0, &step) &&
                body_value(a->body, operand[2], a->b * f->heads + h, &first) && body_value(a->body, operand[3], 0, &stream);
  if (!a->is_known) return 0;
  double draw = body_draw((uint64_t)seed.i, (uint64_t)step.i, (uint32_t)stream.i, (uint64_t)first.i + (uint64_t)(i * f->keys + j));
  return draw >= (float)f->share ? 1 / (1 - f->share) : 0;
}

static double score_of(Attend *a, int64_t h, int64_t i, int64_t j) {
  double slope;
  return score_with(a, h, i, j, &slope);
}

/* Which element of which result. Of keys and values h is the group and i the key. */
static bool attend_find(Body *body, const PlanOp *op, int64_t element, Attend *a,
                        const PlanHeads **place) {
  const Type *in[MOST_INPUTS];
  *a = (Attend){.body = body, .op = op, .is_known = true};
  for (int i = 0; i < op->input_count && i < MOST_INPUTS; i++) in[i] = body_type_of(body, op->inputs[i]);
  if (!plan_attention_form(op, in, &a->form) || body->result >= a->form.result_count) return false;
  const PlanAttention *f = &a->form;
  if (!f->is_grad && body->result == 1) {
    *place = NULL;
    a->i = element % f->rows, element /= f->rows;
    a->h = element % f->heads, a->b = element / f->heads;
    return true;
  }
  *place = !f->is_grad                    ? &f->out
           : body->result == 0            ? &f->dq
           : body->result == f->dk_result ? &f->dk
                                          : &f->dv;
  bool is_beside = op->ints[1] != 0;
  if (is_beside) {
    a->b = element / (*place)->batch;
    a->i = element % (*place)->batch / (*place)->row;
    int64_t column = element % (*place)->row;
    if (f->is_grad && f->result_count == 1)
      *place = column >= f->dv.start ? &f->dv : column >= f->dk.start ? &f->dk : &f->dq;
    column -= (*place)->start;
    a->h = column / f->features, a->d = column % f->features;
    return true;
  }
  a->b = element / (*place)->batch, element %= (*place)->batch;
  a->h = element / (*place)->head, element %= (*place)->head;
  a->i = element / (*place)->row, a->d = element % (*place)->row;
  return true;
}

Type body_attention_type(const Body *body, const PlanOp *op) {
  const Type *in[MOST_INPUTS];
  PlanAttention form;
  for (int i = 0; i < op->input_count && i < MOST_INPUTS; i++) in[i] = body_type_of(body, op->inputs[i]);
  if (!plan_attention_form(op, in, &form) || body->result >= form.result_count) return op->type;
  return plan_attention_result(op, in, &form, body->result);
}

/* ── values ───────────────────────────────────────────────────────────────────────────────── */
/* The softmax goes on as larger scores come: what was summed up before is scaled down. A NaN stays. */
static double attend_forward(Attend *a, bool wants_lse) {
  double most = -INFINITY, sum = 0, out = 0;
  for (int64_t j = 0; j < a->form.keys && a->is_known; j++) {
    double score = score_of(a, a->h, a->i, j);
    if (!(score <= most)) {
      double scale = most == -INFINITY ? 0 : exp(most - score);
      sum *= scale, out *= scale, most = score;
    }
    if (most == -INFINITY) continue; /* hidden, as all before it */
    double p = exp(score - most);
    sum += p;
    if (!wants_lse) out += p * attend_kept(a, a->h, a->i, j) * attend_at(a, V, group_with(a, a->h), j, a->d);
  }
  if (wants_lse) return most == -INFINITY ? most : most + log(sum);
  return most == -INFINITY ? 0 : out / sum;
}

/* The gradient of the score of row i of head h with key j, and its share of the softmax, as dropout leaves it. */
static double score_slope(Attend *a, int64_t h, int64_t i, int64_t j, double *share) {
  double slope, score = score_with(a, h, i, j, &slope);
  double sum = 0, lse = attend_number(a, operand_of(a, LSE), lse_at(a, h, i));
  *share = 0;
  if (score == -INFINITY || lse == -INFINITY) return 0;
  double p = exp(score - lse), kept = attend_kept(a, h, i, j);
  *share = p * kept;
  for (int64_t d = 0; d < a->form.values; d++)
    sum += attend_at(a, SLOPE, h, i, d) *
           (kept * attend_at(a, V, group_with(a, h), j, d) - attend_at(a, OUT, h, i, d));
  return p * sum * slope;
}

static double attend_backward(Attend *a, const PlanHeads *place) {
  const PlanAttention *f = &a->form;
  double sum = 0, share;
  if (place == &f->dq) {
    for (int64_t j = 0; j < f->keys && a->is_known; j++) {
      double slope = score_slope(a, a->h, a->i, j, &share);
      if (share != 0 || slope != 0) sum += slope * attend_at(a, K, group_with(a, a->h), j, a->d);
    }
    return sum;
  }
  int64_t shared = f->heads / f->groups;
  for (int64_t h = a->h * shared; h < (a->h + 1) * shared; h++)
    for (int64_t i = 0; i < f->rows && a->is_known; i++) {
      double slope = score_slope(a, h, i, a->i, &share);
      if (share == 0 && slope == 0) continue;
      sum += place == &f->dv ? share * attend_at(a, SLOPE, h, i, a->d)
                             : slope * attend_at(a, Q, h, i, a->d);
    }
  return sum;
}

bool body_attention_value(Body *body, const PlanOp *op, int64_t element, Scalar *out) {
  Attend a;
  const PlanHeads *place;
  if (!attend_find(body, op, element, &a, &place)) return false;
  out->f = a.form.is_grad ? attend_backward(&a, place) : attend_forward(&a, !place);
  return a.is_known;
}

bool body_scores(Body *body, int value, int64_t element, BodyStats *out) {
  const PlanOp *op =
      value < body->of->input_count ? NULL : &body->of->ops.at[value - body->of->input_count];
  Attend a;
  const PlanHeads *place;
  *out = (BodyStats){.is_known = true};
  if (!op || !op_is_attention(op->op) || !attend_find(body, op, element, &a, &place) ||
      (a.form.is_grad && place != &a.form.dq))
    return false;
  out->elements = a.form.keys;
  for (int64_t j = 0; j < a.form.keys; j++) {
    double score = score_of(&a, a.h, a.i, j);
    if (score != -INFINITY) body_take_number(out, score);
  }
  return a.is_known;
}

/* ── what an element is made of ───────────────────────────────────────────────────────────── */
static bool see_features(const Seeing *s, const Attend *a, int what, int64_t h, int64_t i) {
  int64_t features = what == Q || what == K ? a->form.features : a->form.values;
  int operand = s->op->inputs[operand_of(a, what)];
  for (int64_t d = 0; d < features; d++)
    if (!s->see(s->context, operand, head_at(heads_of(a, what), a->b, h, i, d))) return false;
  return true;
}

/* What is added to a score, unless it hides the key. */
static bool see_mask(const Seeing *s, Attend *a, int64_t h, int64_t i, int64_t j) {
  if (!is_mask_added(a) || attend_number(a, a->form.mask, mask_at(a, h, i, j)) == -INFINITY)
    return true;
  return s->see(s->context, s->op->inputs[a->form.mask], mask_at(a, h, i, j));
}

static bool see_softmax(const Seeing *s, Attend *a, int64_t h, int64_t i) {
  if (!a->form.is_grad) return true;
  int64_t at = lse_at(a, h, i);
  if (attend_number(a, operand_of(a, LSE), at) == -INFINITY) return true;
  return see_features(s, a, SLOPE, h, i) && see_features(s, a, OUT, h, i) &&
         s->see(s->context, s->op->inputs[operand_of(a, LSE)], at);
}

bool body_see_attention(const Seeing *s) {
  Attend a;
  const PlanHeads *place;
  if (!attend_find(s->body, s->op, s->element, &a, &place)) return true;
  const PlanAttention *f = &a.form;
  if (place != NULL && f->is_grad && place != &f->dq) { /* a key, that many rows look at */
    int64_t shared = f->heads / f->groups;
    if (!see_features(s, &a, K, a.h, a.i) || !see_features(s, &a, V, a.h, a.i)) return false;
    for (int64_t h = a.h * shared; h < (a.h + 1) * shared; h++)
      for (int64_t i = 0; i < f->rows; i++)
        if (score_of(&a, h, i, a.i) != -INFINITY &&
            (!see_softmax(s, &a, h, i) || !see_features(s, &a, Q, h, i) ||
             !see_mask(s, &a, h, i, a.i)))
          return false;
    return true;
  }
  if (!see_softmax(s, &a, a.h, a.i) || !see_features(s, &a, Q, a.h, a.i)) return false;
  for (int64_t j = 0; j < f->keys; j++) {
    int64_t g = group_with(&a, a.h);
    if (f->is_causal && j > a.i + f->keys - f->rows) continue;
    if (!see_features(s, &a, K, g, j) || !see_mask(s, &a, a.h, a.i, j)) return false;
    if (!f->is_grad && place &&
        !s->see(s->context, s->op->inputs[V], head_at(&f->v, a.b, g, j, a.d)))
      return false;
    if (f->is_grad && !see_features(s, &a, V, g, j)) return false;
  }
  return true;
}
