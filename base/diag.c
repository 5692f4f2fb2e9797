/* diag: see diag.h. Tabs in the source line are kept in the caret line, so the caret stays under
 * its column whatever the terminal's tab width is. */
#include "base/diag.h"
#include <string.h>

void diag_init(Diag *diag, Arena *arena, FILE *out) {
  *diag = (Diag){.arena = arena, .out = out, .limit = 20};
}

uint16_t diag_add_file(Diag *diag, const char *path, const char *text) {
  SourceFile file = {arena_strdup(diag->arena, path), text};
  VEC_PUSH(diag->arena, diag->files, file);
  return (uint16_t)diag->files.count;
}

static const SourceFile *file_of(const Diag *diag, Loc loc) {
  return loc.file && loc.file <= diag->files.count ? &diag->files.at[loc.file - 1] : NULL;
}

const char *diag_path(const Diag *diag, Loc loc) {
  const SourceFile *file = file_of(diag, loc);
  return file ? file->path : "<unknown>";
}

static void diag_print_line(const Diag *diag, const SourceFile *file, Loc loc) {
  const char *line = file->text;
  for (uint32_t n = 1; line && n < loc.line; n++) {
    line = strchr(line, '\n');
    if (line) line++;
  }
  if (!line) return;
  int length = (int)strcspn(line, "\r\n");
  if (length > 500) return; /* a generated or damaged file: the position alone must do */
  fprintf(diag->out, "  %.*s\n  ", length, line);
  for (int i = 0; i + 1 < loc.column; i++)
    if (i >= length || ((unsigned char)line[i] & 0xC0) != 0x80) /* one column per UTF-8 character */
      fputc(i < length && line[i] == '\t' ? '\t' : ' ', diag->out);
  fputs("^\n", diag->out);
}

static void diag_print(const Diag *diag, Loc loc, const char *kind, const char *format,
                       va_list args) {
  const SourceFile *file = file_of(diag, loc);
  if (diag->is_quiet) return;
  if (file) fprintf(diag->out, "%s:%u:%u: ", file->path, loc.line, loc.column);
  fprintf(diag->out, "%s: ", kind);
  vfprintf(diag->out, format, args);
  fputc('\n', diag->out);
  if (file) diag_print_line(diag, file, loc);
}

void diag_error(Diag *diag, Loc loc, const char *format, ...) {
  if (diag->errors++ >= diag->limit) return;
  va_list args;
  va_start(args, format);
  diag_print(diag, loc, "error", format, args);
  va_end(args);
}

void diag_warning(Diag *diag, Loc loc, const char *format, ...) {
  diag->warnings++;
  va_list args;
  va_start(args, format);
  diag_print(diag, loc, "warning", format, args);
  va_end(args);
}

void diag_note(Diag *diag, Loc loc, const char *format, ...) {
  if (diag->errors > diag->limit) return;
  va_list args;
  va_start(args, format);
  diag_print(diag, loc, "note", format, args);
  va_end(args);
}
