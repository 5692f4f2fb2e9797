/* recipe_groups: settings of some parameters only: `weight_decay = 0.1 on rank >= 2`,
 * `lr = 0.1x on "head.*"`, `optimizer = muon(...) on not "wte*"`. A rule becomes a factor on the
 * setting, which a parameter carries as an attribute, so that the setting itself may still change
 * from run to run. Later rules win over earlier ones. */
#include "frontend/recipe.h"
#include "plan/step_form.h"
#include <fnmatch.h>
#include <string.h>

static const char *const usage =
    "a name pattern such as \"*.bias\", a comparison of rank or size such as rank >= 2, or these "
    "with and, or, not";

/* ── conditions ───────────────────────────────────────────────────────────────────────────── */
typedef struct {
  const char *name;
  int64_t rank, size;
} Subject;

static bool matches(Builder *b, const Ast *condition, const Subject *subject, bool *out);

static bool groups_operand(Builder *b, const Ast *ast, const Subject *subject, double *out) {
  if (ast->kind == AST_NAME && strcmp(ast->name, "rank") == 0)
    return *out = (double)subject->rank, true;
  if (ast->kind == AST_NAME && strcmp(ast->name, "size") == 0)
    return *out = (double)subject->size, true;
  Value v = eval(b, ast);
  if (v.kind == VALUE_ERROR) return false;
  if (!value_is_number(&v))
    return builder_fail(b, ast->loc, "rank and size are compared with numbers, not with %s",
                        value_describe(b->arena, &v));
  *out = value_number(&v);
  return true;
}

static bool is_property(const Ast *ast) {
  return ast->kind == AST_NAME && (!strcmp(ast->name, "rank") || !strcmp(ast->name, "size"));
}

static bool groups_compare(Builder *b, const Ast *ast, const Subject *subject, bool *out) {
  static const char *const operators[] = {"==", "!=", "<", "<=", ">", ">="};
  double left, right;
  int which = 0;
  while (which < 6 && strcmp(operators[which], ast->name) != 0) which++;
  if (which == 6 || (!is_property(ast->kid[0]) && !is_property(ast->kid[1])))
    return builder_fail(b, ast->loc, "`on` takes %s", usage);
  if (!groups_operand(b, ast->kid[0], subject, &left) ||
      !groups_operand(b, ast->kid[1], subject, &right))
    return false;
  const bool results[] = {left == right, left != right, left<right, left <= right, left> right,
                          left >= right};
  *out = results[which];
  return true;
}

static bool any_of(Builder *b, const Ast *ast, const Subject *subject, bool *out) {
  bool fine = true;
  *out = false;
  for (int i = 0; i < ast->count; i++) {
    bool one = false;
    fine = matches(b, ast->kid[i], subject, &one) && fine;
    *out |= one;
  }
  return fine;
}

/* Every part is looked at for every parameter: mistakes show at once. */
static bool matches(Builder *b, const Ast *ast, const Subject *subject, bool *out) {
  bool left = false, right = false;
  switch (ast->kind) {
  case AST_STRING:
    *out = fnmatch(ast->name, subject->name, 0) == 0;
    return true;
  case AST_BOOL:
    *out = ast->integer != 0;
    return true;
  case AST_TUPLE:
  case AST_LIST:
    return any_of(b, ast, subject, out);
  case AST_UNARY:
    if (strcmp(ast->name, "not") != 0) break;
    if (!matches(b, ast->kid[0], subject, &left)) return false;
    *out = !left;
    return true;
  case AST_BINARY:
    if (strcmp(ast->name, "and") != 0 && strcmp(ast->name, "or") != 0)
      return groups_compare(b, ast, subject, out);
    if (!matches(b, ast->kid[0], subject, &left) || !matches(b, ast->kid[1], subject, &right))
      return false;
    *out = ast->name[0] == 'a' ? left && right : left || right;
    return true;
  default:
    break;
  }
  return builder_fail(b, ast->loc, "%s does not say which parameters: `on` takes %s",
                      ast_to_text(b->arena, ast), usage);
}

