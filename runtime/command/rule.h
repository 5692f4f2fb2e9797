/* rule: the settings that name a number of an evaluation (plan/metric_rule.h), and its value. For
 * train.checkpoint.best, train.schedule.metric, train.stop.metric and train.stop.reached. */
#ifndef FT_RUNTIME_RULE_H
#define FT_RUNTIME_RULE_H
#include "plan/metric_rule.h"
#include "runtime/execute/exec.h"
#include "runtime/command/log.h"

/* `key` is the setting that holds the text, for the message. */
STATUS_CHECKED Status rule_parse(const char *key, const char *text, MetricRule *out);
STATUS_CHECKED Status rule_parse_limit(const char *key, const char *text, MetricLimit *out);
/* Before a training: do these settings (the metric of a plateau only if there is one) name what an
 * evaluation gives? has_valid: there will be evaluations. */
STATUS_CHECKED Status rule_check(const Exec *exec, bool has_valid, bool has_plateau);
/* The number of that name; an error if the model has no such metric. `key`, `text`: for it. */
STATUS_CHECKED Status rule_value(const char *key, const char *text, const char *name,
                                 const LogStep *result, double *out);
#endif
