/* source_array: an n-dimensional array in a data file (IDX or NumPy), and the conversion of its
 * elements to a tensor's dtype. The first dimension counts samples.
 * Invariant: an opened array's bytes cover all of its elements (checked against the file). */
#ifndef FT_RUNTIME_SOURCE_ARRAY_H
#define FT_RUNTIME_SOURCE_ARRAY_H
#include "ir/type.h"
#include "runtime/source_bytes.h"

/* X(ID, text, bytes): what files hold; more kinds than tensors have. */
#define ELEMENTS(X)                                                                                \
  X(BOOL, "bool", 1)                                                                               \
  X(U8, "u8", 1)                                                                                   \
  X(I8, "i8", 1)                                                                                   \
  X(U16, "u16", 2)                                                                                 \
  X(I16, "i16", 2)                                                                                 \
  X(U32, "u32", 4)                                                                                 \
  X(I32, "i32", 4)                                                                                 \
  X(I64, "i64", 8)                                                                                 \
  X(F16, "f16", 2)                                                                                 \
  X(F32, "f32", 4)                                                                                 \
  X(F64, "f64", 8)                                                                                 \
  X(BF16, "bf16", 2)
typedef enum {
#define X(ID, text, bytes) ELEMENT_##ID,
  ELEMENTS(X)
#undef X
      ELEMENT_COUNT
} Element;
const char *element_text(Element element);
int element_bytes(Element element);

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

/* Is there a conversion that keeps every value (integers are checked one by one), or rounds f64 to
 * f32 or floats to halves? */
bool element_converts(Element from, DType to);
/* Converts `count` elements; returns how many could be represented before the first that cannot
 * (count: all). `from` need not be aligned. */
int64_t element_convert(const void *from, Element element, bool is_big_endian, int64_t count,
                        DType dtype, void *to);
/* The element kind of equal meaning to a dtype. */
Element element_of(DType dtype);
float half_to_float(uint16_t half);
uint16_t half_from_float(float value);
uint16_t bfloat_from_float(float value);
#endif
