/* foreign: words of other tools (PyTorch, JAX, Keras, Python, C) and what ft writes in their place.
 * One table, foreign.def; lexer, grammar, names, recipe and command lines ask it before they look
 * for the nearest word of their own. */
#ifndef FT_BASE_FOREIGN_H
#define FT_BASE_FOREIGN_H

/* X(ID): where the word stands. */
#define FOREIGN_KINDS(X)                                                                           \
  X(MODULE)    /* torch: whose it is */                                                            \
  X(NAME)      /* an unknown name, or the last part of torch.cat */                                \
  X(METHOD)    /* behind a tensor and a dot */                                                     \
  X(ARGUMENT)  /* name= in a call */                                                               \
  X(TYPE)      /* an element type */                                                               \
  X(STATEMENT) /* begins a statement or declaration */                                             \
  X(FORM)      /* a word of ft's own that begins one, and how that is written */                   \
  X(CALL)      /* a function or block of ft's own: what its arguments are, if they do not fit */   \
  X(SETTING)   /* in train, data and their sections */                                             \
  X(SET)       /* behind --set alone */                                                            \
  X(CHOICE)    /* an optimizer, a schedule, a precision */                                         \
  X(SOURCE)    /* of data */                                                                       \
  X(TRANSFORM) /* of images */                                                                     \
  X(FLAG)      /* of a command line */

typedef enum {
#define X(ID) FOREIGN_##ID,
  FOREIGN_KINDS(X)
#undef X
      FOREIGN_COUNT
} ForeignKind;

/* What to write in its place, a clause that goes on behind "; "; of a module, whose it is. NULL: the
 * word is not in the table. */
const char *foreign_find(ForeignKind kind, const char *word);
#endif
