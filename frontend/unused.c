/* unused: names that nothing reads, and values that are replaced before anything has read them. It
 * looks at the text of each definition, not at a run of it: what an `if` leaves out is used all the
 * same. A name that begins with `_` is not meant to be used.
 *
 * A value is dead where the same sequence of statements assigns its name again, or the definition
 * ends, and nothing between has read the name. Of branches and repeats nothing is concluded beyond
 * their own sequence, so that what is said is always so. */
#include "frontend/builder.h"
#include <string.h>

typedef enum { NAME_INPUT, NAME_SETTING, NAME_PARAMETER, NAME_STATE, NAME_VARIABLE } NameKind;

typedef struct {
  const char *name;
  Loc loc;
  NameKind kind;
  bool is_layer, is_used, is_group_used;
  int group;    /* the first name of its statement: of `q, k, v = ...` one that is used is enough */
  Loc waiting;  /* where the value was assigned that nobody has read yet; file 0: none */
  int sequence; /* in which sequence of statements that was */
} Known;

typedef struct {
  Builder *b;
  const Ast *definition;
  VEC(Known) names;
  Lookup index; /* of names */
  int sequences;
} Unused;

static void body_read(Unused *u, const Ast *body);

static Known *known_find(Unused *u, const char *name) {
  int at = lookup_find_text(&u->index, name);
  return at < 0 ? NULL : &u->names.at[at];
}

static int known_add(Unused *u, const char *name, Loc loc, NameKind kind) {
  Known known = {.name = name, .loc = loc, .kind = kind, .group = u->names.count};
  lookup_add_text(&u->index, name, known.group);
  VEC_PUSH(u->b->arena, u->names, known);
  return known.group;
}

static void name_read(Unused *u, const char *name) {
  Known *known = known_find(u, name);
  if (!known) return;
  known->is_used = u->names.at[known->group].is_group_used = true;
  known->waiting = (Loc){0};
}

/* All names in an expression, a type or a list of parameters. */
static void names_read(Unused *u, const Ast *ast) {
  if (!ast) return;
  if (ast->kind == AST_NAME) name_read(u, ast->name);
  for (int i = 0; i < ast->count; i++) names_read(u, ast->kid[i]);
}

/* ── dead values ──────────────────────────────────────────────────────────────────────────── */
static bool is_spared(const char *name) { return name[0] == '_'; }

static void say_replaced(Unused *u, const Known *known, Loc by) {
  if (is_spared(known->name)) return;
  VEC_PUSH(u->b->arena, u->b->warned, known->waiting);
  diag_warning(u->b->diag, known->waiting,
               "this value of '%s' is never used: '%s' gets another one in line %u", known->name,
               known->name, by.line);
}

/* Does the expression make a layer, `Linear(10)`? */
static bool makes_layer(const Unused *u, const Ast *value) {
  if (value->kind != AST_CALL || value->kid[0]->kind != AST_NAME) return false;
  for (const Scope *scope = &u->b->user; scope; scope = scope->up)
    for (int i = 0; i < scope->names.count; i++)
      if (strcmp(scope->names.at[i].name, value->kid[0]->name) == 0)
        return scope->names.at[i].value.kind == VALUE_BLOCK;
  return false;
}

static void unused_assign(Unused *u, const Ast *ast, int sequence) {
  names_read(u, ast->kid[0]);
  int first = -1;
  for (int i = 1; i < ast->count; i++) {
    const Ast *target = ast->kid[i];
    Known *known = known_find(u, target->name);
    if (known && known->waiting.file && known->sequence == sequence)
      say_replaced(u, known, target->loc);
    if (!known) {
      int at = known_add(u, target->name, target->loc, NAME_VARIABLE);
      if (first < 0) first = at;
      known = &u->names.at[at];
      known->group = first;
      known->is_layer = makes_layer(u, ast->kid[0]);
    }
    bool is_alone = ast->count == 2; /* of several results one may be enough */
    known->waiting = is_alone ? target->loc : (Loc){0};
    known->sequence = sequence;
  }
}

static void statement_read(Unused *u, const Ast *ast, int sequence) {
  switch (ast->kind) {
  case AST_ASSIGN:
    unused_assign(u, ast, sequence);
    break;
  case AST_PARAM: /* one that nothing reads is told by the loss: warn.c */
  case AST_STATE:
    for (int i = 0; i < ast->count; i++) names_read(u, ast->kid[i]);
    if (!known_find(u, ast->name))
      known_add(u, ast->name, ast->loc, ast->kind == AST_STATE ? NAME_STATE : NAME_PARAMETER);
    break;
  case AST_UPDATE:
    names_read(u, ast->kid[0]);
    name_read(u, ast->name);
    break;
  case AST_OUTPUT:
    names_read(u, ast->kid[0]);
    if (!ast->kid[0]) name_read(u, ast->name);
    break;
  case AST_IF:
    names_read(u, ast->kid[0]);
    body_read(u, ast->kid[1]);
    body_read(u, ast->kid[2]);
    break;
  case AST_REPEAT:
    names_read(u, ast->kid[0]);
    names_read(u, ast->kid[1]);
    body_read(u, ast->kid[2]);
    names_read(u, ast->kid[2]); /* the next round reads what this one leaves */
    break;
  default: /* metric, return, check: expressions */
    for (int i = 0; i < ast->count; i++) names_read(u, ast->kid[i]);
  }
}

