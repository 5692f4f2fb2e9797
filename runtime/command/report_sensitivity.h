/* report_sensitivity: what `ftrun sensitivity` shows: a table as it goes, and a page of HTML at the end, a curve for each parameter. */
#ifndef FT_RUNTIME_REPORT_SENSITIVITY_H
#define FT_RUNTIME_REPORT_SENSITIVITY_H
#include "base/text.h"
#include "runtime/command/sensitivity.h"
#include <stdio.h>

/* A row shows the model's first metric, or the loss. */
void report_sensitivity_head(const Sensitivity *all, int parameters, FILE *out);
void report_sensitivity_row(const Sensitivity *all, const SensitivityCurve *curve, FILE *out);
void report_sensitivity_end(const Sensitivity *all, FILE *out); /* what is suggested, and what came of it */
STATUS_CHECKED Status report_sensitivity_write(const Sensitivity *all, const char *path);
/* A string of JSON, or null; ,"loss":0.1,"accuracy":0.9 of all that is a number. */
void report_sensitivity_string(Text *out, const char *text);
void report_sensitivity_numbers(Text *out, const LogStep *result);
#endif
