/* parse: see parse.h. Bytes that no ft file may hold (NUL, broken UTF-8) are refused before the
 * lexer sees them, so lexer and messages can rely on clean text. */
#include "frontend/parse.h"
#include "base/memory.h"
#include "frontend/ft.tab.h"
#include <string.h>
#define YYSTYPE FT_STYPE /* what the lexer's header calls them */
#define YYLTYPE FT_LTYPE
#include "frontend/ft.lex.h"

static Loc parse_location(uint16_t file, const char *text, size_t offset) {
  Loc loc = {.file = file, .line = 1, .column = 1};
  for (size_t i = 0; i < offset; i++) {
    if (text[i] == '\n') {
      loc.line++;
      loc.column = 1;
    } else if (loc.column < UINT16_MAX) {
      loc.column++;
    }
  }
  return loc;
}

/* Length of the UTF-8 sequence at s, or 0 if it is not one (overlong forms and surrogates are
 * not). */
static size_t sequence(const unsigned char *s, size_t left) {
  if (s[0] < 0x80) return 1;
  size_t length = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
  if (s[0] < 0xC2 || s[0] > 0xF4 || left < length) return 0;
  for (size_t i = 1; i < length; i++)
    if ((s[i] & 0xC0) != 0x80) return 0;
  if (s[0] == 0xE0 && s[1] < 0xA0) return 0;
  if (s[0] == 0xED && s[1] > 0x9F) return 0;
  if (s[0] == 0xF0 && s[1] < 0x90) return 0;
  if (s[0] == 0xF4 && s[1] > 0x8F) return 0;
  return length;
}

static bool is_clean(Diag *diag, uint16_t file, const char *text, size_t length) {
  for (size_t i = 0; i < length;) {
    size_t step = sequence((const unsigned char *)text + i, length - i);
    if (text[i] == 0 || step == 0) {
      Loc loc = parse_location(file, text, i);
      if (text[i] == 0)
        diag_error(diag, loc, "NUL byte in the file; is this a text file?");
      else
        diag_error(diag, loc, "byte 0x%02x is not UTF-8", (unsigned char)text[i]);
      return false;
    }
    i += step;
  }
  return true;
}

Ast *parse_text(Arena *arena, Diag *diag, const char *path, const char *text, size_t length) {
  char *copy = arena_strndup(arena, text, length);
  if (length) memcpy(copy, text, length); /* arena_strndup may stop at a NUL */
  uint16_t file = diag_add_file(diag, path, copy);
  Loc start = {.file = file, .line = 1, .column = 1};
  Ast *empty = ast_list(arena, AST_FILE, start, NULL, NULL);
  if (length > INT32_MAX / 2) {
    diag_error(diag, start, "the file is larger than 1 GiB");
    return empty;
  }
  if (!is_clean(diag, file, copy, length)) return empty;
  Parser *parser = ARENA_NEW(arena, Parser);
  *parser = (Parser){.arena = arena,
                     .diag = diag,
                     .file = file,
                     .text = copy,
                     .length = length,
                     .line = 1,
                     .column = 1,
                     .root = empty};
  if (length >= 3 && memcmp(copy, "\xEF\xBB\xBF", 3) == 0) /* byte order mark */
    memcpy(copy, "   ", 3);
  yyscan_t scanner;
  if (ft_lex_init_extra(parser, &scanner) != 0) memory_none();
  YY_BUFFER_STATE buffer = ft__scan_bytes(copy, (int)length, scanner);
  int errors = diag->errors;
  if (ft_parse(scanner, parser) != 0 && diag->errors == errors)
    diag_error(diag, start, "cannot read this file"); /* never silent */
  ft__delete_buffer(buffer, scanner);
  ft_lex_destroy(scanner);
  parser->root->loc = start;
  return parser->root;
}

Ast *parse_check(Parser *parser, Ast *ast) {
  if (ast->depth <= AST_MAX_DEPTH) return ast;
  if (!parser->too_deep)
    diag_error(parser->diag, ast->loc,
               "nested more than %d deep; give parts of it a name of their own", AST_MAX_DEPTH);
  parser->too_deep = true;
  return ast_leaf(parser->arena, AST_NONE, ast->loc, NULL);
}

void parse_resync(Parser *parser) {
  while (parser->bracket_count && parser->bracket[parser->bracket_count - 1].open != '{')
    parser->bracket_count--;
  parser->ends_statement = true;
}

int parse_braces(const Parser *parser) {
  int count = 0;
  for (int i = 0; i < parser->bracket_count; i++) count += parser->bracket[i].open == '{';
  return count;
}

const Bracket *parse_open(const Parser *parser) {
  return parser->bracket_count ? &parser->bracket[parser->bracket_count - 1] : NULL;
}
