/* log_table: metrics of more than one number, as the console and a JSON line show them. */
#ifndef FT_RUNTIME_LOG_TABLE_H
#define FT_RUNTIME_LOG_TABLE_H
#include "base/text.h"
#include "ir/type.h"

typedef struct {
  Shape shape; /* of one dimension or two */
  const double *value;
} LogTable;

/* Lines that end the line before: rows with their numbers in front, columns with theirs above. One
 * sentence in place of a table that is too wide or long to read. */
void log_table_append(Text *text, const char *name, const LogTable *table);
/* Nested lists; null for what JSON has no number for, and then *is_finite becomes false. */
void log_table_append_json(Text *text, const LogTable *table, bool *is_finite);
/* A number of JSON: counts with all their digits. */
void log_table_number(Text *text, double value, bool *is_finite);
#endif
