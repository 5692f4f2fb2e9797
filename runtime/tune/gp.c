/* gp: see gp.h. */
#include "runtime/tune/gp.h"
#include "runtime/tune/matrix.h"
#include "runtime/tune/minimise.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_NOISE 1e-6

bool gp_init(Gp *gp, int dims, const bool *is_apart) {
  *gp = (Gp){.dims = dims};
  memcpy(gp->is_apart, is_apart, (size_t)dims * sizeof *is_apart);
  for (int i = 0; i < dims + 1; i++) gp->parameter[i] = 0;
  gp->parameter[dims + 1] = log(1e-2);
  return true;
}

void gp_free(Gp *gp) {
  double *all[] = {gp->x,      gp->y,       gp->factor, gp->inverse, gp->work, gp->work_inverse,
                   gp->weight, gp->scratch, gp->kernel, gp->slope};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  *gp = (Gp){0};
}

static bool gp_reserve(Gp *gp, int count) {
  if (count <= gp->capacity) return true;
  size_t room = (size_t)(count < 32 ? 64 : count * 2), square = room * room;
  struct {
    double **at;
    size_t count;
  } all[] = {{&gp->x, room * (size_t)gp->dims},
             {&gp->y, room},
             {&gp->factor, square},
             {&gp->inverse, square},
             {&gp->work, square},
             {&gp->work_inverse, square},
             {&gp->weight, room},
             {&gp->scratch, room},
             {&gp->kernel, room},
             {&gp->slope, room}};
  gp->count = gp->fitted = 0; /* rows have another pitch now */
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    free(*all[i].at);
    *all[i].at = malloc(all[i].count * sizeof(double));
  }
  gp->capacity = (int)room;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (!*all[i].at) return gp->capacity = 0, false;
  return true;
}

static double square_apart(const Gp *gp, int d, const double *a, const double *b) {
  double difference = a[d] - b[d];
  return gp->is_apart[d] ? difference != 0 : difference * difference;
}

/* k / scale at s; its derivative by s in *slope. */
static double matern(double s, double *slope) {
  double root = sqrt(5 * s), decay = exp(-root);
  *slope = -5.0 / 6 * (1 + root) * decay;
  return (1 + root + root * root / 3) * decay;
}

static double distance(const Gp *gp, const double *inverse_square, const double *a,
                       const double *b) {
  double s = 0;
  for (int d = 0; d < gp->dims; d++) s += inverse_square[d] * square_apart(gp, d, a, b);
  return s;
}

static void spread_parameters(const Gp *gp, const double *parameter, double *inverse_square,
                              double *scale, double *noise) {
  for (int d = 0; d < gp->dims; d++) inverse_square[d] = exp(parameter[d]);
  *scale = exp(parameter[gp->dims]);
  *noise = LEAST_NOISE + exp(parameter[gp->dims + 1]);
}

/* Rows from `first` on of the covariance of what was seen. slopes: NULL, or the derivative by s of each element / scale. */
static void fill_covariance(const Gp *gp, const double *parameter, double *out, double *slopes,
                            int first, int count) {
  double inverse_square[GP_MOST_DIMS], scale, noise, slope;
  spread_parameters(gp, parameter, inverse_square, &scale, &noise);
  for (int i = first; i < count; i++) {
    const double *a = gp->x + (long)i * gp->dims;
    for (int j = 0; j <= i; j++) {
      long at = (long)i * gp->capacity + j;
      out[at] = scale * matern(distance(gp, inverse_square, a, gp->x + (long)j * gp->dims), &slope);
      if (slopes) slopes[at] = slope;
    }
    out[(long)i * gp->capacity + i] += noise;
  }
}

/* Minus the logarithm of the posterior density of the parameters, but for a constant. The priors: a Gamma's for scale and
 * noise (shapes 2 and 1.1, rates 1 and 30), and -0.1 (v + 1 / v) for an inverse squared length v. */
static double fit_loss(void *context, const double *parameter, double *gradient) {
  Gp *gp = context;
  int n = gp->count, dims = gp->dims, pitch = gp->capacity;
  double inverse_square[GP_MOST_DIMS], scale, noise;
  spread_parameters(gp, parameter, inverse_square, &scale, &noise);
  /* factor ends as the slopes, which lets `work` be the factor and then K⁻¹ */
  fill_covariance(gp, parameter, gp->work, gp->factor, 0, n);
  if (!matrix_factor(gp->work, n, pitch, 0)) return INFINITY;
  matrix_invert_lower(gp->work, gp->work_inverse, n, pitch, 0);
  double loss = 0;
  for (int i = 0; i < n; i++) loss += log(gp->work[(long)i * pitch + i]);
  matrix_times(gp->work_inverse, gp->y, gp->scratch, n, pitch);
  loss += 0.5 * matrix_dot(gp->scratch, gp->scratch, n);
  matrix_transposed_times(gp->work_inverse, gp->scratch, gp->weight, n, pitch);
  matrix_gram(gp->work_inverse, gp->work, n, pitch); /* K⁻¹ */
  double trace = 0, by_noise = 0;
  memset(gradient, 0, (size_t)(dims + 2) * sizeof *gradient);
  for (int i = 0; i < n; i++) {
    const double *a = gp->x + (long)i * dims;
    for (int j = 0; j < i; j++) { /* twice: the other triangle too */
      const double *b = gp->x + (long)j * dims;
      double pull = gp->work[(long)i * pitch + j] - gp->weight[i] * gp->weight[j];
      double times = pull * gp->factor[(long)i * pitch + j] * scale;
      for (int d = 0; d < dims; d++) gradient[d] += times * square_apart(gp, d, a, b);
    }
    double pull = gp->work[(long)i * pitch + i] - gp->weight[i] * gp->weight[i];
    by_noise += 0.5 * pull;
    trace += 0.5 * (1 - gp->weight[i] *
                            gp->y[i]); /* of (K⁻¹ - w wᵀ) K, which is what scale and noise share */
  }
  for (int d = 0; d < dims; d++) {
    double v = inverse_square[d];
    loss += 0.1 * (v + 1 / v);
    gradient[d] = gradient[d] * v + 0.1 * (v - 1 / v);
  }
  double own = noise - LEAST_NOISE;
  gradient[dims] = trace - by_noise * noise - 1 + scale;
  gradient[dims + 1] = by_noise * own - (0.1 / noise - 30) * own;
  return loss - log(scale) + scale - 0.1 * log(noise) + 30 * noise;
}

