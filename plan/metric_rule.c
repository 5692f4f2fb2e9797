/* metric_rule: see metric_rule.h. */
#include "plan/metric_rule.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

bool metric_rule_read(const char *text, MetricRule *out) {
  int end = 0;
  out->is_max = strncmp(text, "max(", 4) == 0;
  if (!out->is_max && strncmp(text, "min(", 4) != 0) return false;
  return sscanf(text + 4, "%31[^.].%211[^)])%n", out->split, out->name, &end) == 2 && end > 0 &&
         !text[4 + end];
}

bool metric_limit_read(const char *text, MetricLimit *out) {
  int end = 0;
  bool is_read = sscanf(text, " %31[^. <>=].%211[^ <>=()] %2[<>=] %lf %n", out->split, out->name,
                        out->compare, &out->limit, &end) == 4 &&
                 end > 0 && !text[end] && isfinite(out->limit);
  return is_read && (!strcmp(out->compare, ">") || !strcmp(out->compare, ">=") ||
                     !strcmp(out->compare, "<") || !strcmp(out->compare, "<="));
}

/* Numbers of an evaluation are f32: 0.45 of both must be equal. */
bool metric_limit_is_reached(const MetricLimit *limit, double value) {
  float number = (float)value, bound = (float)limit->limit;
  bool is_above = limit->compare[0] == '>', is_equal = limit->compare[1] && number == bound;
  return is_equal || (is_above ? number > bound : number < bound);
}
