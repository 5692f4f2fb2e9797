/* csv: a table as text, a sample a line, read as csv_text.h says; which columns are for which input
 * csv_columns.c says. Inputs of floats take numbers. Inputs of integers take whole numbers, or texts
 * that are numbered: as classes= lists them, or else sorted by their bytes, and then there have to be
 * as many as the model has classes, for a file that lacks one would number the others otherwise.
 * Invariant: every element of the rows that are counted has been written. */
#include "runtime/data/csv_table.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static Status fail_field(const CsvTable *table, const CsvSlot *slot, const char *what) {
  return status_fail(STATUS_USER, "line %lld, %s: '%s' %s", (long long)table->text.line,
                     csv_column_text(table, slot->column),
                     csv_shown(table, text_cstr(&table->text.field)), what);
}

/* Memory grows by halves: at most 6 bytes for each byte of a file whose numbers take two, for each
 * time that a column is chosen. */
static Status grow_rows(CsvTable *table) {
  int64_t room = table->room + table->room / 2 + 64;
  for (int i = 0; i < table->file->input_count; i++) {
    CsvInput *input = &table->inputs[i];
    size_t bytes;
    if (__builtin_mul_overflow((size_t)room * 8, (size_t)input->width, &bytes))
      return status_errno(ENOMEM, "has too many numbers:");
    void *more = realloc(input->elements, bytes ? bytes : 1);
    if (!more) return status_errno(ENOMEM, "has too many numbers:");
    input->elements = more;
  }
  table->room = room;
  return STATUS_OK;
}

static Status read_class(CsvTable *table, CsvSlot *slot, int64_t *out) {
  const char *text = text_cstr(&table->text.field);
  int number = lookup_find_text(&slot->classes, text);
  *out = number;
  if (number >= 0) return STATUS_OK;
  if (slot->is_listed) return fail_field(table, slot, "is none of those that classes= lists");
  if (!slot->below)
    return fail_field(table, slot, "is not a whole number; if it is a class, list all by classes=");
  number = slot->classes.entries.count;
  if (number == slot->below)
    return status_fail(
        STATUS_USER, "line %lld, %s: '%s' is one class more than the %lld of input %s",
        (long long)table->text.line, csv_column_text(table, slot->column), csv_shown(table, text),
        (long long)slot->below, table->file->inputs[slot->input].name);
  *out = lookup_add_text(&slot->classes, text, number);
  return STATUS_OK;
}

static Status read_missing(CsvTable *table, CsvSlot *slot, bool is_whole, void *out) {
  if (!table->may_miss)
    return fail_field(table, slot,
                      "is a missing value: missing=0 or missing=nan takes that for it");
  if (slot->is_class) return fail_field(table, slot, "is a missing value in a column of classes");
  if (is_whole && (table->missing != trunc(table->missing) || fabs(table->missing) > 0x1p53))
    return fail_field(table, slot, "is a missing value, for which missing= has no whole number");
  slot->has_missing = true;
  int64_t whole = is_whole ? (int64_t)table->missing : 0;
  memcpy(out, is_whole ? (void *)&whole : (void *)&table->missing, 8);
  return STATUS_OK;
}

static Status read_slot(CsvTable *table, CsvSlot *slot) {
  CsvInput *input = &table->inputs[slot->input];
  uint8_t *out =
      (uint8_t *)input->elements + 8 * (size_t)(table->rows * input->width + slot->element);
  int64_t whole;
  double number;
  if (csv_text_is_missing(&table->text) &&
      !(slot->is_listed && lookup_find_text(&slot->classes, text_cstr(&table->text.field)) >= 0))
    return read_missing(table, slot, input->is_whole, out);
  if (!input->is_whole) {
    if (!csv_text_number(&table->text, &number))
      return fail_field(table, slot, "is not a finite number");
    memcpy(out, &number, sizeof number);
    return STATUS_OK;
  }
  if (!slot->is_known) slot->is_class = !csv_text_number(&table->text, &number);
  slot->is_known = true;
  if (slot->is_class && slot->has_missing)
    return fail_field(table, slot, "is a class, in a column with missing values");
  if (slot->is_class)
    STATUS_TRY(read_class(table, slot, &whole));
  else if (!csv_text_whole(&table->text, &whole))
    return fail_field(table, slot, "is not a whole number, which the input takes");
  memcpy(out, &whole, sizeof whole);
  return STATUS_OK;
}

