/* pretoken: cuts text as GPT-2 does before it merges bytes: contractions, and runs of letters, of
 * numbers, of other characters, each with one space before, and of white space. */
#ifndef FT_RUNTIME_PRETOKEN_H
#define FT_RUNTIME_PRETOKEN_H
#include "runtime/common/status.h"
#include <stddef.h>

typedef struct Pretoken Pretoken;

STATUS_CHECKED Status pretoken_new(Pretoken **out);
void pretoken_free(Pretoken *pretoken); /* NULL is fine */
/* The text to cut; it must stay as it is. */
void pretoken_start(Pretoken *pretoken, const char *text, size_t count);
/* The next piece; 0 bytes at the end. Bytes that are not UTF-8 are a piece of their own. */
size_t pretoken_next(Pretoken *pretoken, const char **piece);
#endif
