/* flags_forms: a command line's table as a man page (roff, man(7)), a page of Markdown (docs/cli.md), and as completion
 * for bash, zsh and fish. */
#include "base/version.h"
#include "plan/plan.h"
#include "tools/flags.h"
#include <string.h>

/* ── man ──────────────────────────────────────────────────────────────────────────────────── */

/* A leading dot or quote would be a request of roff, a backslash an escape, a hyphen may become another sign. */
static void roff_text(const char *text, FILE *out) {
  if (*text == '.' || *text == '\'') fputs("\\&", out);
  for (; *text; text++) {
    if (*text == '\\')
      fputs("\\e", out);
    else if (*text == '-')
      fputs("\\-", out);
    else
      fputc(*text, out);
  }
}

static void roff_flag(const Flag *flag, FILE *out) {
  fputs(".TP\n.B ", out);
  roff_text(flag->name, out);
  if (flag->value) {
    fputs(flag_may_stand_alone(flag) ? "\\fR[=\\fI" : " \\fI", out);
    roff_text(flag->value, out);
    fputs(flag_may_stand_alone(flag) ? "\\fR]" : "\\fR", out);
  }
  fputc('\n', out);
  roff_text(flag->help, out);
  fputc('\n', out);
}

static void roff_notes(const char *title, const FlagNote *notes, FILE *out) {
  if (!notes || !notes->name) return;
  fprintf(out, ".SH %s\n", title);
  for (; notes->name; notes++) {
    fputs(".TP\n.B ", out);
    roff_text(notes->name, out);
    fputc('\n', out);
    roff_text(notes->text, out);
    fputc('\n', out);
  }
}

static void print_man(const CommandLine *line, FILE *out) {
  fprintf(out, ".\\\" made by %s --help=man\n.TH %s 1 \"\" \"ft %s\" \"ft\"\n.SH NAME\n%s \\- ",
          line->program, line->program, FT_VERSION, line->program);
  roff_text(line->about, out);
  fputs("\n.SH SYNOPSIS\n.nf\n", out);
  for (int i = 0; i < line->command_count; i++) {
    roff_text(line->commands[i].usage, out);
    fputc('\n', out);
  }
  fputs(".fi\n.SH OPTIONS\n", out);
  for (int i = 0; i < line->command_count; i++) {
    if (line->commands[i].name) fprintf(out, ".SS %s %s\n", line->program, line->commands[i].name);
    if (line->commands[i].about) {
      roff_text(line->commands[i].about, out);
      fputc('\n', out);
    }
    for (int f = 0; f < line->flag_count; f++)
      if (line->flags[f].commands >> i & 1) roff_flag(&line->flags[f], out);
  }
  fputs(".SH NOTES\n", out);
  for (const char *const *paragraph = line->paragraphs; *paragraph; paragraph++) {
    if (paragraph != line->paragraphs) fputs(".PP\n", out);
    roff_text(*paragraph, out);
    fputc('\n', out);
  }
  roff_notes("ENVIRONMENT", line->variables, out);
  roff_notes("EXIT STATUS", line->codes, out);
}

/* ── Markdown ─────────────────────────────────────────────────────────────────────────────── */

/* `|` would end a cell of a table, `<` begin HTML. */
static void markdown_text(const char *text, FILE *out) {
  for (; *text; text++) {
    if (strchr("|<*", *text)) fputc('\\', out);
    fputc(*text, out);
  }
}

static void markdown_code(const char *text, FILE *out) {
  for (; *text; text++) fputs(*text == '|' ? "\\|" : (char[]){*text, 0}, out);
}

static void markdown_row(const char *left, const char *value, bool may, const char *text,
                         FILE *out) {
  fputs("| `", out);
  markdown_code(left, out);
  if (value) {
    fputs(may ? "[=" : " ", out);
    markdown_code(value, out);
    if (may) fputc(']', out);
  }
  fputs("` | ", out);
  markdown_text(text, out);
  fputs(" |\n", out);
}

