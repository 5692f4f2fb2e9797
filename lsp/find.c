/* find: where a name comes from and where else it stands. */
#include "lsp/desk.h"
#include <string.h>

static json_t *location_of(Desk *desk, Arena *arena, const OpenFile *file, const Found *found,
                           int token) {
  const Scan *scan = found->outline->scan;
  const ScanToken *t = &scan->tokens.at[token];
  if (!*found->path) return json_null();
  const char *uri = found->is_here ? file->uri : desk_uri(arena, found->path);
  return desk_location(desk, uri, scan->text, scan->length, t->start, t->end);
}

/* `import "x.ft"`: the file. */
static json_t *find_import(Desk *desk, Arena *arena, OpenFile *file, const Declaration *d) {
  const Scan *scan = desk_outline(file)->scan;
  const ScanToken *t = &scan->tokens.at[d->name];
  if (t->kind != SCAN_STRING || t->end < t->start + 2) return json_null();
  const char *name = arena_strndup(arena, scan->text + t->start + 1, t->end - t->start - 2);
  Found found;
  for (int i = 0; desk_import(arena, file, i, &found); i++) {
    size_t length = strlen(found.path), tail = strlen(name);
    while (tail > 2 && !strncmp(name, "./", 2)) name += 2, tail -= 2;
    bool is_it = length >= tail && !strcmp(found.path + length - tail, name);
    if (is_it) return desk_location(desk, desk_uri(arena, found.path), "", 0, 0, 0);
  }
  return json_null();
}

/* A dimension that is a hyper of an imported file. */
static bool is_of_import(Desk *desk, Arena *arena, OpenFile *file, int token) {
  const Outline *outline = desk_outline(file);
  const char *name = scan_word(arena, outline->scan, token);
  Found found;
  bool is_dimension = false;
  for (int i = 0; i < outline->bindings.count; i++)
    is_dimension |= outline->bindings.at[i].kind == BINDS_DIMENSION &&
                    scan_is(outline->scan, outline->bindings.at[i].token, name);
  return is_dimension && desk_declaration(desk, arena, file, name, &found) && !found.is_here &&
         found.declaration->kind == DECLARES_HYPER;
}

json_t *find_definition(Desk *desk, OpenFile *file, size_t offset) {
  const Outline *outline = desk_outline(file);
  Arena *arena = arena_new();
  int token = scan_at(outline->scan, offset);
  const Declaration *d = token < 0 ? NULL : outline_around(outline, token);
  json_t *answer = NULL;
  Found found = {.outline = outline, .path = file->path, .is_here = true};
  if (d && d->kind == DECLARES_IMPORT && d->name >= 0) answer = find_import(desk, arena, file, d);
  int binding = token < 0 ? -1 : outline_binding(outline, token);
  if (!answer && binding >= 0 && outline_is_reference(outline, token) &&
      !is_of_import(desk, arena, file, token))
    answer = location_of(desk, arena, file, &found, binding);
  else if (!answer && (outline_is_reference(outline, token) || (d && d->kind == DECLARES_PRESET)) &&
           desk_declaration(desk, arena, file, scan_word(arena, outline->scan, token), &found))
    answer = location_of(desk, arena, file, &found, found.declaration->name);
  arena_free(arena);
  return answer ? answer : json_null();
}

/* ── all places ───────────────────────────────────────────────────────────────────────────── */
typedef VEC(int) Tokens;

static bool is_alike(const Scan *scan, int a, int b) {
  const ScanToken *x = &scan->tokens.at[a], *y = &scan->tokens.at[b];
  return y->kind == SCAN_NAME && x->end - x->start == y->end - y->start &&
         !memcmp(scan->text + x->start, scan->text + y->start, x->end - x->start);
}

/* The tokens of this file that mean what the one at `token` does. A name that a declaration binds is its own
 * there; elsewhere it is the top level's. */
static Tokens find_all(Arena *arena, const Outline *outline, int token, bool *is_local) {
  Tokens tokens = {0};
  const Scan *scan = outline->scan;
  *is_local = outline_binding(outline, token) >= 0;
  const Declaration *own = outline_around(outline, token), *around = NULL;
  bool is_bound = false;
  for (int i = 0; i < scan->tokens.count; i++) {
    if (!is_alike(scan, token, i)) continue;
    const Declaration *d = outline_around(outline, i);
    if (*is_local && d != own) continue;
    bool is_preset =
        d && d->kind == DECLARES_PRESET && scan->tokens.at[i].is_first && i != d->keyword;
    if (!outline_is_reference(outline, i) && !(is_preset && !*is_local)) continue;
    if (!*is_local) {
      if (d != around) is_bound = outline_binding(outline, i) >= 0;
      around = d;
      if (is_bound) continue;
    }
    VEC_PUSH(arena, tokens, i);
  }
  return tokens;
}

