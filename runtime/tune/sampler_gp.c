/* sampler_gp: Bayesian optimisation. A Gaussian process is fitted to what was seen; the next point is where the logarithm of
 * the expected improvement (Ament et al. 2023, "Unexpected improvements to expected improvement") is largest: the
 * best of a scrambled Sobol sequence and of points near the best one, moved up from the best few of these. Trials that still
 * run count with the best value seen (a constant liar; Ginsbourger et al. 2010), so that others go elsewhere. */
#define _GNU_SOURCE /* M_PI */
#include "runtime/tune/minimise.h"
#include "runtime/tune/sampler_private.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STARTS = 8, MOST_CANDIDATES = 2048 };

typedef struct {
  Gp *gp;
  double best; /* of the standardised values */
  const Space *space;
  const double *point; /* what climb_smooth moves in its smooth dimensions; NULL: x is known to be allowed */
} Acquisition;

/* exp(x²) erfc(x) for x ≥ 0. */
static double scaled_erfc(double x) {
  if (x < 20) return exp(x * x) * erfc(x);
  double square = 1 / (2 * x * x);
  return (1 - square * (1 - 3 * square)) / (x * sqrt(M_PI));
}

/* log(φ(z) + z Φ(z)), and its derivative by z, Φ / (φ + z Φ), to relative 1e-8 for any z. */
static double log_improvement(double z, double *derivative) {
  double log_density = -0.5 * z * z - 0.5 * log(2 * M_PI);
  if (z > -1) {
    double below = 0.5 * erfc(-z * M_SQRT1_2), h = exp(log_density) + z * below;
    *derivative = below / h;
    return log(h);
  }
  double mills = sqrt(M_PI / 2) * scaled_erfc(-z * M_SQRT1_2); /* Φ / φ */
  double rest = z < -300 ? 1 / (z * z) : 1 + z * mills;
  *derivative = mills / rest;
  return log_density + log(rest);
}

static bool is_allowed_at(const Acquisition *a, const double *x);

/* Minus the logarithm of the expected improvement at x; infinite where the space's conditions do not hold. */
static double acquisition(void *context, const double *x, double *gradient) {
  Acquisition *a = context;
  if (!is_allowed_at(a, x)) return INFINITY;
  double mean, deviation, mean_gradient[GP_MOST_DIMS], deviation_gradient[GP_MOST_DIMS], slope;
  gp_predict(a->gp, x, &mean, &deviation, gradient ? mean_gradient : NULL, deviation_gradient);
  double z = (a->best - mean) / deviation, log_h = log_improvement(z, &slope);
  if (gradient)
    for (int d = 0; d < a->gp->dims; d++) {
      double by_z = (-mean_gradient[d] - z * deviation_gradient[d]) / deviation;
      gradient[d] = -(deviation_gradient[d] / deviation + slope * by_z);
    }
  return -(log(deviation) + log_h);
}

/* The coordinates of a point for the process: [0, 1], choices without order by their number, what is inactive in the middle. */
static void point_to_model(const Space *space, const double *point, double *x) {
  for (int i = 0; i < space->count; i++) {
    const Dim *dim = &space->dim[i];
    if (isnan(point[i]))
      x[i] = dim->kind == DIM_CHOICE && !dim->is_ordered ? -1 : 0.5;
    else
      x[i] = dim->kind == DIM_CHOICE && !dim->is_ordered ? point[i] : dim_to_unit(dim, point[i]);
  }
}

static void unit_to_model(const Space *space, const double *unit, double *point, double *x) {
  space_from_unit(space, unit, point);
  point_to_model(space, point, x);
}

/* Where a dimension can move without steps. */
static bool is_smooth(const Dim *dim) { return dim->kind != DIM_CHOICE && dim_values(dim) == 0; }

/* Back from the model's coordinates, in the smooth dimensions. */
static void take_smooth(const Space *space, const double *x, double *point) {
  for (int i = 0; i < space->count; i++)
    if (is_smooth(&space->dim[i]) && !isnan(point[i]))
      point[i] = dim_from_unit(&space->dim[i], x[i]);
}

