/* idx: the header of an IDX file, the format of MNIST and its kin (yann.lecun.com/exdb/mnist):
 * two zero bytes, the element type, the rank, then big-endian 32-bit dimensions and elements. */
#ifndef FT_RUNTIME_IDX_H
#define FT_RUNTIME_IDX_H
#include "runtime/data/source_array.h"

/* Parses the first `count` bytes of a file; failures follow the file's name ("is not …"). */
STATUS_CHECKED Status idx_parse(const uint8_t *head, size_t count, ArrayHeader *out);
#endif
