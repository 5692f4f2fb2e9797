/* report_times: where a step's time goes, for the page of a report: of a file of `ftrun bench
 * --json`, or of a trace in Chrome's format (`ftrun --trace X.json`), by label of kernel. */
#ifndef FT_RUNTIME_REPORT_TIMES_H
#define FT_RUNTIME_REPORT_TIMES_H
#include "base/text.h"
#include "runtime/common/status.h"

STATUS_CHECKED Status report_append_times(Text *out, const char *path);
#endif
