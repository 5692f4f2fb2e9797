/* number: numbers of the command line. */
#ifndef FT_TOOLS_NUMBER_H
#define FT_TOOLS_NUMBER_H
#include <stdbool.h>
#include <stdint.h>

/* A whole number from 0; 1e6 is one too. */
bool number_parse_count(const char *text, int64_t *out);
/* A number from low to high, or a sentence on stderr. text NULL: *out stays. */
bool number_in_range(const char *name, const char *text, double low, double high, double *out);
#endif
