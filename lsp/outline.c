/* outline: see outline.h. */
#include "lsp/outline.h"
#include "frontend/tune.h"
#include <string.h>

static const char *const kinds[] = {"import", "hyper", "preset", "block",       "fn",
                                    "model",  "data",  "train",  "distributed", "tune"};
enum { KINDS = sizeof kinds / sizeof *kinds };

const char *outline_kind(DeclarationKind kind) { return kinds[kind]; }

static char sign_at(const Scan *scan, int token) {
  if (token < 0 || token >= scan->tokens.count) return 0;
  const ScanToken *t = &scan->tokens.at[token];
  return t->kind == SCAN_SIGN && t->end == t->start + 1 ? scan->text[t->start] : 0;
}

static int parent_of(const Scan *scan, int token) { return scan->tokens.at[token].parent; }

/* The first ( in front of the body, and the second one. */
static void find_signature(const Scan *scan, Declaration *d, int limit) {
  int at = scan_next(scan, d->name >= 0 ? d->name : d->keyword);
  bool has_brackets =
      d->kind == DECLARES_BLOCK || d->kind == DECLARES_FN || d->kind == DECLARES_MODEL;
  if (has_brackets && sign_at(scan, at) == '(') {
    d->first_open = at;
    int close = scan->tokens.at[at].partner, next = close < 0 ? -1 : scan_next(scan, close);
    if (d->kind == DECLARES_BLOCK && sign_at(scan, next) == '(') d->second_open = next;
  }
  for (; at >= 0 && at < limit && d->kind != DECLARES_HYPER; at = scan_next(scan, at))
    if (sign_at(scan, at) == '{' && parent_of(scan, at) < 0) {
      d->body = at;
      return;
    }
}

static void find_declarations(Arena *arena, Outline *outline) {
  const Scan *scan = outline->scan;
  for (int i = 0; i < scan->tokens.count; i++) {
    if (!scan_is_declaration(scan, i)) continue;
    Declaration d = {.keyword = i, .name = -1, .first_open = -1, .second_open = -1, .body = -1};
    for (int k = 0; k < KINDS; k++)
      if (scan_is(scan, i, kinds[k])) d.kind = (DeclarationKind)k;
    if (d.kind != DECLARES_TRAIN && d.kind != DECLARES_DISTRIBUTED && d.kind != DECLARES_TUNE)
      d.name = scan_next(scan, i);
    if (d.kind == DECLARES_HYPER && d.name >= 0) {
      const ScanToken *t = &scan->tokens.at[d.name];
      lookup_add(&outline->hypers, scan->text + t->start, t->end - t->start, d.name);
    }
    VEC_PUSH(arena, outline->declarations, d);
  }
  for (int i = 0; i < outline->declarations.count; i++) {
    Declaration *d = &outline->declarations.at[i];
    int limit = i + 1 < outline->declarations.count ? outline->declarations.at[i + 1].keyword
                                                    : scan->tokens.count;
    d->end = limit - 1;
    find_signature(scan, d, limit);
    int close = d->body < 0 ? -1 : scan->tokens.at[d->body].partner;
    if (close >= 0) d->end = close;
    while (d->end > d->keyword && scan->tokens.at[d->end].kind == SCAN_COMMENT) d->end--;
  }
}

/* ── bindings ─────────────────────────────────────────────────────────────────────────────── */
static void bind_token(Arena *arena, Outline *outline, BindingKind kind, int token,
                       int declaration) {
  if (!scan_is_name(outline->scan, token)) return;
  Binding binding = {kind, token, declaration};
  VEC_PUSH(arena, outline->bindings, binding);
}

static bool same_word(const Scan *scan, int a, int b) {
  const ScanToken *x = &scan->tokens.at[a], *y = &scan->tokens.at[b];
  return x->end - x->start == y->end - y->start &&
         memcmp(scan->text + x->start, scan->text + y->start, x->end - x->start) == 0;
}

