/* tune: the tune block of a file: what `ftrun tune` tries, checked against hypers and settings. A compilation takes
 * nothing from it. Its entries have two kinds of names: those of tune_settings are flags of `ftrun tune`; all others are
 * dimensions, of hypers or settings, and `hyper.NAME` is one wherever a hyper is called like such a flag. */
#ifndef FT_FRONTEND_TUNE_H
#define FT_FRONTEND_TUNE_H
#include "frontend/builder.h"

typedef enum { TUNE_GOAL, TUNE_WORD, TUNE_COUNT, TUNE_NUMBER, TUNE_WHERE } TuneKind;

typedef struct {
  const char *name, *flag; /* "prune_from", "--prune-from" */
  TuneKind kind;
  const char *words; /* TUNE_WORD: with blanks between; TUNE_GOAL: what it begins with */
  double low, high;  /* of numbers */
  const char *form, *doc;
} TuneSetting;

extern const TuneSetting tune_settings[];               /* ends with a NULL name */
const TuneSetting *tune_setting_find(const char *name); /* NULL: it is a dimension's */
/* The block of the main file into program->tune. */
void tune_read(Builder *b, const Ast *file);
#endif
