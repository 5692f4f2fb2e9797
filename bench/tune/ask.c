/* ask: the samplers of `ftrun tune` as a shared library for bench/tune/run, which holds them against Optuna's. */
#include "runtime/tune/sampler.h"
#include <stdio.h>
#include <stdlib.h>

typedef struct {
  Space space;
  Sampler *sampler;
  int goals;
} Ask;

/* dims: texts as of --space. NULL: told on stderr. */
Ask *ask_open(const char *kind, const char *const *dims, int count, int goals, uint64_t seed) {
  Ask *ask = calloc(1, sizeof *ask);
  if (!ask) return NULL;
  for (int i = 0; i < count; i++)
    if (space_add(&ask->space, dims[i])) return fprintf(stderr, "%s\n", status_message()), NULL;
  int found = sampler_find(kind);
  if (found < 0 || sampler_new((SamplerKind)found, &ask->space, seed, &ask->sampler))
    return fprintf(stderr, "%s: no sampler\n", kind), NULL;
  ask->goals = goals;
  if (sampler_set_goals(ask->sampler, goals))
    return fprintf(stderr, "%s\n", status_message()), NULL;
  return ask;
}

/* points: [count][dims]; values: [count][goals]; states as TrialState. 0, or 1. */
int ask_next(Ask *ask, const double *points, const double *values, const int *states, int count,
             int64_t number, double *point) {
  Observation *seen = malloc((size_t)(count + 1) * sizeof *seen);
  if (!seen) return 1;
  for (int i = 0; i < count; i++)
    seen[i] = (Observation){points + (long)i * ask->space.count, values[i * ask->goals],
                            (TrialState)states[i], values + (long)i * ask->goals};
  bool is_over;
  Status status = sampler_next(ask->sampler, seen, count, number, point, &is_over);
  if (status) fprintf(stderr, "%s\n", status_message());
  free(seen);
  return status != STATUS_OK;
}

void ask_close(Ask *ask) {
  sampler_free(ask->sampler);
  space_free(&ask->space);
  free(ask);
}
