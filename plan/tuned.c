/* tuned: see tuned.h. */
#include "plan/tuned.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tuned_type(SettingKind kind) {
  static const char *const types[] = {[SET_INT] = "int", [SET_FLOAT] = "float", [SET_BOOL] = "bool", [SET_STR] = "str"};
  return types[kind];
}

bool hyper_read(const char *type, const char *text, HyperValue *out) {
  char *end;
  *out = (HyperValue){0};
  if (!strcmp(type, "str")) return true;
  if (!strcmp(type, "bool")) {
    out->integer = !strcmp(text, "true") || !strcmp(text, "1");
    return out->integer || !strcmp(text, "false") || !strcmp(text, "0");
  }
  bool is_int = !strcmp(type, "int");
  errno = 0;
  out->integer = is_int ? strtoll(text, &end, 10) : 0;
  if (is_int && *text && !*end) return !errno;
  out->number = strtod(text, &end); /* 1e3 is an integer too */
  bool is_number = *text && !*end && isfinite(out->number);
  if (!is_int || !is_number) return is_number && !is_int;
  bool fits = out->number == floor(out->number) && fabs(out->number) < 9e15 && !errno;
  if (fits) out->integer = (int64_t)out->number;
  return fits;
}

const char *hyper_refusal(const char *type) {
  return !strcmp(type, "int") ? "not an integer" : !strcmp(type, "float") ? "not a number" : "not true or false";
}

bool tuned_takes(const Tuned *tuned, Arena *arena, SettingValue *values, const char *value, char why[TUNED_WHY]) {
  HyperValue read;
  bool is_hyper = tuned->setting < 0;
  const char *reason = is_hyper ? hyper_refusal(tuned->type) : "";
  if (is_hyper ? hyper_read(tuned->type, value, &read)
               : setting_set(arena, values, tuned->setting, setting_off(tuned->setting, value), &reason))
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
