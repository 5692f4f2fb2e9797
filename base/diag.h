/* diag: messages about a place in a source file, in clang's form: file:line:col, the line, a
 * caret. Errors are collected, never fatal by themselves: a caller goes on and reports them all. */
#ifndef FT_BASE_DIAG_H
#define FT_BASE_DIAG_H
#include "base/arena.h"
#include <stdbool.h>
#include <stdio.h>

/* A place in a text: file is 1-based into Diag's files (0: nowhere); line and column from 1. */
typedef struct {
  uint16_t file, column;
  uint32_t line;
} Loc;
static inline bool loc_equal(Loc a, Loc b) {
  return a.file == b.file && a.line == b.line && a.column == b.column;
}
typedef VEC(Loc) Locs;
/* False: the place was among them already. */
bool locs_add(Arena *arena, Locs *locs, Loc loc);

typedef struct {
  const char *path, *text; /* text NUL-terminated, owned by the arena */
} SourceFile;

typedef struct Diag {
  Arena *arena;
  FILE *out; /* where messages go: stderr unless a test says otherwise */
  VEC(SourceFile) files;
  /* Who gets each message in place of `out`: kind is error, warning or note; NULL: nobody. */
  void (*take)(void *user, const char *kind, Loc loc, const char *message);
  void *take_user;
  bool is_fault;               /* an error was the machine's: a full disk */
  bool is_quiet;               /* counts and prints nothing */
  bool is_coloured;            /* `out` is a terminal */
  bool is_dropping;            /* the last error or warning was not told: nor are its notes */
  int warned_lines;            /* warnings that `// meant` would have dropped */
  int repeated;                /* warnings that diag_is_again has kept back */
  Locs told;                   /* where it has not */
  int errors, warnings, limit; /* after `limit` errors (default 20) the rest are counted only */
} Diag;

void diag_init(Diag *diag, Arena *arena, FILE *out);
uint16_t diag_add_file(Diag *diag, const char *path, const char *text);
const char *diag_path(const Diag *diag, Loc loc); /* "<unknown>" for no place */
void diag_error(Diag *diag, Loc loc, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Dropped, and not counted, where the line ends with `// meant`: so people say of whatever ft warns
 * of that it is meant. */
void diag_warning(Diag *diag, Loc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool diag_is_meant(const Diag *diag, Loc loc);
/* Before a warning that says the same of a place each time that it is compiled, as code in a `repeat` or a
 * block is: has it been given? Then it is only counted. */
bool diag_is_again(Diag *diag, Loc loc);
/* Behind the last warning: how many were not told, and how to say that they are meant. */
void diag_end(Diag *diag);
/* A note belongs to the error or warning before it and is dropped together with it. */
void diag_note(Diag *diag, Loc loc, const char *format, ...) __attribute__((format(printf, 3, 4)));
#endif