/* Is the name known where a signature has it as a dimension: a hyper, an argument, a dimension that was there before? */
static bool is_known_size(const Outline *outline, int token, int declaration) {
  enum { MOST_LOOKS = 200 };
  for (int i = outline->bindings.count - 1, looks = 0; i >= 0 && looks < MOST_LOOKS; i--, looks++) {
    const Binding *b = &outline->bindings.at[i];
    if (b->declaration != declaration) break;
    if (same_word(outline->scan, b->token, token)) return true;
  }
  int hyper =
      lookup_find(&outline->hypers, outline->scan->text + outline->scan->tokens.at[token].start,
                  outline->scan->tokens.at[token].end - outline->scan->tokens.at[token].start);
  return hyper >= 0;
}

/* Inside the brackets of a signature: parameters, and in [ ] dimensions. */
static void bind_signature(Arena *arena, Outline *outline, int open, int declaration) {
  const Scan *scan = outline->scan;
  int limit = outline->declarations.at[declaration].end;
  for (int i = open + 1; open >= 0 && i <= limit; i++) {
    if (i == scan->tokens.at[open].partner) return;
    if (!scan_is_name(scan, i)) continue;
    int parent = parent_of(scan, i), before = scan_previous(scan, i), behind = scan_next(scan, i);
    char last = sign_at(scan, before), next = sign_at(scan, behind);
    if (parent == open && (before == open || last == ',')) {
      bind_token(arena, outline, BINDS_PARAMETER, i, declaration);
    } else if (parent >= 0 && sign_at(scan, parent) == '[' && parent_of(scan, parent) == open &&
               (last == '[' || last == ',') && (next == ',' || next == ']' || next == '=') &&
               !is_known_size(outline, i, declaration)) {
      bind_token(arena, outline, BINDS_DIMENSION, i, declaration);
    }
  }
}

/* `a = `, `a, b = `: how many names are bound by the statement that begins at `token`; 0: none. */
static int count_targets(const Scan *scan, int token) {
  int count = 1, at = scan_next(scan, token);
  while (sign_at(scan, at) == ',' && scan_is_name(scan, scan_next(scan, at))) {
    at = scan_next(scan, scan_next(scan, at));
    count++;
  }
  return sign_at(scan, at) == '=' ? count : 0;
}

static void bind_statement(Arena *arena, Outline *outline, int token, int declaration) {
  static const struct {
    const char *word;
    BindingKind kind;
  } words[] = {{"param", BINDS_PARAM},
               {"state", BINDS_STATE},
               {"metric", BINDS_METRIC},
               {"output", BINDS_OUTPUT},
               {"repeat", BINDS_COUNTER}};
  const Scan *scan = outline->scan;
  int next = scan_next(scan, token);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (scan_is(scan, token, words[i].word) && scan_is_name(scan, next)) {
      bool is_use = words[i].kind == BINDS_OUTPUT && sign_at(scan, scan_next(scan, next)) != '=';
      if (!is_use) bind_token(arena, outline, words[i].kind, next, declaration);
      return;
    }
  int targets = count_targets(scan, token);
  for (int i = 0; i < targets; i++, token = scan_next(scan, scan_next(scan, token)))
    bind_token(arena, outline, BINDS_VARIABLE, token, declaration);
}

static void find_bindings(Arena *arena, Outline *outline) {
  const Scan *scan = outline->scan;
  for (int i = 0; i < outline->declarations.count; i++) {
    const Declaration d = outline->declarations.at[i];
    bool is_code = d.kind == DECLARES_BLOCK || d.kind == DECLARES_FN || d.kind == DECLARES_MODEL;
    if (!is_code) continue;
    bind_signature(arena, outline, d.first_open, i);
    bind_signature(arena, outline, d.second_open, i);
    for (int t = d.body + 1; d.body >= 0 && t <= d.end; t++) {
      bool is_statement = scan_is_name(scan, t) && scan->tokens.at[t].is_first &&
                          parent_of(scan, t) >= 0 && sign_at(scan, parent_of(scan, t)) == '{';
      if (is_statement) bind_statement(arena, outline, t, i);
    }
  }
}

Outline *outline_text(Arena *arena, const char *text, size_t length) {
  Outline *outline = ARENA_NEW(arena, Outline);
  *outline = (Outline){.scan = scan_text(arena, text, length), .hypers = {.arena = arena}};
  find_declarations(arena, outline);
  find_bindings(arena, outline);
  return outline;
}

