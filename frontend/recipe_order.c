/* recipe_order: in which order samples are trained on (plan/order_rule.h), from the data block. */
#include "frontend/recipe.h"
#include "plan/order_rule.h"
#include <string.h>

/* Names of inputs stay, all else is evaluated. */
static bool order_argument(Builder *b, const Ast *ast, Text *out) {
  const Ast *given = ast->kind == AST_KEYWORD ? ast->kid[0] : ast;
  if (ast->kind == AST_KEYWORD) text_printf(out, "%s=", ast->name);
  if (given->kind == AST_NAME && given == ast && !builder_find(b, given->name)) {
    text_printf(out, "%s", given->name);
    return true;
  }
  Value v = eval(b, given);
  if (v.kind == VALUE_ERROR) return false;
  if (v.kind == VALUE_STRING)
    text_printf(out, "\"%s\"", v.s);
  else if (value_is_number(&v))
    text_printf(out, "%.17g", value_number(&v));
  else
    return builder_fail(b, given->loc, "an order takes a name, a string or a number, not %s",
                        value_describe(b->arena, &v));
  return true;
}

static bool has_input(Builder *b, const Ast *at, const char *name, const Ast *model) {
  const Ast *inputs = model ? model->kid[0] : NULL;
  if (!inputs) return true;
  const char **names = ARENA_ARRAY(b->arena, const char *, inputs->count + 1);
  for (int i = 0; i < inputs->count; i++) {
    names[i] = inputs->kid[i]->name;
    if (!strcmp(names[i], name)) return true;
  }
  return builder_fail(b, at->loc, "model '%s' has no input '%s'%s", model->name, name,
                      builder_hint(b, name, names, inputs->count));
}

bool recipe_order(Builder *b, const Ast *ast, const Ast *model) {
  Text text = {0}, why = {0};
  OrderRule rule;
  bool fine = true, is_call = ast->kind == AST_CALL && ast->kid[0]->kind == AST_NAME;
  if (is_call) text_printf(&text, "%s(", ast->kid[0]->name);
  for (int i = 1; is_call && i < ast->count; i++) {
    if (i > 1) text_printf(&text, ", ");
    fine = order_argument(b, ast->kid[i], &text) && fine;
  }
  text_printf(&text, is_call ? ")" : "?");
  if (fine && ast->kind == AST_NONE)
    fine = recipe_set_text(b, "data.order", "", ast->loc);
  else if (fine && !order_rule_read(text_cstr(&text), &rule, &why))
    fine = builder_fail(b, ast->loc, "%s", text_cstr(&why));
  else if (fine && (rule.kind == ORDER_BALANCED || rule.kind == ORDER_OVERSAMPLED))
    fine = has_input(b, ast, rule.what, model) &&
           recipe_set_text(b, "data.order", arena_strdup(b->arena, text_cstr(&text)), ast->loc);
  else if (fine)
    fine = recipe_set_text(b, "data.order", arena_strdup(b->arena, text_cstr(&text)), ast->loc);
  text_free(&text);
  text_free(&why);
  return fine;
}
