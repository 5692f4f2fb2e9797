/* where: a condition that every point of a study keeps (`ftrun tune --where "hidden * layers <= 1024"`, and in a tune block):
 *
 *   condition   and, or, not over comparisons < <= > >= == !=, with ( )
 *   number      dimensions of numbers, numbers, + - * / **, min(a, b, …), max(a, b, …), ( )
 *   word        optimizer == sgd, optimizer != "sgd": a dimension of words with one of its values
 *
 * It is read once, into steps for a stack, and then asked of many points. A dimension that is not there in a point has no value,
 * and a comparison with it is neither true nor false (Kleene's logic: `false and x` is false, `true or x` is true, whatever x is).
 * So is one with a number that does not exist (0 / 0). */
#ifndef FT_PLAN_WHERE_H
#define FT_PLAN_WHERE_H
#include <stdbool.h>
#include <stddef.h>

enum { WHERE_LETTERS = 512, WHERE_STEPS = 160, WHERE_DEPTH = 64, WHERE_WHY = 320 };

typedef struct {
  int what; /* WhereWhat of where.c */
  int dim;
  double number;
} WhereStep;

typedef struct {
  char text[WHERE_LETTERS]; /* as written, with one blank where there were several */
  WhereStep step[WHERE_STEPS];
  int count;
} Where;

/* The dimensions that there are. */
typedef struct {
  const void *context;
  int (*find)(const void *context, const char *name, size_t length); /* -1: none */
  /* "adamw, sgd"; NULL: its values are numbers */
  const char *(*words)(const void *context, int dim, char *out, size_t capacity);
  int (*word)(const void *context, int dim, const char *word, size_t length); /* which; -1: none */
  /* Behind "there is no dimension 'x'": the nearest name, or "". */
  void (*hint)(const void *context, const char *name, char *out, size_t capacity);
} WhereNames;

typedef struct {
  int at; /* letters before the place */
  char why[WHERE_WHY];
} WhereError;

bool where_read(const char *text, const WhereNames *names, Where *out, WhereError *error);
/* value: by dimension, the number, or which word; NAN where it is not there. 1, 0; -1: neither. */
int where_holds(const Where *where, const double *value);
#endif
