/* report: `ftrun report RUN…`: one page of HTML that needs nothing but itself, of the logs of runs, and
 * if told of artifacts and measured times. */
#ifndef FT_RUNTIME_REPORT_H
#define FT_RUNTIME_REPORT_H
#include "base/text.h"
#include "runtime/command/run_log.h"

enum { REPORT_MOST_RUNS = 64, REPORT_MOST_FILES = 8 };

/* What a page shows beside the logs. */
typedef struct {
  const char *const *model; /* artifacts */
  int model_count;
  const char *const *times; /* `ftrun bench --json`, `ftrun --trace X.json` */
  int times_count;
} ReportParts;

/* {"live", "plans", "times", "runs"}, in front of the runs: what does not change. */
STATUS_CHECKED Status report_append_parts(Text *out, const ReportParts *parts, bool is_live);
/* The page's head up to its style, and what it runs: with live the two stand beside it as files. */
void report_page(Text *out, const Text *data);
/* The same of a study: report_study.h. */
void report_study_page(Text *out, const Text *data);
/* … and of a scan: report_sensitivity.h. */
void report_sensitivity_page(Text *out, const Text *data);
typedef struct {
  const char *name, *type, *bytes;
  size_t count;
} ReportFile;
/* Of a page that is served: "/", "/report.css", "/report.js"; index from 0, NULL behind the last. */
const ReportFile *report_file(int index);

typedef struct {
  const char *const *run;
  int run_count;
  const char *output; /* NULL: report.html */
  ReportParts parts;
} ReportOptions;
STATUS_CHECKED Status report_run(const ReportOptions *options);
#endif
