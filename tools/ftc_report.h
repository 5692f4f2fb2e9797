/* ftc_report: what ftc tells about itself and about a program besides compiling it. */
#ifndef FT_TOOLS_FTC_REPORT_H
#define FT_TOOLS_FTC_REPORT_H
#include "frontend/program.h"

#ifndef FTC_VERSION
#define FTC_VERSION "0.1.0"
#endif

void report_ops(FILE *out); /* --list-ops: the table of ops.def */
/* --memory of a program after memplan. how: NULL: the table, to `out`; "svg": the picture, to
 * `out`; else the picture, to the file of that name. Returns an exit code. */
int report_memory(const Program *program, const char *how, FILE *out);
#endif
