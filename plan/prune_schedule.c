/* prune_schedule: see prune_schedule.h. */
#include "plan/prune_schedule.h"
#include "plan/prune_structure.h"
#include <math.h>

static double share_at(const SettingValue *settings, const PruneSchedule *s) {
  double last = setting_number(settings, "train.prune.sparsity"), initial = setting_number(settings, "train.prune.initial");
  double left = s->last >= s->end ? 0 : 1 - (double)(s->last - s->begin) / fmax((double)(s->end - s->begin), 1);
  return last + (initial - last) * left * left * left;
}

PruneSchedule prune_schedule(const SettingValue *settings, int64_t first, int64_t total) {
  PruneStructure structure = {.kind = PRUNE_ELEMENT};
  double begin = setting_number(settings, "train.prune.begin"), end = setting_number(settings, "train.prune.end");
  int64_t every = (int64_t)fmax(setting_number(settings, "train.prune.every"), 1);
  prune_structure_read(setting_text(settings, "train.prune.structure"), &structure);
  if (structure.kind == PRUNE_N_OF_M) begin = fmax(begin, 1);
  PruneSchedule s = {.begin = (int64_t)begin, .end = (int64_t)fmax(end > 0 ? end : floor(0.75 * (double)total), begin)};
  s.last = s.end <= total ? s.end : total < s.begin ? 0 : s.begin + (total - s.begin) / every * every;
  if (s.last <= first) s.last = 0;
  if (s.last) s.share = structure.kind == PRUNE_N_OF_M ? 1 : share_at(settings, &s);
  return s;
}
