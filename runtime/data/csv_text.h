/* csv_text: the fields of a text of comma-separated values, one after the other, as RFC 4180 has
 * them: a field in quotes may hold separators, line ends and, doubled, quotes; lines end with \n or
 * \r\n. Blanks around a field without quotes are none of it. The text is hostile input and may
 * change while it is read: every field is copied once, and what follows goes by the copy. */
#ifndef FT_RUNTIME_CSV_TEXT_H
#define FT_RUNTIME_CSV_TEXT_H
#include "base/text.h"
#include "runtime/common/status.h"
#include <stdint.h>

typedef struct {
  const char *at, *end; /* what is still to be read */
  char separator;
  int64_t line;  /* of the field, from 1 */
  int64_t after; /* the line that comes next */
  Text field;    /* without its quotes; ends in NUL, and has none within */
  bool is_quoted;
} CsvText;

/* Starts behind the mark of the order of bytes, if there is one. To be ended with csv_text_free. */
void csv_text_start(CsvText *csv, const void *text, size_t count, char separator);
void csv_text_free(CsvText *csv);
/* Is there no further line? Lines of nothing at the end of the text are none. */
bool csv_text_at_end(const CsvText *csv);
/* Takes an empty line, if one comes next. */
bool csv_text_empty_line(CsvText *csv);
/* Reads the next field; *is_last: the line ends with it. */
STATUS_CHECKED Status csv_text_field(CsvText *csv, bool *is_last);
/* The field is a number, which it may be only if it is finite: "12", "-1.5e3", not "0x1p3". */
bool csv_text_number(const CsvText *csv, double *out);
/* The same of a whole number that an int64_t holds; "3.0" is one. */
bool csv_text_whole(const CsvText *csv, int64_t *out);
/* Nothing, or what stands for it: NA, N/A, NaN, null, ? ; without quotes. */
bool csv_text_is_missing(const CsvText *csv);
#endif
