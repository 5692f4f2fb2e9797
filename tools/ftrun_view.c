/* ftrun_view: see ftrun_view.h. */
#include "tools/ftrun_view.h"
#include "runtime/command/report.h"
#include "runtime/command/watch_http.h"
#include "runtime/command/watch_run.h"
#include "tools/ftrun_number.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VIEW_USAGE = 2 };
typedef enum { VIEW_REPORT, VIEW_WATCH, VIEW_COMMANDS } ViewCommand;
static const struct {
  const char *name, *usage;
} view_commands[VIEW_COMMANDS] = {
    {"report", "ftrun report RUN.jsonl.. [-o FILE]    a page of HTML: curves, settings, times"},
    {"watch", "ftrun watch RUN.jsonl [--http [PORT]]  follows a training from another terminal"},
};

typedef struct {
  const char *run[REPORT_MOST_RUNS], *model[REPORT_MOST_FILES], *times[REPORT_MOST_FILES];
  int run_count, model_count, times_count;
  const char *output, *address;
  bool is_http;
  int64_t port;
} ViewLine;

bool view_is_command(const char *name) {
  for (int i = 0; i < VIEW_COMMANDS; i++)
    if (!strcmp(name, view_commands[i].name)) return true;
  return false;
}

void view_print_usage(void) {
  for (int i = 0; i < VIEW_COMMANDS; i++) printf("       %s\n", view_commands[i].usage);
}

static void view_help_flag(const char *flag, const char *help) {
  printf("  %-22s %s\n", flag, help);
}

static void view_help(ViewCommand command) {
  printf(
      "usage: %s\n\nRUN.jsonl is a log of JSON lines (ftrun --log-jsonl FILE, log { jsonl }), or a "
      "folder with a log.jsonl\n",
      view_commands[command].usage);
  if (command == VIEW_WATCH)
    printf("Waits for a log that is not there yet, and ends with the training: exit code 0, or 1 "
           "if it "
           "failed.\n");
  printf("\nflags:\n");
  if (command == VIEW_REPORT)
    view_help_flag("-o, --output FILE", "where to write it (report.html)");
  if (command == VIEW_WATCH) {
    view_help_flag("--http [PORT]",
                   "as a page in a browser instead, of several runs too, until Ctrl-C");
    view_help_flag("--address ADDRESS",
                   "--http: for other machines, who may all read it (127.0.0.1)");
  }
  view_help_flag("--model ARTIFACT", "with memory and graph of a step of a .so or .ptx");
  view_help_flag("--times FILE", "with time by kernel and layer: ftrun bench --json FILE, or ftrun "
                                 "--trace FILE.json");
}

static int view_error(const char *format, const char *what) {
  fputs("error: ", stderr);
  fprintf(stderr, format, what);
  fputs("\n`ftrun report --help` and `ftrun watch --help` show what they take\n", stderr);
  return VIEW_USAGE;
}

static int view_push(const char **list, int *count, int most, const char *value) {
  if (*count == most) return view_error("%s is one too many", value);
  list[(*count)++] = value;
  return 0;
}

static int view_flag(ViewLine *line, const char *name, const char *value) {
  if (!strcmp(name, "-o") || !strcmp(name, "--output")) return line->output = value, 0;
  if (!strcmp(name, "--address")) return line->address = value, 0;
  if (!strcmp(name, "--model"))
    return view_push(line->model, &line->model_count, REPORT_MOST_FILES, value);
  return view_push(line->times, &line->times_count, REPORT_MOST_FILES, value);
}

static bool is_port(const char *text) { return *text && !text[strspn(text, "0123456789")]; }

/* --http, --http=PORT or --http PORT: a name of a log that is only digits would be one. */
static int view_http_flag(ViewLine *line, int argc, char **argv, int *at) {
  const char *value = argv[*at][6] == '=' ? argv[*at] + 7 : NULL;
  line->is_http = true;
  if (!value && *at + 1 < argc && is_port(argv[*at + 1])) value = argv[++*at];
  if (!value) return 0;
  if (!number_parse_count(value, &line->port) || line->port < 1 || line->port > 65535)
    return view_error("--http %s: expected a port from 1 to 65535", value);
  return 0;
}

/* The value of the flag at argv[*at], which may follow it or its '='. */
static int view_parse_flag(ViewLine *line, ViewCommand command, int argc, char **argv, int *at) {
  static const char *const with_value[VIEW_COMMANDS][6] = {
      {"-o", "--output", "--model", "--times", NULL}, {"--address", "--model", "--times", NULL}};
  const char *equals = strchr(argv[*at], '=');
  char name[32];
  snprintf(name, sizeof name, "%.*s", (int)(equals ? equals - argv[*at] : 31), argv[*at]);
  if (command == VIEW_WATCH && !strcmp(name, "--http")) return view_http_flag(line, argc, argv, at);
  if (!text_is_one_of(name, with_value[command])) return view_error("unknown flag %s", argv[*at]);
  if (equals) return view_flag(line, name, equals + 1);
  if (*at + 1 == argc) return view_error("%s needs a value", name);
  return view_flag(line, name, argv[++*at]);
}

static int view_report(Status status) {
  fflush(stdout);
  if (status != STATUS_OK) fprintf(stderr, "error: %s\n", status_message());
  return status;
}

static int view_watch(const ViewLine *line, const ReportParts *parts) {
  if (line->is_http)
    return view_report(watch_http(
        &(WatchHttpOptions){line->run, line->run_count, line->address, (int)line->port, *parts}));
  if (line->address) return view_error("%s goes with --http", "--address");
  if (line->model_count || line->times_count)
    return view_error("%s goes with --http", line->model_count ? "--model" : "--times");
  if (line->run_count > 1) return view_error("%s is one too many without --http", line->run[1]);
  return view_report(watch_run(line->run[0]));
}

int view_start(int argc, char **argv) {
  ViewLine line = {0};
  ViewCommand command = 0;
  while (strcmp(argv[1], view_commands[command].name) != 0) command++;
  for (int i = 2; i < argc; i++) {
    int code;
    if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return view_help(command), 0;
    if (argv[i][0] == '-' && argv[i][1])
      code = view_parse_flag(&line, command, argc, argv, &i);
    else
      code = view_push(line.run, &line.run_count, REPORT_MOST_RUNS, argv[i]);
    if (code) return code;
  }
  if (!line.run_count) return view_error("%s needs a log of JSON lines", argv[1]);
  ReportParts parts = {line.model, line.model_count, line.times, line.times_count};
  if (command == VIEW_WATCH) return view_watch(&line, &parts);
  return view_report(report_run(&(ReportOptions){line.run, line.run_count, line.output, parts}));
}
