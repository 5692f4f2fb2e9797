/* arena: chunks of at least 64 KiB, doubling; large requests get a chunk of their own. */
#include "base/arena.h"
#include "base/memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 16, FIRST_CHUNK = 1 << 16, LAST_CHUNK = 1 << 24 };

typedef struct Chunk {
  struct Chunk *next;
  size_t used, size;
  _Alignas(16) char data[];
} Chunk;

struct Arena {
  Chunk *chunk;
  size_t next_size, total;
  Arena *parent, *child;  /* the youngest child */
  Arena *older, *younger; /* siblings */
};

static void *must(void *memory) {
  if (!memory) memory_none();
  return memory;
}

Arena *arena_new(void) {
  Arena *arena = must(calloc(1, sizeof *arena));
  arena->next_size = FIRST_CHUNK;
  return arena;
}

Arena *arena_child(Arena *parent) {
  Arena *arena = arena_new();
  arena->parent = parent;
  arena->older = parent->child;
  if (parent->child) parent->child->younger = arena;
  return parent->child = arena;
}

static void leave_parent(Arena *arena) {
  if (arena->older) arena->older->younger = arena->younger;
  if (arena->younger)
    arena->younger->older = arena->older;
  else if (arena->parent)
    arena->parent->child = arena->older;
}

void arena_free(Arena *arena) {
  if (!arena) return;
  while (arena->child) arena_free(arena->child);
  leave_parent(arena);
  for (Chunk *c = arena->chunk, *next; c; c = next) {
    next = c->next;
    free(c);
  }
  free(arena);
}

void *arena_alloc(Arena *arena, size_t bytes) {
  if (bytes > SIZE_MAX / 2) must(NULL);
  size_t need = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
  Chunk *c = arena->chunk;
  if (!c || c->size - c->used < need) {
    size_t size = arena->next_size > need ? arena->next_size : need;
    c = must(calloc(1, sizeof *c + size));
    c->size = size;
    c->next = arena->chunk;
    arena->chunk = c;
    if (arena->next_size < LAST_CHUNK) arena->next_size *= 2;
  }
  void *result = c->data + c->used;
  c->used += need;
  arena->total += need;
  return result;
}

void *arena_grow(Arena *arena, void *old, int *capacity, size_t element) {
  int grown = *capacity ? *capacity * 2 : 8;
  void *fresh = arena_alloc(arena, element * (size_t)grown);
  if (*capacity) memcpy(fresh, old, element * (size_t)*capacity);
  *capacity = grown;
  return fresh;
}

char *arena_strndup(Arena *arena, const char *text, size_t length) {
  char *copy = arena_alloc(arena, length + 1);
  memcpy(copy, text, length);
  return copy;
}

char *arena_strdup(Arena *arena, const char *text) {
  return arena_strndup(arena, text, strlen(text));
}

char *arena_vprintf(Arena *arena, const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  char *text = arena_alloc(arena, (size_t)(length < 0 ? 0 : length) + 1);
  if (length >= 0) vsnprintf(text, (size_t)length + 1, format, again);
  va_end(again);
  return text;
}

char *arena_printf(Arena *arena, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = arena_vprintf(arena, format, args);
  va_end(args);
  return text;
}

size_t arena_bytes(const Arena *arena) { return arena->total; }
