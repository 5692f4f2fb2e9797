/* scan: see scan.h. */
#include "lsp/scan.h"
#include <string.h>

enum { INDENT_MOST = 1000 };

static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static size_t end_of_string(const char *text, size_t at, size_t length) {
  char quote = text[at++];
  while (at < length && text[at] != '\n') {
    if (text[at] == quote) return at + 1;
    at += text[at] == '\\' && at + 1 < length && text[at + 1] != '\n' ? 2 : 1;
  }
  return at < length ? at : length;
}

static size_t end_of_number(const char *text, size_t at, size_t length) {
  while (at < length && (is_digit(text[at]) || is_letter(text[at]) ||
                         (text[at] == '.' && at + 1 < length && is_digit(text[at + 1])) ||
                         ((text[at] == '-' || text[at] == '+') && strchr("eE", text[at - 1]))))
    at++;
  return at;
}

static size_t end_of_comment(const char *text, size_t at, size_t length) {
  if (text[at + 1] == '/') {
    const char *end = memchr(text + at, '\n', length - at);
    return end ? (size_t)(end - text) : length;
  }
  for (at += 2; at + 1 < length; at++)
    if (text[at] == '*' && text[at + 1] == '/') return at + 2;
  return length;
}

static size_t end_of_sign(const char *text, size_t at, size_t length) {
  static const char *const signs[] = {"...", "..", "->", "**", "==", "!=", "<=", ">=", "+="};
  for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
    size_t size = strlen(signs[i]);
    if (length - at >= size && memcmp(text + at, signs[i], size) == 0) return at + size;
  }
  return at + 1;
}

static ScanKind kind_at(const char *text, size_t at, size_t length) {
  char c = text[at], next = at + 1 < length ? text[at + 1] : 0;
  if (is_letter(c)) return SCAN_NAME;
  if (is_digit(c) || (c == '.' && is_digit(next))) return SCAN_NUMBER;
  if (c == '"') return SCAN_STRING;
  if (c == '/' && (next == '/' || next == '*')) return SCAN_COMMENT;
  return SCAN_SIGN;
}

static size_t end_of_token(const char *text, size_t at, size_t length, ScanKind kind) {
  switch (kind) {
  case SCAN_NAME:
    while (at < length && (is_letter(text[at]) || is_digit(text[at]))) at++;
    return at;
  case SCAN_NUMBER:
    return end_of_number(text, at + 1, length);
  case SCAN_STRING:
    return end_of_string(text, at, length);
  case SCAN_COMMENT:
    return end_of_comment(text, at, length);
  default:
    return end_of_sign(text, at, length);
  }
}

bool scan_is(const Scan *scan, int token, const char *word) {
  if (token < 0 || token >= scan->tokens.count) return false;
  const ScanToken *t = &scan->tokens.at[token];
  size_t length = strlen(word);
  return t->end - t->start == length && memcmp(scan->text + t->start, word, length) == 0;
}

bool scan_is_name(const Scan *scan, int token) {
  return token >= 0 && token < scan->tokens.count && scan->tokens.at[token].kind == SCAN_NAME;
}

/* Behind the word that begins a declaration: can it be one, and no statement or setting? */
static bool is_declared_by(const char *word, size_t length, const char *rest) {
  static const char *const named[] = {"model", "block", "fn", "data", "preset", "hyper"};
  rest += strspn(rest, " \t");
  if (length == 6 && !memcmp(word, "import", 6)) return *rest == '"';
  if ((length == 5 && !memcmp(word, "train", 5)) || (length == 4 && !memcmp(word, "tune", 4)) ||
      (length == 11 && !memcmp(word, "distributed", 11)))
    return *rest == '{';
  for (size_t i = 0; i < sizeof named / sizeof *named; i++)
    if (strlen(named[i]) == length && !memcmp(named[i], word, length))
      return is_letter(*rest) || (*rest == '"' && !strcmp(named[i], "preset"));
  return false;
}

bool scan_is_declaration(const Scan *scan, int token) {
  if (!scan_is_name(scan, token)) return false;
  const ScanToken *t = &scan->tokens.at[token];
  return t->is_first && t->parent < 0 &&
         is_declared_by(scan->text + t->start, t->end - t->start, scan->text + t->end);
}

static char partner_of(char close) { return close == ')' ? '(' : close == ']' ? '[' : '{'; }

/* What a closing bracket closes: with a } also the ( and [ that are open in it. */
static int find_partner(const Scan *scan, int open, char close) {
  char wanted = partner_of(close);
  int at = open;
  while (at >= 0 && scan->text[scan->tokens.at[at].start] != wanted && close == '}')
    at = scan->tokens.at[at].parent;
  return at >= 0 && scan->text[scan->tokens.at[at].start] == wanted ? at : -1;
}

