/* recipe_pipe: `| random_resized_crop(224) | hflip(p=0.3)` behind a data source, as
 * plan/transforms.def has it. What a chain makes of a sample is checked where the model's input is
 * declared: input.c. */
#include "frontend/recipe.h"
#include "plan/source_kind.h"
#include <string.h>

static bool is_pipe(const Ast *ast) {
  return ast && ast->kind == AST_BINARY && strcmp(ast->name, "|") == 0;
}

const Ast *recipe_pipe_head(const Ast *ast) {
  while (is_pipe(ast)) ast = ast->kid[0];
  return ast;
}

static bool no_transform(Builder *b, const Ast *at, const char *name, const DataSource *source) {
  const char *names[64];
  bool is_text = source_kind_find(source->kind)->form == SOURCE_TEXT;
  int count = 0;
  for (int i = 0; i < transform_kind_count; i++)
    if ((transform_kinds[i].where == TRANSFORM_TEXT) == is_text)
      names[count++] = transform_kinds[i].name;
  const char *list = hint_list(b, "there are", names, count);
  if (!name)
    return builder_fail(b, at->loc, "behind | stands a transform, %s%s",
                        is_text ? "pack or pad(128)" : "hflip or resize(256)", list);
  if (is_text ? transform_find(name) : transform_find_text(name))
    return builder_fail(b, at->loc, "%s is for %s, and %s is %s%s", name,
                        is_text ? "images" : "texts", source->kind, is_text ? "a text" : "none", list);
  const char *hint = builder_hint_as(b, FOREIGN_TRANSFORM, name, names, count);
  return builder_fail(b, at->loc, "unknown transform '%s'%s", name, *hint ? hint : list);
}

/* One number, or several in a tuple or list. *count -1: it is no such value. */
static bool pipe_numbers(Builder *b, const Ast *ast, TransformArgument *out) {
  Value v = eval(b, ast);
  if (v.kind == VALUE_ERROR) return false;
  bool is_list = v.kind == VALUE_TUPLE || v.kind == VALUE_LIST;
  int count = is_list ? v.count : 1;
  const Value *items = is_list ? v.items : &v;
  out->count = 0;
  if (count > TRANSFORM_NUMBERS) return true; /* refused by transform_check */
  for (int i = 0; i < count; i++) {
    if (!value_is_number(&items[i])) {
      out->count = 0;
      return true;
    }
    out->number[out->count++] = value_number(&items[i]);
  }
  return true;
}

static bool pipe_argument(Builder *b, const Ast *ast, const char *transform,
                          const TransformParameter *parameter, TransformArgument *out) {
  char buffer[96];
  *out = (TransformArgument){0};
  bool is_word = ast->kind == AST_NAME || ast->kind == AST_STRING;
  if (parameter->type == PARAMETER_FLAG) {
    Value v = eval(b, ast);
    if (v.kind == VALUE_ERROR) return false;
    if (v.kind == VALUE_BOOL) *out = (TransformArgument){1, {v.i ? 1 : 0}};
  } else if (parameter->type != PARAMETER_WORD) {
    if (!pipe_numbers(b, ast, out)) return false;
    if (!out->count) out->count = TRANSFORM_NUMBERS + 1; /* no such value */
  } else if (is_word || ast->kind == AST_BOOL) {
    const char *word = is_word ? ast->name : ast->integer ? "true" : "false";
    *out = (TransformArgument){1, {transform_which(parameter->words, word, strlen(word))}};
  }
  const char *takes = transform_check(parameter, out, buffer);
  return !takes ||
         builder_fail(b, ast->loc, "%s: %s must be %s", transform, parameter->name, takes);
}

static int pipe_parameter(Builder *b, const Ast *argument, const TransformKind *kind) {
  int count = transform_parameter_count(kind);
  const char *names[TRANSFORM_PARAMETERS];
  for (int i = 0; i < count; i++) {
    names[i] = kind->parameter[i].name;
    if (strcmp(names[i], argument->name) == 0) return i;
  }
  builder_fail(b, argument->loc, "%s has no argument '%s'%s", kind->name, argument->name,
               builder_hint(b, argument->name, names, count));
  return -1;
}

