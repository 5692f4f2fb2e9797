/* lookup: see lookup.h. */
#include "base/lookup.h"
#include <string.h>

static uint64_t lookup_hash(const void *key, size_t bytes) {
  const unsigned char *at = key;
  uint64_t hash = bytes;
  for (size_t i = 0; i < bytes; i++) {
    hash = (hash ^ at[i]) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 29;
  }
  return hash;
}

/* The slot where the key is, or would be. There are slots, and one is empty. */
static int *slot_of(const Lookup *lookup, const void *key, size_t bytes) {
  for (uint64_t at = lookup_hash(key, bytes);; at++) {
    int *slot = &lookup->slot[at & (uint64_t)(lookup->slots - 1)];
    if (!*slot) return slot;
    const LookupEntry *entry = &lookup->entries.at[*slot - 1];
    if (entry->bytes == bytes && (!bytes || !memcmp(entry->key, key, bytes))) return slot;
  }
}

static void lookup_grow(Lookup *lookup) {
  enum { FIRST = 16 };
  lookup->slots = lookup->slots ? 2 * lookup->slots : FIRST;
  lookup->slot = ARENA_ARRAY(lookup->arena, int, lookup->slots);
  for (int i = 0; i < lookup->entries.count; i++)
    *slot_of(lookup, lookup->entries.at[i].key, lookup->entries.at[i].bytes) = i + 1;
}

int lookup_find(const Lookup *lookup, const void *key, size_t bytes) {
  if (!lookup->slots) return -1;
  int slot = *slot_of(lookup, key, bytes);
  return slot ? lookup->entries.at[slot - 1].value : -1;
}

int lookup_add(Lookup *lookup, const void *key, size_t bytes, int value) {
  if (2 * (lookup->entries.count + 1) > lookup->slots) lookup_grow(lookup);
  int *slot = slot_of(lookup, key, bytes);
  if (*slot) return lookup->entries.at[*slot - 1].value;
  void *copy = arena_alloc(lookup->arena, bytes);
  if (bytes) memcpy(copy, key, bytes);
  VEC_PUSH(lookup->arena, lookup->entries, ((LookupEntry){copy, bytes, value}));
  *slot = lookup->entries.count;
  return value;
}

int lookup_find_text(const Lookup *lookup, const char *text) {
  return lookup_find(lookup, text, strlen(text));
}

int lookup_add_text(Lookup *lookup, const char *text, int value) {
  return lookup_add(lookup, text, strlen(text), value);
}
