/* ftc_usage: see ftc_usage.c. */
#ifndef FT_TOOLS_FTC_USAGE_H
#define FT_TOOLS_FTC_USAGE_H

extern const char ftc_usage[];
#endif
