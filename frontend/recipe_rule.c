/* recipe_rule: `best = max(valid.accuracy)` and the metric that a plateau follows name a number of
 * an evaluation. Whether there is such a number is known as soon as the model is built: found after
 * an epoch, the mistake would cost that epoch. ftrun asks again (runtime/command/rule.c), for
 * --set. */
#include "frontend/recipe.h"
#include <stdio.h>
#include <string.h>

typedef struct {
  const char *key, *text;
  Loc loc;
} Rule;

static bool rule_fail(Builder *b, const Rule *rule, const char *why) {
  diag_error(b->diag, rule->loc, "%s = %s: %s", strrchr(rule->key, '.') + 1, rule->text, why);
  return false;
}

static bool has_split(const Builder *b, const char *split) {
  for (int i = 0; i < b->program->sources.count; i++)
    if (strcmp(b->program->sources.at[i].split, split) == 0) return true;
  return false;
}

/* loss, metrics, and the same of averaged weights. */
static bool rule_check_name(Builder *b, const Rule *rule, const char *name) {
  VEC(const char *) names = {0};
  const Graph *graph = b->program->eval;
  bool is_averaged = setting_number(b->program->settings, "train.ema") != 0;
  for (int i = 0; i < graph->roots.count; i++) {
    const Root *root = &graph->roots.at[i];
    if (root->kind != ROOT_LOSS && root->kind != ROOT_METRIC) continue;
    VEC_PUSH(b->arena, names, root->name);
    if (is_averaged) VEC_PUSH(b->arena, names, arena_printf(b->arena, "ema_%s", root->name));
  }
  for (int i = 0; i < names.count; i++)
    if (strcmp(names.at[i], name) == 0) return true;
  return rule_fail(b, rule,
                   arena_printf(b->arena, "the model has no metric '%s'%s", name,
                                builder_hint(b, name, names.at, names.count)));
}

static bool recipe_check(Builder *b, const Rule *rule) {
  char split[32], name[212];
  int end = 0;
  const char *text = rule->text;
  bool is_read = (!strncmp(text, "max(", 4) || !strncmp(text, "min(", 4)) &&
                 sscanf(text + 4, "%31[^.].%211[^)])%n", split, name, &end) == 2 && end > 0 &&
                 !text[4 + end];
  if (!is_read)
    return rule_fail(b, rule, "expected max(valid.accuracy), min(valid.loss) or the like");
  if (strcmp(split, "valid") != 0)
    return rule_fail(
        b, rule,
        arena_printf(b->arena,
                     "training evaluates valid, so it is max(valid.%s) or min(valid.%s), "
                     "not '%s'",
                     name, name, split));
  if (!rule_check_name(b, rule, name)) return false;
  if (b->program->sources.count && !has_split(b, "valid"))
    return rule_fail(b, rule, "the data block has no valid = ... to evaluate");
  return true;
}

bool recipe_check_rules(Builder *b) {
  const SettingValue *settings = b->program->settings;
  Rule best = {"train.checkpoint.best", setting_text(settings, "train.checkpoint.best"),
               b->best_loc};
  Rule metric = {"train.schedule.metric", setting_text(settings, "train.schedule.metric"),
                 b->metric_loc};
  bool fine = !best.text[0] || recipe_check(b, &best);
  if (fine && best.text[0] && setting_number(settings, "train.eval.every") == 0)
    fine = rule_fail(b, &best, "eval = none switches the evaluations off that it is chosen by");
  bool follows = strcmp(setting_text(settings, "train.schedule"), "plateau") == 0;
  return (!follows || recipe_check(b, &metric)) && fine;
}
