/* sampler: see sampler.h. Here what needs no model: random points, a sequence of low discrepancy, a grid. */
#include "runtime/tune/sampler_private.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const sampler_names[SAMPLER_KINDS] = {"gp",     "tpe",   "cma",
                                                         "random", "sobol", "grid"};

enum {
  RANDOM_TRIES = 100000,
  SCANNED = 1000000,     /* points of a space that are gone through for what is left */
  GRID_TRIES = 10000000, /* and of a grid with conditions */
};

const char *sampler_name(SamplerKind kind) { return sampler_names[kind]; }

int sampler_find(const char *name) {
  for (int i = 0; i < SAMPLER_KINDS; i++)
    if (!strcmp(name, sampler_names[i])) return i;
  return -1;
}

Status sampler_new(SamplerKind kind, const Space *space, uint64_t seed, Sampler **out) {
  Sampler *sampler = calloc(1, sizeof *sampler);
  if (!sampler) return status_fail(STATUS_FAULT, "out of memory");
  *sampler = (Sampler){.kind = kind, .space = space, .seed = seed, .goals = 1};
  sobol_prepare(&sampler->sobol);
  *out = sampler;
  return STATUS_OK;
}

Status sampler_set_goals(Sampler *sampler, int goals) {
  if (goals > 1 && sampler->kind == SAMPLER_CMA)
    return status_fail(STATUS_USER, "the sampler cma has one goal: take gp or tpe for several");
  sampler->goals = goals;
  return STATUS_OK;
}

void sampler_free(Sampler *sampler) {
  if (!sampler) return;
  gp_free(&sampler->gp);
  free(sampler);
}

double observation_value(const Observation *o) {
  bool has_value = o->state == TRIAL_COMPLETE || o->state == TRIAL_PRUNED;
  return has_value && isfinite(o->value) ? o->value : INFINITY;
}

int value_compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int proposal_finished(const Proposal *proposal) {
  int count = 0;
  for (int i = 0; i < proposal->count; i++) count += proposal->seen[i].state != TRIAL_RUNNING;
  return count;
}

bool proposal_is_free(const Proposal *proposal, const double *point) {
  if (!space_allows(proposal->sampler->space, point)) return false;
  for (int i = 0; i < proposal->count; i++)
    if (space_is_same(proposal->sampler->space, point, proposal->seen[i].point)) return false;
  return true;
}

void sampler_next_random(const Proposal *proposal, double *point) {
  const Space *space = proposal->sampler->space;
  double unit[SPACE_MOST];
  Random random = random_new(proposal->sampler->seed, (uint64_t)proposal->number, DRAW_UNIFORM);
  /* a small space may be used up, and one with conditions may have nothing, or hardly anything */
  for (int tries = 0, allowed = 0; tries < RANDOM_TRIES && allowed < 100; tries++) {
    for (int i = 0; i < space->count; i++) unit[i] = random_unit(&random);
    space_from_unit(space, unit, point);
    if (proposal_is_free(proposal, point)) return;
    allowed += space_allows(space, point);
  }
}

int64_t sampler_grid_size(const Space *space) {
  int64_t size = 1;
  for (int i = 0; i < space->count; i++) {
    int64_t values = dim_values(&space->dim[i]);
    if (!values || size > INT64_MAX / 2 / values) return 0;
    size *= values;
  }
  return size;
}

/* The first point of the grid that is allowed and nobody has, the last dimension running fastest; false: there is none left. Points
 * that differ in an inactive dimension only are one. */
static bool next_of_grid(const Proposal *proposal, int64_t size, double *point) {
  const Space *space = proposal->sampler->space;
  for (int64_t nth = 0; nth < size && (nth < GRID_TRIES || !space->where_count); nth++) {
    int64_t rest = nth, digit[SPACE_MOST];
    for (int i = space->count - 1; i >= 0; i--) {
      int64_t values = dim_values(&space->dim[i]);
      digit[i] = rest % values;
      rest /= values;
    }
    for (int i = 0; i < space->count; i++) {
      const Dim *dim = &space->dim[i];
      bool is_active = space_is_active(space, i, point);
      point[i] = !is_active                ? NAN
                 : dim->kind == DIM_CHOICE ? (double)digit[i]
                                           : dim_nth(dim, (double)digit[i]);
    }
    if (proposal_is_free(proposal, point)) return true;
  }
  return size > GRID_TRIES && space->where_count; /* with a point that is not allowed */
}

void sobol_allowed(const Proposal *proposal, int64_t nth, double *point) {
  const Sampler *sampler = proposal->sampler;
  const Space *space = sampler->space;
  double unit[SPACE_MOST];
  if (!space->where_count) {
    sobol_point(&sampler->sobol, space->count, sampler->seed, nth, unit);
    space_from_unit(space, unit, point);
    return;
  }
  for (int64_t i = 0; i < RANDOM_TRIES; i++) {
    sobol_point(&sampler->sobol, space->count, sampler->seed, i, unit);
    space_from_unit(space, unit, point);
    if (space_allows(space, point) && nth-- == 0) return;
  }
  sampler_next_random(proposal, point);
}