/* ── looking up ───────────────────────────────────────────────────────────────────────────── */
const Declaration *outline_around(const Outline *outline, int token) {
  int low = -1, high = outline->declarations.count;
  while (high - low > 1) {
    int middle = low + (high - low) / 2;
    if (outline->declarations.at[middle].keyword <= token)
      low = middle;
    else
      high = middle;
  }
  return low >= 0 && token <= outline->declarations.at[low].end ? &outline->declarations.at[low]
                                                                : NULL;
}

/* Behind the last token of a declaration that is not closed one is still inside of it. */
const Declaration *outline_around_offset(const Outline *outline, size_t offset) {
  const Scan *scan = outline->scan;
  int token = scan_before(scan, offset);
  const Declaration *found = NULL;
  for (int i = 0; i < outline->declarations.count; i++)
    if (outline->declarations.at[i].keyword <= token) found = &outline->declarations.at[i];
  if (!found) return NULL;
  bool is_closed = found->body >= 0 && scan->tokens.at[found->body].partner >= 0;
  if (is_closed && offset >= scan->tokens.at[found->end].end) return NULL;
  return found;
}

const Declaration *outline_find(const Outline *outline, const char *name) {
  for (int i = 0; i < outline->declarations.count; i++) {
    const Declaration *d = &outline->declarations.at[i];
    bool is_named = d->kind != DECLARES_IMPORT && d->kind != DECLARES_PRESET && d->name >= 0;
    if (is_named && scan_is(outline->scan, d->name, name)) return d;
  }
  return NULL;
}

int outline_binding(const Outline *outline, int token) {
  const Declaration *d = outline_around(outline, token);
  if (!d || !scan_is_name(outline->scan, token)) return -1;
  int index = (int)(d - outline->declarations.at), found = -1;
  for (int i = 0; i < outline->bindings.count; i++) {
    const Binding *b = &outline->bindings.at[i];
    if (b->declaration != index || !same_word(outline->scan, b->token, token)) continue;
    if (found < 0 || b->token <= token) found = b->token;
  }
  return found;
}

/* In a tune block hypers are the names of entries, `hyper.NAME`, and what stands behind `if`; a word that is a setting of
 * the study, and all values, are no names of the file. */
static bool is_tuned_name(const Outline *outline, int token) {
  const Scan *scan = outline->scan;
  int before = scan_previous(scan, token), of = scan_previous(scan, before);
  if (sign_at(scan, before) == '.') return scan_is(scan, of, "hyper");
  if (scan_is(scan, before, "if")) return true;
  for (const TuneSetting *setting = tune_settings; setting->name; setting++)
    if (scan_is(scan, token, setting->name)) return false;
  return scan->tokens.at[token].is_first;
}

bool outline_is_reference(const Outline *outline, int token) {
  const Scan *scan = outline->scan;
  if (!scan_is_name(scan, token)) return false;
  int before = scan_previous(scan, token), behind = scan_next(scan, token);
  const Declaration *d = outline_around(outline, token);
  if (d && d->kind == DECLARES_TUNE && token != d->keyword) return is_tuned_name(outline, token);
  if (sign_at(scan, before) == '.') return false;
  if (!d || token == d->keyword) return false;
  if (token == d->name) return true;
  int parent = parent_of(scan, token);
  char around = parent < 0 ? 0 : sign_at(scan, parent);
  bool is_signature = parent >= 0 && (parent == d->first_open || parent == d->second_open);
  if (around == '(' && !is_signature && sign_at(scan, behind) == '=') return false; /* f(axis=1) */
  if (scan_is(scan, before, "as") && sign_at(scan, behind) == '{') return false;    /* a prefix */
  bool is_recipe =
      d->kind == DECLARES_DATA || d->kind == DECLARES_TRAIN || d->kind == DECLARES_DISTRIBUTED;
  return !is_recipe || around != '{' || !scan->tokens.at[token].is_first;
}