static int name_at(const Outline *outline, size_t offset) {
  int token = scan_at(outline->scan, offset);
  const Declaration *d = token < 0 ? NULL : outline_around(outline, token);
  bool is_preset = d && d->kind == DECLARES_PRESET && scan_is_name(outline->scan, token) &&
                   token != d->keyword && token != d->name;
  return token >= 0 && (outline_is_reference(outline, token) || is_preset) ? token : -1;
}

/* Every place of the name that stands at `offset`; none where no name is there. */
static Tokens find_all_at(Arena *arena, const Outline *outline, size_t offset) {
  bool is_local;
  int token = name_at(outline, offset);
  return token < 0 ? (Tokens){0} : find_all(arena, outline, token, &is_local);
}

/* Is the token where its name is bound or declared? */
static bool declares(const Outline *outline, int token) {
  const Declaration *d = outline_around(outline, token);
  if (d && d->name == token) return true;
  for (int i = 0; i < outline->bindings.count; i++)
    if (outline->bindings.at[i].token == token) return true;
  return false;
}

json_t *find_references(Desk *desk, OpenFile *file, size_t offset, bool with_declaration) {
  const Outline *outline = desk_outline(file);
  json_t *list = json_array();
  Arena *arena = arena_new();
  Tokens tokens = find_all_at(arena, outline, offset);
  for (int i = 0; i < tokens.count; i++)
    if (with_declaration || !declares(outline, tokens.at[i]))
      json_array_append_new(list, json_pack("{s:o, s:o}", "uri", desk_string(file->uri), "range",
                                            desk_token_range(desk, file, tokens.at[i])));
  arena_free(arena);
  return list;
}

json_t *find_highlights(Desk *desk, OpenFile *file, size_t offset) {
  enum { READ = 2, WRITE = 3 };
  const Outline *outline = desk_outline(file);
  json_t *list = json_array();
  Arena *arena = arena_new();
  Tokens tokens = find_all_at(arena, outline, offset);
  for (int i = 0; i < tokens.count; i++)
    json_array_append_new(list, json_pack("{s:o, s:i}", "range",
                                          desk_token_range(desk, file, tokens.at[i]), "kind",
                                          declares(outline, tokens.at[i]) ? WRITE : READ));
  arena_free(arena);
  return list;
}

static bool is_a_name(const char *name) {
  static const char *const reserved[] = {"if", "else", "repeat", "in",    "as",   "return", "and",
                                         "or", "not",  "true",   "false", "none", NULL};
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
  size_t length = strlen(name);
  return length && length <= 200 && length == strspn(name, letters) &&
         !(*name >= '0' && *name <= '9') && !text_is_one_of(name, reserved);
}

static bool is_parameter(const Outline *outline, int token) {
  for (int i = 0; i < outline->bindings.count; i++)
    if (outline->bindings.at[i].token == token)
      return outline->bindings.at[i].kind == BINDS_PARAMETER;
  return false;
}

/* Does the name stand for something in the declaration, or, without one, in the file? */
static bool is_used(const Outline *outline, const char *name, const Declaration *within) {
  int from = within ? within->keyword : 0,
      to = within ? within->end : outline->scan->tokens.count - 1;
  for (int i = from; i <= to; i++)
    if (scan_is(outline->scan, i, name) && outline_is_reference(outline, i)) return true;
  return false;
}

