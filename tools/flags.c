/* flags: see flags.h. Parsing, and --help; the other forms are in flags_forms.c. */
#include "tools/flags.h"
#include "base/foreign.h"
#include "base/say.h"
#include "base/text.h"
#include "base/version.h"
#include "tools/number.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_COLUMN = 25, HELP_WIDTH = 96, FLAGS_MOST = 128 };

int flags_fail(const CommandLine *line, int command, const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (strcmp(line->prefix, "error: ") == 0)
    say_begin(SAY_ERROR);
  else
    fputs(line->prefix, stderr);
  vfprintf(stderr, format, args);
  va_end(args);
  const char *name = command < 0 ? NULL : line->commands[command].name;
  fprintf(stderr, "\n`%s%s%s --help` shows what it takes\n", line->program, name ? " " : "",
          name ? name : "");
  return FLAG_EXIT_USAGE;
}

int flags_command(const CommandLine *line, const char *word) {
  for (int i = 0; i < line->command_count; i++)
    if (line->commands[i].name && !strcmp(line->commands[i].name, word)) return i;
  return -1;
}

bool flag_may_stand_alone(const Flag *flag) { return flag->kind >= FLAG_OPTIONAL; }

bool flags_have_commands(const CommandLine *line) { return line->commands[0].name != NULL; }

/* ── parsing ──────────────────────────────────────────────────────────────────────────────── */

static const Flag *flags_find(const CommandLine *line, int command, const char *name) {
  const Flag *elsewhere = NULL;
  for (int i = 0; i < line->flag_count; i++) {
    if (strcmp(line->flags[i].name, name) != 0) continue;
    elsewhere = &line->flags[i];
    if (elsewhere->commands >> command & 1) return elsewhere;
  }
  return elsewhere;
}

static int flags_unknown(const CommandLine *line, int command, const char *name) {
  const char *names[FLAGS_MOST], *advice = foreign_find(FOREIGN_FLAG, name);
  int count = 0;
  if (advice) return flags_fail(line, command, "unknown flag %s; %s", name, advice);
  for (int i = 0; i < line->flag_count && count < FLAGS_MOST; i++)
    if (line->flags[i].commands >> command & 1) names[count++] = line->flags[i].name;
  const char *nearest = text_nearest(name, names, count);
  return nearest ? flags_fail(line, command, "unknown flag %s; did you mean %s?", name, nearest)
                 : flags_fail(line, command, "unknown flag %s", name);
}

static const char *flags_next_value(const Flag *flag, int argc, char **argv, int *at) {
  if (*at + 1 >= argc) return NULL;
  const char *next = argv[*at + 1];
  if (flag->kind == FLAG_OPTIONAL) return NULL;
  if (flag->kind == FLAG_OPTIONAL_COUNT && (!*next || next[strspn(next, "0123456789")]))
    return NULL;
  ++*at;
  return next;
}

int flags_parse(const CommandLine *line, int command, int argc, char **argv, int *at,
                const Flag **out, const char **value, int64_t *count) {
  char name[64];
  const char *argument = argv[*at], *equals = strchr(argument, '=');
  bool is_joined = !strncmp(argument, "-D", 2) && argument[2]; /* -Dhidden=512 */
  size_t length = is_joined ? 2 : equals ? (size_t)(equals - argument) : strlen(argument);
  if (length >= sizeof name) return flags_unknown(line, command, argument);
  memcpy(name, argument, length);
  name[length] = 0;
  const Flag *flag = flags_find(line, command, name);
  if (!flag) return flags_unknown(line, command, name);
  if (!(flag->commands >> command & 1)) { /* training may have another flag for it */
    const char *advice = command == 0 ? foreign_find(FOREIGN_FLAG, name) : NULL;
    return flags_fail(line, command, "%s is no flag of %s %s%s%s", name, line->program,
                      line->commands[command].name, advice ? "; " : "", advice ? advice : "");
  }
  *value = is_joined ? argument + 2 : equals ? equals + 1 : NULL;
  if (flag->kind == FLAG_SWITCH) {
    if (*value) return flags_fail(line, command, "%s takes no value", name);
  } else if (!*value) {
    *value = flags_next_value(flag, argc, argv, at);
    if (!*value && !flag_may_stand_alone(flag))
      return flags_fail(line, command, "%s needs a value: %s", name, flag->value);
  }
  if (flag->kind == FLAG_COUNT && !number_parse_count(*value, count))
    return flags_fail(line, command, "%s %s: expected a whole number from 0", name, *value);
  *out = flag;
  return 0;
}