/* ── for people ───────────────────────────────────────────────────────────────────────────── */
/* The bytes from one token to another, on one line. */
static const char *words_between(Arena *arena, const Scan *scan, int from, int to) {
  size_t start = scan->tokens.at[from].start, end = scan->tokens.at[to].end, n = 0;
  if (end - start > 2000) end = start + 2000;
  char *text = arena_alloc(arena, end - start + 1);
  for (size_t i = start; i < end; i++) {
    char c = scan->text[i];
    bool is_blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (!is_blank)
      text[n++] = c;
    else if (n && text[n - 1] != ' ')
      text[n++] = ' ';
  }
  text[n] = 0;
  return text;
}

static int end_of_line(const Scan *scan, int token) {
  int last = token;
  for (int i = scan_next(scan, token); i >= 0; i = scan_next(scan, i)) {
    const ScanToken *t = &scan->tokens.at[i];
    if (t->is_new_line && t->parent < 0) break;
    last = i;
  }
  return last;
}

const char *outline_signature(Arena *arena, const Outline *outline, const Declaration *d) {
  const Scan *scan = outline->scan;
  int last = d->name >= 0 ? d->name : d->keyword;
  if (d->kind == DECLARES_HYPER || d->kind == DECLARES_IMPORT)
    last = end_of_line(scan, d->keyword);
  else if (d->first_open >= 0 && d->body >= 0)
    last = scan_previous(scan, d->body);
  else if (d->first_open >= 0 && scan->tokens.at[d->first_open].partner >= 0)
    last = scan->tokens.at[d->first_open].partner;
  return words_between(arena, scan, d->keyword, last < d->keyword ? d->keyword : last);
}

/* A comment's text without its slashes and stars. */
static const char *comment_text(Arena *arena, const Scan *scan, int token) {
  const ScanToken *t = &scan->tokens.at[token];
  size_t start = t->start + 2, end = t->end;
  bool is_block = scan->text[t->start + 1] == '*';
  if (is_block && end - start >= 2) end -= 2;
  while (start < end && strchr("/* \t", scan->text[start]) && scan->text[start]) start++;
  while (end > start && (scan->text[end - 1] == ' ' || scan->text[end - 1] == '\r')) end--;
  if (end - start > 2000) end = start + 2000;
  char *text = arena_strndup(arena, scan->text + start, end - start);
  if (is_block) { /* the stars that begin its lines are none of it */
    size_t n = 0;
    bool is_line = false;
    for (const char *c = text; *c; c++) {
      if (is_line && strchr(" \t*", *c)) continue;
      is_line = *c == '\n';
      text[n++] = *c;
    }
    text[n] = 0;
  }
  return text;
}

static int lines_between(const Scan *scan, size_t from, size_t to) {
  int lines = 0;
  for (size_t i = from; i < to && lines < 2; i++) lines += scan->text[i] == '\n';
  return lines;
}

const char *outline_comment(Arena *arena, const Outline *outline, const Declaration *d) {
  enum { MOST_LINES = 40 };
  const Scan *scan = outline->scan;
  const char *text = "";
  int last = d->kind == DECLARES_HYPER ? end_of_line(scan, d->keyword) : d->body;
  bool is_behind =
      last >= 0 && last + 1 < scan->tokens.count &&
      scan->tokens.at[last + 1].kind == SCAN_COMMENT &&
      lines_between(scan, scan->tokens.at[last].end, scan->tokens.at[last + 1].start) == 0;
  if (is_behind && d->kind == DECLARES_HYPER) return comment_text(arena, scan, last + 1);
  size_t below = scan->tokens.at[d->keyword].start;
  for (int i = d->keyword - 1, lines = 0; i >= 0 && lines < MOST_LINES; i--, lines++) {
    const ScanToken *t = &scan->tokens.at[i];
    bool is_alone =
        t->kind == SCAN_COMMENT && t->is_new_line && lines_between(scan, t->end, below) <= 1;
    if (!is_alone) break;
    text = arena_printf(arena, "%s%s%s", comment_text(arena, scan, i), *text ? "\n" : "", text);
    below = t->start;
  }
  return !*text && is_behind ? comment_text(arena, scan, last + 1) : text;
}
