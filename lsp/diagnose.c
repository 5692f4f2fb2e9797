/* diagnose: the messages of an analysis as the protocol has them. What is said of another file stands where
 * that file is imported. */
#include "lsp/desk.h"
#include <stdlib.h>
#include <string.h>

static size_t offset_of(const char *text, size_t length, Loc loc) {
  const char *at = text, *end = text + length;
  for (uint32_t line = 1; line < loc.line; line++) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    if (!newline) return length;
    at = newline + 1;
  }
  const char *newline = memchr(at, '\n', (size_t)(end - at));
  size_t left = (size_t)((newline ? newline : end) - at), column = loc.column ? loc.column - 1 : 0;
  return (size_t)(at - text) + (column < left ? column : left);
}

/* The word that begins here; at the end of a line what stands before it. */
static void word_at_place(const Scan *scan, size_t offset, size_t *from, size_t *to) {
  int token = scan_at(scan, offset);
  *from = offset;
  *to = offset < scan->length && scan->text[offset] != '\n' ? offset + 1 : offset;
  if (token >= 0 && scan->tokens.at[token].start == offset) *to = scan->tokens.at[token].end;
  const char *newline =
      memchr(scan->text + *from, '\n', *to - *from); /* a comment over several lines */
  if (newline) *to = (size_t)(newline - scan->text);
  if (*from == *to && offset > 0 && scan->text[offset - 1] != '\n') --*from;
}

/* Where the file of this number is imported, as far as one can tell: by its name. */
static bool import_of(const OpenFile *file, const char *path, size_t *from, size_t *to) {
  const Outline *outline = file->outline;
  const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
  bool is_any = false;
  for (int i = 0; i < outline->declarations.count; i++) {
    const Declaration *d = &outline->declarations.at[i];
    if (d->kind != DECLARES_IMPORT || d->name < 0) continue;
    const ScanToken *t = &outline->scan->tokens.at[d->name];
    size_t length = t->end - t->start, tail = strlen(base);
    bool is_it = length > tail + 1 && !memcmp(outline->scan->text + t->end - 1 - tail, base, tail);
    if (!is_it && is_any) continue;
    *from = t->start;
    *to = t->end;
    is_any = true;
    if (is_it) return true;
  }
  return is_any;
}

static bool is_std_file(const Analysis *analysis, Loc loc) {
  return analysis->watch.std_first && loc.file >= analysis->watch.std_first;
}

/* A note as a place in a file that can be opened; NULL: it has none. */
static json_t *related(Desk *desk, Arena *arena, const OpenFile *file, const Analysis *analysis,
                       const FindingNote *note) {
  if (!note->loc.file || is_std_file(analysis, note->loc)) return NULL;
  const SourceFile *source = &analysis->diag.files.at[note->loc.file - 1];
  const char *uri = file->uri;
  if (note->loc.file > 1) {
    char *real = realpath(source->path, NULL);
    uri = real ? desk_uri(arena, real) : NULL;
    free(real);
  }
  if (!uri) return NULL;
  size_t length = note->loc.file == 1 ? analysis->length : strlen(source->text),
         from = offset_of(source->text, length, note->loc), to;
  word_at_place(note->loc.file == 1 ? file->outline->scan : scan_text(arena, source->text, length),
                from, &from, &to);
  return json_pack("{s:o, s:o}", "location",
                   desk_location(desk, uri, source->text, length, from, to), "message",
                   desk_string(note->message));
}

static json_t *diagnostic(Desk *desk, Arena *arena, const OpenFile *file, const Analysis *analysis,
                          const Finding *finding) {
  enum { ERROR = 1, WARNING = 2 };
  size_t from = 0, to = 0;
  const char *message = finding->message;
  Loc loc = finding->loc;
  if (loc.file == 1) {
    word_at_place(file->outline->scan, offset_of(analysis_text(analysis), analysis->length, loc),
                  &from, &to);
  } else if (loc.file) {
    const char *path = analysis->diag.files.at[loc.file - 1].path;
    message = arena_printf(arena, "%s:%u:%u: %s", path, loc.line, loc.column, message);
    if (!is_std_file(analysis, loc)) import_of(file, path, &from, &to);
  }
  json_t *notes = json_array();
  FindingNote own = {loc, finding->message};
  if (loc.file > 1 && desk->has_related) {
    json_t *place = related(desk, arena, file, analysis, &own);
    if (place) json_array_append_new(notes, place);
  }
  for (int i = 0; i < finding->notes.count; i++) {
    const FindingNote *note = &finding->notes.at[i];
    json_t *place = desk->has_related ? related(desk, arena, file, analysis, note) : NULL;
    if (place)
      json_array_append_new(notes, place);
    else
      message = arena_printf(arena, "%s\nnote: %s", message, note->message);
  }
  return json_pack("{s:o, s:i, s:s, s:o, s:o}", "range",
                   desk_range(desk, &file->document, from, to), "severity",
                   finding->is_warning ? WARNING : ERROR, "source", "ftc", "message",
                   desk_string(message), "relatedInformation", notes);
}

json_t *diagnose_answer(Desk *desk, OpenFile *file, const Analysis *analysis) {
  json_t *list = json_array();
  Arena *arena = arena_new();
  desk_outline(file);
  for (int i = 0; i < analysis->findings.count; i++)
    json_array_append_new(list, diagnostic(desk, arena, file, analysis, &analysis->findings.at[i]));
  arena_free(arena);
  return list;
}
