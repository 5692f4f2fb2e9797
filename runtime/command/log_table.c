/* log_table: see log_table.h. */
#include "runtime/command/log_table.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_SHOWN = 32 }; /* rows and columns */

/* Up to 2^53, beyond which not every whole number is a double. */
static bool is_count(double value) { return value == floor(value) && fabs(value) <= 0x1p53; }

void log_table_number(Text *text, double value, bool *is_finite) {
  if (isfinite(value))
    text_printf(text, is_count(value) ? "%.0f" : "%.9g", value);
  else {
    text_printf(text, "null");
    *is_finite = false;
  }
}

static int64_t table_columns(const LogTable *table) {
  return table->shape.dim[table->shape.rank - 1];
}

static int64_t table_rows(const LogTable *table) {
  return table->shape.rank > 1 ? table->shape.dim[0] : 1;
}

void log_table_append_json(Text *text, const LogTable *table, bool *is_finite) {
  int64_t rows = table_rows(table), columns = table_columns(table);
  bool is_nested = table->shape.rank > 1;
  if (is_nested) text_append(text, "[", 1);
  for (int64_t i = 0; i < rows; i++) {
    text_printf(text, i ? ", [" : "[");
    for (int64_t j = 0; j < columns; j++) {
      if (j) text_append(text, ", ", 2);
      log_table_number(text, table->value[i * columns + j], is_finite);
    }
    text_append(text, "]", 1);
  }
  if (is_nested) text_append(text, "]", 1);
}

/* ── on the console ───────────────────────────────────────────────────────────────────────── */
typedef struct {
  const LogTable *table;
  bool is_counts; /* else four decimals */
  int width, row_width;
} TableLook;

static int table_number_text(const TableLook *look, double value, char text[64]) {
  const char *format = look->is_counts                                             ? "%.0f"
                       : value != 0 && !(fabs(value) >= 1e-4 && fabs(value) < 1e5) ? "%.4g"
                                                                                   : "%.4f";
  return snprintf(text, 64, format, isnan(value) ? fabs(value) : value); /* it knows a -nan */
}

static TableLook table_look(const LogTable *table) {
  TableLook look = {.table = table, .is_counts = true};
  int64_t rows = table_rows(table), columns = table_columns(table);
  char text[64];
  for (int64_t i = 0; i < rows * columns; i++)
    look.is_counts = look.is_counts && is_count(table->value[i]);
  look.width = snprintf(text, sizeof text, "%lld", (long long)(columns - 1));
  look.row_width = snprintf(text, sizeof text, "%lld", (long long)(rows - 1));
  for (int64_t i = 0; i < rows * columns; i++) {
    int width = table_number_text(&look, table->value[i], text);
    if (width > look.width) look.width = width;
  }
  return look;
}

void log_table_append(Text *text, const char *name, const LogTable *table) {
  int64_t rows = table_rows(table), columns = table_columns(table);
  char number[64];
  if (rows > MOST_SHOWN || columns > MOST_SHOWN) {
    text_printf(text,
                "\n  %s: %lld x %lld numbers, in the JSON lines (train.log.jsonl, --log-jsonl)",
                name, (long long)rows, (long long)columns);
    return;
  }
  TableLook look = table_look(table);
  bool is_nested = table->shape.rank > 1;
  text_printf(text, "\n  %s:\n   ", name);
  if (is_nested) text_printf(text, " %*s", look.row_width, "");
  for (int64_t j = 0; j < columns; j++) text_printf(text, "  %*lld", look.width, (long long)j);
  for (int64_t i = 0; i < rows; i++) {
    text_printf(text, "\n   ");
    if (is_nested) text_printf(text, " %*lld", look.row_width, (long long)i);
    for (int64_t j = 0; j < columns; j++) {
      table_number_text(&look, table->value[i * columns + j], number);
      text_printf(text, "  %*s", look.width, number);
    }
  }
}
