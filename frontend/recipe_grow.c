/* recipe_grow: `grow = truncate(T, 64, 128, every=200 steps)`: what the first steps have less of, as the settings train.grow, train.grow.every and
 * train.grow.share (plan/grow_rule.h); variant.c builds the step for each size. */
#include "frontend/recipe.h"
#include "plan/grow_rule.h"
#include <string.h>

static bool grow_keyword(Builder *b, const Ast *argument) {
  bool is_every = !strcmp(argument->name, "every");
  if (is_every || !strcmp(argument->name, "share"))
    return recipe_set_ast(b, is_every ? "train.grow.every" : "train.grow.share", argument->kid[0]);
  return builder_fail(b, argument->loc, "grow has no argument '%s'; it has every and share", argument->name);
}

/* The name of a dimension stays, a size is evaluated. */
static bool grow_argument(Builder *b, const Ast *argument, bool is_name, Text *out) {
  int64_t size;
  if (argument->kind == AST_KEYWORD) return grow_keyword(b, argument);
  if (is_name && argument->kind != AST_NAME)
    return builder_fail(b, argument->loc, "grow begins with the name of a dimension of the model's inputs: %s", grow_usage);
  if (!is_name && !eval_int(b, argument, "a size", &size)) return false;
  if (text_cstr(out)[out->count - 1] != '(') text_printf(out, ", ");
  if (is_name)
    text_printf(out, "%s", argument->name);
  else
    text_printf(out, "%lld", (long long)size);
  return true;
}

bool recipe_grow(Builder *b, const Ast *ast) {
  Text text = {0};
  GrowRule rule;
  bool fine = true, is_call = ast->kind == AST_CALL && ast->kid[0]->kind == AST_NAME;
  bool is_batch = is_call && !strcmp(ast->kid[0]->name, grow_kind_text(GROW_BATCH));
  if (ast->kind == AST_NONE) return recipe_set_text(b, grow_key, "", ast->loc);
  if (is_call) text_printf(&text, "%s(", ast->kid[0]->name);
  for (int i = 1; is_call && i < ast->count; i++)
    fine = grow_argument(b, ast->kid[i], i == 1 && !is_batch, &text) && fine;
  text_printf(&text, is_call ? ")" : "?");
  if (fine && !grow_read(text_cstr(&text), &rule))
    fine = builder_fail(b, ast->loc, "grow is %s", grow_usage);
  else if (fine)
    fine = recipe_set_text(b, grow_key, arena_strdup(b->arena, text_cstr(&text)), ast->loc);
  text_free(&text);
  return fine;
}
