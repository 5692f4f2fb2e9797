/* log_text: numbers as lines on a console have them. */
#ifndef FT_RUNTIME_LOG_TEXT_H
#define FT_RUNTIME_LOG_TEXT_H
#include "base/text.h"

void log_text_duration(Text *line, double seconds); /* "1:02:03", "4:05" */
/* "loss 0.1234": four decimals where they say something. */
void log_text_value(Text *line, const char *name, double value);
#endif
