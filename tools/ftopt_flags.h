/* ftopt_flags: the command line of ftopt (flags.h). */
#ifndef FT_TOOLS_FTOPT_FLAGS_H
#define FT_TOOLS_FTOPT_FLAGS_H
#include "tools/flags.h"

extern const CommandLine ftopt_line;
#endif
