/* ftrun_view: see ftrun_view.h. */
#include "tools/ftrun_view.h"
#include "base/say.h"
#include "runtime/command/report.h"
#include "runtime/command/watch_http.h"
#include "runtime/command/watch_run.h"
#include "tools/ftrun_flags.h"
#include "tools/number.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  int command; /* its number in ftrun_line */
  const char *run[REPORT_MOST_RUNS], *model[REPORT_MOST_FILES], *times[REPORT_MOST_FILES];
  int run_count, model_count, times_count;
  const char *output, *address;
  bool is_http;
  int64_t port;
} ViewLine;

static bool view_is(int command, int bit) { return command >= 0 && 1 << command == bit; }

bool view_is_command(const char *name) {
  int command = flags_command(&ftrun_line, name);
  return view_is(command, REPORT) || view_is(command, WATCH);
}

static int view_push(const ViewLine *line, const char **list, int *count, int most,
                     const char *value) {
  if (*count == most) return flags_fail(&ftrun_line, line->command, "%s is one too many", value);
  list[(*count)++] = value;
  return 0;
}

static int view_flag(ViewLine *line, const Flag *flag, const char *value) {
  if (!strcmp(flag->name, "-o") || !strcmp(flag->name, "--output")) return line->output = value, 0;
  if (!strcmp(flag->name, "--address")) return line->address = value, 0;
  if (!strcmp(flag->name, "--model"))
    return view_push(line, line->model, &line->model_count, REPORT_MOST_FILES, value);
  if (!strcmp(flag->name, "--times"))
    return view_push(line, line->times, &line->times_count, REPORT_MOST_FILES, value);
  line->is_http = true;
  if (value && (!number_parse_count(value, &line->port) || line->port < 1 || line->port > 65535))
    return flags_fail(&ftrun_line, line->command, "--http %s: expected a port from 1 to 65535",
                      value);
  return 0;
}

static int view_report(Status status) {
  fflush(stdout);
  if (status != STATUS_OK) say_error("%s", status_message());
  return status;
}

static int view_watch(const ViewLine *line, const ReportParts *parts) {
  if (line->is_http)
    return view_report(watch_http(
        &(WatchHttpOptions){line->run, line->run_count, line->address, (int)line->port, *parts}));
  if (line->address)
    return flags_fail(&ftrun_line, line->command, "%s goes with --http", "--address");
  if (line->model_count || line->times_count)
    return flags_fail(&ftrun_line, line->command, "%s goes with --http",
                      line->model_count ? "--model" : "--times");
  if (line->run_count > 1)
    return flags_fail(&ftrun_line, line->command, "%s is one too many without --http",
                      line->run[1]);
  return view_report(watch_run(line->run[0]));
}

int view_start(int argc, char **argv) {
  ViewLine line = {.command = flags_command(&ftrun_line, argv[1])};
  for (int i = 2; i < argc; i++) {
    const Flag *flag;
    const char *value;
    int64_t count;
    int code;
    if (argv[i][0] == '-' && argv[i][1]) {
      code = flags_parse(&ftrun_line, line.command, argc, argv, &i, &flag, &value, &count);
      if (!code) code = view_flag(&line, flag, value);
    } else {
      code = view_push(&line, line.run, &line.run_count, REPORT_MOST_RUNS, argv[i]);
    }
    if (code) return code;
  }
  if (!line.run_count)
    return flags_fail(&ftrun_line, line.command, "%s needs a log of JSON lines", argv[1]);
  ReportParts parts = {line.model, line.model_count, line.times, line.times_count};
  if (view_is(line.command, WATCH)) return view_watch(&line, &parts);
  return view_report(report_run(&(ReportOptions){line.run, line.run_count, line.output, parts}));
}
