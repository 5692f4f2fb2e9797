/* metric_rule: the texts of settings that name a number of an evaluation: "max(valid.accuracy)",
 * "min(valid.loss)" (train.checkpoint.best, train.schedule.metric, train.stop.metric) and
 * "valid.accuracy > 0.95" (train.stop.reached). Whether there is such a number is another question:
 * frontend/recipe_rule.c and runtime/command/rule.c. */
#ifndef FT_PLAN_METRIC_RULE_H
#define FT_PLAN_METRIC_RULE_H
#include <stdbool.h>

enum { METRIC_RULE_TEXT = 256 /* any longer one names nothing */ };

typedef struct {
  bool is_max;
  char split[32], name[212];
} MetricRule;

typedef struct {
  char split[32], name[212], compare[3]; /* > >= < <= */
  double limit;
} MetricLimit;

/* False: it is no such text. */
bool metric_rule_read(const char *text, MetricRule *out);
bool metric_limit_read(const char *text, MetricLimit *out);
/* Not for a NaN. */
bool metric_limit_is_reached(const MetricLimit *limit, double value);
#endif
