/* train_prune: does a training with `prune` prune anything? (declared in train_state.h) */
#include "plan/prune_schedule.h"
#include "plan/prune_structure.h"
#include "runtime/command/train_state.h"
#include <string.h>

static bool is_prune_set(const Plan *plan) {
  bool is_set = false;
  for (int i = 0; i < setting_count; i++) is_set |= plan->settings[i].is_users && !strncmp(setting_info[i].key, "train.prune.", 12);
  return is_set;
}

static bool is_n_of_m(const Training *training) {
  PruneStructure structure;
  return prune_structure_read(train_text(training, "train.prune.structure"), &structure) && structure.kind == PRUNE_N_OF_M;
}

Status train_check_prune(Training *training, const CkptInfo *info, const char *used) {
  const char *kind = train_text(training, "train.prune");
  if (!strcmp(kind, "none") || !strcmp(kind, "zeros") || training->first_step >= training->total_steps) return STATUS_OK;
  PruneSchedule s = prune_schedule(training->plan->settings, training->first_step, training->total_steps);
  double wanted = train_number(training, "train.prune.sparsity");
  char when[96];
  snprintf(when, sizeof when, s.begin < s.end ? "after updates %lld to %lld" : "after update %lld", (long long)s.begin, (long long)s.end);
  if (!s.last && info && info->begins_pruning)
    return status_fail(STATUS_USER,
                       "%s comes from a training without pruning, and this one would prune nothing: it prunes %s, and goes on from %lld to "
                       "%lld; --set train.prune.begin=N --set train.prune.end=M say when",
                       used, when, (long long)training->first_step, (long long)training->total_steps);
  if (!s.last && (!info || is_prune_set(training->plan)))
    log_warn(training->log, "this training prunes nothing: prune chooses %s, and it goes from update %lld to %lld; --set train.prune.begin=N --set train.prune.end=M say when",
             when, (long long)training->first_step + 1, (long long)training->total_steps);
  else if (s.last && s.end > training->total_steps && s.share < wanted && !is_n_of_m(training))
    log_warn(training->log, "prune ends after update %lld, and this training after %lld: its last choice, after %lld, leaves %.3g of the weights 0, not %.3g",
             (long long)s.end, (long long)training->total_steps, (long long)s.last, s.share, wanted);
  return STATUS_OK;
}