static bool groups_is_sound(Builder *b, const Ast *condition) {
  bool ignored;
  return matches(b, condition, &(Subject){"", 2, 4}, &ignored);
}

/* ── rules ────────────────────────────────────────────────────────────────────────────────── */
static bool add_rule(Builder *b, const char *key, const Ast *value, const Ast *condition) {
  GroupRule rule = {.key = key, .condition = condition, .loc = condition->loc};
  rule.is_factor = value->kind == AST_FACTOR;
  if (rule.is_factor) {
    rule.value = value->number;
  } else {
    Value v = eval(b, value);
    if (v.kind == VALUE_ERROR) return false;
    if (!value_is_number(&v) || value_number(&v) < 0)
      return builder_fail(b, value->loc, "%s must be a number from 0, or a factor such as 0.1x",
                          key);
    rule.value = value_number(&v);
  }
  if (!groups_is_sound(b, condition)) return false;
  VEC_PUSH(b->arena, b->group_rules, rule);
  return true;
}

static bool set_per(Builder *b, const char *key, const Ast *ast) {
  if (strcmp(key, "train.lr") != 0)
    return builder_fail(b, ast->loc, "`per` is for lr alone: lr = 0.1 per 256");
  Value v = eval(b, ast->kid[1]);
  int64_t samples;
  if (v.kind == VALUE_ERROR) return false;
  if (!value_to_int(&v, &samples) || samples < 1)
    return builder_fail(b, ast->kid[1]->loc, "lr is per a number of samples, not per %s",
                        value_describe(b->arena, &v));
  const char *text = arena_printf(b->arena, "%lld", (long long)samples);
  return recipe_set_ast(b, key, ast->kid[0]) &&
         recipe_set_text(b, "train.lr_per", text, ast->kid[1]->loc);
}

bool recipe_set_grouped(Builder *b, const char *key, const Ast *ast) {
  bool may_group = !strcmp(key, "train.lr") || !strcmp(key, "train.weight_decay");
  if (ast->kind == AST_PER) return set_per(b, key, ast);
  if (ast->kind == AST_FACTOR)
    return builder_fail(b, ast->loc, "%s is a factor for some parameters: %s on \"head.*\"",
                        ast_to_text(b->arena, ast), ast_to_text(b->arena, ast));
  if (ast->kind != AST_ON) return recipe_set_ast(b, key, ast);
  if (!may_group)
    return builder_fail(b, ast->loc, "only lr and weight_decay may differ between parameters");
  return add_rule(b, key, ast->kid[0], ast->kid[1]);
}

static const char freeze_key[] = "train.freeze";

static bool add_freeze(Builder *b, const Ast *condition, int rest) {
  GroupRule rule = {.key = freeze_key, .condition = condition, .loc = condition->loc, .rest = rest};
  if (!groups_is_sound(b, condition)) return false;
  VEC_PUSH(b->arena, b->group_rules, rule);
  return true;
}

bool recipe_moment(Builder *b, const char *what, const Ast *ast, Moment *out) {
  Value v = eval(b, ast);
  bool is_steps = v.kind == VALUE_DURATION && !strcmp(v.unit, "step");
  out->is_share = value_is_number(&v) && value_number(&v) >= 0 && value_number(&v) < 1;
  if (v.kind == VALUE_ERROR) return false;
  if (!is_steps && !out->is_share)
    return builder_fail(b, ast->loc, "%s takes a share of all steps below 1, such as 0.3, or a number of steps, such as 200 steps, not %s", what,
                        value_describe(b->arena, &v));
  out->text = is_steps ? arena_printf(b->arena, "%lld", (long long)v.i) : arena_printf(b->arena, "%.17g", value_number(&v));
  return true;
}

