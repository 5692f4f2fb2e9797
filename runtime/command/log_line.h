/* log_line: one line of the log as files get it: JSON lines (log_json.c), CSV (log_csv.c). */
#ifndef FT_RUNTIME_LOG_LINE_H
#define FT_RUNTIME_LOG_LINE_H
#include "base/text.h"
#include "runtime/command/log.h"
#include "runtime/command/log_file.h"

typedef struct {
  const LogStep *step;
  const LogStep *mean; /* over the steps since the line before; NULL: an evaluation's line */
  const char *split;
  int64_t epoch;
  double time; /* seconds since 1970 */
  double samples_per_s;
  double data_wait; /* seconds of a step, mean since the line before */
} LogLine;

static inline bool log_line_is_eval(const LogLine *line) { return !line->mean; }

/* With the newline. */
void log_json_line(Text *out, const LogLine *line);
void log_json_event(Text *out, int64_t step, const char *what, const char *text);
LogPlace log_json_place(const char *line); /* it ends at '\n' */

/* The columns are known from the start: what a line of training has, its means, and what an
 * evaluation has, with a column for each metric. */
void log_csv_header(Text *out, const LogColumns *columns);
void log_csv_line(Text *out, const LogColumns *columns, const LogLine *line);
LogPlace log_csv_place(const char *line);
#endif
