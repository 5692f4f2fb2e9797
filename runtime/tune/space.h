/* space: what a study may choose (`ftrun tune --space …`): dimensions with their ranges, points in them, and
 * the unit interval that samplers work in.
 *
 *   lr=log(1e-5, 1e-1)         a number, whose logarithm is even over the range
 *   dropout=range(0, 0.5)      a number; range(0, 0.5, step=0.1): 0, 0.1, … 0.5
 *   layers=int(1, 8)           a whole number, both ends included; int(1, 8, step=2); log_int(16, 1024)
 *   hidden=[64, 128, 256]      one of these, in order if all are numbers
 *   optimizer=[adamw, sgd]     one of these words
 *   quantize=[none, "*=w8a8"]  or texts, in quotes where they have other letters than a-z, 0-9 and _ . + - / : %
 *   momentum=range(0, 0.99) if optimizer=sgd        only where another one is that; sgd|lion: one of both
 *
 * A point has a double for each dimension: the number, or which choice (from 0); NAN where the condition
 * does not hold. */
#ifndef FT_RUNTIME_SPACE_H
#define FT_RUNTIME_SPACE_H
#include "base/text.h"
#include "plan/where.h"
#include "runtime/common/status.h"
#include <stdbool.h>
#include <stdint.h>

/* SPACE_VALUES: letters of all choices of a dimension, so that a journal's line holds a space. */
enum { SPACE_MOST = 64, SPACE_MOST_CHOICES = 64, SPACE_NAME = 96, SPACE_VALUE = 1024, SPACE_VALUES = 7000, SPACE_MOST_WHERE = 16 };

typedef enum { DIM_REAL, DIM_INT, DIM_CHOICE } DimKind;

typedef struct {
  char name[SPACE_NAME];
  DimKind kind;
  bool is_log;
  double low, high, step; /* step 0: any number between; DIM_INT: at least 1 */
  int choice_count;
  char (*choice)[SPACE_VALUE]; /* owned */
  bool is_ordered;             /* choices: numbers that grow or fall */
  int parent;                 /* it is there where this dimension …; -1: always */
  uint64_t parent_choices;    /* … has one of these choices, a bit each */
} Dim;

typedef struct {
  Dim dim[SPACE_MOST];
  int count;
  Where *where; /* owned; what all points keep */
  int where_count;
} Space;

/* One more dimension, "lr=log(1e-5, 1e-1)"; those that it depends on come before it. */
STATUS_CHECKED Status space_add(Space *space, const char *text);
/* One more condition of all points, behind all dimensions: "hidden * layers <= 1024" (plan/where.h). A dimension of choices
 * that are all numbers is a number in it. */
STATUS_CHECKED Status space_add_where(Space *space, const char *text);
/* Does the point keep them? Where one is neither true nor false, as a dimension is not there, it does. */
bool space_allows(const Space *space, const double *point);
void space_free(Space *space);
int space_find(const Space *space, const char *name, size_t length); /* -1: none */
bool space_is_active(const Space *space, int dim, const double *point);

/* How many values a dimension has; 0: any number of them. */
int64_t dim_values(const Dim *dim);
/* A number of [0, 1] to a value, to the nearest that the dimension has; choices have equal shares of it. */
double dim_from_unit(const Dim *dim, double unit);
/* Of a dimension with steps: a value by its number from 0, and the one that lies next to this. All that makes values takes these:
 * the journal has them as text, and points are the same if they are equal. */
double dim_nth(const Dim *dim, double nth);
double dim_nearest(const Dim *dim, double value);
/* The middle of what dim_from_unit gives this value for. */
double dim_to_unit(const Dim *dim, double value);
/* A point of [0, 1] each; what is inactive becomes NAN. */
void space_from_unit(const Space *space, const double *unit, double *point);
bool space_is_same(const Space *space, const double *a, const double *b);
/* As --set and -D take it: "0.003", "128", "adamw". Numbers are the shortest that read back as they are. */
void dim_print(const Dim *dim, double value, Text *out);
/* As a line for people has it: texts as --space takes them, in quotes. */
void dim_show(const Dim *dim, double value, Text *out);
/* The other way of dim_print; false: no value of it. */
bool dim_read(const Dim *dim, const char *text, double *value);
/* The dimension as it was written, brought into one form: what a study's journal keeps. */
void dim_describe(const Space *space, int dim, Text *out);
#endif
