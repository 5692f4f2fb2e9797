/* ftrun_view: see ftrun_view.h. */
#include "tools/ftrun_view.h"
#include "runtime/command/report.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VIEW_USAGE = 2 };
typedef enum { VIEW_REPORT, VIEW_COMMANDS } ViewCommand;
static const struct {
  const char *name, *usage;
} view_commands[VIEW_COMMANDS] = {
    {"report", "ftrun report RUN.jsonl.. [-o FILE]    a page of HTML: curves, settings, times"},
};

typedef struct {
  const char *run[REPORT_MOST_RUNS], *model[REPORT_MOST_FILES], *times[REPORT_MOST_FILES];
  int run_count, model_count, times_count;
  const char *output;
} ViewLine;

bool view_is_command(const char *name) {
  for (int i = 0; i < VIEW_COMMANDS; i++)
    if (!strcmp(name, view_commands[i].name)) return true;
  return false;
}

void view_print_usage(void) {
  for (int i = 0; i < VIEW_COMMANDS; i++) printf("       %s\n", view_commands[i].usage);
}

static void view_help(ViewCommand command) {
  printf(
      "usage: %s\n\nRUN.jsonl is a log of JSON lines (ftrun --log-jsonl FILE, log { jsonl }), or a "
      "folder with a log.jsonl\n\nflags:\n",
      view_commands[command].usage);
  printf("  %-22s %s\n", "-o, --output FILE", "where to write it (report.html)");
  printf("  %-22s %s\n", "--model ARTIFACT", "with memory and graph of a step of a .so or .ptx");
  printf("  %-22s %s\n", "--times FILE",
         "with time by kernel and layer: ftrun bench --json FILE, or ftrun --trace FILE.json");
}

static int view_error(const char *format, const char *what) {
  fputs("error: ", stderr);
  fprintf(stderr, format, what);
  fputs("\nftrun report --help shows what it takes\n", stderr);
  return VIEW_USAGE;
}

static int view_push(const char **list, int *count, int most, const char *value) {
  if (*count == most) return view_error("%s is one too many", value);
  list[(*count)++] = value;
  return 0;
}

static int view_flag(ViewLine *line, const char *name, const char *value) {
  if (!strcmp(name, "-o") || !strcmp(name, "--output")) return line->output = value, 0;
  if (!strcmp(name, "--model"))
    return view_push(line->model, &line->model_count, REPORT_MOST_FILES, value);
  return view_push(line->times, &line->times_count, REPORT_MOST_FILES, value);
}

/* The value of the flag at argv[*at], which may follow it or its '='. */
static int view_parse_flag(ViewLine *line, int argc, char **argv, int *at) {
  static const char *const with_value[] = {"-o", "--output", "--model", "--times", NULL};
  const char *equals = strchr(argv[*at], '=');
  char name[32];
  snprintf(name, sizeof name, "%.*s", (int)(equals ? equals - argv[*at] : 31), argv[*at]);
  if (!text_is_one_of(name, with_value)) return view_error("unknown flag %s", argv[*at]);
  if (equals) return view_flag(line, name, equals + 1);
  if (*at + 1 == argc) return view_error("%s needs a value", name);
  return view_flag(line, name, argv[++*at]);
}

static int view_report(Status status) {
  if (status != STATUS_OK) fprintf(stderr, "error: %s\n", status_message());
  return status;
}

int view_start(int argc, char **argv) {
  ViewLine line = {0};
  ViewCommand command = 0;
  while (strcmp(argv[1], view_commands[command].name) != 0) command++;
  for (int i = 2; i < argc; i++) {
    int code;
    if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return view_help(command), 0;
    if (argv[i][0] == '-' && argv[i][1])
      code = view_parse_flag(&line, argc, argv, &i);
    else
      code = view_push(line.run, &line.run_count, REPORT_MOST_RUNS, argv[i]);
    if (code) return code;
  }
  if (!line.run_count) return view_error("%s needs a log of JSON lines", argv[1]);
  return view_report(
      report_run(&(ReportOptions){line.run,
                                  line.run_count,
                                  line.output,
                                  {line.model, line.model_count, line.times, line.times_count}}));
}
