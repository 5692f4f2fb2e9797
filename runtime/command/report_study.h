/* report_study: `ftrun report STUDY`: the page of a study of `ftrun tune`, of its journal as it is now. */
#ifndef FT_RUNTIME_REPORT_STUDY_H
#define FT_RUNTIME_REPORT_STUDY_H
#include "runtime/command/report.h"
#include "runtime/tune/importance.h"

/* A folder with a journal, or a file of that name. */
bool report_is_study(const char *path);
/* The page into the file: NULL: report.html. */
STATUS_CHECKED Status report_study_run(const char *study, const char *output);
/* "importance of 20 trials: lr 81 %, hidden 12 %, only together 7 %", and a line's end. */
void report_tell_importance(const Space *space, const Importance *importance, Text *out);
#endif
