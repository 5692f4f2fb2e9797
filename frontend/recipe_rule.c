/* recipe_rule: `best = max(valid.accuracy)`, the metrics that a plateau and early stopping follow,
 * and `stop = reached(...)` name a number of an evaluation. Whether there is such a number is known as soon as the model is built: found after
 * an epoch, the mistake would cost that epoch. ftrun asks again (runtime/command/rule.c), for
 * --set. */
#include "frontend/recipe.h"
#include "plan/metric_rule.h"
#include <string.h>

enum { RULE_BEST, RULE_PLATEAU, RULE_EARLY, RULE_REACHED };
static const char *const rule_keys[RECIPE_RULES] = {
    "train.checkpoint.best", "train.schedule.metric", "train.stop.metric", "train.stop.reached"};

typedef struct {
  const char *key, *text;
  Loc loc;
} Rule;

Loc *recipe_rule_loc(Builder *b, const char *key) {
  for (int i = 0; i < RECIPE_RULES; i++)
    if (strcmp(rule_keys[i], key) == 0) return &b->rule_loc[i];
  return NULL;
}

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
  bool is_averaged = setting_averages(b->program->settings);
  for (int i = 0; i < graph->roots.count; i++) {
    const Root *root = &graph->roots.at[i];
    if (root->kind != ROOT_LOSS && root->kind != ROOT_METRIC && root->kind != ROOT_AUC) continue;
    bool is_meant = !strcmp(root->name, name) ||
                    (is_averaged && !strncmp(name, "ema_", 4) && !strcmp(root->name, name + 4));
    if (is_meant && root->kind == ROOT_METRIC && root->node->type.shape.rank > 0)
      return rule_fail(
          b, rule,
          arena_printf(b->arena,
                       "metric '%s' is more than one number; name one that is, such as "
                       "its mean(...)",
                       root->name));
    VEC_PUSH(b->arena, names, root->name);
    if (is_averaged) VEC_PUSH(b->arena, names, arena_printf(b->arena, "ema_%s", root->name));
  }
  for (int i = 0; i < names.count; i++)
    if (strcmp(names.at[i], name) == 0) return true;
  const char *hint = builder_hint(b, name, names.at, names.count);
  return rule_fail(b, rule,
                   arena_printf(b->arena, "the model has no metric '%s'%s", name,
                                *hint ? hint : "; `metric NAME = ...` in it declares one"));
}

/* Is it a rule, of what kind, and of which number? */
static bool rule_read(Builder *b, int kind, const Rule *rule, const char **split,
                      const char **name) {
  MetricRule *most = ARENA_ARRAY(b->arena, MetricRule, 1);
  MetricLimit *limit = ARENA_ARRAY(b->arena, MetricLimit, 1);
  bool is_limit = kind == RULE_REACHED;
  *split = is_limit ? limit->split : most->split;
  *name = is_limit ? limit->name : most->name;
  if (is_limit ? metric_limit_read(rule->text, limit) : metric_rule_read(rule->text, most))
    return true;
  return rule_fail(b, rule,
                   is_limit ? "expected valid.accuracy > 0.95 or the like"
                            : "expected max(valid.accuracy), min(valid.loss) or the like");
}

static bool recipe_check(Builder *b, int kind, const Rule *rule) {
  const char *split, *name;
  if (!rule_read(b, kind, rule, &split, &name)) return false;
  if (strcmp(split, "valid") != 0 && kind == RULE_REACHED)
    return rule_fail(b, rule,
                     arena_printf(b->arena, "training evaluates valid, so it is valid.%s, not '%s'",
                                  name, split));
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
  bool fine = true, follows = strcmp(setting_text(settings, "train.schedule"), "plateau") == 0;
  for (int i = 0; i < RECIPE_RULES; i++) {
    Rule rule = {rule_keys[i], setting_text(settings, rule_keys[i]), b->rule_loc[i]};
    if (i == RULE_PLATEAU ? !follows : !rule.text[0]) continue;
    bool is_fine = recipe_check(b, i, &rule);
    if (is_fine && i != RULE_PLATEAU && setting_number(settings, "train.eval.every") == 0)
      is_fine =
          rule_fail(b, &rule,
                    i == RULE_BEST ? "eval = none switches the evaluations off that it is chosen by"
                                   : "eval = none switches the evaluations off that it follows");
    fine = is_fine && fine;
  }
  return fine;
}
