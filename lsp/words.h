/* words: the place in a text where somebody types or points, and what the language's tables have for it. */
#ifndef FT_LSP_WORDS_H
#define FT_LSP_WORDS_H
#include "frontend/recipe.h"
#include "lsp/desk.h"
#include "lsp/reference.h"
#include "plan/source_kind.h"

typedef struct {
  const Outline *outline;
  const Declaration *declaration; /* NULL: the top level */
  size_t from, to;                /* the bytes of the word that is being typed; equal: none yet */
  int before;                     /* the token in front of it; -1: none */
  int open;                       /* the innermost bracket; -1: none */
  int brace;                      /* the innermost { of these; -1: none */
  int statement; /* the first token of the statement or entry that the word is in; -1: the word begins it */
  const char *section; /* "log" in `log { ... }` of a recipe; "" */
  bool in_word;        /* inside of a comment or string */
} Place;

Place words_place(Arena *arena, const Outline *outline, size_t offset);
char words_sign(const Scan *scan, int token); /* a sign of one character, or 0 */
/* The name in front of a bracket, `Linear` of `Linear(`; -1: none. */
int words_callee(const Scan *scan, int open);

/* The setting that an entry of a recipe is: "train.log." and "every"; its row, or -1. */
int words_setting(Arena *arena, const Place *place, const char *entry);
const char *words_prefix(Arena *arena, const Place *place);
/* "int, 64 by default, settled when it is compiled: ..." */
const char *words_setting_text(Arena *arena, int setting);
/* "resize(size, filter=bilinear)" */
const char *words_transform_text(Arena *arena, const TransformKind *kind);
/* "relu(x)": of a built-in function by its row. */
const char *words_builtin_text(Arena *arena, const Builtin *builtin);
#endif
