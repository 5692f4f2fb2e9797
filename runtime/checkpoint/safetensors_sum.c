/* safetensors_sum: see safetensors_sum.h and safetensors.h. */
#define _GNU_SOURCE /* memmem */
#include "runtime/checkpoint/safetensors_sum.h"
#include <inttypes.h>
#include <pthread.h>
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

/* ── a sum of parts ───────────────────────────────────────────────────────────────────────── */
/* Each word of 32 bits times an odd number of its place, modulo 2^64: any one that changes changes
 * the sum, and several leave it as it was by chance only. A byte adds as in the word that has it,
 * so that a part may begin and end anywhere. */
enum { SUM_WORDS = 1024, SUM_BYTES = 4 * SUM_WORDS };
static uint64_t word_key[SUM_WORDS];
static pthread_once_t keys_are_made = PTHREAD_ONCE_INIT;

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014) */
static uint64_t key_of(uint64_t number) {
  uint64_t z = (number + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return (z ^ z >> 31) | 1;
}

static void make_keys(void) {
  for (uint64_t i = 0; i < SUM_WORDS; i++) word_key[i] = key_of(i);
}

static uint64_t sum_byte(size_t at, uint8_t byte) {
  return ((uint64_t)byte << 8 * (at % 4)) * word_key[at / 4];
}

/* Within SUM_BYTES that have the same block's key. */
static uint64_t sum_in_block(size_t at, const uint8_t *bytes, size_t count) {
  uint64_t sum = 0;
  size_t i = 0;
  uint32_t word;
  for (; i < count && (at + i) % 4; i++) sum += sum_byte(at + i, bytes[i]);
  const uint64_t *key = word_key + (at + i) / 4;
  for (; i + 4 <= count; i += 4) {
    memcpy(&word, bytes + i, 4);
    sum += word * *key++;
  }
  for (; i < count; i++) sum += sum_byte(at + i, bytes[i]);
  return sum;
}

uint64_t safetensors_sum_part(uint64_t at, const void *from, size_t count) {
  const uint8_t *bytes = from;
  uint64_t sum = 0;
  pthread_once(&keys_are_made, make_keys);
  while (count) {
    size_t within = at % SUM_BYTES, left = SUM_BYTES - within, now = count < left ? count : left;
    sum += sum_in_block(within, bytes, now) * key_of(SUM_WORDS + at / SUM_BYTES);
    at += now;
    bytes += now;
    count -= now;
  }
  return sum;
}

/* ── of a file ────────────────────────────────────────────────────────────────────────────── */
/* Where the digits behind this key stand, or NULL. Quotes within a text are escaped, so only a key
 * looks so. */
static const char *sum_place(const char *head, size_t count, const char *key) {
  size_t length = strlen(key);
  const char *at = memmem(head, count, key, length);
  if (!at) return NULL;
  at += length;
  return (size_t)(head + count - at) > SAFE_SUM_DIGITS && at[SAFE_SUM_DIGITS] == '"' ? at : NULL;
}
static const char today[] = "\"checksum\":\"", before[] = "\"sum\":\"";

static uint64_t sum_of_head(const char *head, size_t count, const char *place) {
  uint64_t sum = sum_words(head, (size_t)(place - head), 1);
  return sum_words(place + SAFE_SUM_DIGITS, (size_t)(head + count - place) - SAFE_SUM_DIGITS, sum);
}

uint64_t safetensors_sum_all(const char *head, size_t count, uint64_t data, uint64_t data_bytes,
                             size_t *place) {
  const char *digits = sum_place(head, count, today);
  *place = digits ? (size_t)(digits - head) : 0;
  if (!digits) return 0;
  return sum_mixed(sum_mixed(sum_of_head(head, count, digits), data), data_bytes);
}

static bool agrees(uint64_t sum, const char *place) {
  char digits[SAFE_SUM_DIGITS + 1];
  safetensors_sum_text(sum, digits);
  return memcmp(digits, place, SAFE_SUM_DIGITS) == 0;
}

static bool agrees_as_before(const Safetensors *file, const char *head) {
  const char *place = sum_place(head, file->private_head_bytes, before);
  if (!place || !safetensors_text(file, "sum")) return false;
  uint64_t sum = sum_of_head(head, file->private_head_bytes, place);
  for (int i = 0; i < file->tensor_count; i++)
    sum = sum_words(file->tensor[i].data, file->tensor[i].bytes, sum);
  return agrees(sum, place);
}

bool safetensors_sum_agrees(const Safetensors *file) {
  const char *head = (const char *)file->private_head;
  uint64_t data = 0, bytes = 0;
  size_t place;
  if (!safetensors_text(file, "checksum")) return agrees_as_before(file, head);
  for (int i = 0; i < file->tensor_count; i++) {
    data += safetensors_sum_part(bytes, file->tensor[i].data, file->tensor[i].bytes);
    bytes += file->tensor[i].bytes;
  }
  uint64_t sum = safetensors_sum_all(head, file->private_head_bytes, data, bytes, &place);
  return place && agrees(sum, head + place);
}

void safetensors_sum_text(uint64_t sum, char digits[SAFE_SUM_DIGITS + 1]) {
  snprintf(digits, SAFE_SUM_DIGITS + 1, "%016" PRIx64, sum);
}
