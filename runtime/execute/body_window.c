/* body_window: convolutions, pooling and their gradients, one element at a time (body_private.h). */
#include "runtime/execute/body_private.h"
#include <math.h>

/* An element's place: sample, channel, row, column. */
typedef struct {
  int64_t n, c, h, v;
} Spot;

static Spot spot_in(const PlanWindow *w, int64_t element, int64_t channels, int64_t height,
                    int64_t width) {
  Spot s;
  if (w->is_nhwc) s.c = element % channels, element /= channels;
  s.v = element % width, element /= width;
  s.h = element % height, element /= height;
  if (!w->is_nhwc) s.c = element % channels, element /= channels;
  s.n = element;
  return s;
}

static int64_t spot_at(const PlanWindow *w, Spot s, int64_t channels, int64_t height,
                       int64_t width) {
  return w->is_nhwc ? ((s.n * height + s.h) * width + s.v) * channels + s.c
                    : ((s.n * channels + s.c) * height + s.h) * width + s.v;
}

static int64_t at_x(const PlanWindow *w, Spot s) {
  return spot_at(w, s, w->channels, w->height, w->width);
}
static int64_t at_y(const PlanWindow *w, Spot s) {
  return spot_at(w, s, w->outputs, w->rows, w->columns);
}
/* Of the weights: n is the output channel, c the channel within its group. */
static int64_t at_w(const PlanWindow *w, Spot s) {
  return spot_at(w, s, w->channels / w->groups, w->kernel[0], w->kernel[1]);
}

/* The place in x of element (i, j) of the window that y's place has; false: in the padding. */
static bool in_window(const PlanWindow *w, Spot y, int64_t i, int64_t j, Spot *x) {
  x->n = y.n;
  x->h = y.h * w->stride[0] + i * w->dilation[0] - w->padding[0];
  x->v = y.v * w->stride[1] + j * w->dilation[1] - w->padding[1];
  return x->h >= 0 && x->h < w->height && x->v >= 0 && x->v < w->width;
}

/* The place in y of the window in which x's place is element (i, j); false: there is none. */
static bool window_with(const PlanWindow *w, Spot x, int64_t i, int64_t j, Spot *y) {
  int64_t h = x.h + w->padding[0] - i * w->dilation[0];
  int64_t v = x.v + w->padding[1] - j * w->dilation[1];
  if (h < 0 || v < 0 || h % w->stride[0] || v % w->stride[1]) return false;
  y->n = x.n, y->h = h / w->stride[0], y->v = v / w->stride[1];
  return y->h < w->rows && y->v < w->columns;
}

/* ── convolutions ─────────────────────────────────────────────────────────────────────────── */
static bool see_product(const Seeing *s, int64_t first, int64_t second) {
  return s->see(s->context, s->op->inputs[0], first) &&
         s->see(s->context, s->op->inputs[1], second);
}

static bool see_conv(const Seeing *s, const PlanWindow *w) {
  int64_t inner = w->channels / w->groups;
  Spot y = spot_in(w, s->element, w->outputs, w->rows, w->columns), x;
  int64_t first = y.c / (w->outputs / w->groups) * inner;
  for (int64_t c = 0; c < inner; c++)
    for (int64_t i = 0; i < w->kernel[0]; i++)
      for (int64_t j = 0; j < w->kernel[1]; j++) {
        x.c = first + c;
        if (in_window(w, y, i, j, &x) && !see_product(s, at_x(w, x), at_w(w, (Spot){y.c, c, i, j})))
          return false;
      }
  return true;
}

static bool see_conv_grad_input(const Seeing *s, const PlanWindow *w) {
  int64_t inner = w->channels / w->groups, outer = w->outputs / w->groups;
  Spot x = spot_in(w, s->element, w->channels, w->height, w->width), y;
  int64_t first = x.c / inner * outer;
  for (int64_t o = first; o < first + outer; o++)
    for (int64_t i = 0; i < w->kernel[0]; i++)
      for (int64_t j = 0; j < w->kernel[1]; j++) {
        y.c = o;
        if (window_with(w, x, i, j, &y) &&
            !see_product(s, at_y(w, y), at_w(w, (Spot){o, x.c % inner, i, j})))
          return false;
      }
  return true;
}

static bool see_conv_grad_weight(const Seeing *s, const PlanWindow *w) {
  int64_t inner = w->channels / w->groups;
  Spot k = spot_in(w, s->element, inner, w->kernel[0], w->kernel[1]), x, y;
  x.c = k.n / (w->outputs / w->groups) * inner + k.c;
  y.c = k.n;
  for (y.n = 0; y.n < w->images; y.n++)
    for (y.h = 0; y.h < w->rows; y.h++)
      for (y.v = 0; y.v < w->columns; y.v++)
        if (in_window(w, y, k.h, k.v, &x) && !see_product(s, at_y(w, y), at_x(w, x))) return false;
  return true;
}

