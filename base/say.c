/* say: see say.h. */
#include "base/say.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_set(const char *name) {
  const char *value = getenv(name);
  return value && *value;
}

const char *say_word(SayKind kind) {
  return kind == SAY_ERROR ? "error" : kind == SAY_WARNING ? "warning" : "note";
}

bool say_is_coloured(FILE *out) {
  int file = out ? fileno(out) : -1;
  const char *force = getenv("CLICOLOR_FORCE"), *term = getenv("TERM");
  if (file < 0 || is_set("NO_COLOR")) return false;
  if (file == STDERR_FILENO && force && *force && strcmp(force, "0") != 0) return true;
  return term && *term && strcmp(term, "dumb") != 0 && isatty(file);
}

const char *say_colour(SayKind kind, bool is_coloured) {
  if (!is_coloured) return "";
  return kind == SAY_ERROR ? "\033[1;31m" : kind == SAY_WARNING ? "\033[1;35m" : "\033[1;36m";
}

const char *say_bold(bool is_coloured) { return is_coloured ? "\033[1m" : ""; }
const char *say_caret(bool is_coloured) { return is_coloured ? "\033[1;32m" : ""; }
const char *say_plain(bool is_coloured) { return is_coloured ? "\033[0m" : ""; }

void say_begin(SayKind kind) {
  bool is_coloured = say_is_coloured(stderr);
  fprintf(stderr, "%s%s:%s ", say_colour(kind, is_coloured), say_word(kind),
          say_plain(is_coloured));
}

static void say_sentence(SayKind kind, const char *format, va_list args) {
  say_begin(kind);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
}

void say_error(const char *format, ...) {
  va_list args;
  va_start(args, format);
  say_sentence(SAY_ERROR, format, args);
  va_end(args);
}

void say_warning(const char *format, ...) {
  va_list args;
  va_start(args, format);
  say_sentence(SAY_WARNING, format, args);
  va_end(args);
}

void say_note(const char *format, ...) {
  va_list args;
  va_start(args, format);
  say_sentence(SAY_NOTE, format, args);
  va_end(args);
}
