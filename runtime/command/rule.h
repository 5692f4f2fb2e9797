/* rule: "max(valid.accuracy)", "min(valid.loss)": which number of an evaluation counts, and which
 * way is better. For train.checkpoint.best and train.schedule.metric. */
#ifndef FT_RUNTIME_RULE_H
#define FT_RUNTIME_RULE_H
#include "runtime/execute/exec.h"
#include "runtime/command/log.h"

typedef struct {
  bool is_max;
  char split[32], name[212];
} Rule;

/* `key` is the setting that holds the text, for the message. */
STATUS_CHECKED Status rule_parse(const char *key, const char *text, Rule *out);
/* Before a training: do train.checkpoint.best and the metric of a plateau (if there is one) name
 * what an evaluation gives? has_valid: there will be evaluations. */
STATUS_CHECKED Status rule_check(const Exec *exec, bool has_valid, bool has_plateau);
/* The number that the rule means; an error if the model has no such metric. */
STATUS_CHECKED Status rule_value(const char *key, const Rule *rule, const LogStep *result,
                                 double *out);
#endif
