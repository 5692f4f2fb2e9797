/* report_data: what the page of `ftrun report` and `ftrun watch --http` shows, as JSON. Everything
 * from files is escaped so that it can stand in a <script> of any page. */
#ifndef FT_RUNTIME_REPORT_DATA_H
#define FT_RUNTIME_REPORT_DATA_H
#include "base/text.h"
#include "runtime/command/run_log.h"

/* A string of JSON that no HTML parser sees anything in; what is no UTF-8 becomes U+FFFD, and a
 * long text is cut. */
void report_string(Text *out, const char *text);
/* {"name", "path", "header": [[key, value] …], "curves", "tables", "marks" …} */
void report_append_run(Text *out, const RunLog *log, const char *name, int most_buckets);
/* [run, …] of all logs, with names that differ, and so many points that the page stays small. */
void report_append_runs(Text *out, RunLog *const *logs, int count);
#endif