/* rate=cosine, which all after(...) of a recipe share. NULL: this one, the number `rest`, says nothing. */
static bool freeze_rate(Builder *b, const Ast *call, const Ast *rate, int rest) {
  static const char *const names[] = {"rate"};
  if (rate && strcmp(rate->name, "rate") != 0)
    return builder_fail(b, rate->loc, "after has no argument '%s'%s", rate->name, builder_hint(b, rate->name, names, 1));
  const char *text = rate ? ast_to_text(b->arena, rate->kid[0]) : "constant";
  if (rest == 1) b->rest_rate = text;
  if (strcmp(b->rest_rate, text) != 0)
    return builder_fail(b, rate ? rate->loc : call->loc, "all after(...) of a recipe have one rate, and this one's is %s in place of %s", text,
                        b->rest_rate);
  return rest > 1 || !rate || recipe_choice(b, "freeze.rate", rate->kid[0]);
}

/* after(0.3, "stem.*", ...), after(200 steps, ..., rate=cosine): one more word of train.freeze. */
static bool freeze_after(Builder *b, const Ast *call, int rest, Text *when) {
  const Ast *last = call->kid[call->count - 1], *rate = last->kind == AST_KEYWORD ? last : NULL;
  int count = rate ? call->count - 1 : call->count;
  if (count < 3)
    return builder_fail(b, call->loc, "after says when and which: after(0.3, \"stem.*\"), after(200 steps, \"stem.*\")");
  Moment at;
  bool fine = true;
  if (!recipe_moment(b, "after", call->kid[1], &at)) return false;
  const char *unit = at.is_share ? "share" : "step";
  if (when->count && strncmp(text_cstr(when), unit, strlen(unit)) != 0)
    return builder_fail(b, call->kid[1]->loc, "all after(...) of a recipe take shares of all steps, or all take steps");
  text_printf(when, "%s %s", when->count ? "" : unit, at.text);
  for (int i = 2; i < count; i++) fine = add_freeze(b, call->kid[i], rest) && fine;
  return freeze_rate(b, call, rate, rest) && fine;
}

/* A condition, after(...), or several of both. */
bool recipe_freeze(Builder *b, const Ast *ast) {
  RestRule rule;
  bool is_list = false, fine = true;
  for (int i = 0; (ast->kind == AST_TUPLE || ast->kind == AST_LIST) && i < ast->count; i++)
    is_list |= ast_is_call_of(ast->kid[i], "after");
  int count = is_list ? ast->count : 1, rests = 0;
  Text when = {0};
  if (ast->kind == AST_NONE) return true;
  for (int i = 0; i < count; i++) {
    const Ast *one = is_list ? ast->kid[i] : ast;
    fine = (ast_is_call_of(one, "after") ? freeze_after(b, one, ++rests, &when) : add_freeze(b, one, 0)) && fine;
  }
  if (fine && rests && !rest_read(text_cstr(&when), &rule))
    fine = builder_fail(b, ast->loc, "freeze has up to %d after(...), each later than the one before", PLAN_MOST_RESTS);
  if (fine && rests) fine = recipe_set_text(b, rest_key, arena_strdup(b->arena, text_cstr(&when)), ast->loc);
  b->rest_count = fine ? rests : 0;
  text_free(&when);
  return fine;
}

