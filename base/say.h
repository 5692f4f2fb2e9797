/* say: what a tool tells people on standard error: "error: ...", "warning: ...", "note: ...". On a
 * terminal the word has a colour. Text is only coloured where a person looks at it: never in a
 * file, a pipe or a log. */
#ifndef FT_BASE_SAY_H
#define FT_BASE_SAY_H
#include <stdbool.h>
#include <stdio.h>

typedef enum { SAY_ERROR, SAY_WARNING, SAY_NOTE } SayKind;

/* "error", "warning", "note" */
const char *say_word(SayKind kind);
/* Is `out` a terminal that shows colours? NO_COLOR and TERM=dumb say no, CLICOLOR_FORCE says yes of
 * whatever stderr is (no-color.org, bixense.com/clicolors). */
bool say_is_coloured(FILE *out);
/* The escape sequences, "" without colour. */
const char *say_colour(SayKind kind, bool is_coloured); /* of the word */
const char *say_bold(bool is_coloured);
const char *say_caret(bool is_coloured);
const char *say_plain(bool is_coloured);

/* "error: " and the sentence, and a line's end, on standard error. */
void say_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void say_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void say_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "error: " alone, for a sentence that is put together. */
void say_begin(SayKind kind);
#endif
