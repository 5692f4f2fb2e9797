/* train_setup: opening an artifact with the user's settings (declared in train.h). */
#define _GNU_SOURCE /* sched_getaffinity */
#include "runtime/command/train.h"
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

Status train_set(Plan *plan, const char *assignment) {
  const char *equals = strchr(assignment, '=');
  if (!equals || equals == assignment)
    return status_fail(STATUS_USER, "--set %s: expected key=value, for example train.lr=3e-4",
                       assignment);
  char *key = strndup(assignment, (size_t)(equals - assignment));
  if (!key) return status_errno(ENOMEM, "--set %s", assignment);
  int index = setting_find(key);
  Status status = STATUS_OK;
  const char *why = NULL;
  if (index < 0) {
    char hint[200];
    setting_hint(key, hint, sizeof hint);
    const char *advice = hint[0] ? hint
                         : !strncmp(key, "data.", 5)
                             ? "; the model's file names its data, --data DIR says where it lies"
                         : strchr(key, '.') ? ""
                                            : "; a hyper is set where the model is compiled: -D "
                                              "NAME=VALUE of ftc, or of ftrun MODEL.ft";
    status =
        status_fail(STATUS_USER, "--set %s: there is no setting '%s'%s", assignment, key, advice);
  } else if (setting_info[index].when == WHEN_STATIC) {
    status = status_fail(STATUS_USER,
                         "--set %s: %s shapes the compiled code; recompile with "
                         "ftc --set %s",
                         assignment, setting_info[index].key, assignment);
  } else if (setting_info[index].when == WHEN_DERIVED) {
    status = status_fail(STATUS_USER, "--set %s: %s is computed when the training starts",
                         assignment, key);
  } else if (!setting_set(plan->arena, plan->settings, index, setting_off(index, equals + 1), &why)) {
    status = status_fail(STATUS_USER, "--set %s: %s", assignment, why ? why : "a wrong value");
  } else {
    plan->settings[index].is_users = true;
  }
  free(key);
  return status;
}

/* torch.optim.SGD refuses the same. */
static Status check_nesterov(const Plan *plan) {
  const SettingValue *settings = plan->settings;
  bool is_nesterov = setting_number(settings, "train.nesterov") != 0 &&
                     optimizer_takes(setting_text(settings, "train.optimizer"), "dampening");
  if (!is_nesterov || (setting_number(settings, "train.momentum") != 0 &&
                       setting_number(settings, "train.dampening") == 0))
    return STATUS_OK;
  return status_fail(STATUS_USER,
                     "the model was compiled with nesterov, which needs a momentum and "
                     "no dampening: --set train.momentum=%g and train.dampening=%g "
                     "do not go with it",
                     setting_number(settings, "train.momentum"),
                     setting_number(settings, "train.dampening"));
}

static Status check_buffer(const Plan *plan, const char *key) {
  double value = setting_number(plan->settings, key);
  if (value == 0 || plan_reads_setting(plan, key)) return STATUS_OK;
  return status_fail(STATUS_USER,
                     "--set %s=%g: the model was compiled with 0 and has no memory for it; "
                     "recompile with ftc --set %s=%g",
                     key, value, key, value);
}

/* Settings that are 0 at compile time leave out what they need, and no graph reads them: a value
 * would do nothing. */
static Status check_buffers(const Plan *plan) {
  const OptimizerInfo *optimizer = optimizer_find(setting_text(plan->settings, "train.optimizer"));
  char list[64], key[80], *rest = NULL;
  STATUS_TRY(check_buffer(plan, "train.ema"));
  snprintf(list, sizeof list, "%s", optimizer ? optimizer->buffers : "");
  for (char *word = strtok_r(list, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    snprintf(key, sizeof key, "train.%s", word);
    STATUS_TRY(check_buffer(plan, key));
  }
  return STATUS_OK;
}

/* What --set gives and nothing reads, since the model was compiled without what it belongs to. */
static Status check_unread(const Plan *plan) {
  static const char prune[] = "train.prune.", quantize[] = "train.quantize.";
  for (int i = 0; i < setting_count; i++) {
    const char *key = setting_info[i].key, *needs = setting_needs(plan->settings, i);
    if (!plan->settings[i].is_users) continue;
    if (needs)
      return status_fail(STATUS_USER,
                         "--set %s: the model was compiled without what this belongs to, so it would do nothing; "
                         "recompile with ftc --set \"%s\" or the like, or as a line of its recipe",
                         key, needs);
    if (!strncmp(key, prune, sizeof prune - 1) && !plan_reads_setting(plan, key))
      return status_fail(STATUS_USER, "--set %s: the model was compiled with prune = %s and structure=%s, which have no such argument",
                         key, setting_text(plan->settings, "train.prune"), setting_text(plan->settings, "train.prune.structure"));
    if (!strncmp(key, quantize, sizeof quantize - 1) && !plan_reads_setting(plan, key))
      return status_fail(STATUS_USER, "--set %s: the model was compiled without it, so rounding and ranges are as they are; recompile with ftc --set %s=%g", key,
                         key, setting_number(plan->settings, key));
  }
  return STATUS_OK;
}

Status train_open(const RunOptions *options, Artifact **out) {
  STATUS_TRY(artifact_open(options->artifact, out));
  Status status = STATUS_OK;
  for (int i = 0; i < options->set_count && status == STATUS_OK; i++)
    status = train_set((*out)->plan, options->sets[i]);
  if (status == STATUS_OK && options->set_count) status = check_buffers((*out)->plan);
  if (status == STATUS_OK && options->set_count) status = check_unread((*out)->plan);
  if (status == STATUS_OK && options->set_count) status = check_nesterov((*out)->plan);
  if (status == STATUS_OK) return status;
  artifact_close(*out);
  *out = NULL;
  return status;
}

static int variable_number(const char *variable) {
  const char *value = getenv(variable);
  return value ? atoi(value) : 0;
}

int train_cores(int cores) {
  cpu_set_t set;
  if (cores > 0) return cores;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* Does the step leave a core to others? (pool_new counts its threads in the same way.) */
static bool has_spare_core(int threads, int cores) {
  cores = train_cores(cores);
  if (threads <= 0) threads = variable_number("FT_THREADS");
  if (threads <= 0) threads = variable_number("OMP_NUM_THREADS");
  return threads > 0 && threads < cores;
}

/* One worker is not worth its context switches (measured: 6 us a batch inline, a step of 120 us
 * lasts 124 with a worker) where it would only copy memory on a core that the step uses itself. */
int train_workers(const Plan *plan, const Source *source, int threads, int cores) {
  double wanted = setting_number(plan->settings, "data.workers");
  int workers = wanted == SETTING_AUTO ? 1 : (int)fmin(fmax(wanted, 0), 64);
  bool is_worth = workers > 1 || !source_is_cheap(source) || has_spare_core(threads, cores);
  return is_worth ? workers : 0;
}
