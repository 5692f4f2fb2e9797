/* hint: what a message suggests in place of a word that is not known: ft's form of another tool's
 * word (base/foreign.def), or the nearest word of its own. */
#include "frontend/builder.h"
#include <string.h>

const char *builder_hint(Builder *b, const char *word, const char *const *names, int count) {
  const char *nearest = text_nearest(word, names, count);
  return nearest ? arena_printf(b->arena, "; did you mean '%s'?", nearest) : "";
}

/* "write axis=" is no advice where nothing is called axis. */
static bool is_apt(ForeignKind kind, const char *advice, const char *const *names, int count) {
  static const char write[] = "write ";
  const char *name = advice + sizeof write - 1;
  size_t length = strcspn(name, "=");
  if (kind != FOREIGN_ARGUMENT || strncmp(advice, write, sizeof write - 1) != 0) return true;
  for (int i = 0; i < count; i++)
    if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0) return true;
  return false;
}

const char *builder_hint_as(Builder *b, ForeignKind kind, const char *word,
                            const char *const *names, int count) {
  const char *advice = foreign_find(kind, word);
  if (advice && is_apt(kind, advice, names, count)) return arena_printf(b->arena, "; %s", advice);
  return builder_hint(b, word, names, count);
}

const char *hint_list(Builder *b, const char *what, const char *const *names, int count) {
  const char *text = arena_printf(b->arena, "; %s ", what);
  for (int i = 0; i < count; i++)
    text = arena_printf(b->arena, "%s%s%s", text, i == 0 ? "" : i + 1 < count ? ", " : " and ",
                        names[i]);
  return count ? text : "";
}

const char *builder_hint_type(Builder *b, const char *word) {
  const char *names[DT_NAMED];
  for (int i = 0; i < DT_NAMED; i++) names[i] = dtype_text((DType)i);
  return builder_hint_as(b, FOREIGN_TYPE, word, names, DT_NAMED);
}

/* What can be called: standard and built-in functions and blocks. */
static const char *nearest_callable(Builder *b, const char *word) {
  VEC(const char *) names = {0};
  for (int i = 0; i < b->std.names.count; i++) VEC_PUSH(b->arena, names, b->std.names.at[i].name);
  const char **builtins;
  int count;
  builtin_names(b, &builtins, &count);
  for (int i = 0; i < count; i++) {
    if (strcmp(builtins[i], word) == 0) return word;
    VEC_PUSH(b->arena, names, builtins[i]);
  }
  return text_nearest(word, names.at, names.count);
}

const char *builder_hint_name(Builder *b, const char *word) {
  const char *owner = foreign_find(FOREIGN_MODULE, word);
  if (owner)
    return arena_printf(b->arena,
                        "; that is %s's: functions and blocks stand for themselves here, relu(x), "
                        "Linear(10)(x)",
                        owner);
  VEC(const char *) names = {0};
  for (int i = 0; i < b->frame->variables.count; i++)
    VEC_PUSH(b->arena, names, b->frame->variables.at[i].name);
  for (const Scope *scope = b->frame->scope; scope; scope = scope->up)
    for (int i = 0; i < scope->names.count; i++) VEC_PUSH(b->arena, names, scope->names.at[i].name);
  const char **builtins;
  int count;
  builtin_names(b, &builtins, &count);
  for (int i = 0; i < count; i++) VEC_PUSH(b->arena, names, builtins[i]);
  return builder_hint_as(b, FOREIGN_NAME, word, names.at, names.count);
}

/* Whose torch.nn.functional is; NULL: the base of the attribute is no module of another tool. */
static const char *owner_of(Builder *b, const Ast *ast) {
  while (ast->kind == AST_ATTRIBUTE) ast = ast->kid[0];
  if (ast->kind != AST_NAME || builder_find(b, ast->name)) return NULL;
  return foreign_find(FOREIGN_MODULE, ast->name);
}

bool hint_module(Builder *b, const Ast *attribute) {
  const char *owner = owner_of(b, attribute);
  if (!owner) return false;
  const char *name = attribute->name, *advice = foreign_find(FOREIGN_NAME, name);
  const char *nearest = advice ? NULL : nearest_callable(b, name);
  Loc loc = attribute->loc;
  const char *text = ast_to_text(b->arena, attribute);
  if (advice)
    builder_fail(b, loc, "'%s' is %s's; %s", text, owner, advice);
  else if (nearest)
    builder_fail(b, loc, "'%s' is %s's; here there are no modules: write %s(...)%s", text, owner,
                 nearest, strcmp(nearest, name) ? "" : hint_call(b, name));
  else
    builder_fail(b, loc, "'%s' is %s's, and ft has no '%s'; docs/language.md lists its functions",
                 text, owner, name);
  return true;
}

void hint_method(Builder *b, const Ast *attribute, const Value *base) {
  static const char *const own[] = {"shape", "rank", "size", "dtype"};
  const char *name = attribute->name, *advice = foreign_find(FOREIGN_METHOD, name);
  const char *nearest = advice ? NULL : text_nearest(name, own, 4);
  const char *function = advice || nearest ? NULL : nearest_callable(b, name);
  const char *object = ast_to_text(b->arena, attribute->kid[0]);
  if (strlen(object) > 30) object = "x";
  const char *hint = advice     ? arena_printf(b->arena, "; %s", advice)
                     : nearest  ? arena_printf(b->arena, "; did you mean '%s'?", nearest)
                     : function ? arena_printf(b->arena, "; it is a function: %s(%s)", function,
                                               strlen(object) > 12 ? "x" : object)
                                : "";
  if (base->kind == VALUE_TENSOR)
    builder_fail(b, attribute->loc, "a tensor has shape, rank, size and dtype, but no '%s'%s", name,
                 hint);
  else if (base->kind == VALUE_LAYER)
    builder_fail(b, attribute->loc,
                 "a layer is applied, %s(x), and shows no '%s'; a block of your own with `param` "
                 "has its parameters by name",
                 object, name);
  else
    builder_fail(b, attribute->loc, "%s has no '%s'%s", value_describe(b->arena, base), name, hint);
}

/* x.size(0), x.shape(0), layers(x): what is called is no function, and what was meant is known. */
const char *hint_called(Builder *b, const Ast *callee, const Value *value) {
  bool is_attribute = callee->kind == AST_ATTRIBUTE;
  const char *text = ast_to_text(b->arena, is_attribute ? callee->kid[0] : callee);
  if (strlen(text) > 30) text = "x";
  if (is_attribute && (!strcmp(callee->name, "size") || !strcmp(callee->name, "shape")))
    return arena_printf(b->arena, "; a dimension's size is %s.shape[0]", text);
  if (value->kind == VALUE_LIST && value->count && value->items[0].kind == VALUE_LAYER)
    return arena_printf(b->arena,
                        "; its layers are applied in turn: repeat i in 0..%d { x = %s[i](x) }",
                        value->count, text);
  if (is_attribute && !strcmp(callee->name, "rank"))
    return arena_printf(b->arena, "; write %s.rank", text);
  return "";
}

const char *hint_call(Builder *b, const char *callee) {
  const char *name = arena_strndup(b->arena, callee, strcspn(callee, "("));
  const char *advice = foreign_find(FOREIGN_CALL, name);
  return advice ? arena_printf(b->arena, "; %s", advice) : "";
}
