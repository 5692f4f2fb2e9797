/* flags: a program's command line as one table. Its parsing, --help, man page, docs/cli.md and shell
 * completion are all made of it, so they cannot differ (tools/ftc_flags.c, ftrun_flags.c,
 * ftopt_flags.c have the tables; test/e2e/cli.py holds docs/cli.md against them). */
#ifndef FT_TOOLS_FLAGS_H
#define FT_TOOLS_FLAGS_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef enum {
  FLAG_SWITCH,        /* no value */
  FLAG_TEXT,          /* "--flag value" or "--flag=value" */
  FLAG_COUNT,         /* the same, a whole number from 0 */
  FLAG_OPTIONAL,      /* "--flag" or "--flag=value" */
  FLAG_OPTIONAL_COUNT /* the same, or "--flag 8012": the next word if it is of digits only */
} FlagKind;

typedef struct {
  const char *name; /* "--set", or "-o" */
  FlagKind kind;
  unsigned commands; /* a bit for each command of the program that takes it */
  const char *value; /* what --help calls its value: "KEY=VALUE"; NULL for a switch */
  /* How a shell completes the value: words with blanks between; FLAG_FILES and, after it, endings;
   * FLAG_FOLDERS; FLAG_SETTINGS; FLAG_NAMES, one or several with commas between; FLAG_PASSES and, after it, other
   * words; NULL: not at all. */
  const char *completion;
  const char *help; /* one line or several, broken by us; no newline within */
} Flag;
#define FLAG_FILES "@files"
#define FLAG_FOLDERS "@folders"
#define FLAG_SETTINGS "@settings"
#define FLAG_NAMES "@names"
#define FLAG_PASSES "@passes"

typedef struct {
  const char *name, *usage, *about; /* name NULL: the program has no subcommands */
} Command;

typedef struct {
  const char *name, *text; /* "FT_NCCL_LIBRARY", "0": an environment variable, an exit code */
} FlagNote;

typedef struct {
  const char *program, *about;
  const Command *commands;
  int command_count;
  const Flag *flags;
  int flag_count;
  const char *files;             /* endings of the file that it is given, for completion */
  const char *const *paragraphs; /* behind the flags; ends with NULL */
  const char *names_are;         /* what FLAG_NAMES takes, and its names up to NULL; may be NULL */
  const char *(*name)(int index);
  const char *(*pass)(int index);    /* the names that FLAG_PASSES takes; NULL where no flag does */
  const FlagNote *variables, *codes; /* end with {NULL, NULL} */
  const char *prefix;                /* of messages: "error: " */
} CommandLine;

enum { FLAG_EXIT_USAGE = 2 };

/* Takes the flag at argv[*at], "--flag value", "--flag=value" or "-Dx=1", and moves *at to its last word.
 * *value is NULL where there is none; *count is set for FLAG_COUNT. Returns 0, or 2 with a sentence on stderr. */
int flags_parse(const CommandLine *line, int command, int argc, char **argv, int *at,
                const Flag **flag, const char **value, int64_t *count);
/* A wrong command line: a sentence on stderr, and where there is help. command -1: of no one. Returns 2. */
int flags_fail(const CommandLine *line, int command, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Which command argv[1] is, or -1. */
int flags_command(const CommandLine *line, const char *word);

bool flag_may_stand_alone(const Flag *flag);
bool flags_have_commands(const CommandLine *line);

/* --help of one command, or of all (command -1: usages of all, flags of the first). */
void flags_print_help(const CommandLine *line, int command, FILE *out);
/* --help=man, markdown, bash, zsh, fish: false if there is no such form. */
bool flags_print_as(const CommandLine *line, const char *form, FILE *out);
/* If a word of the line asks for help: prints it, and the exit code is in *code. */
bool flags_help_asked(const CommandLine *line, int argc, char **argv, int *code);
#endif
