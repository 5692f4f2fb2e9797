/* outline: what a text declares and which names its parts bind, found by words alone, so that it is
 * there whatever else is wrong with the text. Scopes are the language's: the top level, and one for each
 * declaration (`if` and `repeat` open none). */
#ifndef FT_LSP_OUTLINE_H
#define FT_LSP_OUTLINE_H
#include "base/lookup.h"
#include "lsp/scan.h"

typedef enum {
  DECLARES_IMPORT,
  DECLARES_HYPER,
  DECLARES_PRESET,
  DECLARES_BLOCK,
  DECLARES_FN,
  DECLARES_MODEL,
  DECLARES_DATA,
  DECLARES_TRAIN,
  DECLARES_DISTRIBUTED,
  DECLARES_TUNE
} DeclarationKind;

typedef struct {
  DeclarationKind kind;
  int keyword, name;           /* tokens; name -1: it has none */
  int first_open, second_open; /* the ( of a signature's brackets; -1: none */
  int body;                    /* its {; -1: none */
  int end;                     /* the last token that belongs to it */
} Declaration;

typedef enum {
  BINDS_PARAMETER,
  BINDS_DIMENSION,
  BINDS_VARIABLE,
  BINDS_PARAM,
  BINDS_STATE,
  BINDS_METRIC,
  BINDS_OUTPUT,
  BINDS_COUNTER
} BindingKind;

typedef struct {
  BindingKind kind;
  int token, declaration;
} Binding;

typedef struct {
  Scan *scan;
  VEC(Declaration) declarations;
  VEC(Binding) bindings; /* in the order of the text */
  Lookup hypers;         /* the tokens of their names, by name */
} Outline;

Outline *outline_text(Arena *arena, const char *text, size_t length);
/* The declaration that a token or an offset is in; NULL: none. */
const Declaration *outline_around(const Outline *outline, int token);
const Declaration *outline_around_offset(const Outline *outline, size_t offset);
/* A declaration of that name but imports, presets; NULL: none. */
const Declaration *outline_find(const Outline *outline, const char *name);
/* Where a name that is used at `token` is bound within its declaration: the last place in front of it, or the
 * first one. -1: it is not bound there. */
int outline_binding(const Outline *outline, int token);
/* Is the token a name that stands for something: no attribute, no keyword argument, no setting? */
bool outline_is_reference(const Outline *outline, int token);
/* "Linear(out, bias=true)(x: [..., I])": a declaration as it is written, without its body. */
const char *outline_signature(Arena *arena, const Outline *outline, const Declaration *declaration);
/* What the comment in front of it says, or the one at the end of its line; "": nothing. */
const char *outline_comment(Arena *arena, const Outline *outline, const Declaration *declaration);
const char *outline_kind(DeclarationKind kind); /* "block" */
#endif
