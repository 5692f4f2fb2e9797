/* minimise: see minimise.h. */
#include "runtime/tune/minimise.h"
#include <math.h>
#include <string.h>

enum { HISTORY = 8 };

typedef struct {
  double moved[HISTORY][MINIMISE_MOST], turned[HISTORY][MINIMISE_MOST], rho[HISTORY];
  int count, newest;
} History;

static double inner_product(const double *a, const double *b, int count) {
  double sum = 0;
  for (int i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}

/* A variable that may not go where its gradient sends it. */
static int is_held(const Minimise *p, const double *x, const double *gradient, int i) {
  return (x[i] <= p->low[i] && gradient[i] > 0) || (x[i] >= p->high[i] && gradient[i] < 0);
}

/* -H g by the two loops over what the last steps have shown. */
static void choose_direction(const Minimise *p, const History *h, const double *x,
                             const double *gradient, double *direction) {
  int n = p->count;
  double alpha[HISTORY];
  for (int i = 0; i < n; i++) direction[i] = is_held(p, x, gradient, i) ? 0 : -gradient[i];
  for (int k = 0; k < h->count; k++) {
    int at = (h->newest + HISTORY - k) % HISTORY;
    alpha[at] = h->rho[at] * inner_product(h->moved[at], direction, n);
    for (int i = 0; i < n; i++) direction[i] -= alpha[at] * h->turned[at][i];
  }
  if (h->count) {
    int at = h->newest;
    double scale = 1 / (h->rho[at] * inner_product(h->turned[at], h->turned[at], n));
    for (int i = 0; i < n; i++) direction[i] *= scale;
  }
  for (int k = h->count - 1; k >= 0; k--) {
    int at = (h->newest + HISTORY - k) % HISTORY;
    double beta = h->rho[at] * inner_product(h->turned[at], direction, n);
    for (int i = 0; i < n; i++) direction[i] += (alpha[at] - beta) * h->moved[at][i];
  }
  for (int i = 0; i < n; i++)
    if (is_held(p, x, gradient, i)) direction[i] = 0;
}

static void remember_step(const Minimise *p, History *h, const double *x, const double *next,
                          const double *gradient, const double *next_gradient) {
  int n = p->count, at = (h->newest + 1) % HISTORY;
  for (int i = 0; i < n; i++) {
    h->moved[at][i] = next[i] - x[i];
    h->turned[at][i] = next_gradient[i] - gradient[i];
  }
  double curvature = inner_product(h->moved[at], h->turned[at], n);
  if (!(curvature > 1e-12 * inner_product(h->turned[at], h->turned[at], n))) return;
  h->rho[at] = 1 / curvature;
  h->newest = at;
  if (h->count < HISTORY) h->count++;
}

double minimise(const Minimise *p, double *x) {
  int n = p->count;
  double gradient[MINIMISE_MOST], direction[MINIMISE_MOST], next[MINIMISE_MOST],
      next_gradient[MINIMISE_MOST];
  History history = {.newest = HISTORY - 1};
  double value = p->function(p->context, x, gradient);
  for (int step = 0; step < p->most_steps && isfinite(value); step++) {
    double largest = 0;
    for (int i = 0; i < n; i++)
      if (!is_held(p, x, gradient, i)) largest = fmax(largest, fabs(gradient[i]));
    if (!(largest > p->tolerance)) break;
    choose_direction(p, &history, x, gradient, direction);
    double slope = inner_product(direction, gradient, n);
    if (!(slope < 0)) { /* the history misleads: the steepest way */
      history.count = 0;
      choose_direction(p, &history, x, gradient, direction);
      slope = inner_product(direction, gradient, n);
    }
    double length = history.count ? 1 : fmin(1, 1 / largest), next_value = NAN;
    int tries = 0;
    for (; tries < 20; tries++, length *= 0.4) {
      double expected = 0;
      for (int i = 0; i < n; i++) {
        next[i] = fmin(fmax(x[i] + length * direction[i], p->low[i]), p->high[i]);
        expected += gradient[i] * (next[i] - x[i]);
      }
      next_value = p->function(p->context, next, next_gradient);
      if (next_value <= value + 1e-4 * expected) break;
    }
    if (tries == 20) break;
    remember_step(p, &history, x, next, gradient, next_gradient);
    double gain = value - next_value;
    memcpy(x, next, (size_t)n * sizeof *x);
    memcpy(gradient, next_gradient, (size_t)n * sizeof *x);
    value = next_value;
    if (gain < 1e-9 * (1 + fabs(value))) break;
  }
  return value;
}
