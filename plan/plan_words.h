/* plan_words: reads the words of one line of a plan. Every function that fails says so once through
 * words_fail ("line N: ...") and returns false or NULL. */
#ifndef FT_PLAN_PLAN_WORDS_H
#define FT_PLAN_PLAN_WORDS_H
#include "plan/plan.h"

typedef struct {
  Arena *arena;
  const char *at; /* the next byte of the current line, which ends in NUL */
  int line;
  const char *why; /* set once, by the first failure */
  int64_t copied_ops; /* of kernels that do the same as others: plan_same.h */
} Words;

/* Larger than any memory; sums of a few of them do not overflow. */
#define LARGEST_PLACE (INT64_C(1) << 46)

/* Always false. */
bool words_fail(Words *words, const char *format, ...) __attribute__((format(printf, 2, 3)));
void words_skip(Words *words); /* spaces */
bool words_at_end(Words *words);
/* Takes `text` if it comes next. Words end where no letter or digit follows. */
bool words_take(Words *words, const char *text);
bool words_expect(Words *words, const char *text); /* the same, failing if it does not */
/* A bare word: letters, digits, and @._- */
const char *words_word(Words *words, const char *what);
/* A quoted string, and one that is a name: letters, digits, and ._- behind the first; the
 * compiler's own mark may begin it and what follows a dot. Names go into logs, messages and files:
 * none is a command or an escape sequence. */
const char *words_string(Words *words, const char *what);
const char *words_name(Words *words, const char *what);
bool words_integer(Words *words, const char *what, int64_t low, int64_t high, int64_t *out);
bool words_number(Words *words, const char *what, double *out); /* finite */
bool words_value(Words *words, const char *what, double *out);  /* of a tensor's element: any */
bool words_shape(Words *words, Shape *out);                     /* [2,3]; of any size */
/* The line of a place, and the name of one that has had its line (-1: failed). plan_place.c */
bool plan_read_place(Words *words, Plan *plan);
int plan_read_place_name(Words *words, const Plan *plan);
/* A box of an input's elements, behind the word `part` (plan_part.c). */
bool plan_read_part(Words *words, PlanTensor *out);
/* The transforms behind a data source's files and options, each behind `then` (plan_chain.c). */
bool plan_read_chain(Words *words, DataSource *out);
bool words_type(Words *words, Type *out); /* at most LARGEST_PLACE bytes, not of 8-bit floats; */
/* … without what lies between rows, of which there may be some: bf16[8,50257:50272]. */
bool words_type_in_memory(Words *words, Type *out, bool may_have_pitch);
#endif
