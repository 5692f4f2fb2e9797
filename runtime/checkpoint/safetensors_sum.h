/* safetensors_sum: the sums over a checkpoint's bytes. That of a file of today ("checksum") is made of
 * the head's, around its own digits, and of a sum over the data to which each byte adds by its value
 * and its place: so parts of the data may be summed anywhere and in any order, and their sums added.
 * Files of before ("sum") have one chain from the head through the data of each tensor. */
#ifndef FT_RUNTIME_SAFETENSORS_SUM_H
#define FT_RUNTIME_SAFETENSORS_SUM_H
#include "runtime/checkpoint/safetensors.h"

enum { SAFE_SUM_DIGITS = 16, SAFE_SUM_BLOCK = 32 };
typedef struct {
  uint64_t lane[4];
  uint8_t held[SAFE_SUM_BLOCK]; /* the bytes behind the last whole block */
  size_t count;
} SafeSum;

/* What these bytes of the data add, of which the first has place `at`. */
uint64_t safetensors_sum_part(uint64_t at, const void *bytes, size_t count);
/* Of all together: the head (length and JSON), and what all bytes of the data add. *place is where
 * the digits stand in the head, 0 if it has none. */
uint64_t safetensors_sum_all(const char *head, size_t count, uint64_t data, uint64_t data_bytes,
                             size_t *place);

/* The chain, over any bytes: start with the sum so far, add, end gives the next sum. */
void safetensors_sum_start(SafeSum *sum, uint64_t seed);
void safetensors_sum_add(SafeSum *sum, const void *bytes, size_t count);
uint64_t safetensors_sum_end(SafeSum *sum);
void safetensors_sum_text(uint64_t sum, char digits[SAFE_SUM_DIGITS + 1]);
#endif