json_t *find_rename(Desk *desk, OpenFile *file, size_t offset, const char *name, const char **why) {
  const Outline *outline = desk_outline(file);
  int token = name_at(outline, offset);
  Arena *arena = arena_new();
  Found found;
  bool is_local = false;
  Tokens tokens = {0};
  if (token >= 0) tokens = find_all(arena, outline, token, &is_local);
  bool is_elsewhere =
      token >= 0 && !is_local &&
      (!desk_declaration(desk, arena, file, scan_word(arena, outline->scan, token), &found) ||
       !found.is_here);
  bool is_argument = false, is_size = is_local && is_of_import(desk, arena, file, token);
  for (int i = 0; i < tokens.count && is_local; i++)
    is_argument |= is_parameter(outline, tokens.at[i]);
  *why = token < 0 ? "there is no name here that can be renamed"
         : is_size ? "this is a hyper of an imported file"
         : is_argument
             ? "an argument or input has this name for others, too: calls, recipes, --input"
         : !is_a_name(name) ? "a name is letters, digits and _, and no reserved word"
         : is_elsewhere     ? "this name is not declared in this file"
                            : NULL;
  if (!*why && is_used(outline, name, is_local ? outline_around(outline, token) : NULL))
    *why = "this name means something here already";
  json_t *edits = *why ? NULL : json_array();
  for (int i = 0; edits && i < tokens.count; i++)
    json_array_append_new(edits,
                          json_pack("{s:o, s:s}", "range",
                                    desk_token_range(desk, file, tokens.at[i]), "newText", name));
  arena_free(arena);
  return edits ? json_pack("{s:{s:o}}", "changes", file->uri, edits) : NULL;
}

/* ── symbols ──────────────────────────────────────────────────────────────────────────────── */
static json_t *symbol(const Desk *desk, const OpenFile *file, const char *name, int kind,
                      const char *detail, int from, int to, int chosen) {
  const Scan *scan = file->outline->scan;
  return json_pack(
      "{s:o, s:i, s:o, s:o, s:o}", "name", desk_string(*name ? name : "?"), "kind", kind, "detail",
      desk_string(detail), "range",
      desk_range(desk, &file->document, scan->tokens.at[from].start, scan->tokens.at[to].end),
      "selectionRange", desk_token_range(desk, file, chosen));
}

static json_t *symbols_inside(const Desk *desk, Arena *arena, const OpenFile *file, int index,
                              int *at) {
  enum { FIELD = 8, VARIABLE = 13, CONSTANT = 14, PROPERTY = 7 };
  static const int kinds[] = {[BINDS_PARAM] = FIELD,
                              [BINDS_STATE] = FIELD,
                              [BINDS_METRIC] = PROPERTY,
                              [BINDS_OUTPUT] = PROPERTY};
  static const char *const details[] = {[BINDS_PARAM] = "param",
                                        [BINDS_STATE] = "state",
                                        [BINDS_METRIC] = "metric",
                                        [BINDS_OUTPUT] = "output"};
  const Outline *outline = file->outline;
  json_t *list = json_array();
  for (; *at < outline->bindings.count && outline->bindings.at[*at].declaration <= index; ++*at) {
    const Binding *b = &outline->bindings.at[*at];
    bool is_shown = b->declaration == index && b->kind >= BINDS_PARAM && b->kind <= BINDS_OUTPUT;
    if (is_shown)
      json_array_append_new(list,
                            symbol(desk, file, scan_word(arena, outline->scan, b->token),
                                   kinds[b->kind], details[b->kind], b->token, b->token, b->token));
  }
  return list;
}

json_t *find_symbols(Desk *desk, OpenFile *file) {
  enum { MODULE = 2, CLASS = 5, FUNCTION = 12, CONSTANT = 14, OBJECT = 19, STRUCT = 23 };
  static const int kinds[] = {
      [DECLARES_HYPER] = CONSTANT, [DECLARES_PRESET] = OBJECT,      [DECLARES_BLOCK] = CLASS,
      [DECLARES_FN] = FUNCTION,    [DECLARES_MODEL] = STRUCT,       [DECLARES_DATA] = OBJECT,
      [DECLARES_TRAIN] = OBJECT,   [DECLARES_DISTRIBUTED] = OBJECT, [DECLARES_TUNE] = OBJECT,
      [DECLARES_IMPORT] = MODULE};
  const Outline *outline = desk_outline(file);
  Arena *arena = arena_new();
  json_t *list = json_array();
  int at = 0;
  for (int i = 0; i < outline->declarations.count; i++) {
    const Declaration *d = &outline->declarations.at[i];
    int chosen = d->name >= 0 && d->name <= d->end ? d->name : d->keyword;
    const char *name = scan_word(arena, outline->scan, chosen),
               *detail = outline_signature(arena, outline, d);
    json_t *inside = symbols_inside(desk, arena, file, i, &at);
    json_t *one = symbol(desk, file, name, kinds[d->kind], detail, d->keyword, d->end, chosen);
    json_object_set_new(one, "children", inside);
    json_array_append_new(list, one);
  }
  arena_free(arena);
  return list;
}
