/* foreign: see foreign.h. */
#include "base/foreign.h"
#include <string.h>

static const struct {
  ForeignKind kind;
  const char *word, *advice;
} table[] = {
#define FOREIGN(KIND, word, advice) {FOREIGN_##KIND, word, advice},
#include "base/foreign.def"
#undef FOREIGN
};

const char *foreign_find(ForeignKind kind, const char *word) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (table[i].kind == kind && strcmp(table[i].word, word) == 0) return table[i].advice;
  return NULL;
}
