/* csv_text: see csv_text.h. Invariant: at <= end, and no byte of the text is read twice but for the
 * search of a field's end, whose bytes are then copied. */
#include "runtime/data/csv_text.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void csv_text_start(CsvText *csv, const void *text, size_t count, char separator) {
  *csv = (CsvText){.at = text, .separator = separator, .line = 1, .after = 1};
  csv->end = csv->at + count;
  if (count >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) csv->at += 3;
}

void csv_text_free(CsvText *csv) { text_free(&csv->field); }

/* Bytes of the line end that comes next; 0: none does. */
static size_t line_end(const CsvText *csv, const char *at) {
  if (at < csv->end && *at == '\n') return 1;
  return csv->end - at >= 2 && at[0] == '\r' && at[1] == '\n' ? 2 : 0;
}

bool csv_text_at_end(const CsvText *csv) {
  const char *at = csv->at;
  for (size_t length; (length = line_end(csv, at));) at += length;
  return at == csv->end;
}

bool csv_text_empty_line(CsvText *csv) {
  size_t length = line_end(csv, csv->at);
  csv->at += length;
  csv->after += length > 0;
  return length > 0;
}

static Status fail_line(const CsvText *csv, const char *what) {
  return status_fail(STATUS_USER, "line %lld: %s", (long long)csv->line, what);
}

static void skip_csv_blanks(CsvText *csv) {
  while (csv->at < csv->end && (*csv->at == ' ' || *csv->at == '\t') && *csv->at != csv->separator)
    csv->at++;
}

/* Behind the opening quote, up to behind the closing one. */
static Status read_quoted(CsvText *csv) {
  for (;;) {
    const char *quote = memchr(csv->at, '"', (size_t)(csv->end - csv->at));
    if (!quote) return fail_line(csv, "a quoted field is not closed: a '\"' is missing behind it");
    text_append(&csv->field, csv->at, (size_t)(quote - csv->at));
    csv->at = quote + 1;
    if (csv->at == csv->end || *csv->at != '"') return STATUS_OK;
    text_append(&csv->field, "\"", 1);
    csv->at++;
  }
}

static void read_plain(CsvText *csv) {
  const char *to = csv->at;
  while (to < csv->end && *to != csv->separator && *to != '\n') to++;
  if (to > csv->at && to < csv->end && *to == '\n' && to[-1] == '\r') to--;
  text_append(&csv->field, csv->at, (size_t)(to - csv->at));
  csv->at = to;
  while (csv->field.count && (csv->field.at[csv->field.count - 1] == ' ' ||
                              csv->field.at[csv->field.count - 1] == '\t'))
    csv->field.at[--csv->field.count] = 0;
}

/* Line ends in quotes count as lines of the file. */
static Status check_field(CsvText *csv) {
  const char *text = text_cstr(&csv->field);
  if (strlen(text) != csv->field.count) return fail_line(csv, "a field holds a zero byte");
  if (!csv->is_quoted && strchr(text, '\r'))
    return fail_line(csv, "a carriage return stands in the middle of a line; lines end with \\n "
                          "or \\r\\n");
  for (const char *at = text; csv->is_quoted && (at = strchr(at, '\n')); at++) csv->after++;
  return STATUS_OK;
}

Status csv_text_field(CsvText *csv, bool *is_last) {
  csv->line = csv->after;
  csv->field.count = 0;
  text_append(&csv->field, "", 0);
  skip_csv_blanks(csv);
  csv->is_quoted = csv->at < csv->end && *csv->at == '"';
  if (csv->is_quoted) {
    csv->at++;
    STATUS_TRY(read_quoted(csv));
    skip_csv_blanks(csv);
  } else {
    read_plain(csv);
  }
  STATUS_TRY(check_field(csv));
  size_t length = line_end(csv, csv->at);
  *is_last = length || csv->at == csv->end;
  if (*is_last) {
    csv->at += length;
    csv->after += length > 0;
    return STATUS_OK;
  }
  if (*csv->at != csv->separator)
    return fail_line(csv, "a quoted field goes on behind its closing quote; a quote within is "
                          "written twice");
  csv->at++;
  return STATUS_OK;
}

bool csv_text_number(const CsvText *csv, double *out) {
  const char *text = text_cstr(&csv->field);
  char *end;
  if (!*text || text[strspn(text, "0123456789+-.eE")]) return false;
  *out = strtod(text, &end);
  return end != text && !*end && isfinite(*out);
}

bool csv_text_whole(const CsvText *csv, int64_t *out) {
  const char *text = text_cstr(&csv->field);
  char *end;
  if (!text[strspn(text, "0123456789+-")]) {
    errno = 0;
    *out = strtoll(text, &end, 10);
    return end != text && !*end && !errno;
  }
  double value;
  if (!csv_text_number(csv, &value) || fabs(value) > 0x1p53 || value != trunc(value)) return false;
  *out = (int64_t)value;
  return true;
}

bool csv_text_is_missing(const CsvText *csv) {
  const char *text = text_cstr(&csv->field);
  if (csv->is_quoted) return false;
  return !*text || !strcmp(text, "?") || !strcasecmp(text, "na") || !strcasecmp(text, "n/a") ||
         !strcasecmp(text, "nan") || !strcasecmp(text, "null");
}
