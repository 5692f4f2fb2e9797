/* number: see number.h. */
#include "tools/number.h"
#include "base/say.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

bool number_parse_count(const char *text, int64_t *out) {
  char *end;
  errno = 0;
  double value = strtod(text, &end);
  if (end == text || *end || errno || !(value >= 0 && value <= 0x1p53)) return false;
  *out = (int64_t)value;
  return (double)*out == value;
}

bool number_in_range(const char *name, const char *text, double low, double high, double *out) {
  char *end;
  if (!text) return true;
  *out = strtod(text, &end);
  if (end != text && !*end && *out >= low && *out <= high) return true;
  say_error("%s %s: expected a number from %g to %g", name, text, low, high);
  return false;
}