static bool pipe_arguments(Builder *b, const Ast *call, Transform *out) {
  const TransformKind *kind = out->kind;
  int count = transform_parameter_count(kind);
  bool is_given[TRANSFORM_PARAMETERS] = {0}, fine = true;
  for (int i = 1, next = 0; i < call->count; i++) {
    const Ast *argument = call->kid[i];
    bool is_named = argument->kind == AST_KEYWORD;
    int which = is_named ? pipe_parameter(b, argument, kind) : next++;
    if (which < 0) return false;
    if (which >= count)
      return builder_fail(b, argument->loc, "%s takes %d argument%s", kind->name, count,
                          count == 1 ? "" : "s");
    if (is_given[which])
      return builder_fail(b, argument->loc, "'%s' is given twice", kind->parameter[which].name);
    is_given[which] = true;
    fine = pipe_argument(b, is_named ? argument->kid[0] : argument, kind->name,
                         &kind->parameter[which], &out->argument[which]) &&
           fine;
  }
  for (int i = 0; i < count; i++) {
    const TransformParameter *parameter = &kind->parameter[i];
    if (is_given[i]) continue;
    if (parameter->is_needed)
      return builder_fail(b, call->loc, "%s needs %s: %s(%s=...)", kind->name, parameter->name,
                          kind->name, parameter->name);
    out->argument[i] = parameter->otherwise;
  }
  char buffer[96];
  const char *wrong = fine ? transform_check_together(out, buffer) : NULL;
  return wrong ? builder_fail(b, call->loc, "%s: %s", kind->name, wrong) : fine;
}

static bool pipe_transform(Builder *b, const Ast *ast, const DataSource *source, Transform *out) {
  const Ast *callee = ast->kind == AST_CALL ? ast->kid[0] : ast;
  bool is_text = source_kind_find(source->kind)->form == SOURCE_TEXT;
  if (callee->kind != AST_NAME) return no_transform(b, ast, NULL, source);
  out->kind = is_text ? transform_find_text(callee->name) : transform_find(callee->name);
  if (!out->kind) return no_transform(b, callee, callee->name, source);
  const Ast none = {.kind = AST_CALL, .loc = ast->loc, .count = 1};
  return pipe_arguments(b, ast->kind == AST_CALL ? ast : &none, out);
}

bool recipe_pipe(Builder *b, const Ast *ast, DataSource *source) {
  int count = 0;
  for (const Ast *at = ast; is_pipe(at); at = at->kid[0]) count++;
  if (count > LONGEST_CHAIN)
    return builder_fail(b, ast->loc, "more than %d transforms", LONGEST_CHAIN);
  Transform *chain = ARENA_ARRAY(b->arena, Transform, count + 1);
  const Ast *pipes[LONGEST_CHAIN];
  for (int i = count; i-- > 0; ast = ast->kid[0]) pipes[i] = ast;
  bool fine = true;
  for (int i = 0; i < count; i++) {
    const Ast *at = pipes[i]->kid[1];
    fine = pipe_transform(b, at, source, &chain[i]) && fine;
    char buffer[160];
    const char *wrong = fine ? transform_check_chain(chain, i + 1, buffer) : NULL;
    if (fine && !wrong && chain[i].kind->where == TRANSFORM_TRAIN && strcmp(source->split, "train") != 0)
      fine = builder_fail(b, at->loc, "%s is for training: leave it out of %s", chain[i].kind->name,
                          source->split);
    bool is_bucketed = fine && chain[i].kind == transform_find_text("pad") &&
                       transform_argument(&chain[i], "buckets")->count;
    if (is_bucketed && strcmp(source->split, "train") != 0)
      fine = builder_fail(b, at->loc,
                          "buckets are for training: evaluations take rows of one length, so leave them out of %s",
                          source->split);
    if (wrong) fine = builder_fail(b, at->loc, "%s", wrong);
  }
  source->transforms = chain;
  source->transform_count = fine ? count : 0;
  return fine;
}
