/* ftrun_view: the commands that look at runs by their logs and train nothing: report, watch. */
#ifndef FT_TOOLS_FTRUN_VIEW_H
#define FT_TOOLS_FTRUN_VIEW_H
#include <stdbool.h>

/* Is argv[1] one of them? */
bool view_is_command(const char *name);
/* Its whole command line; the exit code. */
int view_start(int argc, char **argv);
#endif
