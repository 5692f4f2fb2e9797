/* ftc_flags: the command line of ftc (flags.h). */
#ifndef FT_TOOLS_FTC_FLAGS_H
#define FT_TOOLS_FTC_FLAGS_H
#include "tools/flags.h"

extern const CommandLine ftc_line;
#endif
