/* rule: see rule.h. */
#include "runtime/command/rule.h"
#include <stdio.h>
#include <string.h>

Status rule_parse(const char *key, const char *text, Rule *out) {
  int end = 0;
  out->is_max = strncmp(text, "max(", 4) == 0;
  if ((out->is_max || strncmp(text, "min(", 4) == 0) &&
      sscanf(text + 4, "%31[^.].%211[^)])%n", out->split, out->name, &end) == 2 && end > 0 &&
      !text[4 + end])
    return STATUS_OK;
  return status_fail(STATUS_USER, "%s=%s: expected max(valid.accuracy) or min(valid.loss)", key,
                     text);
}

static bool has_metric(const Exec *exec, const char *name) {
  bool is_averaged = exec_has_ema(exec) && strncmp(name, "ema_", 4) == 0;
  ExecGraph eval = exec_result_graph(exec, PROGRAMME_EVALUATE);
  for (int i = 0; i <= is_averaged; i++, name += 4)
    if (!strcmp(name, "loss") || exec_find_output(exec, eval, OUTPUT_METRIC, name) >= 0)
      return true;
  return false;
}

static Status rule_check_one(const Exec *exec, const char *key, bool has_valid) {
  const char *text = setting_text(exec_plan(exec)->settings, key);
  Rule rule;
  if (!text[0]) return STATUS_OK;
  STATUS_TRY(rule_parse(key, text, &rule));
  if (strcmp(rule.split, "valid") != 0)
    return status_fail(STATUS_USER, "%s=%s: training evaluates valid, not '%s'", key, text,
                       rule.split);
  if (!has_metric(exec, rule.name))
    return status_fail(STATUS_USER, "%s=%s: the model has no metric '%s'", key, text, rule.name);
  if (has_valid) return STATUS_OK;
  return status_fail(STATUS_USER,
                     "%s=%s follows evaluations: it needs valid data and "
                     "train.eval.every",
                     key, text);
}

Status rule_check(const Exec *exec, bool has_valid, bool has_plateau) {
  const SettingValue *settings = exec_plan(exec)->settings;
  if (setting_text(settings, "train.checkpoint.dir")[0])
    STATUS_TRY(rule_check_one(exec, "train.checkpoint.best", has_valid));
  return has_plateau ? rule_check_one(exec, "train.schedule.metric", has_valid) : STATUS_OK;
}

Status rule_value(const char *key, const Rule *rule, const LogStep *result, double *out) {
  *out = result->loss;
  if (strcmp(rule->name, "loss") == 0) return STATUS_OK;
  for (int i = 0; i < result->metric_count; i++) {
    if (strcmp(result->metric[i].name, rule->name) != 0) continue;
    *out = result->metric[i].value;
    return STATUS_OK;
  }
  return status_fail(STATUS_USER, "%s=%s(%s.%s): the model has no metric '%s'", key,
                     rule->is_max ? "max" : "min", rule->split, rule->name, rule->name);
}
