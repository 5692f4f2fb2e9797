/* idx: the header of an IDX file, the format of MNIST and its kin (yann.lecun.com/exdb/mnist): two
 * zero bytes, the element type, the rank, then big-endian 32-bit dimensions and elements. */
#include "runtime/data/source_array.h"

enum { LARGEST_RANK = 4 };

static bool element_of_code(uint8_t code, Element *out) {
  switch (code) {
  case 0x08:
    *out = ELEMENT_U8;
    return true;
  case 0x09:
    *out = ELEMENT_I8;
    return true;
  case 0x0b:
    *out = ELEMENT_I16;
    return true;
  case 0x0c:
    *out = ELEMENT_I32;
    return true;
  case 0x0d:
    *out = ELEMENT_F32;
    return true;
  case 0x0e:
    *out = ELEMENT_F64;
    return true;
  default:
    return false;
  }
}

Status idx_parse(const ArrayFile *file, ArrayHeader *out) {
  const uint8_t *head = file->at;
  size_t count = file->count;
  *out = (ArrayHeader){.is_big_endian = true};
  if (count < 4)
    return status_fail(STATUS_USER, "is not an IDX file: it has %zu bytes, not even a header",
                       count);
  if (head[0] != 0 || head[1] != 0)
    return status_fail(STATUS_USER,
                       "is not an IDX file: it starts with %02x %02x %02x %02x, an IDX file with "
                       "00 00, a type and a rank",
                       head[0], head[1], head[2], head[3]);
  if (!element_of_code(head[2], &out->element))
    return status_fail(STATUS_USER,
                       "is not a valid IDX file: element type 0x%02x, expected 08 (u8), 09 (i8), "
                       "0b (i16), 0c (i32), 0d (f32) or 0e (f64)",
                       head[2]);
  int rank = head[3];
  if (rank < 1 || rank > LARGEST_RANK)
    return status_fail(STATUS_USER, "is not a valid IDX file: rank %d, expected 1 to %d", rank,
                       LARGEST_RANK);
  out->offset = 4 + 4 * (size_t)rank;
  if (count < out->offset)
    return status_fail(STATUS_USER, "is truncated: %zu bytes end within the IDX header", count);
  out->shape.rank = rank;
  for (int i = 0; i < rank; i++) {
    const uint8_t *at = head + 4 + 4 * i;
    out->shape.dim[i] =
        (int64_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]);
  }
  return STATUS_OK;
}