static bool is_allowed_at(const Acquisition *a, const double *x) {
  double at[SPACE_MOST];
  if (!a->point || !a->space->where_count) return true;
  memcpy(at, a->point, (size_t)a->space->count * sizeof *at);
  take_smooth(a->space, x, at);
  return space_allows(a->space, at);
}

/* Up the gradient in the smooth dimensions, and where a condition ends that, in each of them alone, along its edge. */
static double climb_smooth(Acquisition *a, const double *point, double *x) {
  double low[GP_MOST_DIMS], high[GP_MOST_DIMS];
  bool any = false;
  for (int d = 0; d < a->gp->dims; d++) {
    bool moves = is_smooth(&a->space->dim[d]);
    low[d] = moves ? 0 : x[d];
    high[d] = moves ? 1 : x[d];
    any |= moves;
  }
  if (!any) return acquisition(a, x, NULL);
  a->point = point;
  Minimise problem = {acquisition, a, a->gp->dims, 40, low, high, 1e-4};
  double value = minimise(&problem, x);
  for (int d = 0; a->space->where_count && d < a->gp->dims; d++) {
    if (!is_smooth(&a->space->dim[d])) continue;
    for (int k = 0; k < a->gp->dims; k++) {
      low[k] = k == d ? 0 : x[k];
      high[k] = k == d ? 1 : x[k];
    }
    value = minimise(&problem, x);
  }
  a->point = NULL;
  return value;
}

/* One dimension of values: each of them if they are few, else the neighbours near and far. */
static double climb_steps(Acquisition *a, int d, double *point, double value) {
  const Dim *dim = &a->space->dim[d];
  int64_t values = dim_values(dim);
  if (isnan(point[d]) || values <= 1) return value;
  double now = dim->kind == DIM_CHOICE ? point[d] : round((point[d] - dim->low) / dim->step);
  double best = point[d], try[SPACE_MOST];
  memcpy(try, point, (size_t)a->space->count * sizeof *try);
  int64_t tries = values <= 16 ? values : 16;
  for (int64_t i = 0; i < tries; i++) {
    double far = (double)((int64_t)1 << (i / 2)) * (i % 2 ? 1 : -1);
    double nth = values <= 16 ? (double)i : now + far;
    if (nth < 0 || nth >= (double)values || nth == now) continue;
    try[d] = dim->kind == DIM_CHOICE ? nth : dim_nth(dim, nth);
    double model[GP_MOST_DIMS];
    if (!space_allows(a->space, try)) continue;
    point_to_model(a->space, try, model);
    double other = acquisition(a, model, NULL);
    if (other < value) {
      value = other;
      best = try[d];
    }
  }
  point[d] = best;
  return value;
}

/* A choice may have made others appear or go. */
static bool repair_conditions(const Space *space, double *point) {
  bool changed = false;
  for (int i = 0; i < space->count; i++) {
    bool is_active = space_is_active(space, i, point);
    if (is_active != isnan(point[i])) continue;
    point[i] = is_active ? dim_from_unit(&space->dim[i], 0.5) : NAN;
    changed = true;
  }
  return changed;
}

static double climb(Acquisition *a, double *point, double *x) {
  double value = acquisition(a, x, NULL);
  for (int round = 0; round < 4; round++) {
    double before = value;
    value = climb_smooth(a, point, x);
    take_smooth(a->space, x, point);
    for (int d = 0; d < a->space->count; d++)
      if (!is_smooth(&a->space->dim[d])) {
        value = climb_steps(a, d, point, value);
        repair_conditions(a->space, point);
        point_to_model(a->space, point, x);
      }
    value = acquisition(a, x, NULL);
    if (before - value < 1e-3) break;
  }
  return value;
}

typedef struct {
  double value, unit[SPACE_MOST];
} Candidate;

/* Keeps the best STARTS of what is offered, the best one first. */
static void offer_start(Candidate *kept, int *count, const Candidate *one) {
  int at = *count < STARTS ? (*count)++ : STARTS - 1;
  if (at == STARTS - 1 && *count == STARTS && kept[at].value <= one->value &&
      kept[at].value != INFINITY)
    return;
  for (; at > 0 && kept[at - 1].value > one->value; at--) kept[at] = kept[at - 1];
  kept[at] = *one;
}