bool recipe_check_freeze(Builder *b) {
  const SettingValue *settings = b->program->settings;
  const char *text = setting_text(settings, rest_key);
  Loc loc = setting_loc(settings, rest_key);
  RestRule rule;
  if (!rest_read(text, &rule)) return builder_fail(b, loc, "%s is %s, not '%s'", rest_key, rest_usage, text);
  if (rule.count != b->rest_count)
    return builder_fail(b, loc, "%s = %s says when %d group%s of parameters come%s to rest, and the recipe's freeze = after(...) has %d",
                        rest_key, text, rule.count, rule.count == 1 ? "" : "s", rule.count == 1 ? "s" : "", b->rest_count);
  const char *rate = setting_text(settings, rest_rate_key);
  bool is_constant = !strcmp(rate, "constant");
  if (!rule.count && !is_constant)
    return builder_fail(b, setting_loc(settings, rest_rate_key), "%s = %s is the rate of groups that come to rest, and the recipe has no freeze = after(...)",
                        rest_rate_key, rate);
  if (!rule.count) return true;
  if (!is_constant && !strcmp(setting_text(settings, "train.schedule"), "onecycle"))
    return builder_fail(b, setting_loc(settings, rest_rate_key), "rate = %s falls from the first step on, or from its warmup on, and schedule = onecycle "
                        "rises first: say schedule = cosine(warmup=...) or leave out the rate", rate);
  const char *other = setting_pipeline(settings) > 1           ? "distributed.pipeline"
                      : setting_tensor(settings) > 1           ? "distributed.tensor"
                      : strcmp(setting_text(settings, recipe_prune_key), "none") ? "prune"
                      : recipe_chosen_optimizer(b)->rest[0]    ? "optimizer = muon"
                      : setting_number(settings, "train.log.layers") ? "log { layers }"
                      : setting_parts(settings) > 1 && setting_averages(settings)
                          ? "distributed.zero with an average of the weights"
                          : NULL;
  return !other || builder_fail(b, loc, "freeze = after(...) and %s do not go together: leave out one of the two", other);
}

bool recipe_prune_on(Builder *b, const Ast *condition) {
  GroupRule rule = {.key = recipe_prune_key, .condition = condition, .loc = condition->loc};
  if (!groups_is_sound(b, condition)) return false;
  VEC_PUSH(b->arena, b->group_rules, rule);
  b->prune_has_rule = true;
  return true;
}

bool recipe_matrices_on(Builder *b, const Ast *condition) {
  b->matrix_condition = condition;
  return groups_is_sound(b, condition);
}

/* The setting is what a parameter without a rule has (0 freezes those); a weight decay that is only
 * given `on` something is 0 elsewhere, and the setting is then the first of the rules'. */
static bool resolve(Builder *b, const char *key, double *rest_factor) {
  SettingValue *setting = &b->program->settings[setting_find(key)];
  bool is_decay = strcmp(key, "train.weight_decay") == 0;
  double rest = setting->number, base = 0;
  GroupRule *first = NULL;
  for (int i = 0; i < b->group_rules.count; i++) {
    GroupRule *rule = &b->group_rules.at[i];
    if (strcmp(rule->key, key) != 0 || rule->is_factor) continue;
    if (!first || (first->value == 0 && rule->value != 0)) first = rule;
  }
  *rest_factor = 1;
  if (!first) return true; /* factors only: they need no base */
  if (is_decay && !setting->is_set) rest = 0;
  base = rest != 0 ? rest : first->value;
  *rest_factor = base != 0 ? rest / base : 1;
  for (int i = 0; i < b->group_rules.count; i++) {
    GroupRule *rule = &b->group_rules.at[i];
    if (strcmp(rule->key, key) != 0) continue;
    rule->value = rule->is_factor ? rule->value * *rest_factor : base != 0 ? rule->value / base : 1;
    rule->is_factor = true;
  }
  return recipe_set_text(b, key, arena_printf(b->arena, "%.17g", base), first->loc);
}

bool recipe_resolve_groups(Builder *b) {
  bool fine = resolve(b, "train.lr", &b->rest_factor[0]);
  return resolve(b, "train.weight_decay", &b->rest_factor[1]) && fine;
}

/* ── parameters ───────────────────────────────────────────────────────────────────────────── */
static void apply_matrix(Builder *b, Node *param, const Subject *subject) {
  bool wanted = subject->rank == 2 && subject->size > 0;
  const OptimizerInfo *optimizer = recipe_chosen_optimizer(b);
  if (!optimizer->rest[0]) return;
  if (b->matrix_condition && !matches(b, b->matrix_condition, subject, &wanted)) return;
  if (wanted && (subject->rank != 2 || subject->size == 0)) {
    char text[TYPE_TEXT];
    diag_error(b->diag, b->matrix_condition->loc,
               "%s trains matrices, and '%s' is %s; add `and rank == 2`", optimizer->name,
               subject->name, type_text(&param->type, text));
    b->matrix_condition = NULL; /* said once */
    return;
  }
  if (wanted) node_set_attr(b->graph, param, attr_bool(ATTR_AS_MATRIX, true));
}

