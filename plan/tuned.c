/* tuned: see tuned.h. */
#include "plan/tuned.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tuned_type(SettingKind kind) {
  static const char *const types[] = {[SET_INT] = "int", [SET_FLOAT] = "float", [SET_BOOL] = "bool", [SET_STR] = "str"};
  return types[kind];
}

static bool hyper_takes(const char *type, const char *value, const char **why) {
  char *end;
  double number = strtod(value, &end);
  *why = !strcmp(type, "int") ? "not an integer" : !strcmp(type, "float") ? "not a number" : "not true or false";
  if (!strcmp(type, "int")) return !*end && floor(number) == number && fabs(number) < 9e18;
  if (!strcmp(type, "float")) return !*end;
  if (!strcmp(type, "bool"))
    return !strcmp(value, "true") || !strcmp(value, "false") || !strcmp(value, "1") || !strcmp(value, "0");
  return true;
}

bool tuned_takes(const Tuned *tuned, Arena *arena, SettingValue *values, const char *value, char why[TUNED_WHY]) {
  const char *reason = "";
  bool is_hyper = tuned->setting < 0;
  if (is_hyper ? hyper_takes(tuned->type, value, &reason) : setting_set(arena, values, tuned->setting, value, &reason))
    return true;
  snprintf(why, TUNED_WHY, "%s '%s' cannot be %s: %s", is_hyper ? "hyper" : "setting", tuned->key, value, reason);
  return false;
}

bool tuned_takes_range(const Tuned *tuned, const TunedRange *range, char why[TUNED_WHY]) {
  if (!strcmp(tuned->type, "bool") || !strcmp(tuned->type, "str")) {
    snprintf(why, TUNED_WHY, "'%s' is no number but a %s: write its values in [ ]", tuned->key, tuned->type);
    return false;
  }
  bool is_whole = floor(range->low) == range->low && floor(range->high) == range->high && floor(range->step) == range->step;
  if (strcmp(tuned->type, "int") != 0 || range->is_int || (range->step > 0 && is_whole)) return true;
  double low = ceil(range->low), high = floor(range->high);
  if (low >= high)
    snprintf(why, TUNED_WHY, "'%s' is an int, of which this range has %s: write int(1, 8) or the like", tuned->key,
             low > high ? "none" : "one");
  else
    snprintf(why, TUNED_WHY, "'%s' is an int: write %s(%.0f, %.0f)", tuned->key, range->is_log ? "log_int" : "int", low, high);
  return false;
}
