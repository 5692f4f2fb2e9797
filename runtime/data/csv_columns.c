/* csv_columns: see csv_table.h. Without columns= the inputs take the file's columns in its order, as
 * many as a sample of each has elements. */
#include "runtime/data/csv_table.h"
#include <stdlib.h>
#include <string.h>

/* A line of fields, kept. */
typedef struct {
  const char **at;
  int count;
  int numbers; /* so many are numbers */
} CsvLine;

static Status read_first(CsvTable *table, CsvLine *out) {
  VEC(const char *) fields = {0};
  double number;
  *out = (CsvLine){0};
  for (bool is_last = false; !is_last;) {
    STATUS_TRY(csv_text_field(&table->text, &is_last));
    VEC_PUSH(table->arena, fields, arena_strdup(table->arena, text_cstr(&table->text.field)));
    out->numbers += csv_text_number(&table->text, &number) || csv_text_is_missing(&table->text);
  }
  out->at = fields.at, out->count = fields.count;
  return STATUS_OK;
}

/* ── lists in options ─────────────────────────────────────────────────────────────────────── */
/* The part of a list up to `mark`, without blanks around it; *list goes behind it, or becomes NULL
 * at the end. */
static const char *next_part(CsvTable *table, const char **list, char mark) {
  const char *from = *list + strspn(*list, " \t\n"), *to = strchr(from, mark);
  *list = to ? to + 1 : NULL;
  if (!to) to = from + strlen(from);
  while (to > from && strchr(" \t\n", to[-1])) to--;
  return arena_strndup(table->arena, from, (size_t)(to - from));
}

const char *csv_shown(const CsvTable *table, const char *text) {
  char *copy = arena_strndup(table->arena, text, strnlen(text, 60));
  for (char *at = copy; *at; at++)
    if (*at == '\n') *at = '?';
  return copy;
}

const char *csv_column_text(const CsvTable *table, int64_t column) {
  if (!table->names) return arena_printf(table->arena, "column %lld", (long long)column + 1);
  return arena_printf(table->arena, "column %lld (%s)", (long long)column + 1,
                      csv_shown(table, table->names[column]));
}

/* "3" or "2-5", counted from 1; false if it is neither. */
static bool is_column_range(const char *text, int64_t *first, int64_t *last) {
  char *end;
  if (text[strspn(text, "0123456789-")] || *text < '0' || *text > '9') return false;
  *first = *last = strtoll(text, &end, 10);
  if (*end == '-' && end[1]) *last = strtoll(end + 1, &end, 10);
  return !*end;
}

/* Is something in columns= a name? Then there is a header. */
static bool names_columns(CsvTable *table, const char *list) {
  int64_t first, last;
  while (list) {
    const char *input = next_part(table, &list, ';');
    while (input)
      if (!is_column_range(next_part(table, &input, ','), &first, &last)) return true;
  }
  return false;
}

/* ── the header ───────────────────────────────────────────────────────────────────────────── */
/* Without word of the recipe's: a first line without numbers is a header, if numbers follow it. */
static Status looks_like_header(CsvTable *table, const CsvLine *first, bool *out) {
  CsvText before = table->text;
  CsvLine second;
  *out = !first->numbers;
  if (!*out || csv_text_at_end(&table->text)) return STATUS_OK;
  while (first->count > 1 && csv_text_empty_line(&table->text)) continue;
  STATUS_TRY(read_first(table, &second));
  before.field = table->text.field; /* whose memory it now is */
  table->text = before;
  if (second.numbers) return STATUS_OK;
  return status_fail(STATUS_USER,
                     "has no numbers in its first two lines, so that it cannot be told "
                     "if it begins with names: write header=true or header=false");
}