static void fit_parameters(Gp *gp) {
  double low[GP_MOST_DIMS + 2], high[GP_MOST_DIMS + 2], other[GP_MOST_DIMS + 2];
  int dims = gp->dims;
  for (int i = 0; i < dims + 2; i++) {
    low[i] = i == dims + 1 ? log(1e-8) : -9;
    high[i] = i == dims + 1 ? log(2) : 9;
  }
  Minimise problem = {fit_loss, gp, dims + 2, 30, low, high, 1e-2};
  for (int i = 0; i < dims + 2; i++) other[i] = i == dims + 1 ? log(1e-2) : 0;
  double value = minimise(&problem, gp->parameter);
  if (gp->fitted && gp->count < 120) { /* another beginning, where it costs little */
    double other_value = minimise(&problem, other);
    if (other_value < value || !isfinite(value)) memcpy(gp->parameter, other, sizeof other);
  } else if (!isfinite(value)) {
    memcpy(gp->parameter, other, sizeof other);
  }
  gp->fitted = gp->count;
}

/* L, L⁻¹ and the weights of the parameters as they are, from row `first` on. Rounding may leave a matrix that has no factor
 * where points almost coincide: more noise then. */
static bool solve_from(Gp *gp, int first) {
  for (int tries = 0; tries < 12; tries++) {
    fill_covariance(gp, gp->parameter, gp->factor, NULL, first, gp->count);
    if (matrix_factor(gp->factor, gp->count, gp->capacity, first)) {
      matrix_invert_lower(gp->factor, gp->inverse, gp->count, gp->capacity, first);
      matrix_times(gp->inverse, gp->y, gp->scratch, gp->count, gp->capacity);
      matrix_transposed_times(gp->inverse, gp->scratch, gp->weight, gp->count, gp->capacity);
      return true;
    }
    gp->parameter[gp->dims + 1] += log(4);
    first = 0;
  }
  return false;
}

bool gp_fit(Gp *gp, const double *x, const double *y, int count) {
  if (!gp_reserve(gp, count)) return false;
  memcpy(gp->x, x, (size_t)count * (size_t)gp->dims * sizeof *x);
  memcpy(gp->y, y, (size_t)count * sizeof *y);
  gp->count = count;
  if (!gp->fitted || count < 60 || count >= gp->fitted + gp->fitted / 20) fit_parameters(gp);
  return solve_from(gp, 0);
}

bool gp_append(Gp *gp, const double *x, double y) {
  if (gp->count == gp->capacity) return false;
  memcpy(gp->x + (long)gp->count * gp->dims, x, (size_t)gp->dims * sizeof *x);
  gp->y[gp->count++] = y;
  return solve_from(gp, gp->count - 1);
}

void gp_predict(Gp *gp, const double *x, double *mean, double *deviation, double *mean_gradient,
                double *deviation_gradient) {
  int n = gp->count, dims = gp->dims;
  double inverse_square[GP_MOST_DIMS], scale, noise;
  spread_parameters(gp, gp->parameter, inverse_square, &scale, &noise);
  for (int i = 0; i < n; i++)
    gp->kernel[i] =
        scale * matern(distance(gp, inverse_square, x, gp->x + (long)i * dims), &gp->slope[i]);
  *mean = matrix_dot(gp->kernel, gp->weight, n);
  matrix_times(gp->inverse, gp->kernel, gp->scratch, n, gp->capacity);
  double variance = fmax(scale - matrix_dot(gp->scratch, gp->scratch, n), 1e-12);
  *deviation = sqrt(variance);
  if (!mean_gradient) return;
  double *pulled = gp->work; /* K⁻¹ k */
  matrix_transposed_times(gp->inverse, gp->scratch, pulled, n, gp->capacity);
  memset(mean_gradient, 0, (size_t)dims * sizeof *x);
  memset(deviation_gradient, 0, (size_t)dims * sizeof *x);
  for (int i = 0; i < n; i++)
    for (int d = 0; d < dims; d++) {
      if (gp->is_apart[d]) continue;
      double by = 2 * scale * gp->slope[i] * inverse_square[d] * (x[d] - gp->x[(long)i * dims + d]);
      mean_gradient[d] += gp->weight[i] * by;
      deviation_gradient[d] -= pulled[i] * by / *deviation;
    }
}
