/* prune_schedule: after which updates a training prunes, and to what share: the closed form that its steps compute (passes/prune.c),
 * for those who want to know beforehand. */
#ifndef FT_PLAN_PRUNE_SCHEDULE_H
#define FT_PLAN_PRUNE_SCHEDULE_H
#include "plan/plan.h"

typedef struct {
  int64_t begin, end; /* updates done at the first choice and at the last */
  int64_t last;       /* the last choice after `first` and up to `total` updates; 0: there is none */
  double share;       /* that the last choice makes 0, from 0 to 1; of n:m, where the shares are not asked for: 1 */
} PruneSchedule;

/* Of a model whose train.prune is neither none nor zeros, in updates first + 1 to total. */
PruneSchedule prune_schedule(const SettingValue *settings, int64_t first, int64_t total);
#endif