static Status read_header(CsvTable *table) {
  const char *word = source_kind_text(table->file->options, "header", "auto");
  const char *columns = source_kind_text(table->file->options, "columns", NULL);
  if (csv_text_at_end(&table->text)) return status_fail(STATUS_USER, "has no lines");
  if (csv_text_empty_line(&table->text))
    return status_fail(STATUS_USER, "begins with an empty line");
  CsvText before = table->text;
  CsvLine first;
  bool is_header = !strcmp(word, "true");
  STATUS_TRY(read_first(table, &first));
  if (!strcmp(word, "auto")) {
    is_header = names_columns(table, columns);
    if (!is_header) STATUS_TRY(looks_like_header(table, &first, &is_header));
  }
  table->columns = first.count;
  if (is_header) {
    table->names = first.at;
    return STATUS_OK;
  }
  before.field = table->text.field;
  table->text = before;
  return STATUS_OK;
}

/* The column of a name or number; of a range the first and the last. */
static Status find_columns(CsvTable *table, const char *text, int64_t *first, int64_t *last) {
  int found = 0;
  for (int64_t i = 0; table->names && i < table->columns; i++)
    if (!strcmp(table->names[i], text) && !found++) *first = *last = i;
  if (found > 1)
    return status_fail(STATUS_USER, "has %d columns called '%s': choose by number", found,
                       csv_shown(table, text));
  if (found) return STATUS_OK;
  if (is_column_range(text, first, last)) {
    bool is_there = *first >= 1 && *first <= *last && *last <= table->columns;
    --*first, --*last;
    return is_there ? STATUS_OK
                    : status_fail(STATUS_USER, "has columns 1 to %lld, not '%s'",
                                  (long long)table->columns, csv_shown(table, text));
  }
  if (!table->names)
    return status_fail(STATUS_USER,
                       "has no header, so its columns have no names such as '%s': choose by number",
                       csv_shown(table, text));
  int count = table->columns < 1000 ? (int)table->columns : 1000;
  const char *near = text_nearest(text, table->names, count);
  return status_fail(STATUS_USER, "has no column '%s'%s%s%s", csv_shown(table, text),
                     near ? "; did you mean '" : "", near ? csv_shown(table, near) : "",
                     near ? "'?" : "");
}

/* ── columns of each input ────────────────────────────────────────────────────────────────── */
static int64_t class_count(const PlanTensor *input, int64_t element) {
  if (input->below) return input->below;
  for (int p = 0; p < input->part_count; p++) {
    const PlanPart *part = &input->parts[p];
    int64_t rest = element;
    bool is_in = true;
    for (int k = input->type.shape.rank - 1; k >= 1; k--) {
      int64_t at = rest % input->type.shape.dim[k] - part->start[k];
      rest /= input->type.shape.dim[k];
      is_in = is_in && at >= 0 && at % part->step[k] == 0 && at / part->step[k] < part->count[k];
    }
    if (is_in) return part->below;
  }
  return 0;
}

static CsvSlot csv_slot(CsvTable *table, int input, int64_t element, int64_t column) {
  return (CsvSlot){.column = column,
                   .element = element,
                   .input = input,
                   .classes = {.arena = table->arena},
                   .below = class_count(&table->file->inputs[input], element)};
}

typedef VEC(CsvSlot) Slots;

static Status choose_listed(CsvTable *table, const char *list, Slots *slots) {
  for (int i = 0; i < table->file->input_count; i++) {
    const char *name = table->file->inputs[i].name;
    if (!list)
      return status_fail(STATUS_USER,
                         "columns= tells columns for %d input%s, but the model has %d: write ';' "
                         "between those of one input and of the next",
                         i, i == 1 ? "" : "s", table->file->input_count);
    const char *items = next_part(table, &list, ';');
    int64_t count = 0, first, last, width = table->inputs[i].width;
    while (items) {
      STATUS_TRY(find_columns(table, next_part(table, &items, ','), &first, &last));
      for (int64_t k = first; k <= last && count + k - first < width; k++)
        VEC_PUSH(table->arena, *slots, csv_slot(table, i, count + k - first, k));
      count += last - first + 1;
    }
    if (count != width)
      return status_fail(STATUS_USER,
                         "columns= chooses %lld for input %s, a sample of which has %lld number%s",
                         (long long)count, name, (long long)width, width == 1 ? "" : "s");
  }
  if (!list) return STATUS_OK;
  return status_fail(STATUS_USER, "columns= tells columns for more inputs than the model's %d",
                     table->file->input_count);
}

