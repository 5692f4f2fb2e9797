/* element: the kinds of numbers that files hold, and their conversion to a tensor's dtype. */
#ifndef FT_RUNTIME_ELEMENT_H
#define FT_RUNTIME_ELEMENT_H
#include "ir/type.h"

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

/* Is there a conversion that keeps every value (integers are checked one by one), or rounds f64 to
 * f32 or floats to halves? */
bool element_converts(Element from, DType to);
bool element_is_float(Element element);
/* Converts `count` elements, all of them; returns how many could be represented before the first that
 * cannot (count: all): an integer out of range, or a finite number that becomes an infinity. `from`
 * need not be aligned. */
int64_t element_convert(const void *from, Element element, bool is_big_endian, int64_t count,
                        DType dtype, void *to);
/* The element kind of equal meaning to a dtype. */
Element element_of(DType dtype);
float half_to_float(uint16_t half);
uint16_t half_from_float(float value);
uint16_t bfloat_from_float(float value);
/* To f16 or bf16, as those two round. */
void element_round(const float *from, int64_t count, DType dtype, uint16_t *to);
#endif
