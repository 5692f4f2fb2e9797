/* ftrun_lottery: `ftrun lottery`: trains, prunes, puts what is left back to an early step, and trains again, round after round. Each
 * training is a process of its own; its log, weights and ticket are files of one folder. */
#ifndef FT_TOOLS_FTRUN_LOTTERY_H
#define FT_TOOLS_FTRUN_LOTTERY_H
#include <stdbool.h>

bool lottery_is_command(const char *name);
/* The exit code; failures have been told. */
int lottery_start(int argc, char **argv);
#endif