/* Numbers of six digits are as good, and people read them; but not beyond an end or a condition. */
static void shorten(const Space *space, double *point) {
  char text[40];
  for (int i = 0; i < space->count; i++) {
    const Dim *dim = &space->dim[i];
    if (dim->kind != DIM_REAL || dim->step > 0 || isnan(point[i])) continue;
    double whole = point[i];
    snprintf(text, sizeof text, "%.6g", whole);
    point[i] = fmin(fmax(strtod(text, NULL), dim->low), dim->high);
    if (!space_allows(space, point)) point[i] = whole;
  }
}

/* A space of few points has been gone through, one by one; of a larger one nobody knows. */
static Status fail_not_allowed(const Space *space) {
  return status_fail(STATUS_USER,
                     "no point has been found that --where %s%s allows: make the conditions wider, "
                     "or the ranges such that they are not needed",
                     space->where[0].text, space->where_count > 1 ? " (and the others)" : "");
}

/* Several goals as one value: by the weights of this proposal, even over their simplex, or by rank. Trials that run have none, and those
 * without all values, INFINITY, are the worst. False: no memory. */
static bool values_as_one(const Sampler *sampler, int64_t number, Observation *all, int count) {
  int goals = sampler->goals, finished = 0;
  size_t room = (size_t)count + 1;
  double *values = malloc(room * (size_t)goals * sizeof *values), *one = malloc(room * sizeof *one);
  int *rank = malloc(room * sizeof *rank), *of = malloc(room * sizeof *of);
  bool fine = values && one && rank && of;
  for (int i = 0; fine && i < count; i++) {
    const Observation *o = &all[i];
    if (o->state == TRIAL_RUNNING) continue;
    bool has_all = o->state == TRIAL_COMPLETE;
    for (int g = 0; g < goals; g++) has_all &= isfinite(o->values[g]);
    for (int g = 0; g < goals; g++)
      values[(long)finished * goals + g] = has_all ? o->values[g] : INFINITY;
    all[i].state = has_all ? TRIAL_COMPLETE : TRIAL_FAILED;
    of[finished++] = i;
  }
  if (fine && sampler->kind == SAMPLER_GP) {
    double weight[GOALS_MOST], sum = 0;
    Random random = random_new(sampler->seed, (uint64_t)number, DRAW_GOALS);
    for (int g = 0; g < goals; g++) sum += weight[g] = -log1p(-random_unit(&random));
    for (int g = 0; g < goals; g++) weight[g] /= sum;
    front_scalarise(values, finished, goals, weight, one);
  } else if (fine) {
    fine = front_rank(values, finished, goals, rank);
    for (int i = 0; fine && i < finished; i++) one[i] = rank[i];
  }
  for (int i = 0; fine && i < finished; i++) all[of[i]].value = one[i];
  free(values);
  free(one);
  free(rank);
  free(of);
  return fine;
}

static Status next_of_one_goal(Sampler *sampler, const Observation *seen, int count, int64_t number,
                      double *point, bool *is_over) {
  Proposal proposal = {sampler, seen, count, number};
  int64_t size = sampler_grid_size(sampler->space);
  Status status = STATUS_OK;
  *is_over = false;
  switch (sampler->kind) {
  case SAMPLER_GP:
    status = sampler_next_gp(sampler, &proposal, point);
    break;
  case SAMPLER_TPE:
    status = sampler_next_tpe(&proposal, point);
    break;
  case SAMPLER_CMA:
    status = sampler_next_cma(&proposal, point);
    break;
  case SAMPLER_RANDOM:
    sampler_next_random(&proposal, point);
    break;
  case SAMPLER_SOBOL:
    sobol_allowed(&proposal, number, point);
    break;
  case SAMPLER_GRID:
    if (!size)
      return status_fail(STATUS_USER, "the sampler grid needs dimensions with a number of values: "
                                      "int(1, 8), range(0, 1, step=0.1), [64, 128]");
    *is_over = !next_of_grid(&proposal, size, point);
    break;
  }
  if (status || *is_over) return status;
  shorten(sampler->space, point);
  if (!proposal_is_free(&proposal, point) && sampler->kind != SAMPLER_GRID)
    sampler_next_random(&proposal, point);
  /* a small space may be all but used up */
  if (!proposal_is_free(&proposal, point) && size && size <= SCANNED)
    *is_over = !next_of_grid(&proposal, size, point);
  if (!*is_over && !space_allows(sampler->space, point)) return fail_not_allowed(sampler->space);
  return STATUS_OK;
}

Status sampler_next(Sampler *sampler, const Observation *seen, int count, int64_t number,
                    double *point, bool *is_over) {
  bool has_model = sampler->kind == SAMPLER_GP || sampler->kind == SAMPLER_TPE;
  if (sampler->goals == 1 || !has_model || !count)
    return next_of_one_goal(sampler, seen, count, number, point, is_over);
  Observation *all = malloc((size_t)count * sizeof *all);
  Status status = STATUS_OK;
  if (all) memcpy(all, seen, (size_t)count * sizeof *all);
  if (!all || !values_as_one(sampler, number, all, count))
    status = status_fail(STATUS_FAULT, "out of memory");
  sampler->gp.fitted = 0; /* other weights, another function */
  if (!status) status = next_of_one_goal(sampler, all, count, number, point, is_over);
  free(all);
  return status;
}