static Status read_csv_row(CsvTable *table) {
  int next = 0;
  int64_t columns = 0, line = table->text.after;
  if (table->rows == table->room) STATUS_TRY(grow_rows(table));
  for (bool is_last = false; !is_last; columns++) {
    STATUS_TRY(csv_text_field(&table->text, &is_last));
    for (; next < table->slot_count && table->slots[next].column == columns; next++)
      STATUS_TRY(read_slot(table, &table->slots[next]));
  }
  if (columns != table->columns)
    return status_fail(STATUS_USER, "line %lld has %lld column%s, the first one has %lld",
                       (long long)line, (long long)columns, columns == 1 ? "" : "s",
                       (long long)table->columns);
  table->rows++;
  return STATUS_OK;
}

static int by_text(const void *a, const void *b) {
  return strcmp(((const LookupEntry *)a)->key, ((const LookupEntry *)b)->key);
}

/* Classes were numbered as they came; now as they are sorted. */
static Status sort_classes(CsvTable *table, const CsvSlot *slot) {
  const CsvInput *input = &table->inputs[slot->input];
  int count = slot->classes.entries.count;
  if (!slot->is_class || slot->is_listed) return STATUS_OK;
  if (count != slot->below)
    return status_fail(STATUS_USER,
                       "%s has %d class%s, but input %s has %lld: list them all by classes=, in "
                       "the order of their numbers",
                       csv_column_text(table, slot->column), count, count == 1 ? "" : "es",
                       table->file->inputs[slot->input].name, (long long)slot->below);
  int64_t *number = ARENA_ARRAY(table->arena, int64_t, count);
  LookupEntry *sorted = ARENA_ARRAY(table->arena, LookupEntry, count);
  memcpy(sorted, slot->classes.entries.at, (size_t)count * sizeof *sorted);
  qsort(sorted, (size_t)count, sizeof *sorted, by_text);
  for (int i = 0; i < count; i++) number[sorted[i].value] = i;
  int64_t *at = (int64_t *)input->elements + slot->element;
  for (int64_t i = 0; i < table->rows; i++, at += input->width) *at = number[*at];
  return STATUS_OK;
}

static Status read_table(CsvTable *table) {
  STATUS_TRY(csv_columns_choose(table));
  while (!csv_text_at_end(&table->text)) {
    if (table->columns > 1 && csv_text_empty_line(&table->text)) continue;
    STATUS_TRY(read_csv_row(table));
  }
  if (!table->rows) return status_fail(STATUS_USER, "has no line of values");
  for (int i = 0; i < table->slot_count; i++) STATUS_TRY(sort_classes(table, &table->slots[i]));
  return STATUS_OK;
}

static Status read_options(CsvTable *table, char *separator) {
  const DataSource *options = table->file->options;
  const char *text = source_kind_text(options, "separator", ",");
  *separator = !strcmp(text, "tab") ? '\t' : *text;
  if ((text[1] && *separator != '\t') || strchr("\"\r\n", *separator))
    return status_fail(
        STATUS_USER, "cannot be read with separator=\"%.20s\": it is one character, or tab", text);
  table->missing = source_kind_number(options, "missing", NAN);
  table->may_miss =
      isfinite(table->missing) || !strcmp(source_kind_text(options, "missing", "error"), "nan");
  return STATUS_OK;
}

static void start_inputs(CsvTable *table) {
  for (int i = 0; i < table->file->input_count; i++) {
    const Type *type = &table->file->inputs[i].type;
    table->inputs[i].is_whole = !dtype_is_float(type->dtype);
    table->inputs[i].width = 1;
    for (int k = 1; k < type->shape.rank; k++) table->inputs[i].width *= type->shape.dim[k];
  }
}

/* Rows have the shape that the input wants: its elements are as many. */
static void give_inputs(CsvTable *table, ArrayHeader *out) {
  for (int i = 0; i < table->file->input_count; i++) {
    out[i].element = table->inputs[i].is_whole ? ELEMENT_I64 : ELEMENT_F64;
    out[i].shape = table->file->inputs[i].type.shape;
    out[i].shape.dim[0] = table->rows;
    out[i].elements = table->inputs[i].elements;
  }
}

Status csv_parse(const ArrayFile *file, ArrayHeader *out) {
  CsvTable table = {.file = file, .arena = arena_new()};
  table.inputs = ARENA_ARRAY(table.arena, CsvInput, file->input_count);
  start_inputs(&table);
  char separator;
  Status status = read_options(&table, &separator);
  csv_text_start(&table.text, file->at, file->count, separator);
  if (status == STATUS_OK) status = read_table(&table);
  if (status == STATUS_OK)
    give_inputs(&table, out);
  else
    for (int i = 0; i < file->input_count; i++) free(table.inputs[i].elements);
  csv_text_free(&table.text);
  arena_free(table.arena);
  return status;
}
