/* source_column: the samples of one input: the arrays of one file or of several, one behind the
 * other, and how a sample gets from there into a batch. */
#ifndef FT_RUNTIME_SOURCE_COLUMN_H
#define FT_RUNTIME_SOURCE_COLUMN_H
#include "runtime/data/source_array.h"

typedef struct {
  DataArray *array;
  int64_t first; /* the sample of the column that it begins with */
} ColumnFile;

typedef struct {
  ColumnFile *file; /* all of one form */
  int file_count;
  int64_t samples; /* of all files; of a text their tokens */
  const PlanTensor *input;
  int64_t row_elements;
  size_t row_from, row_to; /* bytes from a sample to the next, in the file and in the batch */
  size_t row_bytes;        /* of a sample in the file */
  int64_t shift;           /* text: tokens from a window's start to what this input reads */
  bool is_copy;            /* no conversion */
  bool is_piped;           /* through transforms: source_images.h */
  bool is_shared;          /* text: the arrays are the first column's */
} Column;

/* The part of a path after its last '/'. */
const char *column_file_name(const DataArray *array);
/* Takes the array as the column's next file; it has to be of the form of those before. On a failure
 * it is closed. */
STATUS_CHECKED Status column_add(Column *column, const char *label, DataArray *array);
/* Says what the column is for, once it has its files. rows: samples that a step takes at once. */
STATUS_CHECKED Status column_bind(Column *column, const char *label, const PlanTensor *input,
                                  int64_t rows);
void column_close(Column *column);
/* A sample that is one whole number; waits until it is there. */
STATUS_CHECKED Status column_integer(const Column *column, const char *label, int64_t sample,
                                     int64_t *out);
/* The file with this sample; of a column of one file that. */
const ColumnFile *column_find(const Column *column, int64_t sample);
#endif