static void markdown_notes(const char *title, const char *column, const FlagNote *notes,
                           FILE *out) {
  if (!notes || !notes->name) return;
  fprintf(out, "\n### %s\n\n| %s | |\n|---|---|\n", title, column);
  for (; notes->name; notes++) markdown_row(notes->name, NULL, false, notes->text, out);
}

static void print_markdown(const CommandLine *line, FILE *out) {
  fprintf(out, "## %s\n\n", line->program);
  markdown_text(line->about, out);
  fputs("\n\n", out);
  for (int i = 0; i < line->command_count; i++) fprintf(out, "    %s\n", line->commands[i].usage);
  for (int i = 0; i < line->command_count; i++) {
    if (line->commands[i].name)
      fprintf(out, "\n### %s %s\n", line->program, line->commands[i].name);
    if (line->commands[i].about) {
      fputc('\n', out);
      markdown_text(line->commands[i].about, out);
      fputc('\n', out);
    }
    bool any = false;
    for (int f = 0; f < line->flag_count; f++) {
      const Flag *flag = &line->flags[f];
      if (!(flag->commands >> i & 1)) continue;
      if (!any) fputs("\n| flag | what it does |\n|---|---|\n", out);
      any = true;
      markdown_row(flag->name, flag->value, flag_may_stand_alone(flag), flag->help, out);
    }
  }
  for (const char *const *paragraph = line->paragraphs; *paragraph; paragraph++) {
    fputc('\n', out);
    markdown_text(*paragraph, out);
    fputc('\n', out);
  }
  markdown_notes("Environment", "variable", line->variables, out);
  markdown_notes("Exit codes", "code", line->codes, out);
}

/* ── completion ───────────────────────────────────────────────────────────────────────────── */

static void form_names(const char *(*name)(int), FILE *out) {
  for (int i = 0; name && name(i); i++) fprintf(out, "%s%s", i ? " " : "", name(i));
}

/* If `how` is FLAG_PASSES: all passes, and the words behind it. */
static bool form_passes(const CommandLine *line, const char *how, FILE *out) {
  size_t length = strlen(FLAG_PASSES);
  if (strncmp(how, FLAG_PASSES, length) != 0) return false;
  form_names(line->pass, out);
  fputs(how + length, out);
  return true;
}

static void form_settings(FILE *out, const char *separator) {
  bool is_first = true;
  for (int i = 0; i < setting_count; i++) {
    if (setting_info[i].when == WHEN_DERIVED) continue;
    fprintf(out, "%s%s=", is_first ? "" : separator, setting_info[i].key);
    is_first = false;
  }
}

/* What bash does with the value of a flag. */
static void bash_value(const CommandLine *line, const Flag *flag, FILE *out) {
  const char *how = flag->completion;
  size_t files = strlen(FLAG_FILES);
  if (!how)
    fputs("return", out);
  else if (!strcmp(how, FLAG_FOLDERS))
    fputs("COMPREPLY=($(compgen -d -- \"$value\"))", out);
  else if (!strcmp(how, FLAG_SETTINGS)) {
    fputs("COMPREPLY=($(compgen -W '", out);
    form_settings(out, " ");
    fputs("' -- \"$value\")); compopt -o nospace", out);
  } else if (!strcmp(how, FLAG_NAMES)) { /* the last name of a list, behind those before it */
    fputs("COMPREPLY=($(compgen -W '", out);
    form_names(line->name, out);
    fputs("' -- \"${value##*,}\")); [[ $value != *,* ]] || "
          "COMPREPLY=(\"${COMPREPLY[@]/#/${value%,*},}\")",
          out);
  } else if (!strncmp(how, FLAG_FILES, files)) {
    fputs("_ft_files", out);
    fputs(how + files, out);
  } else {
    fputs("COMPREPLY=($(compgen -W '", out);
    if (!form_passes(line, how, out)) fputs(how, out);
    fputs("' -- \"$value\"))", out);
  }
}

static const char bash_files[] =
    "_ft_files() { # [ENDING]...: folders, and files with these endings, or all\n"
    "  local ending file\n"
    "  COMPREPLY=($(compgen -d -- \"$value\"))\n"
    "  [ $# -gt 0 ] || COMPREPLY+=($(compgen -f -- \"$value\"))\n"
    "  for ending; do COMPREPLY+=($(compgen -f -X \"!*$ending\" -- \"$value\")); done\n"
    "  compopt -o filenames\n"
    "}\n";

