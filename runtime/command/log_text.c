/* log_text: see log_text.h. */
#include "runtime/command/log_text.h"
#include <math.h>
#include <stdint.h>

void log_text_duration(Text *line, double seconds) {
  int64_t whole = (int64_t)(seconds + 0.5);
  if (whole >= 3600)
    text_printf(line, "%lld:%02lld:%02lld", (long long)(whole / 3600), (long long)(whole / 60 % 60),
                (long long)(whole % 60));
  else
    text_printf(line, "%lld:%02lld", (long long)(whole / 60), (long long)(whole % 60));
}

void log_text_value(Text *line, const char *name, double value) {
  double size = fabs(value);
  if (isnan(value)) value = size; /* printf knows a -nan */
  text_printf(line, size != 0 && (size < 1e-2 || size >= 1e5) ? "%s %.4g" : "%s %.4f", name, value);
}
