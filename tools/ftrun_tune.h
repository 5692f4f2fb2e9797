/* ftrun_tune: `ftrun tune`: many trainings of one model, whose settings a sampler chooses (runtime/tune). */
#ifndef FT_TOOLS_FTRUN_TUNE_H
#define FT_TOOLS_FTRUN_TUNE_H
#include <stdbool.h>

bool tune_is_command(const char *name);
/* Its whole command line; the exit code. */
int tune_start(int argc, char **argv);
#endif