bool body_see_conv(const Seeing *s) {
  PlanWindow w;
  if (!plan_conv_form(s->op, body_type_of(s->body, s->op->inputs[0]),
                      body_type_of(s->body, s->op->inputs[1]), &w))
    return true;
  if (s->op->op == OP_CONV) return see_conv(s, &w);
  if (s->op->op == OP_CONV_GRAD_INPUT) return see_conv_grad_input(s, &w);
  return see_conv_grad_weight(s, &w);
}

/* ── pooling ──────────────────────────────────────────────────────────────────────────────── */
/* Elements of x that the window has. */
static int64_t window_holds(const PlanWindow *w, Spot y) {
  int64_t count = 0;
  Spot x;
  if (w->counts_padding) return w->kernel[0] * w->kernel[1];
  for (int64_t i = 0; i < w->kernel[0]; i++)
    for (int64_t j = 0; j < w->kernel[1]; j++) count += in_window(w, y, i, j, &x);
  return count;
}

static bool is_pool_grad(Op op) { return op == OP_POOL_MAX_GRAD || op == OP_POOL_AVG_GRAD; }

static bool see_windows(const Seeing *s, const PlanWindow *w) {
  Spot x = spot_in(w, s->element, w->channels, w->height, w->width), y;
  for (int64_t i = 0; i < w->kernel[0]; i++)
    for (int64_t j = 0; j < w->kernel[1]; j++) {
      Scalar chosen = {.i = i * w->kernel[1] + j};
      y.c = x.c;
      if (!window_with(w, x, i, j, &y)) continue;
      if (s->op->op == OP_POOL_MAX_GRAD &&
          !body_value(s->body, s->op->inputs[1], at_y(w, y), &chosen))
        return true;
      if (chosen.i == i * w->kernel[1] + j && !s->see(s->context, s->op->inputs[0], at_y(w, y)))
        return false;
    }
  return true;
}

bool body_see_pool(const Seeing *s) {
  PlanWindow w;
  if (!plan_pool_form(s->op, body_type_of(s->body, s->op->inputs[0]), &w)) return true;
  if (is_pool_grad(s->op->op)) return see_windows(s, &w);
  Spot y = spot_in(&w, s->element, w.outputs, w.rows, w.columns), x;
  for (int64_t i = 0; i < w.kernel[0]; i++)
    for (int64_t j = 0; j < w.kernel[1]; j++) {
      x.c = y.c;
      if (in_window(&w, y, i, j, &x) && !s->see(s->context, s->op->inputs[0], at_x(&w, x)))
        return false;
    }
  return true;
}

/* A pooling under way. */
typedef struct {
  Body *body;
  const PlanOp *op;
  const PlanWindow *window;
  Spot at;
  double sum, most;
  int64_t best, seen;
  bool is_known;
} Pooling;

static bool take_pooled(void *context, int value, int64_t element) {
  Pooling *p = context;
  const PlanWindow *w = p->window;
  Scalar x;
  if (!(p->is_known = body_value(p->body, value, element, &x))) return false;
  if (p->op->op == OP_POOL_AVG_GRAD) {
    Spot y = spot_in(w, element, w->outputs, w->rows, w->columns);
    p->sum += x.f / (double)window_holds(w, y);
    return true;
  }
  p->sum = body_part_of_sum(p->op->type.dtype, p->sum + x.f);
  if (!p->seen++ || (!isnan(p->most) && (x.f > p->most || isnan(x.f)))) {
    Spot from =
        is_pool_grad(p->op->op) ? (Spot){0} : spot_in(w, element, w->channels, w->height, w->width);
    p->most = x.f;
    p->best = (from.h + w->padding[0] - p->at.h * w->stride[0]) * w->kernel[1] + from.v +
              w->padding[1] - p->at.v * w->stride[1];
  }
  return true;
}

bool body_pool_value(Body *body, const PlanOp *op, int64_t element, Scalar *out) {
  PlanWindow w;
  if (!plan_pool_form(op, body_type_of(body, op->inputs[0]), &w)) return false;
  Pooling p = {.body = body, .op = op, .window = &w, .is_known = true};
  p.at = spot_in(&w, element, w.outputs, w.rows, w.columns);
  Seeing s = {body, op, element, take_pooled, &p};
  body_see_pool(&s);
  if (!p.is_known) return false;
  *out = op->op == OP_POOL_INDEX ? (Scalar){.i = p.best}
         : op->op == OP_POOL_MAX ? (Scalar){.f = p.most}
         : op->op == OP_POOL_AVG ? (Scalar){.f = p.sum / (double)window_holds(&w, p.at)}
                                 : (Scalar){.f = p.sum};
  return true;
}
