/* recipe_stop: `stop = early(metric=min(valid.loss), patience=5) or reached(valid.accuracy > 0.95)`:
 * when a training ends before its last step, as the settings train.stop.*. */
#include "frontend/recipe.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char form[] = "stop is early(metric=min(valid.loss), patience=10), "
                           "reached(valid.accuracy > 0.95), or both with `or` between them";

static bool early_argument(Builder *b, const Ast *argument) {
  static const char *const names[] = {"metric", "patience", "threshold"};
  if (argument->kind != AST_KEYWORD)
    return builder_fail(b, argument->loc, "the arguments of early have names: early(patience=...)");
  for (int i = 0; i < 3; i++) {
    if (strcmp(argument->name, names[i]) != 0) continue;
    const char *key = arena_printf(b->arena, "train.stop.%s", names[i]);
    return i == 0 ? recipe_set_metric(b, key, "metric", argument->kid[0])
                  : recipe_set_ast(b, key, argument->kid[0]);
  }
  return builder_fail(b, argument->loc, "early has no argument '%s'%s", argument->name,
                      builder_hint(b, argument->name, names, 3));
}

static bool stop_early(Builder *b, const Ast *ast) {
  bool fine = recipe_set_text(b, "train.stop.metric", "min(valid.loss)", ast->loc);
  *recipe_rule_loc(b, "train.stop.metric") = ast->loc;
  for (int i = 1; ast->kind == AST_CALL && i < ast->count; i++)
    fine = early_argument(b, ast->kid[i]) && fine;
  return fine;
}

/* The shortest text that reads back as the same number. */
static const char *number_text(Builder *b, double value) {
  for (int digits = 1; digits < 17; digits++) {
    const char *text = arena_printf(b->arena, "%.*g", digits, value);
    if (strtod(text, NULL) == value) return text;
  }
  return arena_printf(b->arena, "%.17g", value);
}

static bool stop_reached(Builder *b, const Ast *ast) {
  const Ast *limit = ast->kind == AST_CALL && ast->count == 2 ? ast->kid[1] : NULL;
  bool compares = limit && limit->kind == AST_BINARY && strchr("<>", limit->name[0]);
  const Ast *of = compares ? limit->kid[0] : NULL;
  if (!of || of->kind != AST_ATTRIBUTE || of->kid[0]->kind != AST_NAME)
    return builder_fail(b, ast->loc,
                        "reached compares a metric with a number: "
                        "reached(valid.accuracy > 0.95)");
  Value v = eval(b, limit->kid[1]);
  if (v.kind == VALUE_ERROR) return false;
  double number = v.kind == VALUE_INT ? (double)v.i : v.kind == VALUE_FLOAT ? v.f : NAN;
  if (!isfinite(number))
    return builder_fail(b, limit->kid[1]->loc, "valid.%s is compared with a number, not with %s",
                        of->name, value_describe(b->arena, &v));
  const char *text = arena_printf(b->arena, "%s.%s %s %s", of->kid[0]->name, of->name, limit->name,
                                  number_text(b, number));
  *recipe_rule_loc(b, "train.stop.reached") = limit->loc;
  return recipe_set_text(b, "train.stop.reached", text, ast->loc);
}

bool recipe_stop(Builder *b, const Ast *ast) {
  const Ast *callee = ast->kind == AST_CALL ? ast->kid[0] : ast;
  if (ast->kind == AST_NONE)
    return recipe_set_text(b, "train.stop.metric", "", ast->loc) &&
           recipe_set_text(b, "train.stop.reached", "", ast->loc);
  if (ast->kind == AST_BINARY && strcmp(ast->name, "or") == 0) {
    bool fine = recipe_stop(b, ast->kid[0]);
    return recipe_stop(b, ast->kid[1]) && fine;
  }
  if (callee->kind == AST_NAME && strcmp(callee->name, "early") == 0) return stop_early(b, ast);
  if (callee->kind == AST_NAME && strcmp(callee->name, "reached") == 0) return stop_reached(b, ast);
  return builder_fail(b, ast->loc, "%s", form);
}
