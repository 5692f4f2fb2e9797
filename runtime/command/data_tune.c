/* data_tune: see data_tune.h. */
#include "runtime/command/data_tune.h"

enum { LEAST_STEPS = 20, LEAST_PREFETCH = 4 };
static const double least_seconds = 0.2, small_share = 0.02, least_gain = 0.02;

DataTune data_tune_start(bool has_workers, bool has_prefetch, int workers, int prefetch,
                         int most_workers) {
  return (DataTune){.has_workers = has_workers,
                    .has_prefetch = has_prefetch,
                    .workers = workers,
                    .prefetch = prefetch,
                    .most_workers = most_workers,
                    .is_over = !has_workers && !has_prefetch};
}

static bool take_back(DataTune *tune) {
  tune->is_over = true;
  tune->workers = tune->workers_before;
  tune->prefetch = tune->prefetch_before;
  return true;
}

/* False: there is nothing left to change. */
static bool tune_grow(DataTune *tune, double step) {
  int workers = tune->workers ? 2 * tune->workers : 1;
  if (workers > tune->most_workers) workers = tune->most_workers;
  if (!tune->has_workers || workers < tune->workers) workers = tune->workers;
  int wanted = tune->has_workers ? 2 * workers : 2 * tune->prefetch;
  if (wanted < LEAST_PREFETCH) wanted = LEAST_PREFETCH;
  if (wanted > DATA_TUNE_MOST_PREFETCH) wanted = DATA_TUNE_MOST_PREFETCH;
  int prefetch = tune->has_prefetch && wanted > tune->prefetch ? wanted : tune->prefetch;
  if (workers == tune->workers && (prefetch == tune->prefetch || !workers)) return false;
  tune->workers_before = tune->workers;
  tune->prefetch_before = tune->prefetch;
  tune->step_before = step;
  tune->workers = workers;
  tune->prefetch = prefetch;
  return true;
}

bool data_tune_note(DataTune *tune, int64_t steps, double took, double waited) {
  if (tune->is_over) return false;
  tune->steps += steps;
  tune->took += took;
  tune->waited += waited;
  if (tune->steps < LEAST_STEPS || tune->took < least_seconds) return false;
  double step = tune->took / (double)tune->steps;
  tune->share = tune->waited / tune->took;
  tune->steps = 0;
  tune->took = tune->waited = 0;
  if (tune->step_before > 0 && step > (1 - least_gain) * tune->step_before) return take_back(tune);
  bool has_grown = tune->share > small_share && tune_grow(tune, step);
  tune->is_over = !has_grown;
  return has_grown;
}