static Status choose_in_order(CsvTable *table, Slots *slots) {
  int64_t total = 0;
  for (int i = 0; i < table->file->input_count; i++)
    if (__builtin_add_overflow(total, table->inputs[i].width, &total)) total = INT64_MAX;
  if (total != table->columns)
    return status_fail(STATUS_USER,
                       "has %lld column%s, but a sample of the model's inputs has %lld numbers: "
                       "choose with columns=\"...; ...\", or say separator=",
                       (long long)table->columns, table->columns == 1 ? "" : "s", (long long)total);
  int64_t column = 0;
  for (int i = 0; i < table->file->input_count; i++)
    for (int64_t k = 0; k < table->inputs[i].width; k++)
      VEC_PUSH(table->arena, *slots, csv_slot(table, i, k, column++));
  return STATUS_OK;
}

static int by_column(const void *a, const void *b) {
  const CsvSlot *left = a, *right = b;
  if (left->column != right->column) return left->column < right->column ? -1 : 1;
  if (left->input != right->input) return left->input < right->input ? -1 : 1;
  return left->element < right->element ? -1 : left->element > right->element;
}

/* ── classes ──────────────────────────────────────────────────────────────────────────────── */
static Status list_classes(CsvTable *table, CsvSlot *slot, const char *list) {
  slot->is_known = slot->is_class = slot->is_listed = true;
  while (list) {
    const char *name = next_part(table, &list, ',');
    int count = slot->classes.entries.count;
    if (lookup_add_text(&slot->classes, name, count) != count)
      return status_fail(STATUS_USER, "cannot be read: classes= has '%s' twice",
                         csv_shown(table, name));
  }
  if (slot->below && slot->classes.entries.count > slot->below)
    return status_fail(
        STATUS_USER, "cannot be read: classes= has %d, but input %s has %lld classes",
        slot->classes.entries.count, table->file->inputs[slot->input].name, (long long)slot->below);
  return STATUS_OK;
}

/* "species = setosa, virginica; colour = red, blue", or one list for the only column of integers. */
static Status read_classes(CsvTable *table, const char *list) {
  while (list) {
    const char *part = next_part(table, &list, ';'), *equals = strchr(part, '=');
    int64_t first = 0, last = table->columns - 1;
    int found = 0;
    const char *names = equals ? equals + 1 : part;
    if (equals) {
      const char *column = next_part(table, &part, '=');
      STATUS_TRY(find_columns(table, column, &first, &last));
    }
    for (int i = 0; i < table->slot_count; i++) {
      CsvSlot *slot = &table->slots[i];
      if (slot->column < first || slot->column > last || !table->inputs[slot->input].is_whole)
        continue;
      found++;
      if (slot->is_listed)
        return status_fail(STATUS_USER, "cannot be read: classes= lists those of %s twice",
                           csv_column_text(table, slot->column));
      STATUS_TRY(list_classes(table, slot, names));
    }
    if (!found || (!equals && found > 1))
      return status_fail(
          STATUS_USER, found ? "cannot be read: classes= does not say of which column: write "
                               "classes=\"column = first, second; ...\""
                             : "cannot be read: classes= is for a column that an input of integers "
                               "takes");
  }
  return STATUS_OK;
}

Status csv_columns_choose(CsvTable *table) {
  const char *columns = source_kind_text(table->file->options, "columns", NULL);
  Slots slots = {0};
  STATUS_TRY(read_header(table));
  if (columns)
    STATUS_TRY(choose_listed(table, columns, &slots));
  else
    STATUS_TRY(choose_in_order(table, &slots));
  table->slots = slots.at, table->slot_count = slots.count;
  if (slots.count) qsort(slots.at, (size_t)slots.count, sizeof *slots.at, by_column);
  return read_classes(table, source_kind_text(table->file->options, "classes", NULL));
}