static size_t indent_of(const char *text, size_t at) {
  size_t line = at;
  while (line > 0 && text[line - 1] != '\n' && at - line < INDENT_MOST) line--;
  return strspn(text + line, " \t");
}

/* Does a line that begins with a name begin a statement, `x = `, `return y`, although a ( or [ is open? It is no further
 * to the right than the line of the bracket, which somebody has yet to close. */
static bool leaves_brackets(const Scan *scan, int open, size_t at, size_t end) {
  const char *next = scan->text + end;
  const ScanToken *bracket = &scan->tokens.at[open];
  if (scan->text[bracket->start] == '{') return false;
  next += strspn(next, " \t");
  bool is_statement = (*next == '=' && next[1] != '=') || is_letter(*next);
  return is_statement && indent_of(scan->text, at) <= indent_of(scan->text, bracket->start);
}

Scan *scan_text(Arena *arena, const char *text, size_t length) {
  Scan *scan = ARENA_NEW(arena, Scan);
  *scan = (Scan){.arena = arena, .text = text, .length = length};
  int open = -1;
  bool is_new_line = true, is_first = true;
  for (size_t at = 0; at < length;) {
    char c = text[at];
    if (c == '\n') is_new_line = is_first = true;
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f') {
      at++;
      continue;
    }
    ScanKind kind = kind_at(text, at, length);
    size_t end = end_of_token(text, at, length, kind);
    bool is_column = at == 0 || text[at - 1] == '\n';
    if (kind == SCAN_NAME && is_column && is_declared_by(text + at, end - at, text + end))
      open = -1;
    if (kind == SCAN_NAME && is_new_line)
      while (open >= 0 && leaves_brackets(scan, open, at, end)) open = scan->tokens.at[open].parent;
    ScanToken token = {kind, (uint32_t)at, (uint32_t)end, open, -1, is_first, is_new_line};
    int index = scan->tokens.count;
    if (kind == SCAN_SIGN && strchr(")]}", c) && c) {
      token.partner = find_partner(scan, open, c);
      if (token.partner >= 0) {
        scan->tokens.at[token.partner].partner = index;
        token.parent = open = scan->tokens.at[token.partner].parent;
      }
    }
    VEC_PUSH(arena, scan->tokens, token);
    if (kind == SCAN_SIGN && strchr("([{", c) && c) open = index;
    if (kind != SCAN_COMMENT) {
      is_new_line = false;
      is_first = kind == SCAN_SIGN && (c == ';' || c == '{');
    }
    at = end;
  }
  return scan;
}

/* The last token that begins before the offset, or at it; -1: none. */
static int scan_find(const Scan *scan, size_t offset) {
  int low = -1, high = scan->tokens.count;
  while (high - low > 1) {
    int middle = low + (high - low) / 2;
    if (scan->tokens.at[middle].start <= offset)
      low = middle;
    else
      high = middle;
  }
  return low;
}

int scan_at(const Scan *scan, size_t offset) {
  int at = scan_find(scan, offset);
  if (at > 0 && scan->tokens.at[at].kind != SCAN_NAME && scan->tokens.at[at].start == offset &&
      scan->tokens.at[at - 1].end == offset && scan->tokens.at[at - 1].kind == SCAN_NAME)
    at--;
  return at >= 0 && offset <= scan->tokens.at[at].end ? at : -1;
}

int scan_before(const Scan *scan, size_t offset) {
  int at = offset ? scan_find(scan, offset - 1) : -1;
  while (at >= 0 && scan->tokens.at[at].kind == SCAN_COMMENT) at--;
  return at;
}

int scan_open_at(const Scan *scan, size_t offset, bool *in_word) {
  int at = offset ? scan_find(scan, offset - 1) : -1;
  *in_word = false;
  if (at < 0) return -1;
  const ScanToken *t = &scan->tokens.at[at];
  bool is_comment = t->kind == SCAN_COMMENT;
  bool is_line = is_comment && scan->text[t->start + 1] == '/';
  if ((is_comment || t->kind == SCAN_STRING) && (offset < t->end || (is_line && offset == t->end)))
    *in_word = true;
  bool opens = t->kind == SCAN_SIGN && strchr("([{", scan->text[t->start]);
  return opens && offset >= t->end ? at : t->parent;
}

const char *scan_word(Arena *arena, const Scan *scan, int token) {
  if (token < 0 || token >= scan->tokens.count) return "";
  const ScanToken *t = &scan->tokens.at[token];
  return arena_strndup(arena, scan->text + t->start, t->end - t->start);
}

int scan_next(const Scan *scan, int token) {
  for (int i = token + 1; i < scan->tokens.count; i++)
    if (scan->tokens.at[i].kind != SCAN_COMMENT) return i;
  return -1;
}

int scan_previous(const Scan *scan, int token) {
  int i = token - 1;
  while (i >= 0 && scan->tokens.at[i].kind == SCAN_COMMENT) i--;
  return i;
}
