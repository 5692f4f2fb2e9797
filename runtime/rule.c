/* rule: see rule.h. */
#include "runtime/rule.h"
#include <stdio.h>
#include <string.h>

Status rule_parse(const char *key, const char *text, Rule *out) {
  out->is_max = strncmp(text, "max(", 4) == 0;
  if ((out->is_max || strncmp(text, "min(", 4) == 0) &&
      sscanf(text + 4, "%31[^.].%95[^)])", out->split, out->name) == 2)
    return STATUS_OK;
  return status_fail(STATUS_USER, "%s=%s: expected max(valid.accuracy) or min(valid.loss)", key,
                     text);
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
