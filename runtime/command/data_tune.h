/* data_tune: data.workers = auto and data.prefetch = auto, by measurement while training. The order
 * of the samples does not depend on either (loader.h), so nothing that is trained does.
 *
 * The rule: after 20 steps, at least a fifth of a second of them, the share of the time that steps
 * waited for their batches is looked at. Where it is above 2 % workers are doubled (none becomes
 * one), up to the cores that this process may use, and prefetch is made twice as many, 4 to 32. A
 * change after which steps are not 2 % faster is taken back, and that is the end; so it is once the
 * share is at most 2 %, or there is nothing left to change. */
#ifndef FT_RUNTIME_DATA_TUNE_H
#define FT_RUNTIME_DATA_TUNE_H
#include "plan/plan.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct {
  bool has_workers, has_prefetch; /* which of the two may be changed */
  int workers, prefetch;          /* as they are now */
  int most_workers;
  bool is_over;
  int workers_before, prefetch_before; /* the last change; step_before 0: there was none */
  double step_before;                  /* seconds a step before it */
  double share;                        /* of waiting, as last looked at */
  int64_t steps;                       /* since the last look */
  double took, waited;                 /* seconds since then */
} DataTune;

enum { DATA_TUNE_MOST_PREFETCH = SETTING_MOST_AUTO_PREFETCH };
DataTune data_tune_start(bool has_workers, bool has_prefetch, int workers, int prefetch,
                         int most_workers);
/* After some steps that took so many seconds, of which they waited for batches; true: workers and
 * prefetch are others now. */
bool data_tune_note(DataTune *tune, int64_t steps, double took, double waited);
#endif
