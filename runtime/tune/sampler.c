/* sampler: see sampler.h. Here what needs no model: random points, a sequence of low discrepancy, a grid. */
#include "runtime/tune/sampler_private.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const sampler_names[SAMPLER_KINDS] = {"gp",     "tpe",   "cma",
                                                         "random", "sobol", "grid"};

const char *sampler_name(SamplerKind kind) { return sampler_names[kind]; }

int sampler_find(const char *name) {
  for (int i = 0; i < SAMPLER_KINDS; i++)
    if (!strcmp(name, sampler_names[i])) return i;
  return -1;
}

Status sampler_new(SamplerKind kind, const Space *space, uint64_t seed, Sampler **out) {
  Sampler *sampler = calloc(1, sizeof *sampler);
  if (!sampler) return status_fail(STATUS_FAULT, "out of memory");
  *sampler = (Sampler){.kind = kind, .space = space, .seed = seed};
  sobol_prepare(&sampler->sobol);
  *out = sampler;
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

bool proposal_is_seen(const Proposal *proposal, const double *point) {
  for (int i = 0; i < proposal->count; i++)
    if (space_is_same(proposal->sampler->space, point, proposal->seen[i].point)) return true;
  return false;
}

void sampler_next_random(const Proposal *proposal, double *point) {
  const Space *space = proposal->sampler->space;
  double unit[SPACE_MOST];
  Random random = random_new(proposal->sampler->seed, (uint64_t)proposal->number, DRAW_UNIFORM);
  for (int tries = 0; tries < 100; tries++) { /* a small space may be used up */
    for (int i = 0; i < space->count; i++) unit[i] = random_unit(&random);
    space_from_unit(space, unit, point);
    if (!proposal_is_seen(proposal, point)) return;
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

/* The first point of the grid that nobody has, the last dimension running fastest; false: there is none left. Points that differ in
 * an inactive dimension only are one. */
static bool next_of_grid(const Proposal *proposal, int64_t size, double *point) {
  const Space *space = proposal->sampler->space;
  for (int64_t nth = 0; nth < size; nth++) {
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
                                           : dim->low + (double)digit[i] * dim->step;
    }
    if (!proposal_is_seen(proposal, point)) return true;
  }
  return false;
}

static void next_of_sobol(const Proposal *proposal, double *point) {
  const Space *space = proposal->sampler->space;
  double unit[SPACE_MOST];
  sobol_point(&proposal->sampler->sobol, space->count, proposal->sampler->seed, proposal->number,
              unit);
  space_from_unit(space, unit, point);
  if (proposal_is_seen(proposal, point)) sampler_next_random(proposal, point);
}

/* Numbers of six digits are as good, and people read them. */
static void shorten(const Space *space, double *point) {
  char text[40];
  for (int i = 0; i < space->count; i++) {
    const Dim *dim = &space->dim[i];
    if (dim->kind != DIM_REAL || dim->step > 0 || isnan(point[i])) continue;
    snprintf(text, sizeof text, "%.6g", point[i]);
    point[i] = fmin(fmax(strtod(text, NULL), dim->low), dim->high);
  }
}

Status sampler_next(Sampler *sampler, const Observation *seen, int count, int64_t number,
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
    next_of_sobol(&proposal, point);
    break;
  case SAMPLER_GRID:
    if (!size)
      return status_fail(STATUS_USER, "the sampler grid needs dimensions with a number of values: "
                                      "int(1, 8), range(0, 1, step=0.1), [64, 128]");
    return *is_over = !next_of_grid(&proposal, size, point), STATUS_OK;
  }
  if (status) return status;
  shorten(sampler->space, point);
  if (proposal_is_seen(&proposal, point)) sampler_next_random(&proposal, point);
  /* a small space may be all but used up */
  if (proposal_is_seen(&proposal, point) && size && size <= 1000000)
    *is_over = !next_of_grid(&proposal, size, point);
  return STATUS_OK;
}