/* The points that are looked at first: the sequence, and around the best observations. */
static int find_starts(Acquisition *a, const Proposal *p, const double *best, Candidate *kept) {
  const Space *space = a->space;
  Random random = random_new(p->sampler->seed, (uint64_t)p->number, DRAW_GP);
  int most = (int)fmin(MOST_CANDIDATES, 4e7 / ((double)a->gp->count * a->gp->count + 1) + 256);
  int count = 0;
  for (int i = 0; i < STARTS; i++) kept[i].value = INFINITY;
  for (int i = 0; i < most; i++) {
    Candidate one;
    double point[SPACE_MOST], x[GP_MOST_DIMS];
    if (i % 4) {
      sobol_point(&p->sampler->sobol, space->count, p->sampler->seed + (uint64_t)p->number, i,
                  one.unit);
    } else { /* a step from the best point, in some of its dimensions */
      double far = pow(10, -3 * random_unit(&random));
      for (int d = 0; d < space->count; d++) {
        one.unit[d] = best[d];
        if (random_unit(&random) < 0.5)
          one.unit[d] = fmin(fmax(best[d] + far * random_normal(&random), 0), 1);
      }
    }
    unit_to_model(space, one.unit, point, x);
    if (!space_allows(space, point)) continue;
    one.value = acquisition(a, x, NULL);
    if (isfinite(one.value)) offer_start(kept, &count, &one);
  }
  return count;
}

static Status best_of(Acquisition *a, const Proposal *p, const double *best, double *point) {
  Candidate *kept = calloc(STARTS, sizeof *kept);
  if (!kept) return status_fail(STATUS_FAULT, "out of memory");
  int count = find_starts(a, p, best, kept);
  double least = INFINITY;
  sampler_next_random(p, point); /* if there is nothing better */
  for (int i = 0; i < count; i++) {
    double try[SPACE_MOST], x[GP_MOST_DIMS];
    unit_to_model(a->space, kept[i].unit, try, x);
    double value = climb(a, try, x);
    if (value < least && proposal_is_free(p, try)) {
      least = value;
      memcpy(point, try, (size_t)a->space->count * sizeof *try);
    }
  }
  free(kept);
  return STATUS_OK;
}

static bool has_value(const Observation *o) { return isfinite(observation_value(o)); }

/* Of more than GP_MOST finished trials the newest half of that number, and of the older ones those that are as good as this. */
static bool find_limit(const Proposal *p, int *newest, double *limit) {
  int count = 0, finished = 0;
  *newest = 0;
  *limit = INFINITY;
  if (proposal_finished(p) <= GP_MOST) return true;
  double *values = malloc((size_t)p->count * sizeof *values);
  if (!values) return false;
  for (*newest = p->count; *newest > 0 && finished < GP_MOST / 2; --*newest)
    finished += p->seen[*newest - 1].state != TRIAL_RUNNING;
  for (int i = 0; i < *newest; i++)
    if (has_value(&p->seen[i])) values[count++] = p->seen[i].value;
  qsort(values, (size_t)count, sizeof *values, value_compare);
  *limit = count > GP_MOST / 2 ? values[GP_MOST / 2 - 1] : INFINITY;
  free(values);
  return true;
}

/* What is standardised: finite values, a failure as bad as the worst of them. -1: no memory. */
static int collect(const Proposal *p, double *x, double *y) {
  const Space *space = p->sampler->space;
  int count = 0, older = 0, newest;
  double worst = -INFINITY, limit;
  if (!find_limit(p, &newest, &limit)) return -1;
  for (int i = 0; i < p->count; i++)
    if (has_value(&p->seen[i])) worst = fmax(worst, p->seen[i].value);
  for (int i = 0; i < p->count && count < GP_MOST; i++) {
    const Observation *o = &p->seen[i];
    if (o->state == TRIAL_RUNNING) continue;
    if (i < newest && !(has_value(o) && o->value <= limit && older < GP_MOST / 2)) continue;
    if (!has_value(o) && !isfinite(worst)) continue;
    older += i < newest;
    point_to_model(space, o->point, x + (long)count * space->count);
    y[count++] = has_value(o) ? o->value : worst;
  }
  return count;
}

