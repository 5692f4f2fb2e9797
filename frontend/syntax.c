/* syntax: see syntax.h. It looks at the text around the token, which the lexer has cleaned. */
#include "frontend/syntax.h"
#include "base/foreign.h"
#include "base/text.h"
#include <string.h>

static bool is_word_letter(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The word that begins at `at`; "" if none does. */
static const char *word_at(const Parser *parser, size_t at) {
  size_t end = at;
  while (is_word_letter(parser->text[end])) end++;
  return arena_strndup(parser->arena, parser->text + at, end - at);
}

static bool cuts_statement(char c) { return c == '\n' || c == ';' || c == '{' || c == '}'; }

/* Where the statement around the token begins, on its line. */
static size_t statement_start(const Parser *parser) {
  size_t at = parser->token_start;
  while (at > 0 && !cuts_statement(parser->text[at - 1])) at--;
  while (parser->text[at] == ' ' || parser->text[at] == '\t') at++;
  return at < parser->token_start ? at : parser->token_start;
}

/* The word before the token; *start: where it begins. */
static const char *word_before(const Parser *parser, size_t *start) {
  size_t end = parser->token_start;
  while (end > 0 && parser->text[end - 1] == ' ') end--;
  size_t at = end;
  while (at > 0 && is_word_letter(parser->text[at - 1])) at--;
  *start = at;
  return arena_strndup(parser->arena, parser->text + at, end - at);
}

/* A place on the token's line. */
static Loc place_on_line(const Parser *parser, Loc loc, size_t at) {
  size_t back = parser->token_start - at;
  loc.column = back < loc.column ? (uint16_t)(loc.column - back) : 1;
  return loc;
}

/* The first sign behind a word, "" at the end of the line. */
static const char *sign_behind(const Parser *parser, size_t at, size_t length) {
  const char *text = parser->text + at + length;
  return text + strspn(text, " \t");
}

static bool assigns(const char *sign) { return sign[0] == '=' && sign[1] != '='; }

/* What is said of a word of another tool in or before this statement; NULL: there is none. A name
 * that something is assigned to is the user's own. */
static const char *foreign_here(const Parser *parser, Loc *loc) {
  size_t start = statement_start(parser), last;
  const char *first = word_at(parser, start), *sign = sign_behind(parser, start, strlen(first));
  const char *here = word_at(parser, parser->token_start), *before = word_before(parser, &last);
  const char *advice = foreign_find(FOREIGN_STATEMENT, first);
  if (advice && !assigns(sign) && *sign != ',' && strncmp(sign, "+=", 2) != 0) {
    *loc = place_on_line(parser, *loc, start);
    return arena_printf(parser->arena, "there is no '%s' here; %s", first, advice);
  }
  if ((advice = foreign_find(FOREIGN_STATEMENT, here)))
    return arena_printf(parser->arena, "there is no '%s' here; %s", here, advice);
  if (strcmp(before, "lambda") == 0 || strcmp(before, "for") == 0) {
    *loc = place_on_line(parser, *loc, last);
    return arena_printf(parser->arena, "there is no '%s' here; %s", before,
                        foreign_find(FOREIGN_STATEMENT, before));
  }
  return NULL;
}

static bool begins_name(const char *text) { return *text && !(*text >= '0' && *text <= '9'); }

static const char *explain_sign(const Parser *parser, const SyntaxError *error) {
  const char *at = parser->text + parser->token_start;
  const char *first = word_at(parser, statement_start(parser));
  bool is_condition = !strcmp(first, "if") || !strcmp(first, "else");
  bool is_setting = error->wants_brace && error->wants_assignment;
  if (*at == ':' && is_setting && begins_name(first))
    return arena_printf(parser->arena, "unexpected ':'; write %s = ...", first);
  if (*at == ':' && error->wants_brace) return "a body stands in { }, without ':' before it";
  if (*at == ':' && error->wants_assignment && parser->bracket_count)
    return arena_printf(parser->arena,
                        "unexpected ':'; write %s = ...: a type is written in signatures and of "
                        "param and state",
                        begins_name(first) ? first : "NAME");
  if (*at == ':') return NULL;
  if (assigns(at) && is_condition) return "'=' assigns; a comparison is written '=='";
  if (*at == ',' && error->may_end && parser->bracket_count)
    return "settings and statements are separated by ';' or a new line, not by ','";
  if (*at == '{' && error->wants_expression)
    return "there are no dictionaries; write a list, [1, 2], or names of their own";
  bool is_step = (!strncmp(at, "++", 2) || !strncmp(at, "--", 2)) && error->wants_assignment;
  if (is_step)
    return arena_printf(parser->arena, "there is no '%.2s'; write %s = %s %c 1", at, first, first,
                        *at);
  if (!strncmp(at, "==", 2) && error->wants_assignment && parser->bracket_count)
    return "a comparison computes nothing by itself; '=' assigns";
  const char *method = *at == '.' ? word_at(parser, parser->token_start + 1) : "";
  const char *advice = foreign_find(FOREIGN_METHOD, method);
  if (*method && error->wants_assignment && parser->bracket_count)
    return arena_printf(parser->arena,
                        "a statement is NAME = ...; the value of '%s.%s' goes nowhere%s%s", first,
                        method, advice ? "; " : "", advice ? advice : "");
  if (*at && strchr("([.", *at) && error->wants_assignment && parser->bracket_count)
    return arena_printf(parser->arena,
                        "a statement is NAME = ...; the value of '%s%c...' goes nowhere", first,
                        *at);
  if (*at == '}' && error->wants_declaration) return "this '}' closes nothing: no '{' is open";
  if (*at == '@' && error->wants_declaration) return "there are no decorators; leave it out";
  return NULL;
}

/* `retrun x`, `Model M(x)`: a word of ft's own, misspelled; NULL: none. */
static const char *misspelled(const Parser *parser, const SyntaxError *error, const char *first) {
  static const char *const top[] = {"import", "hyper", "preset", "block",       "fn",
                                    "model",  "data",  "train",  "distributed", "tune"};
  static const char *const inside[] = {"param",  "state",  "update", "metric", "output",
                                       "repeat", "return", "check",  "if"};
  const char *sign = sign_behind(parser, statement_start(parser), strlen(first));
  if (!begins_name(first)) return NULL;
  if (error->wants_declaration) return text_nearest(first, top, sizeof top / sizeof *top);
  if (!error->wants_assignment || !is_word_letter(*sign)) return NULL;
  const char *nearest = text_nearest(first, inside, sizeof inside / sizeof *inside);
  return nearest && strcmp(nearest, first) != 0 ? nearest : NULL;
}

const char *syntax_explain(const Parser *parser, SyntaxError *error) {
  const char *foreign = foreign_here(parser, &error->loc),
             *here = word_at(parser, parser->token_start);
  if (foreign) return foreign;
  const char *first = word_at(parser, statement_start(parser));
  const char *meant = misspelled(parser, error, first);
  if (meant && !error->wants_declaration) {
    error->loc = place_on_line(parser, error->loc, statement_start(parser));
    return arena_printf(parser->arena, "'%s' begins no statement; did you mean '%s'?", first,
                        meant);
  }
  if (begins_name(here) && error->may_end && parser->bracket_count) {
    bool is_second = assigns(sign_behind(parser, parser->token_start, strlen(here))) ||
                     foreign_find(FOREIGN_FORM, here);
    if (is_second)
      return arena_printf(parser->arena,
                          "a ';' or a new line is missing before '%s', where the next one begins",
                          here);
  }
  bool is_top = error->wants_declaration && begins_name(here);
  if (is_top && assigns(sign_behind(parser, parser->token_start, strlen(here))))
    return arena_printf(parser->arena,
                        "'%s' is assigned outside of a model; `hyper %s = ...` declares a number "
                        "for all, `train { ... }` holds the recipe",
                        here, here);
  return explain_sign(parser, error);
}

const char *syntax_advice(const Parser *parser, const SyntaxError *error) {
  size_t start = statement_start(parser);
  const char *first = word_at(parser, start), *advice = foreign_find(FOREIGN_FORM, first);
  bool is_setting = assigns(sign_behind(parser, start, strlen(first))) && parser->bracket_count;
  const Bracket *open = parse_open(parser);
  if (advice && open && open->open == '(' && error->wants_assignment)
    return "; a parameter is NAME: TYPE, or NAME: TYPE = DEFAULT";
  bool is_body = error->may_end || *error->wanted == 0;
  const char *nearest = advice ? NULL : misspelled(parser, error, first);
  if (nearest) return arena_printf(parser->arena, "; did you mean '%s'?", nearest);
  return advice && !is_setting && !is_body ? arena_printf(parser->arena, "; %s", advice) : "";
}

/* ── braces ───────────────────────────────────────────────────────────────────────────────── */
/* `model M(`, `data D {`, `train {`: no statement or setting is like these. */
static bool begins_declaration(const Parser *parser, const char *word) {
  static const char *const named[] = {"model", "block", "fn", "data", "preset", "hyper", NULL};
  const char *next = parser->text + parser->offset;
  next += strspn(next, " \t");
  if (!strcmp(word, "train") || !strcmp(word, "distributed") || !strcmp(word, "tune"))
    return *next == '{';
  bool is_named = false;
  for (int i = 0; named[i]; i++) is_named = is_named || strcmp(named[i], word) == 0;
  if (!is_named || !is_word_letter(*next)) return false;
  while (is_word_letter(*next)) next++;
  next += strspn(next, " \t");
  char wanted = !strcmp(word, "data") || !strcmp(word, "preset") ? '{' : '(';
  return !strcmp(word, "hyper") ? *next == ':' || *next == '=' : *next == wanted;
}

static void note_bracket(Parser *parser, const Bracket *open) {
  bool is_suspect = open == &parser->suspect;
  diag_note(parser->diag, open->loc, "this '%c' is open%s", open->open,
            is_suspect ? ": the '}' behind it stands in another column" : "");
}

bool syntax_is_brace_missing(Parser *parser, Loc loc, const char *word) {
  const Bracket *open = parse_open(parser);
  if (loc.column != 1 || !open || open->open != '{' || !begins_declaration(parser, word))
    return false;
  if (parser->is_closing) return true;
  parser->is_closing = true;
  diag_error(parser->diag, loc, "a '}' is missing before '%s'", word);
  note_bracket(parser, parser->suspect.open ? &parser->suspect : open);
  return true;
}

void syntax_note_open(Parser *parser) {
  enum { MOST = 3 };
  for (int i = 0; i < parser->bracket_count && i < MOST; i++)
    note_bracket(parser, &parser->bracket[parser->bracket_count - 1 - i]);
}
