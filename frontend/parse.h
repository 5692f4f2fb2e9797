/* parse: one source file to a syntax tree. Reports every syntax error it can tell apart (it
 * recovers at the end of a statement); the tree then holds what could be read. */
#ifndef FT_FRONTEND_PARSE_H
#define FT_FRONTEND_PARSE_H
#include "frontend/ast.h"
#include <stdbool.h>
#include <stddef.h>

enum { PARSE_MAX_BRACKETS = 200 };

typedef struct {
  char open;
  Loc loc;
  size_t offset;
} Bracket;

/* What lexer and grammar share during one parse. */
typedef struct Parser {
  Arena *arena;
  Diag *diag;
  uint16_t file;
  const char *text;
  size_t length, token_start, offset; /* the token being read is text[token_start, offset) */
  uint32_t line, column;
  Bracket bracket[PARSE_MAX_BRACKETS];
  int bracket_count;
  bool ends_statement; /* the last token may be the last of a statement */
  bool too_deep;       /* said once */
  bool is_closing;     /* braces that are missing are closed before this declaration */
  bool is_lost;        /* outside of all braces, behind an error there */
  bool told_hash;      /* said once */
  Bracket cut;         /* a ( or [ that the last } found open; open = 0: none */
  Bracket suspect;     /* its '}' stood further left than its line: open = 0: none */
  bool skips_now;      /* the { just read begins what is skipped */
  bool skips_body;     /* the next { ... } belongs to something already diagnosed */
  int skip_depth;
  Ast *root;
} Parser;

/* `length` bytes; never NULL. The file is added to diag under `path`. */
Ast *parse_text(Arena *arena, Diag *diag, const char *path, const char *text, size_t length);
/* Called by the grammar for each node: refuses trees that are too deep. */
Ast *parse_check(Parser *parser, Ast *ast);
/* After a syntax error: forget open ( and [, so that the line's end is seen. */
void parse_resync(Parser *parser);
int parse_braces(const Parser *parser); /* open { around the current token */
/* The unclosed ( or [ or { around the current token, or NULL. */
const Bracket *parse_open(const Parser *parser);
#endif
