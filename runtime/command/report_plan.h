/* report_plan: an artifact's step for the page of a report, as JSON: what is computed of what, and
 * which bytes of the memory for temporary values are in use while it runs. Opening runs nothing of
 * the artifact. */
#ifndef FT_RUNTIME_REPORT_PLAN_H
#define FT_RUNTIME_REPORT_PLAN_H
#include "base/text.h"
#include "runtime/common/status.h"

STATUS_CHECKED Status report_append_plan(Text *out, const char *path);
#endif
