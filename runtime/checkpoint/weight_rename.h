/* weight_rename: "old.*=new.*" of --init-rename (weight_files.h says what it means). */
#ifndef FT_RUNTIME_WEIGHT_RENAME_H
#define FT_RUNTIME_WEIGHT_RENAME_H
#include "base/arena.h"
#include "runtime/common/status.h"

enum { RENAME_STARS = 8 };
typedef struct {
  const char *from, *to; /* to: "", a name that leaves the tensor out */
} Rename;
STATUS_CHECKED Status rename_parse(Arena *arena, const char *text, Rename *out);
/* NULL: the name does not match. Time and memory grow with the lengths only. */
const char *rename_apply(Arena *arena, const Rename *rename, const char *name);
#endif
