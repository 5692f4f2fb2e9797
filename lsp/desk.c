/* desk: see desk.h. */
#include "lsp/desk.h"
#include "base/memory.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void desk_init(Desk *desk) {
  *desk = (Desk){.arena = arena_new()};
  const char *name, *text;
  for (int i = 0; frontend_std(i, &name, &text); i++) {
    VEC_PUSH(desk->arena, desk->std, outline_text(desk->arena, text, strlen(text)));
    VEC_PUSH(desk->arena, desk->std_names, name);
  }
}

/* ── paths ────────────────────────────────────────────────────────────────────────────────── */
static int uri_digit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

char *desk_path(const char *uri) {
  const char *rest = strncmp(uri, "file://", 7) == 0 ? strchr(uri + 7, '/') : NULL;
  if (!rest) rest = "untitled.ft";
  char *path = malloc(strlen(rest) + 1), *to = path;
  if (!path) memory_none();
  for (const char *c = rest; *c; c++) {
    int high = *c == '%' ? uri_digit(c[1]) : -1, low = high < 0 ? -1 : uri_digit(c[2]);
    bool is_byte = low >= 0 && (high || low);
    *to++ = is_byte ? (char)(high * 16 + low) : *c;
    if (is_byte) c += 2;
  }
  *to = 0;
  return path;
}

const char *desk_uri(Arena *arena, const char *path) {
  Text out = {0};
  text_append(&out, "file://", 7);
  for (const char *c = path; *c; c++) {
    bool is_plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                    (*c >= '0' && *c <= '9') || strchr("/-._~", *c);
    if (is_plain)
      text_append(&out, c, 1);
    else
      text_printf(&out, "%%%02X", (unsigned char)*c);
  }
  const char *uri = arena_strdup(arena, text_cstr(&out));
  text_free(&out);
  return uri;
}

static const char *desk_absolute(Arena *arena, const char *path) {
  char *real = realpath(path, NULL);
  const char *copy = arena_strdup(arena, real ? real : path);
  free(real);
  return copy;
}

/* ── files ────────────────────────────────────────────────────────────────────────────────── */
OpenFile *desk_find(Desk *desk, const char *uri) {
  for (int i = 0; i < desk->count; i++)
    if (strcmp(desk->file[i]->uri, uri) == 0) return desk->file[i];
  return NULL;
}

OpenFile *desk_open(Desk *desk, const char *uri) {
  if (desk->count == DESK_MOST_FILES) return NULL;
  OpenFile *file = calloc(1, sizeof *file);
  char *copy = strdup(uri);
  if (!file || !copy) memory_none();
  file->uri = copy;
  file->path = desk_path(uri);
  document_set(&file->document, "", 0);
  return desk->file[desk->count++] = file;
}

static void forget_analyses(OpenFile *file) {
  if (file->good != file->last) analysis_free(file->good);
  analysis_free(file->last);
  file->last = file->good = NULL;
}

static void free_file(OpenFile *file) {
  forget_analyses(file);
  arena_free(file->arena);
  document_free(&file->document);
  free(file->uri);
  free(file->path);
  free(file);
}

void desk_close(Desk *desk, OpenFile *file) {
  for (int i = 0; i < desk->count; i++)
    if (desk->file[i] == file) desk->file[i] = desk->file[--desk->count];
  free_file(file);
}

void desk_free(Desk *desk) {
  while (desk->count) free_file(desk->file[--desk->count]);
  arena_free(desk->arena);
}

void desk_touch(Desk *desk, OpenFile *file) {
  arena_free(file->arena);
  file->arena = NULL;
  file->outline = NULL;
  file->is_dirty = true;
  file->used = ++desk->clock;
  for (int i = 0; i < desk->count; i++)
    if (desk->file[i] != file && desk_imports(desk->file[i], file->path))
      desk->file[i]->is_dirty = true;
}

Outline *desk_outline(OpenFile *file) {
  if (!file->outline) {
    file->arena = arena_new();
    file->outline =
        outline_text(file->arena, text_cstr(&file->document.text), file->document.text.count);
  }
  return file->outline;
}

void desk_keep(Desk *desk, OpenFile *file, Analysis *analysis) {
  bool is_useful = analysis->is_parsed;
  if (is_useful) {
    if (file->last != file->good) analysis_free(file->last);
    file->last = analysis;
    if (analysis->is_good) {
      if (file->good != analysis) analysis_free(file->good);
      file->good = analysis;
    }
  } else {
    analysis_free(analysis);
  }
  file->used = ++desk->clock;
  for (;;) {
    int count = 0;
    OpenFile *oldest = NULL;
    for (int i = 0; i < desk->count; i++) {
      OpenFile *other = desk->file[i];
      if (!other->last && !other->good) continue;
      count++;
      if (other != file && (!oldest || other->used < oldest->used)) oldest = other;
    }
    if (count <= DESK_MOST_ANALYSES || !oldest) return;
    forget_analyses(oldest);
  }
}

