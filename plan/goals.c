/* goals: see goals.h. */
#include "plan/goals.h"
#include <stdio.h>
#include <string.h>

static bool goal_kind(const MetricRule *rule, GoalKind *kind) {
  static const struct {
    const char *split, *name;
    GoalKind kind;
  } all[] = {{"run", "seconds", GOAL_SECONDS},
             {"run", "samples_per_s", GOAL_RATE},
             {"model", "parameters", GOAL_PARAMETERS},
             {"model", "weight_bytes", GOAL_BYTES},
             {"model", "memory", GOAL_MEMORY}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (!strcmp(rule->split, all[i].split) && !strcmp(rule->name, all[i].name))
      return *kind = all[i].kind, true;
  *kind = GOAL_OF_LOG;
  return strcmp(rule->split, "run") != 0 && strcmp(rule->split, "model") != 0;
}

bool goals_read(const char *text, Goals *out, const char **wrong) {
  const char *at = text + strspn(text, " ");
  if (wrong) *wrong = at;
  out->count = 0;
  if (strlen(text) >= GOALS_TEXT) return false;
  for (;;) {
    char one[GOALS_TEXT];
    size_t length = strcspn(at, ",");
    if (wrong) *wrong = at;
    if (out->count == GOALS_MOST) return false;
    snprintf(one, sizeof one, "%.*s", (int)length, at);
    for (size_t i = strlen(one); i > 0 && one[i - 1] == ' '; i--) one[i - 1] = 0;
    Goal *goal = &out->goal[out->count];
    if (!metric_rule_read(one, &goal->rule) || !goal_kind(&goal->rule, &goal->kind)) return false;
    for (int i = 0; i < out->count; i++)
      if (!strcmp(out->goal[i].rule.split, goal->rule.split) &&
          !strcmp(out->goal[i].rule.name, goal->rule.name))
        return false;
    out->count++;
    if (!at[length]) return true;
    at += length + 1;
    at += strspn(at, " ");
  }
}
