/* source_array: an n-dimensional array in a data file (IDX or NumPy). The first dimension counts
 * samples.
 * Invariant: an opened array's bytes cover all of its elements (checked against the file). */
#ifndef FT_RUNTIME_SOURCE_ARRAY_H
#define FT_RUNTIME_SOURCE_ARRAY_H
#include "runtime/common/element.h"
#include "runtime/data/source_bytes.h"

/* What a file's header says. */
typedef struct {
  Element element;
  bool is_big_endian;
  Shape shape;
  size_t offset; /* of the first element in the (inflated) file */
} ArrayHeader;
/* Bytes of the elements; false if that does not fit in 2^62 or a dimension is negative. */
bool array_header_bytes(const ArrayHeader *header, size_t *bytes);
/* "u8[60000,28,28]" */
char *array_header_text(const ArrayHeader *header, char buffer[TYPE_TEXT]);

typedef struct {
  SourceBytes *bytes;
  ArrayHeader header;
} DataArray;
/* kind "idx", "npy", or "auto" for either by its first byte; "bytes", "tokens16" or "tokens32" for
 * a row of numbers (tokens.h). Inflating a gzip file goes on after the return: wait before reading.
 */
STATUS_CHECKED Status array_open(const char *kind, const char *path, DataArray **out);
void array_close(DataArray *array); /* NULL is fine */
/* The elements: address of the first one. */
const uint8_t *array_at(const DataArray *array);

#endif
