/* diag: see diag.h. Tabs in the source line are kept in the caret line, so the caret stays under
 * its column whatever the terminal's tab width is. */
#include "base/diag.h"
#include "base/say.h"
#include "base/text.h"
#include <ctype.h>
#include <string.h>

void diag_init(Diag *diag, Arena *arena, FILE *out) {
  *diag = (Diag){.arena = arena, .out = out, .limit = 20, .is_coloured = say_is_coloured(out)};
}

bool locs_add(Arena *arena, Locs *locs, Loc loc) {
  for (int i = 0; i < locs->count; i++)
    if (loc_equal(locs->at[i], loc)) return false;
  VEC_PUSH(arena, *locs, loc);
  return true;
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

/* The line that a place is in, and its length; NULL: there is none. */
static const char *diag_line(const Diag *diag, Loc loc, size_t *length) {
  const SourceFile *file = file_of(diag, loc);
  const char *line = file ? file->text : NULL;
  for (uint32_t n = 1; line && n < loc.line; n++) {
    line = strchr(line, '\n');
    if (line) line++;
  }
  *length = line ? strcspn(line, "\r\n") : 0;
  return line;
}

static void diag_print_line(const Diag *diag, Loc loc) {
  size_t length;
  const char *line = diag_line(diag, loc, &length);
  if (!line || length > 500) return; /* a generated or damaged file: the position alone must do */
  fprintf(diag->out, "  %.*s\n  ", (int)length, line);
  for (size_t i = 0; i + 1 < loc.column; i++)
    if (i >= length || ((unsigned char)line[i] & 0xC0) != 0x80) /* one column per UTF-8 character */
      fputc(i < length && line[i] == '\t' ? '\t' : ' ', diag->out);
  fprintf(diag->out, "%s^%s\n", say_caret(diag->is_coloured), say_plain(diag->is_coloured));
}

static void diag_print(const Diag *diag, Loc loc, SayKind kind, const char *format, va_list args) {
  const SourceFile *file = file_of(diag, loc);
  bool is_coloured = diag->is_coloured;
  if (diag->is_quiet) return;
  if (diag->take) {
    diag->take(diag->take_user, say_word(kind), loc, arena_vprintf(diag->arena, format, args));
    return;
  }
  if (file)
    fprintf(diag->out, "%s%s:%u:%u:%s ", say_bold(is_coloured), file->path, loc.line, loc.column,
            say_plain(is_coloured));
  fprintf(diag->out, "%s%s:%s ", say_colour(kind, is_coloured), say_word(kind),
          say_plain(is_coloured));
  if (kind != SAY_NOTE) fputs(say_bold(is_coloured), diag->out);
  vfprintf(diag->out, format, args);
  if (kind != SAY_NOTE) fputs(say_plain(is_coloured), diag->out);
  fputc('\n', diag->out);
  if (file) diag_print_line(diag, loc);
}

void diag_error(Diag *diag, Loc loc, const char *format, ...) {
  diag->is_dropping = diag->errors++ >= diag->limit;
  if (diag->is_dropping) return;
  va_list args;
  va_start(args, format);
  diag_print(diag, loc, SAY_ERROR, format, args);
  va_end(args);
}

bool diag_is_meant(const Diag *diag, Loc loc) {
  static const char word[] = "meant";
  size_t length;
  const char *line = diag_line(diag, loc, &length), *end = line ? line + length : NULL;
  bool is_string = false;
  for (const char *c = line; line && c < end; c++) {
    if (is_string && *c == '\\') {
      c++;
    } else if (*c == '"') {
      is_string = !is_string;
    } else if (!is_string && end - c >= 2 && c[0] == '/' && c[1] == '/') {
      for (c += 2; c < end && (*c == ' ' || *c == '\t'); c++) {
      }
      size_t left = (size_t)(end - c), size = sizeof word - 1;
      return left >= size && memcmp(c, word, size) == 0 &&
             (left == size || !(isalnum((unsigned char)c[size]) || c[size] == '_'));
    }
  }
  return false;
}

bool diag_is_again(Diag *diag, Loc loc) {
  if (diag->is_quiet || diag_is_meant(diag, loc) || locs_add(diag->arena, &diag->told, loc)) return false;
  diag->repeated++;
  return true;
}

void diag_warning(Diag *diag, Loc loc, const char *format, ...) {
  diag->is_dropping = diag_is_meant(diag, loc);
  if (diag->is_dropping) return;
  diag->warnings++;
  diag->warned_lines += file_of(diag, loc) != NULL;
  va_list args;
  va_start(args, format);
  diag_print(diag, loc, SAY_WARNING, format, args);
  va_end(args);
}

void diag_note(Diag *diag, Loc loc, const char *format, ...) {
  if (diag->is_dropping) return;
  va_list args;
  va_start(args, format);
  diag_print(diag, loc, SAY_NOTE, format, args);
  va_end(args);
}

void diag_end(Diag *diag) {
  if (!diag->warned_lines || diag->errors) return;
  diag->is_dropping = false;
  if (diag->repeated)
    diag_note(diag, (Loc){0}, "%d more warning%s at places that are named above already", diag->repeated,
              diag->repeated > 1 ? "s" : "");
  diag_note(diag, (Loc){0}, "a line that ends with `// meant` is not warned of");
}