/* ── declarations ─────────────────────────────────────────────────────────────────────────── */
/* The analysis that knows the imports. */
static const Analysis *imports_of(const OpenFile *file) {
  return file->last ? file->last : file->good;
}

static int count_imports(const Analysis *analysis) {
  int first = analysis->watch.std_first;
  return (first ? first - 1 : analysis->diag.files.count) - 1;
}

bool desk_imports(const OpenFile *file, const char *path) {
  const Analysis *analysis = imports_of(file);
  for (int i = 0; analysis && i < count_imports(analysis); i++) {
    char *real = realpath(analysis->diag.files.at[i + 1].path, NULL);
    bool is_same = !strcmp(real ? real : analysis->diag.files.at[i + 1].path, path);
    free(real);
    if (is_same) return true;
  }
  return false;
}

bool desk_import(Arena *arena, const OpenFile *file, int index, Found *out) {
  const Analysis *analysis = imports_of(file);
  if (!analysis || index >= count_imports(analysis)) return false;
  const SourceFile *source = &analysis->diag.files.at[index + 1];
  *out = (Found){.outline = outline_text(arena, source->text, strlen(source->text)),
                 .path = desk_absolute(arena, source->path)};
  return true;
}

const char *desk_std_path(Arena *arena, const char *name, const char *text) {
  char self[PATH_MAX];
  ssize_t count = readlink("/proc/self/exe", self, sizeof self - 1);
  const char *path = "";
  for (int i = 0; count > 0 && i < 2; i++) {
    self[count] = 0;
    char *slash = strrchr(self, '/');
    if (slash) *slash = 0;
    const char *try = i ? arena_printf(arena, "%s/%s.ft", FT_STD_FOLDER, name)
                        : arena_printf(arena, "%s/../share/ft/std/%s.ft", self, name);
    Text there = {0};
    if (text_read_file(&there, try) == 0 && !strcmp(text_cstr(&there), text))
      path = desk_absolute(arena, try);
    text_free(&there);
    if (*path) break;
  }
  return path;
}

bool desk_declaration(Desk *desk, Arena *arena, OpenFile *file, const char *name, Found *out) {
  *out = (Found){.outline = desk_outline(file), .path = file->path, .is_here = true};
  out->declaration = outline_find(out->outline, name);
  if (out->declaration) return true;
  for (int i = 0; desk_import(arena, file, i, out); i++)
    if ((out->declaration = outline_find(out->outline, name))) return true;
  for (int i = 0; i < desk->std.count; i++) {
    *out = (Found){.outline = desk->std.at[i], .path = "", .is_std = true};
    out->declaration = outline_find(out->outline, name);
    if (!out->declaration) continue;
    out->path = desk_std_path(arena, desk->std_names.at[i], out->outline->scan->text);
    return true;
  }
  return false;
}

const Mention *desk_mention(OpenFile *file, int token) {
  const Outline *outline = desk_outline(file);
  const char *text = text_cstr(&file->document.text);
  size_t length = file->document.text.count;
  int places[2] = {token, outline_binding(outline, token)};
  for (int i = 0; i < 2; i++) {
    if (places[i] < 0) continue;
    const ScanToken *t = &outline->scan->tokens.at[places[i]];
    const Mention *mention = analysis_mention(file->last, text, length, t->start, t->end);
    if (!mention) mention = analysis_mention(file->good, text, length, t->start, t->end);
    if (mention) return mention;
  }
  return NULL;
}

/* ── JSON ─────────────────────────────────────────────────────────────────────────────────── */
json_t *desk_string(const char *text) {
  json_t *string = json_string(text);
  if (string) return string;
  char *copy = strdup(text);
  if (!copy) memory_none();
  for (char *c = copy; *c; c++)
    if ((unsigned char)*c >= 0x80) *c = '?';
  string = json_string(copy);
  free(copy);
  return string;
}

static json_t *json_position(Position position) {
  return json_pack("{s:I, s:I}", "line", (json_int_t)position.line, "character",
                   (json_int_t)position.character);
}

json_t *desk_range(const Desk *desk, const Document *document, size_t from, size_t to) {
  return json_pack("{s:o, s:o}", "start",
                   json_position(document_position(document, from, desk->is_utf8)), "end",
                   json_position(document_position(document, to, desk->is_utf8)));
}

json_t *desk_token_range(const Desk *desk, const OpenFile *file, int token) {
  const ScanToken *t = &file->outline->scan->tokens.at[token];
  return desk_range(desk, &file->document, t->start, t->end);
}

json_t *desk_location(const Desk *desk, const char *uri, const char *text, size_t length,
                      size_t from, size_t to) {
  Document document = {0};
  document_set(&document, text, length);
  json_t *location = json_pack("{s:o, s:o}", "uri", desk_string(uri), "range",
                               desk_range(desk, &document, from, to));
  document_free(&document);
  return location;
}
