/* fnv: FNV-1a of 64 bits (Fowler, Noll and Vo), for sums that tell lists and files apart. */
#ifndef FT_RUNTIME_FNV_H
#define FT_RUNTIME_FNV_H
#include <stddef.h>
#include <stdint.h>

#define FNV_START 14695981039346656037u
static inline uint64_t fnv_add(uint64_t sum, const void *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) sum = (sum ^ ((const uint8_t *)bytes)[i]) * 1099511628211u;
  return sum;
}
#endif