static void bash_flags(const CommandLine *line, int command, FILE *out) {
  for (int f = 0; f < line->flag_count; f++)
    if (line->flags[f].commands >> command & 1)
      fprintf(out, "%s%s ", line->flags[f].name,
              line->flags[f].name[1] == '-' && line->flags[f].value &&
                      !flag_may_stand_alone(&line->flags[f])
                  ? "="
                  : "");
  fputs("--help", out);
}

/* bash splits --flag=value at the `=` where COMP_WORDBREAKS has it: the flag is then two words back. */
static void print_bash(const CommandLine *line, FILE *out) {
  const char *program = line->program;
  fprintf(out, "# bash completion for %s, made by %s --help=bash\n%s", program, program,
          bash_files);
  fprintf(out,
          "_ft_%s() {\n"
          "  local value=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD-1]}\n"
          "  if [ \"$value\" = = ]; then value=; elif [ \"$flag\" = = ]; then "
          "flag=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
          "  COMPREPLY=()\n"
          "  case $flag in\n",
          program);
  for (int f = 0; f < line->flag_count; f++) {
    const Flag *flag = &line->flags[f];
    if (!flag->value || flag_may_stand_alone(flag)) continue;
    fprintf(out, "    %s) ", flag->name);
    bash_value(line, flag, out);
    fputs("; return ;;\n", out);
  }
  fputs("  esac\n  local flags\n  case ${COMP_WORDS[1]} in\n", out);
  int commands = flags_have_commands(line) ? line->command_count : 1;
  for (int i = commands - 1; i >= 0; i--) { /* the first one is what is meant without a name */
    fprintf(out, "    %s) flags='", i ? line->commands[i].name : "*");
    bash_flags(line, i, out);
    fputs("' ;;\n", out);
  }
  fputs("  esac\n  case $value in\n    -*) COMPREPLY=($(compgen -W \"$flags\" -- \"$value\")); [[ "
        "${COMPREPLY[0]} != *= ]] || compopt -o nospace; return ;;\n  esac\n",
        out);
  fprintf(out, "  _ft_files %s\n", line->files);
  if (flags_have_commands(line)) {
    fputs("  [ \"$COMP_CWORD\" -ne 1 ] || COMPREPLY+=($(compgen -W '", out);
    for (int i = 0; i < line->command_count; i++) fprintf(out, "%s ", line->commands[i].name);
    fputs("' -- \"$value\"))\n", out);
  }
  fprintf(out, "}\ncomplete -F _ft_%s %s\n", program, program);
}

/* In zsh's and fish's single quotes; brackets and colons mean something in zsh's _arguments. */
static void quoted(const char *text, const char *escape, FILE *out) {
  for (; *text; text++) {
    if (*text == '\'')
      fputs("'\\''", out);
    else {
      if (strchr(escape, *text)) fputc('\\', out);
      fputc(*text, out);
    }
  }
}

static void zsh_value(const CommandLine *line, const Flag *flag, FILE *out) {
  const char *how = flag->completion;
  size_t files = strlen(FLAG_FILES);
  quoted(flag->value, ":[]", out);
  fputc(':', out);
  if (!how) return;
  if (!strcmp(how, FLAG_FOLDERS))
    fputs("_files -/", out);
  else if (!strcmp(how, FLAG_SETTINGS)) {
    fputs("compadd -S \"\" -- ", out);
    form_settings(out, " ");
  } else if (!strcmp(how, FLAG_NAMES)) {
    fputs(" _values -s , names ", out); /* behind a blank: run as it is */
    form_names(line->name, out);
  } else if (!strncmp(how, FLAG_FILES, files)) {
    fputs("_files", out);
  } else {
    fputc('(', out);
    if (!form_passes(line, how, out)) fputs(how, out);
    fputc(')', out);
  }
}

