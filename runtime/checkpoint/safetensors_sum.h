/* safetensors_sum: the sum over a checkpoint's bytes while they are written: that of the head
 * around its own digits, from which that of the first tensor's data goes on, and so forth. The data
 * may be added in any pieces. */
#ifndef FT_RUNTIME_SAFETENSORS_SUM_H
#define FT_RUNTIME_SAFETENSORS_SUM_H
#include "runtime/checkpoint/safetensors.h"

enum { SAFE_SUM_DIGITS = 16, SAFE_SUM_BLOCK = 32 };
typedef struct {
  uint64_t lane[4];
  uint8_t held[SAFE_SUM_BLOCK]; /* the bytes behind the last whole block */
  size_t count;
} SafeSum;

/* The sum of the head (length and JSON); *place is where its digits stand, 0 if it has none. */
uint64_t safetensors_sum_of_head(const char *head, size_t count, size_t *place);
/* For each tensor: start with the sum so far, add its data, end gives the next sum. */
void safetensors_sum_start(SafeSum *sum, uint64_t seed);
void safetensors_sum_add(SafeSum *sum, const void *bytes, size_t count);
uint64_t safetensors_sum_end(SafeSum *sum);
void safetensors_sum_text(uint64_t sum, char digits[SAFE_SUM_DIGITS + 1]);
#endif
