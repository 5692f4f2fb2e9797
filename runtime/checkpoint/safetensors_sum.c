/* safetensors_sum: see safetensors_sum.h and safetensors.h: the head around the
 * sum's own 16 digits, then the data of each tensor, in the order of the file. */
#define _GNU_SOURCE /* memmem */
#include "runtime/checkpoint/safetensors_sum.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t sum_mixed(uint64_t sum, uint64_t word) {
  sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
  return sum ^ sum >> 29;
}

void safetensors_sum_start(SafeSum *sum, uint64_t seed) {
  *sum = (SafeSum){.lane = {seed, seed + 1, seed + 2, seed + 3}};
}

/* Four lanes: about as fast as memory. */
static void add_blocks(SafeSum *sum, const uint8_t *bytes, size_t blocks) {
  uint64_t word;
  for (; blocks; blocks--, bytes += SAFE_SUM_BLOCK)
    for (int i = 0; i < 4; i++) {
      memcpy(&word, bytes + 8 * i, 8);
      sum->lane[i] = sum_mixed(sum->lane[i], word);
    }
}

void safetensors_sum_add(SafeSum *sum, const void *from, size_t count) {
  const uint8_t *bytes = from;
  size_t held = sum->count % SAFE_SUM_BLOCK;
  sum->count += count;
  if (held) {
    size_t missing = SAFE_SUM_BLOCK - held, taken = count < missing ? count : missing;
    memcpy(sum->held + held, bytes, taken);
    if (taken < missing) return;
    add_blocks(sum, sum->held, 1);
    bytes += taken;
    count -= taken;
  }
  add_blocks(sum, bytes, count / SAFE_SUM_BLOCK);
  if (count % SAFE_SUM_BLOCK)
    memcpy(sum->held, bytes + count / SAFE_SUM_BLOCK * SAFE_SUM_BLOCK, count % SAFE_SUM_BLOCK);
}

uint64_t safetensors_sum_end(SafeSum *sum) {
  uint64_t end = sum->lane[0];
  for (size_t i = 0; i < sum->count % SAFE_SUM_BLOCK; i++) end = sum_mixed(end, sum->held[i]);
  for (int i = 1; i < 4; i++) end = sum_mixed(end, sum->lane[i]);
  return sum_mixed(end, sum->count);
}

static uint64_t sum_words(const void *from, size_t count, uint64_t seed) {
  SafeSum sum;
  safetensors_sum_start(&sum, seed);
  safetensors_sum_add(&sum, from, count);
  return safetensors_sum_end(&sum);
}

/* Where the digits stand, or NULL. Quotes within a text are escaped, so only a key looks so. */
static const char *sum_place(const char *head, size_t count) {
  static const char key[] = "\"sum\":\"";
  const char *at = memmem(head, count, key, sizeof key - 1);
  if (!at) return NULL;
  at += sizeof key - 1;
  return (size_t)(head + count - at) > SAFE_SUM_DIGITS && at[SAFE_SUM_DIGITS] == '"' ? at : NULL;
}

static uint64_t sum_of_head(const char *head, size_t count, const char *place) {
  uint64_t sum = sum_words(head, (size_t)(place - head), 1);
  return sum_words(place + SAFE_SUM_DIGITS, (size_t)(head + count - place) - SAFE_SUM_DIGITS, sum);
}

static bool agrees(uint64_t sum, const char *place) {
  char digits[SAFE_SUM_DIGITS + 1];
  safetensors_sum_text(sum, digits);
  return memcmp(digits, place, SAFE_SUM_DIGITS) == 0;
}

bool safetensors_sum_agrees(const Safetensors *file) {
  const char *head = (const char *)file->private_head;
  const char *place = sum_place(head, file->private_head_bytes);
  if (!place || !safetensors_text(file, "sum")) return false;
  uint64_t sum = sum_of_head(head, file->private_head_bytes, place);
  for (int i = 0; i < file->tensor_count; i++)
    sum = sum_words(file->tensor[i].data, file->tensor[i].bytes, sum);
  return agrees(sum, place);
}

uint64_t safetensors_sum_of_head(const char *head, size_t count, size_t *place) {
  const char *digits = sum_place(head, count);
  *place = digits ? (size_t)(digits - head) : 0;
  return digits ? sum_of_head(head, count, digits) : 0;
}

void safetensors_sum_text(uint64_t sum, char digits[SAFE_SUM_DIGITS + 1]) {
  snprintf(digits, SAFE_SUM_DIGITS + 1, "%016" PRIx64, sum);
}