static void print_zsh(const CommandLine *line, FILE *out) {
  fprintf(out, "#compdef %s\n# zsh completion for %s, made by %s --help=zsh\nlocal -a flags\n",
          line->program, line->program, line->program);
  fputs("case $words[2] in\n", out);
  for (int i = (flags_have_commands(line) ? line->command_count : 1) - 1; i >= 0; i--) {
    fprintf(out, "  %s) flags=(\n", i ? line->commands[i].name : "*");
    for (int f = 0; f < line->flag_count; f++) {
      const Flag *flag = &line->flags[f];
      if (!(flag->commands >> i & 1)) continue;
      bool is_long = flag->name[1] == '-';
      fprintf(out, "    '*%s%s[", flag->name,
              !flag->value                 ? ""
              : flag_may_stand_alone(flag) ? "=-"
              : is_long                    ? "="
                                           : "+");
      quoted(flag->help, ":[]", out);
      fputc(']', out);
      if (flag->value) {
        fputs(flag_may_stand_alone(flag) ? "::" : ":", out);
        zsh_value(line, flag, out);
      }
      fputs("'\n", out);
    }
    fputs("  ) ;;\n", out);
  }
  fputs("esac\n", out);
  if (flags_have_commands(line)) {
    fputs("(( CURRENT > 2 )) || compadd -- ", out);
    for (int i = 0; i < line->command_count; i++) fprintf(out, "%s ", line->commands[i].name);
    fputc('\n', out);
  }
  fputs("_arguments $flags '--help[what it takes]' '*:file:_files'\n", out);
}

static void print_fish(const CommandLine *line, FILE *out) {
  const char *program = line->program;
  fprintf(out, "# fish completion for %s, made by %s --help=fish\n", program, program);
  for (int i = 0; i < line->command_count && flags_have_commands(line); i++) {
    fprintf(out, "complete -c %s -n __fish_use_subcommand -a %s -d '", program,
            line->commands[i].name);
    quoted(line->commands[i].about ? line->commands[i].about : "", "", out);
    fputs("'\n", out);
  }
  for (int f = 0; f < line->flag_count; f++) {
    const Flag *flag = &line->flags[f];
    bool is_long = flag->name[1] == '-', is_everywhere = flag->commands & 1;
    fprintf(out, "complete -c %s %s %s", program, is_long ? "-l" : "-s",
            flag->name + (is_long ? 2 : 1));
    if (!is_everywhere && flags_have_commands(line)) {
      fputs(" -n '__fish_seen_subcommand_from", out);
      for (int i = 0; i < line->command_count; i++)
        if (flag->commands >> i & 1) fprintf(out, " %s", line->commands[i].name);
      fputc('\'', out);
    }
    const char *how = flag->completion;
    if (flag->value && !flag_may_stand_alone(flag)) fputs(" -r", out);
    if (how && !strcmp(how, FLAG_FOLDERS))
      fputs(" -a '(__fish_complete_directories)'", out);
    else if (how && !strcmp(how, FLAG_SETTINGS)) {
      fputs(" -f -a '", out);
      form_settings(out, " ");
      fputc('\'', out);
    } else if (how && !strcmp(how, FLAG_NAMES)) {
      fputs(" -f -a '(__fish_append , ", out);
      form_names(line->name, out);
      fputs(")'", out);
    } else if (how && strncmp(how, FLAG_FILES, strlen(FLAG_FILES)) != 0) {
      fputs(" -f -a '", out);
      if (!form_passes(line, how, out)) fputs(how, out);
      fputc('\'', out);
    }
    fputs(" -d '", out);
    quoted(flag->help, "", out);
    fputs("'\n", out);
  }
}

bool flags_print_as(const CommandLine *line, const char *form, FILE *out) {
  static const struct {
    const char *name;
    void (*print)(const CommandLine *, FILE *);
  } forms[] = {{"man", print_man},
               {"markdown", print_markdown},
               {"bash", print_bash},
               {"zsh", print_zsh},
               {"fish", print_fish}};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    if (strcmp(forms[i].name, form) != 0) continue;
    forms[i].print(line, out);
    return true;
  }
  return false;
}
