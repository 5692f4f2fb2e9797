/* tuned: what a dimension of `ftrun tune` may be by what its hyper or setting takes, for the tune block of a file
 * (frontend/tune.c) and --space (tools/ftrun_study_build.c). */
#ifndef FT_PLAN_TUNED_H
#define FT_PLAN_TUNED_H
#include "plan/plan.h"

typedef struct {
  const char *key;  /* of a setting its whole name */
  const char *type; /* "int", "float", "bool", "str" */
  int setting;      /* -1: a hyper */
} Tuned;

typedef struct {
  bool is_log, is_int;
  double low, high, step; /* step 0: any number between */
} TunedRange;

enum { TUNED_WHY = 400 };

/* A hyper's value as -D, a tune block and --space write it: an int (also 1e3), a finite float, a bool (true, false, 1, 0) or a str. */
typedef struct {
  int64_t integer; /* a bool's: 0 or 1 */
  double number;
} HyperValue;
bool hyper_read(const char *type, const char *text, HyperValue *out);
const char *hyper_refusal(const char *type); /* why not */
const char *tuned_type(SettingKind kind);
/* Can the hyper or setting have this value? `values` are settings to try it on. False: with why. */
bool tuned_takes(const Tuned *tuned, Arena *arena, SettingValue *values, const char *value, char why[TUNED_WHY]);
/* Does the range give such values, as whole numbers where they must be? False: with why. */
bool tuned_takes_range(const Tuned *tuned, const TunedRange *range, char why[TUNED_WHY]);
#endif
