/* csv_table: what a csv file's reading is made of: which of its columns go where (csv_columns.c),
 * and their values (csv.c). */
#ifndef FT_RUNTIME_CSV_TABLE_H
#define FT_RUNTIME_CSV_TABLE_H
#include "base/lookup.h"
#include "runtime/data/csv_text.h"
#include "runtime/data/source_array.h"

/* A column that was chosen for an element of an input. */
typedef struct {
  int64_t column, element; /* from 0; element of a sample of the input */
  int input;
  bool is_class;  /* its texts are numbered */
  bool is_known;  /* a value was seen, or classes= names it: is_class will not change */
  bool is_listed; /* the classes are those of classes= and no others */
  bool has_missing;
  int64_t below; /* classes that the model has there; 0: it does not say */
  Lookup classes;
} CsvSlot;

/* What an input gets. */
typedef struct {
  bool is_whole;  /* i64, else f64 */
  int64_t width;  /* elements of a sample */
  void *elements; /* malloc'd, 8 bytes each */
} CsvInput;

typedef struct {
  const ArrayFile *file;
  Arena *arena;
  CsvText text; /* ahead of the first line of values, once the columns are chosen */
  int64_t columns;
  const char **names; /* of the columns, NULL: there is no header */
  CsvSlot *slots;     /* in the order of columns */
  int slot_count;
  CsvInput *inputs; /* file->input_count of them */
  int64_t rows, room;
  bool may_miss;
  double missing; /* what is in place of a missing value */
} CsvTable;

/* Reads the header, if there is one, and chooses columns and classes as the options say. */
STATUS_CHECKED Status csv_columns_choose(CsvTable *table);
/* As messages have a text of the file or of the recipe: of one line, and not long. */
const char *csv_shown(const CsvTable *table, const char *text);
/* "column 3 (species)"; of one that is chosen. */
const char *csv_column_text(const CsvTable *table, int64_t column);
#endif
