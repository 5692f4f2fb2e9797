/* syntax: what a syntax error comes from, where it can be told: another tool's words and signs, two
 * settings on one line, a missing brace. */
#ifndef FT_FRONTEND_SYNTAX_H
#define FT_FRONTEND_SYNTAX_H
#include "frontend/parse.h"

/* What the grammar says of the place. */
typedef struct {
  Loc loc;
  const char *wanted, *found; /* in a person's words; "" : too many to list */
  bool may_end;               /* a statement could end here */
  bool wants_assignment;      /* `=` could stand here */
  bool wants_expression;
  bool wants_brace;
  bool wants_declaration;
} SyntaxError;

/* The whole message, and the place it is about; NULL: the grammar's own must do. */
const char *syntax_explain(const Parser *parser, SyntaxError *error);
/* What to add to the grammar's own message: "; write `fn NAME(x) { ... }`", or "". */
const char *syntax_advice(const Parser *parser, const SyntaxError *error);
/* A declaration begins at a line's first column while braces are open: one is missing. `word` is
 * the token just read. Reports it once. */
bool syntax_is_brace_missing(Parser *parser, Loc loc, const char *word);
/* A note for each bracket that is open at the end of the file. */
void syntax_note_open(Parser *parser);
#endif
