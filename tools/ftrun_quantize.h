/* ftrun_quantize: `ftrun quantize MODEL.ft --weights W -o SMALL.ft`: the same network with rounded weights and inputs, by what it does on
 * calibration data. */
#ifndef FT_TOOLS_FTRUN_QUANTIZE_H
#define FT_TOOLS_FTRUN_QUANTIZE_H
#include <stdbool.h>

bool quantize_is_command(const char *name);
/* The command line, `quantize` being its first word; returns the exit code. A failure has been told. */
int quantize_start(int argc, char **argv);
#endif
