/* sampler: proposes the next point of a study from what the trials so far have shown. Values are minimised.
 * A proposal is a function of the space, the seed, the trial's number and the trials before it. */
#ifndef FT_RUNTIME_TUNE_SAMPLER_H
#define FT_RUNTIME_TUNE_SAMPLER_H
#include "runtime/tune/front.h"
#include "runtime/tune/space.h"

typedef enum {
  SAMPLER_GP,
  SAMPLER_TPE,
  SAMPLER_CMA,
  SAMPLER_RANDOM,
  SAMPLER_SOBOL,
  SAMPLER_GRID
} SamplerKind;
enum { SAMPLER_KINDS = SAMPLER_GRID + 1 };

typedef enum {
  TRIAL_RUNNING,
  TRIAL_COMPLETE,
  TRIAL_PRUNED, /* stopped early; its value is the last it had */
  TRIAL_FAILED, /* it has no value: a loss that is not finite, a fault */
} TrialState;

typedef struct {
  const double *point; /* Space.count values */
  double value;
  TrialState state;
  const double *values; /* of several goals, all of them; else not looked at */
} Observation;

/* INFINITY where it has none that is finite, or still runs. */
double observation_value(const Observation *observation);
/* For qsort of doubles. */
int value_compare(const void *a, const void *b);

typedef struct Sampler Sampler;

const char *sampler_name(SamplerKind kind);
int sampler_find(const char *name); /* -1: none */
STATUS_CHECKED Status sampler_new(SamplerKind kind, const Space *space, uint64_t seed,
                                  Sampler **out);
/* Several goals from now on (2 to GOALS_MOST): gp makes one number of them for each proposal, with other weights each time (ParEGO);
 * tpe ranks by fronts (Ozaki et al. 2020, "Multiobjective tree-structured Parzen estimator"). cma is refused. */
STATUS_CHECKED Status sampler_set_goals(Sampler *sampler, int goals);
void sampler_free(Sampler *sampler); /* NULL is fine */
/* The point of trial `number` (from 0), which none of `seen` has; *is_over: all points of the space have been seen. */
STATUS_CHECKED Status sampler_next(Sampler *sampler, const Observation *seen, int count,
                                   int64_t number, double *point, bool *is_over);
/* How many points a grid has, or 0 where a dimension has no finite number of values. */
int64_t sampler_grid_size(const Space *space);
#endif