/* ── --help ───────────────────────────────────────────────────────────────────────────────── */

/* Words of `text`, wrapped; further lines begin at `column`. `used` columns are taken already. */
static void print_wrapped(const char *text, int used, int column, FILE *out) {
  int at = used;
  while (*text) {
    int length = (int)strcspn(text, " ");
    if (at > column && at + 1 + length > HELP_WIDTH) at = fprintf(out, "\n%*s", column, "") - 1;
    if (at > column) at += fprintf(out, " ");
    at += fprintf(out, "%.*s", length, text);
    text += length;
    text += strspn(text, " ");
  }
  fputc('\n', out);
}

static void print_flag(const Flag *flag, FILE *out) {
  bool may = flag_may_stand_alone(flag);
  int used = fprintf(out, "  %s%s%s%s", flag->name,
                     !flag->value ? ""
                     : may        ? "[="
                                  : " ",
                     flag->value ? flag->value : "", may ? "]" : "");
  if (used >= NAME_COLUMN) used = fprintf(out, "\n") - 1;
  fprintf(out, "%*s", NAME_COLUMN - used, "");
  print_wrapped(flag->help, NAME_COLUMN, NAME_COLUMN, out);
}

static void help_names(const CommandLine *line, FILE *out) {
  int column = HELP_WIDTH;
  const char *name;
  fprintf(out, "\n%s:", line->names_are);
  for (int i = 0; (name = line->name(i)); i++) {
    bool fits = column + 1 + (int)strlen(name) <= HELP_WIDTH;
    if (!fits) column = fprintf(out, "\n ") - 1;
    column += fprintf(out, " %s", name);
  }
  fputc('\n', out);
}

static void print_notes(const char *title, const FlagNote *notes, FILE *out) {
  if (!notes || !notes->name) return;
  fprintf(out, "\n%s:\n", title);
  for (; notes->name; notes++) {
    int used = fprintf(out, "  %s", notes->name);
    if (used >= NAME_COLUMN) used = fprintf(out, "\n") - 1;
    fprintf(out, "%*s", NAME_COLUMN - used, "");
    print_wrapped(notes->text, NAME_COLUMN, NAME_COLUMN, out);
  }
}

void flags_print_help(const CommandLine *line, int command, FILE *out) {
  for (int i = 0; i < line->command_count; i++)
    if (command < 0 || command == i)
      fprintf(out, "%s%s\n", i == 0 || command >= 0 ? "usage: " : "       ",
              line->commands[i].usage);
  int shown = command < 0 ? 0 : command;
  const Command *of = &line->commands[shown];
  if (of->about) {
    fputc('\n', out);
    print_wrapped(of->about, 0, 0, out);
  }
  if (of->name)
    fprintf(out, "\nflags of %s%s:\n", of->name,
            command < 0 ? " (those of another command: --help behind it)" : "");
  else
    fprintf(out, "\nflags:\n");
  for (int i = 0; i < line->flag_count; i++)
    if (line->flags[i].commands >> shown & 1) print_flag(&line->flags[i], out);
  for (const char *const *paragraph = line->paragraphs; *paragraph; paragraph++) {
    fputc('\n', out);
    print_wrapped(*paragraph, 0, 0, out);
  }
  if (line->name) help_names(line, out);
  print_notes("environment", line->variables, out);
  print_notes("exit codes", line->codes, out);
}

bool flags_help_asked(const CommandLine *line, int argc, char **argv, int *code) {
  int command = argc > 1 ? flags_command(line, argv[1]) : -1;
  *code = 0;
  for (int i = 1; i < argc; i++) {
    if (!strncmp(argv[i], "--help=", 7)) {
      if (!flags_print_as(line, argv[i] + 7, stdout))
        *code = flags_fail(line, command, "%s: it takes man, markdown, bash, zsh or fish", argv[i]);
      return true;
    }
    if (!strcmp(argv[i], "--version")) {
      printf("%s %s\n", line->program, FT_VERSION);
      return true;
    }
    if (strcmp(argv[i], "--help") != 0 && strcmp(argv[i], "-h") != 0) continue;
    flags_print_help(line, command, stdout);
    return true;
  }
  return false;
}
