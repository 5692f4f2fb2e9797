/* safetensors_sum: the sum over a file's bytes (declared in safetensors.h): the head around the
 * sum's own 16 digits, then the data of each tensor, in the order of the file. */
#define _GNU_SOURCE /* memmem */
#include "runtime/checkpoint/safetensors.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { DIGITS = 16 };

static uint64_t mixed(uint64_t sum, uint64_t word) {
  sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
  return sum ^ sum >> 29;
}

/* Four lanes: about as fast as memory. */
static uint64_t sum_of(const void *from, size_t count, uint64_t seed) {
  const uint8_t *bytes = from;
  uint64_t lane[4] = {seed, seed + 1, seed + 2, seed + 3}, word;
  size_t at = 0;
  for (; at + 32 <= count; at += 32)
    for (int i = 0; i < 4; i++) {
      memcpy(&word, bytes + at + 8 * (size_t)i, 8);
      lane[i] = mixed(lane[i], word);
    }
  for (; at < count; at++) lane[0] = mixed(lane[0], bytes[at]);
  for (int i = 1; i < 4; i++) lane[0] = mixed(lane[0], lane[i]);
  return mixed(lane[0], count);
}

/* Where the digits stand, or NULL. Quotes within a text are escaped, so only a key looks so. */
static const char *place_of(const char *head, size_t count) {
  static const char key[] = "\"sum\":\"";
  const char *at = memmem(head, count, key, sizeof key - 1);
  if (!at) return NULL;
  at += sizeof key - 1;
  return (size_t)(head + count - at) > DIGITS && at[DIGITS] == '"' ? at : NULL;
}

static uint64_t sum_of_head(const char *head, size_t count, const char *place) {
  uint64_t sum = sum_of(head, (size_t)(place - head), 1);
  return sum_of(place + DIGITS, (size_t)(head + count - place) - DIGITS, sum);
}

static bool agrees(uint64_t sum, const char *place) {
  char digits[DIGITS + 1];
  snprintf(digits, sizeof digits, "%016" PRIx64, sum);
  return memcmp(digits, place, DIGITS) == 0;
}

bool safetensors_sum_agrees(const Safetensors *file) {
  const char *head = (const char *)file->private_head;
  const char *place = place_of(head, file->private_head_bytes);
  if (!place || !safetensors_text(file, "sum")) return false;
  uint64_t sum = sum_of_head(head, file->private_head_bytes, place);
  for (int i = 0; i < file->tensor_count; i++)
    sum = sum_of(file->tensor[i].data, file->tensor[i].bytes, sum);
  return agrees(sum, place);
}

bool safetensors_put_sum(char *head, size_t count, const SafeTensor *const *order,
                         int tensor_count) {
  const char *place = place_of(head, count);
  char digits[DIGITS + 1];
  if (!place) return false;
  uint64_t sum = sum_of_head(head, count, place);
  for (int i = 0; i < tensor_count; i++) sum = sum_of(order[i]->data, order[i]->bytes, sum);
  snprintf(digits, sizeof digits, "%016" PRIx64, sum);
  memcpy(head + (place - head), digits, DIGITS);
  return true;
}
