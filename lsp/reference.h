/* reference: what docs/language.md and docs/data.md say of a word, looked up in their tables, which are part of the program:
 * an editor shows the very rows that people read. */
#ifndef FT_LSP_REFERENCE_H
#define FT_LSP_REFERENCE_H
#include "base/arena.h"

typedef enum {
  REFERENCE_FUNCTION, /* and blocks, initialisers */
  REFERENCE_SOURCE,
  REFERENCE_ORDER,
  REFERENCE_TRANSFORM,
  REFERENCE_ENTRY, /* of train */
  REFERENCE_OPTIMIZER,
  REFERENCE_SCHEDULE,
  REFERENCE_STATEMENT,
  REFERENCE_DECLARATION
} ReferenceKind;

/* As Markdown without links; NULL: the pages have no row and no sentence for it. *signature: "relu(x)", where
 * the page has one, or NULL. */
const char *reference_find(Arena *arena, ReferenceKind kind, const char *word,
                           const char **signature);
#endif
