/* words: see words.h. */
#include "lsp/words.h"
#include <string.h>

char words_sign(const Scan *scan, int token) {
  if (token < 0 || token >= scan->tokens.count) return 0;
  const ScanToken *t = &scan->tokens.at[token];
  return t->kind == SCAN_SIGN && t->end == t->start + 1 ? scan->text[t->start] : 0;
}

int words_callee(const Scan *scan, int open) {
  int before = open < 0 ? -1 : scan_previous(scan, open);
  return words_sign(scan, open) == '(' && scan_is_name(scan, before) ? before : -1;
}

static bool is_new_line(const Scan *scan, size_t from, size_t to) {
  return from < to && memchr(scan->text + from, '\n', to - from) != NULL;
}

/* Does a statement begin at the word, which stands behind `before`? */
static bool begins_statement(const Scan *scan, int before, int brace, size_t from) {
  char sign = words_sign(scan, before);
  if (before == brace || sign == ';' || sign == '{' || sign == '}') return true;
  bool goes_on = scan->tokens.at[before].kind == SCAN_SIGN && !(sign && strchr(")]", sign));
  return !goes_on && is_new_line(scan, scan->tokens.at[before].end, from);
}

static int first_of_statement(const Scan *scan, int before, int brace) {
  for (int i = before; i > brace; i--)
    if (scan->tokens.at[i].parent == brace && scan->tokens.at[i].is_first && scan_is_name(scan, i))
      return i;
  return -1;
}

Place words_place(Arena *arena, const Outline *outline, size_t offset) {
  const Scan *scan = outline->scan;
  Place place = {.outline = outline,
                 .from = offset,
                 .to = offset,
                 .section = "",
                 .brace = -1,
                 .statement = -1};
  int token = scan_at(scan, offset);
  if (token >= 0 && scan_is_name(scan, token) && scan->tokens.at[token].start <= offset) {
    place.from = scan->tokens.at[token].start;
    place.to = scan->tokens.at[token].end;
  }
  place.before = scan_before(scan, place.from);
  place.open = scan_open_at(scan, place.from, &place.in_word);
  place.declaration = outline_around_offset(outline, place.from);
  if (place.declaration && place.open < 0 && place.declaration->body >= 0 &&
      place.before >= place.declaration->body)
    place.declaration = NULL;
  for (place.brace = place.open; place.brace >= 0 && words_sign(scan, place.brace) != '{';)
    place.brace = scan->tokens.at[place.brace].parent;
  if (place.brace >= 0 &&
      !(place.open == place.brace && begins_statement(scan, place.before, place.brace, place.from)))
    place.statement = first_of_statement(scan, place.before, place.brace);
  int outer = place.brace < 0 ? -1 : scan->tokens.at[place.brace].parent;
  int named = place.brace < 0 ? -1 : scan_previous(scan, place.brace);
  if (outer >= 0 && scan_is_name(scan, named)) place.section = scan_word(arena, scan, named);
  return place;
}

const char *words_prefix(Arena *arena, const Place *place) {
  if (!place->declaration) return "";
  DeclarationKind kind = place->declaration->kind;
  if (kind == DECLARES_DATA) return "data.";
  if (kind == DECLARES_DISTRIBUTED) return "distributed.";
  if (kind != DECLARES_TRAIN) return "";
  return *place->section ? arena_printf(arena, "train.%s.", place->section) : "train.";
}

int words_setting(Arena *arena, const Place *place, const char *entry) {
  const char *prefix = words_prefix(arena, place);
  return *prefix ? setting_find(arena_printf(arena, "%s%s", prefix, entry)) : -1;
}

const char *words_setting_text(Arena *arena, int setting) {
  static const char *const kinds[] = {
      [SET_INT] = "int", [SET_FLOAT] = "float", [SET_BOOL] = "bool", [SET_STR] = "str"};
  const SettingInfo *info = &setting_info[setting];
  const char *otherwise =
      *info->otherwise ? arena_printf(arena, ", `%s` by default", info->otherwise) : "";
  const char *when = info->when == WHEN_STATIC
                         ? "; settled when the model is compiled (`ftc --set`)"
                     : info->when == WHEN_RUNTIME ? "; `ftrun --set` may change it"
                                                  : "; the runtime sets it";
  return arena_printf(arena, "%s\n\n%s%s%s", info->doc, kinds[info->kind], otherwise, when);
}

static const char *argument_text(Arena *arena, const TransformParameter *p) {
  int length = 0;
  if (p->is_needed) return "";
  if (p->type == PARAMETER_WORD) {
    const char *word = transform_word(p->words, (int)p->otherwise.number[0], &length);
    return word ? arena_printf(arena, "=%.*s", length, word) : "";
  }
  if (p->type == PARAMETER_FLAG) return p->otherwise.number[0] != 0 ? "=true" : "=false";
  if (p->otherwise.count == 1) return arena_printf(arena, "=%g", p->otherwise.number[0]);
  const char *text = "=(";
  for (int i = 0; i < p->otherwise.count; i++)
    text = arena_printf(arena, "%s%s%.3g", text, i ? ", " : "", p->otherwise.number[i]);
  return arena_printf(arena, "%s)", text);
}

const char *words_transform_text(Arena *arena, const TransformKind *kind) {
  const char *text = arena_printf(arena, "%s(", kind->name);
  for (int i = 0; i < transform_parameter_count(kind); i++)
    text = arena_printf(arena, "%s%s%s%s", text, i ? ", " : "", kind->parameter[i].name,
                        argument_text(arena, &kind->parameter[i]));
  return arena_printf(arena, "%s)", text);
}

const char *words_builtin_text(Arena *arena, const Builtin *builtin) {
  const char *text = arena_printf(arena, "%s(", builtin->name), *at = builtin->parameters;
  for (bool is_first = true; *at; is_first = false) {
    size_t length = strcspn(at, " ");
    bool is_rest = *at == '*';
    text = arena_printf(arena, "%s%s%.*s%s", text, is_first ? "" : ", ", (int)length - is_rest,
                        at + is_rest, is_rest ? "..." : "");
    at += length;
    at += strspn(at, " ");
  }
  return arena_printf(arena, "%s)", text);
}