/* A value is extreme if it is more than this many times as far from the best one as the median. */
static const double EXTREME = 10;

/* Mean 0 and variance 1. A loss has no upper bound: a training that diverged must not flatten all others. Where a value is extreme,
 * those that are count as EXTREME, and values above the median are drawn together by a logarithm. Where none is, the logarithm
 * would only bend a smooth function, which the Gaussian process then fits less well near its minimum. */
static bool standardise(double *y, int count) {
  double *sorted = malloc((size_t)count * sizeof *sorted), mean = 0, square = 0;
  if (!sorted) return false;
  memcpy(sorted, y, (size_t)count * sizeof *y);
  qsort(sorted, (size_t)count, sizeof *sorted, value_compare);
  double least = sorted[0], spread = sorted[count / 2] - least;
  bool is_skewed = sorted[count - 1] - least > EXTREME * spread;
  free(sorted);
  for (int i = 0; i < count; i++) {
    if (spread > 0) y[i] = (y[i] - least) / spread;
    if (spread > 0 && is_skewed) y[i] = log1p(fmin(y[i], EXTREME));
    mean += y[i] / count;
  }
  for (int i = 0; i < count; i++) square += (y[i] - mean) * (y[i] - mean) / count;
  double deviation = square > 0 ? sqrt(square) : 1;
  for (int i = 0; i < count; i++) y[i] = (y[i] - mean) / deviation;
  return true;
}

static bool add_running(Sampler *sampler, const Proposal *p, double liar) {
  double x[GP_MOST_DIMS];
  for (int i = 0; i < p->count; i++) {
    if (p->seen[i].state != TRIAL_RUNNING) continue;
    point_to_model(sampler->space, p->seen[i].point, x);
    if (!gp_append(&sampler->gp, x, liar)) return false;
  }
  return true;
}

static Status propose_by_model(Sampler *sampler, const Proposal *p, double *x, double *y,
                               double *point) {
  const Space *space = sampler->space;
  int count = collect(p, x, y), best = 0;
  if (count < 0) return status_fail(STATUS_FAULT, "out of memory for the Gaussian process");
  if (count < 2) return sampler_next_random(p, point), STATUS_OK;
  if (!standardise(y, count) || !gp_fit(&sampler->gp, x, y, count))
    return status_fail(STATUS_FAULT, "out of memory for the Gaussian process");
  double unit[SPACE_MOST];
  for (int i = 1; i < count; i++)
    if (y[i] < y[best]) best = i;
  for (int d = 0; d < space->count; d++) {
    const Dim *dim = &space->dim[d];
    double at = x[(long)best * space->count + d];
    unit[d] =
        dim->kind == DIM_CHOICE && !dim->is_ordered ? at < 0 ? 0.5 : dim_to_unit(dim, at) : at;
  }
  Acquisition a = {&sampler->gp, y[best], space, NULL};
  if (!add_running(sampler, p, y[best]))
    return status_fail(STATUS_FAULT, "out of memory for the Gaussian process");
  return best_of(&a, p, unit, point);
}

Status sampler_next_gp(Sampler *sampler, const Proposal *p, double *point) {
  const Space *space = sampler->space;
  if (proposal_finished(p) < SAMPLER_FIRST) {
    sobol_allowed(p, p->number, point); /* more even than drawn ones */
    return STATUS_OK;
  }
  if (!sampler->has_gp) {
    bool is_apart[GP_MOST_DIMS];
    for (int i = 0; i < space->count; i++)
      is_apart[i] = space->dim[i].kind == DIM_CHOICE && !space->dim[i].is_ordered;
    gp_init(&sampler->gp, space->count, is_apart);
    sampler->has_gp = true;
  }
  double *x = malloc((size_t)p->count * (size_t)space->count * sizeof *x),
         *y = malloc((size_t)p->count * sizeof *y);
  Status status = x && y ? propose_by_model(sampler, p, x, y, point)
                         : status_fail(STATUS_FAULT, "out of memory for the Gaussian process");
  free(x);
  free(y);
  return status;
}