void recipe_apply_groups(Builder *b, Node *param) {
  const Subject subject = {node_str(param, ATTR_NAME), param->type.shape.rank,
                           shape_elements(&param->type.shape)};
  double lr = b->rest_factor[0], decay = b->rest_factor[1];
  bool is_frozen = statistics_only(b), is_pruned = false;
  int rest = 0;
  for (int i = 0; i < b->group_rules.count; i++) {
    GroupRule *rule = &b->group_rules.at[i];
    bool applies = false;
    if (!matches(b, rule->condition, &subject, &applies)) return;
    if (!applies) continue;
    rule->uses++;
    if (rule->key == freeze_key && rule->rest)
      rest = rest && rest < rule->rest ? rest : rule->rest;
    else if (rule->key == freeze_key)
      is_frozen = true;
    else if (rule->key == recipe_prune_key)
      is_pruned = true;
    else
      *(strcmp(rule->key, "train.lr") == 0 ? &lr : &decay) = rule->value;
  }
  if (is_frozen) lr = 0;
  if (rest && lr != 0) node_set_attr(b->graph, param, attr_int(ATTR_REST, rest));
  if (lr != 1) node_set_attr(b->graph, param, attr_float(ATTR_LR_FACTOR, lr));
  if (decay != 1) node_set_attr(b->graph, param, attr_float(ATTR_DECAY_FACTOR, decay));
  if (lr != 0) apply_matrix(b, param, &subject); /* what is frozen costs no iterations */
  recipe_apply_prune(b, param, is_pruned, lr == 0);
}

/* The first pattern of a condition; NULL if it has none. */
static const Ast *pattern_of(const Ast *ast) {
  if (ast->kind == AST_STRING) return ast;
  for (int i = 0; i < ast->count; i++) {
    const Ast *found = ast->kid[i] ? pattern_of(ast->kid[i]) : NULL;
    if (found) return found;
  }
  return NULL;
}

/* A training in which nothing trains any more is over. */
static bool check_rests(Builder *b) {
  for (int i = 0; i < b->declared.count && b->rest_count; i++) {
    const Node *param = b->declared.at[i].node;
    if (param->op == OP_PARAM && !node_is_frozen(param) && !node_attr(param, ATTR_REST)) return true;
  }
  return !b->rest_count || builder_fail(b, setting_loc(b->program->settings, rest_key),
                                        "freeze leaves nothing to train after the last after(...): let some layers train to the end");
}

bool recipe_check_groups(Builder *b) {
  bool fine = check_rests(b);
  for (int i = 0; i < b->group_rules.count; i++) {
    const GroupRule *rule = &b->group_rules.at[i];
    const Ast *pattern = pattern_of(rule->condition);
    if (rule->uses || !pattern) continue;
    VEC(const char *) names = {0};
    for (int k = 0; k < b->declared.count; k++)
      if (b->declared.at[k].node->op == OP_PARAM) VEC_PUSH(b->arena, names, b->declared.at[k].name);
    fine = builder_fail(b, rule->loc, "no parameter is meant by `%s %s`%s",
                        rule->key == freeze_key ? "freeze =" : "on",
                        ast_to_text(b->arena, rule->condition),
                        builder_hint(b, pattern->name, names.at, names.count));
    if (names.count)
      builder_note(b, (Loc){0}, "the parameters are called %s%s%s%s", names.at[0],
                   names.count > 1 ? ", " : "", names.count > 1 ? names.at[1] : "",
                   names.count > 2 ? ", ...: ftc --summary shows them" : "");
  }
  return fine;
}
