/* lookup: numbers found by a key of bytes: a name, or a struct without padding. The first number
 * that is given to a key stays. Keys are copied. */
#ifndef FT_BASE_LOOKUP_H
#define FT_BASE_LOOKUP_H
#include "base/arena.h"
#include <stdbool.h>

typedef struct {
  const void *key;
  size_t bytes;
  int value;
} LookupEntry;

typedef struct {
  Arena *arena;
  VEC(LookupEntry) entries;
  int *slot; /* open addressing: 1 + the number of an entry; 0: empty */
  int slots; /* a power of 2, at least twice as many as entries */
} Lookup;

/* A Lookup begins as {.arena = arena}. -1: there is no such key. */
int lookup_find(const Lookup *lookup, const void *key, size_t bytes);
/* The number that the key has: `value`, if it had none. */
int lookup_add(Lookup *lookup, const void *key, size_t bytes, int value);
int lookup_find_text(const Lookup *lookup, const char *text);
int lookup_add_text(Lookup *lookup, const char *text, int value);
#endif
