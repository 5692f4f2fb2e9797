/* rule: see rule.h. */
#include "runtime/command/rule.h"
#include <string.h>

Status rule_parse(const char *key, const char *text, MetricRule *out) {
  if (metric_rule_read(text, out)) return STATUS_OK;
  return status_fail(STATUS_USER, "%s=%s: expected max(valid.accuracy) or min(valid.loss)", key,
                     text);
}

Status rule_parse_limit(const char *key, const char *text, MetricLimit *out) {
  if (metric_limit_read(text, out)) return STATUS_OK;
  return status_fail(STATUS_USER, "%s=%s: expected a limit such as valid.accuracy > 0.95", key,
                     text);
}

/* *is_number: false of a row or table of them. */
static bool has_metric(const Exec *exec, const char *name, bool *is_number) {
  bool is_averaged = exec_has_ema(exec) && strncmp(name, "ema_", 4) == 0;
  ExecGraph eval = exec_result_graph(exec, PROGRAMME_EVALUATE);
  *is_number = true;
  for (int i = 0; i <= is_averaged; i++, name += 4) {
    int metric = exec_find_output(exec, eval, OUTPUT_METRIC, name);
    if (metric >= 0)
      *is_number = exec_graph_plan(exec, eval)->outputs.at[metric].type.shape.rank == 0;
    if (metric >= 0 || !strcmp(name, "loss") || exec_find_output(exec, eval, OUTPUT_AUC, name) >= 0)
      return true;
  }
  return false;
}

static Status check_name(const Exec *exec, const char *key, const char *split, const char *name,
                         bool has_valid) {
  const char *text = setting_text(exec_plan(exec)->settings, key);
  bool is_number;
  if (strcmp(split, "valid") != 0)
    return status_fail(STATUS_USER, "%s=%s: training evaluates valid, not '%s'", key, text, split);
  if (!has_metric(exec, name, &is_number))
    return status_fail(STATUS_USER, "%s=%s: the model has no metric '%s'", key, text, name);
  if (!is_number)
    return status_fail(STATUS_USER,
                       "%s=%s: metric '%s' is more than one number; name one that is, such as its "
                       "mean(...)",
                       key, text, name);
  if (has_valid) return STATUS_OK;
  return status_fail(STATUS_USER,
                     "%s=%s follows evaluations: it needs valid data and "
                     "train.eval.every",
                     key, text);
}

static Status rule_check_one(const Exec *exec, const char *key, bool has_valid) {
  const char *text = setting_text(exec_plan(exec)->settings, key);
  MetricRule rule;
  if (!text[0]) return STATUS_OK;
  STATUS_TRY(rule_parse(key, text, &rule));
  return check_name(exec, key, rule.split, rule.name, has_valid);
}

static Status check_limit(const Exec *exec, const char *key, bool has_valid) {
  const char *text = setting_text(exec_plan(exec)->settings, key);
  MetricLimit limit;
  if (!text[0]) return STATUS_OK;
  STATUS_TRY(rule_parse_limit(key, text, &limit));
  return check_name(exec, key, limit.split, limit.name, has_valid);
}

Status rule_check(const Exec *exec, bool has_valid, bool has_plateau) {
  const SettingValue *settings = exec_plan(exec)->settings;
  if (setting_text(settings, "train.checkpoint.dir")[0])
    STATUS_TRY(rule_check_one(exec, "train.checkpoint.best", has_valid));
  STATUS_TRY(rule_check_one(exec, "train.stop.metric", has_valid));
  STATUS_TRY(check_limit(exec, "train.stop.reached", has_valid));
  return has_plateau ? rule_check_one(exec, "train.schedule.metric", has_valid) : STATUS_OK;
}

Status rule_value(const char *key, const char *text, const char *name, const LogStep *result,
                  double *out) {
  *out = result->loss;
  if (strcmp(name, "loss") == 0) return STATUS_OK;
  for (int i = 0; i < result->metric_count; i++) {
    if (strcmp(result->metric[i].name, name) != 0) continue;
    *out = result->metric[i].value;
    return STATUS_OK;
  }
  return status_fail(STATUS_USER, "%s=%s: the model has no metric '%s'", key, text, name);
}