static void body_read(Unused *u, const Ast *body) {
  int sequence = ++u->sequences;
  for (int i = 0; body && i < body->count; i++) statement_read(u, body->kid[i], sequence);
}

/* ── a definition ─────────────────────────────────────────────────────────────────────────── */
static void list_parameters(Unused *u, const Ast *list, NameKind kind) {
  for (int i = 0; i < list->count; i++) known_add(u, list->kid[i]->name, list->kid[i]->loc, kind);
}

static void say_unused(const Unused *u, const Known *known) {
  Diag *diag = u->b->diag;
  const Ast *of = u->definition;
  VEC_PUSH(u->b->arena, u->b->warned, known->loc);
  const char *what = of->kind == AST_MODEL ? "model" : of->kind == AST_FN ? "function" : "block";
  if (known->kind == NAME_INPUT)
    diag_warning(diag, known->loc,
                 "input '%s' of %s '%s' is never used; call it '_%s' if that is meant", known->name,
                 what, of->name, known->name);
  else if (known->kind == NAME_SETTING)
    diag_warning(diag, known->loc, "'%s' of %s '%s' is never used; call it '_%s' if that is meant",
                 known->name, what, of->name, known->name);
  else if (known->kind == NAME_STATE)
    diag_warning(diag, known->loc,
                 "state '%s' is never used, nor updated; call it '_%s' if that is meant",
                 known->name, known->name);
  else
    diag_warning(diag, known->loc, "%s '%s' is never used; call it '_%s' if that is meant",
                 known->is_layer ? "layer" : "variable", known->name, known->name);
}

static void unused_in(Builder *b, const Ast *definition) {
  Unused u = {.b = b, .definition = definition, .index = {.arena = b->arena}};
  bool is_block = definition->kind == AST_BLOCK, is_model = definition->kind == AST_MODEL;
  const Ast *body = definition->kid[is_block ? 3 : is_model ? 1 : 2];
  if (is_block) list_parameters(&u, definition->kid[0], NAME_SETTING);
  list_parameters(&u, definition->kid[is_block ? 1 : 0], NAME_INPUT);
  for (int l = 0; l <= is_block; l++)
    for (int i = 0; i < definition->kid[l]->count; i++) {
      const Ast *parameter = definition->kid[l]->kid[i]; /* its name is no reading of it */
      for (int k = 0; k < parameter->count; k++) names_read(&u, parameter->kid[k]);
    }
  if (!is_model) names_read(&u, definition->kid[is_block ? 2 : 1]); /* -> [B, width] */
  body_read(&u, body);
  if (is_model) name_read(&u, "loss");
  enum { WHOLE = 1 }; /* the body's own sequence is the first */
  for (int i = 0; i < u.names.count; i++) {
    const Known *known = &u.names.at[i];
    if (is_spared(known->name) || known->kind == NAME_PARAMETER) continue;
    if (!u.names.at[known->group].is_group_used) {
      if (known->group == i) say_unused(&u, known);
    } else if (known->is_used && known->waiting.file && known->sequence == WHOLE) {
      VEC_PUSH(b->arena, b->warned, known->waiting);
      diag_warning(b->diag, known->waiting, "this value of '%s' is never used", known->name);
    }
  }
}

/* ── hypers ───────────────────────────────────────────────────────────────────────────────── */
static void collect_names(Builder *b, Lookup *read, const Ast *ast) {
  if (!ast) return;
  if (ast->kind == AST_NAME && lookup_find_text(read, ast->name) < 0)
    lookup_add_text(read, ast->name, 0);
  for (int i = 0; i < ast->count; i++) collect_names(b, read, ast->kid[i]);
}

/* Of the main file only: one that is imported may offer more than this model takes. */
static void unused_hypers(Builder *b, const Ast *const *files, int count) {
  Lookup read = {.arena = b->arena};
  const Ast *main = files[count - 1];
  for (int f = 0; f < count; f++) collect_names(b, &read, files[f]);
  for (int i = 0; i < main->count; i++) {
    const Ast *hyper = main->kid[i];
    if (hyper->kind != AST_HYPER || is_spared(hyper->name)) continue;
    if (lookup_find_text(&read, hyper->name) < 0)
      diag_warning(b->diag, hyper->loc, "hyper '%s' is never used; call it '_%s' if that is meant",
                   hyper->name, hyper->name);
  }
}

void unused_warn(Builder *b, const Ast *const *files, int count) {
  unused_hypers(b, files, count);
  for (int f = 0; f < count; f++)
    for (int i = 0; i < files[f]->count; i++) {
      const Ast *ast = files[f]->kid[i];
      if (ast->kind == AST_FN || ast->kind == AST_BLOCK || ast->kind == AST_MODEL)
        unused_in(b, ast);
    }
}
