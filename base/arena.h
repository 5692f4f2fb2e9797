/* arena: bump allocation with one lifetime, and a growing array macro.
 * Invariant: nothing is freed before arena_free; memory comes zeroed. Not thread-safe.
 * Out of memory ends the process or the call of the library: memory.h. */
#ifndef FT_BASE_ARENA_H
#define FT_BASE_ARENA_H
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Arena Arena;

Arena *arena_new(void);
/* One that goes with `parent`, if it is not freed before. */
Arena *arena_child(Arena *parent);
void arena_free(Arena *arena); /* and its children; NULL is fine */
void *arena_alloc(Arena *arena, size_t bytes);
char *arena_strdup(Arena *arena, const char *text);
char *arena_strndup(Arena *arena, const char *text, size_t length);
char *arena_printf(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(Arena *arena, const char *format, va_list args);
size_t arena_bytes(const Arena *arena);

#define ARENA_NEW(arena, T) ((T *)arena_alloc((arena), sizeof(T)))
#define ARENA_ARRAY(arena, T, n) ((T *)arena_alloc((arena), sizeof(T) * (size_t)(n)))

/* A growing array in an arena: struct { T *at; int count, capacity; } v; VEC_PUSH(arena, v, x). */
#define VEC(T)                                                                                     \
  struct {                                                                                         \
    T *at;                                                                                         \
    int count, capacity;                                                                           \
  }
#define VEC_PUSH(arena, v, value)                                                                  \
  do {                                                                                             \
    if ((v).count == (v).capacity)                                                                 \
      (v).at = arena_grow((arena), (v).at, &(v).capacity, sizeof *(v).at);                         \
    (v).at[(v).count++] = (value);                                                                 \
  } while (0)
void *arena_grow(Arena *arena, void *old, int *capacity, size_t element);
#endif
