/* gptq: see gptq.h. With H the (damped) sum of x xT and U the upper factor of its inverse, UT U = H^-1, the error of column j,
 * (w - rounded) / U[j][j], times U[j][k] is taken from each later column k. Rows do so independently of each other. */
#include "runtime/quantize/gptq.h"
#include "runtime/tune/matrix.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4, ATTEMPTS = 8 };

bool gptq_add(double *hessian, int columns, const float *x, int64_t count, const float *factor) {
  double *rows = calloc((size_t)columns * ROWS, sizeof *rows);
  for (int64_t at = 0; rows && at < count; at += ROWS) {
    int64_t here = count - at < ROWS ? count - at : ROWS;
    for (int64_t r = 0; r < ROWS; r++)
      for (int c = 0; c < columns; c++)
        rows[r * columns + c] = r < here ? (double)x[(at + r) * columns + c] * (factor ? (double)factor[c] : 1) : 0;
    const double *a = rows, *b = a + columns, *c = b + columns, *d = c + columns;
    for (int i = 0; i < columns; i++) {
      double *out = hessian + (size_t)i * (size_t)columns;
      double p = a[i], q = b[i], r = c[i], s = d[i];
      for (int k = 0; k <= i; k++) out[k] += p * a[k] + q * b[k] + r * c[k] + s * d[k];
    }
  }
  free(rows);
  return rows != NULL;
}

typedef struct {
  const Rounding *form;
  const GptqOptions *options;
  int n;
  int *order;    /* of the columns */
  double *h, *u; /* n by n; u upper, row by row */
  double *row;   /* the weights of a row in that order */
} Gptq;

static double diagonal_mean(const Gptq *g) {
  double sum = 0;
  for (int i = 0; i < g->n; i++) sum += g->h[(size_t)i * (size_t)(g->n + 1)];
  return sum / g->n;
}

static double *diagonal_of(Gptq *g) {
  double *d = calloc((size_t)g->n + 1, sizeof *d);
  for (int i = 0; d && i < g->n; i++) d[i] = g->h[(size_t)i * (size_t)(g->n + 1)];
  return d;
}

/* Insertion of each where those before are larger; equal ones keep their order. */
static void order_columns(Gptq *g, const double *d) {
  for (int i = 0; i < g->n; i++) g->order[i] = i;
  for (int i = 1; g->options->is_ordered && i < g->n; i++) {
    int column = g->order[i], at = i;
    for (; at > 0 && d[g->order[at - 1]] < d[column]; at--) g->order[at] = g->order[at - 1];
    g->order[at] = column;
  }
}

/* g->u = the lower triangle of H in the columns' order, its diagonal damped. */
static void damped_in_order(Gptq *g, double damp) {
  size_t n = (size_t)g->n;
  for (int i = 0; i < g->n; i++)
    for (int k = 0; k <= i; k++) {
      int a = g->order[i], b = g->order[k];
      size_t at = a > b ? (size_t)a * n + (size_t)b : (size_t)b * n + (size_t)a;
      g->u[(size_t)i * n + (size_t)k] = g->h[at];
    }
  for (int i = 0; i < g->n; i++) {
    double *d = &g->u[(size_t)i * n + (size_t)i];
    *d += *d > 0 ? damp : damp + 1; /* an input that was always 0 says nothing */
  }
}

/* U from H; more damping where rounding has made it indefinite. */
static bool factor_inverse(Gptq *g, double *work) {
  double damp = g->options->damping * diagonal_mean(g);
  for (int attempt = 0; attempt < ATTEMPTS; attempt++, damp = damp > 0 ? damp * 10 : 1e-9) {
    damped_in_order(g, damp);
    if (!matrix_factor(g->u, g->n, g->n, 0)) continue;
    memset(work, 0, (size_t)g->n * (size_t)g->n * sizeof *work);
    matrix_invert_lower(g->u, work, g->n, g->n, 0);
    matrix_gram(work, g->u, g->n, g->n);
    if (!matrix_factor(g->u, g->n, g->n, 0)) continue;
    for (int i = 0; i < g->n; i++) /* the lower factor's columns are the upper one's rows */
      for (int k = 0; k <= i; k++) work[(size_t)k * (size_t)g->n + (size_t)i] = g->u[(size_t)i * (size_t)g->n + (size_t)k];
    memcpy(g->u, work, (size_t)g->n * (size_t)g->n * sizeof *work);
    return true;
  }
  return false;
}

/* The scale of the group that begins at column j, of weights as they are now. */
static float group_scale(const Gptq *g, int j, float *scratch) {
  for (int k = 0; k < g->form->group; k++) scratch[k] = (float)g->row[j + k];
  return rounding_scale_of(scratch, g->form->group, g->form->bits, g->options->rule);
}

static void round_row(Gptq *g, float *w, float *scales, float *scratch) {
  const Rounding *form = g->form;
  bool finds = form->group && !g->options->is_ordered;
  for (int j = 0; j < g->n; j++) g->row[j] = w[g->order[j]];
  for (int j = 0; j < g->n; j++) {
    int column = g->order[j];
    int64_t group = form->group ? column / form->group : 0;
    const double *u = g->u + (size_t)j * (size_t)g->n;
    if (finds && j % form->group == 0) scales[group] = group_scale(g, j, scratch);
    w[column] = rounding_value((float)g->row[j], scales[group], form->bits);
    double error = (g->row[j] - (double)w[column]) / u[j];
    for (int k = j + 1; k < g->n; k++) g->row[k] -= error * u[k];
  }
}

bool gptq_round(const Rounding *form, const GptqOptions *options, double *hessian, float *w, float *scales) {
  size_t n = (size_t)form->columns;
  Gptq g = {.form = form, .options = options, .n = (int)n, .h = hessian};
  double *work = malloc((n * n + 1) * sizeof *work), *d = diagonal_of(&g);
  float *scratch = malloc((n + 1) * sizeof *scratch);
  g.u = malloc((n * n + 1) * sizeof *g.u);
  g.row = malloc((n + 1) * sizeof *g.row);
  g.order = malloc((n + 1) * sizeof *g.order);
  bool fine = work && d && scratch && g.u && g.row && g.order;
  if (fine) {
    order_columns(&g, d);
    rounding_find_scales(form, w, options->rule, scales);
    bool is_factored = factor_inverse(&g, work);
    int64_t scales_per_row = form->per_tensor ? 0 : form->group ? form->columns / form->group : 1;
    if (!is_factored) rounding_nearest(form, scales, w);
    for (int64_t r = 0; is_factored && r < form->rows; r++) round_row(&g, w + r * form->columns, scales + r * scales_per_row, scratch);
  }
  free(work);
  free(d);
  free(scratch);
  free(g.u);
  free(g.row);
  free(g.order);
  return fine;
}
