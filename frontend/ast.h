/* ast: the syntax tree. One node type for everything: a kind, a place, a name, and kids whose
 * meaning AST_KINDS states. A kid that may be missing is NULL ("?" below). Depth is bounded, so
 * that walking a tree recursively is always safe. */
#ifndef FT_FRONTEND_AST_H
#define FT_FRONTEND_AST_H
#include "base/arena.h"
#include "base/diag.h"
#include <stdint.h>

/* X(ID, text): the comment gives name and kids. */
#define AST_KINDS(X)                                                                               \
  X(FILE, "file")               /* declarations... */                                              \
  X(IMPORT, "import")           /* name: path */                                                   \
  X(HYPER, "hyper")             /* name; type?, value */                                           \
  X(PRESET, "preset")           /* name; entry... */                                               \
  X(BLOCK, "block")             /* name; config, parameters, returns?, body */                     \
  X(FN, "fn")                   /* name; parameters, returns?, body */                             \
  X(MODEL, "model")             /* name; parameters, body */                                       \
  X(DATA, "data")               /* name; entry... */                                               \
  X(TRAIN, "train")             /* entry... */                                                     \
  X(DISTRIBUTED, "distributed") /* entry... */                                                     \
  X(TUNE, "tune")               /* entry... */                                                     \
  X(ENTRY, "entry")             /* name; value? (missing: a bare flag) */                          \
  X(SECTION, "section")         /* name; entry... */                                               \
  X(PARAMETERS, "parameters")   /* parameter... */                                                 \
  X(PARAMETER, "parameter")     /* name; type?, default? */                                        \
  X(RETURNS, "returns")         /* type... */                                                      \
  X(TYPE, "type")               /* name?: dtype or int, float...; shape? */                        \
  X(SHAPE, "shape")             /* dimension... : an expression, `dimension`, or `...` */          \
  X(DIMENSION, "dimension")     /* name; size */                                                   \
  X(ELLIPSIS, "...")                                                                               \
  X(BODY, "body")     /* statement... */                                                           \
  X(ASSIGN, "assign") /* value, then a name for each target */                                     \
  X(PARAM, "param")   /* name; type, initialiser? */                                               \
  X(STATE, "state")   /* name; type, initialiser? */                                               \
  X(UPDATE, "update") /* name; value */                                                            \
  X(METRIC, "metric") /* name; value */                                                            \
  X(OUTPUT, "output") /* name; value? */                                                           \
  X(IF, "if")         /* condition, body, else body? */                                            \
  X(REPEAT, "repeat") /* name, text: prefix?; from, to, body */                                    \
  X(RETURN, "return") /* value */                                                                  \
  X(CHECK, "check")   /* condition, message */                                                     \
  X(INT, "int")       /* integer */                                                                \
  X(FLOAT, "float")   /* number */                                                                 \
  X(STRING, "string") /* name: the text */                                                         \
  X(FACTOR, "factor") /* number: `0.1x` */                                                         \
  X(BOOL, "bool")     /* integer */                                                                \
  X(NONE, "none")                                                                                  \
  X(NAME, "name")               /* name */                                                         \
  X(DURATION, "duration")       /* integer; name: step or epoch */                                 \
  X(LIST, "list")               /* item... */                                                      \
  X(TUPLE, "tuple")             /* item... */                                                      \
  X(CALL, "call")               /* callee, argument... : an expression or `keyword` */             \
  X(KEYWORD, "keyword")         /* name; value */                                                  \
  X(INDEX, "index")             /* base, subscript... : expression, `slice`, or `...` */           \
  X(SLICE, "slice")             /* from?, to?, step? */                                            \
  X(ATTRIBUTE, "attribute")     /* name; base */                                                   \
  X(UNARY, "unary")             /* name: operator; operand */                                      \
  X(BINARY, "binary")           /* name: operator; left, right */                                  \
  X(ON, "on")                   /* value, which parameters: `0.1x on "head.*"` */                  \
  X(PER, "per")                 /* value, samples: `0.1 per 256` */                                \
  X(ONLY, "only")               /* range, dimension, its values: `range(0, 1) if kind = a|b` */    \
  X(OF, "of")                   /* name: of which split, text: by what?, or integer; share */      \
  X(CONDITIONAL, "conditional") /* condition, value, other value */

typedef enum {
#define X(ID, text) AST_##ID,
  AST_KINDS(X)
#undef X
      AST_COUNT
} AstKind;

typedef struct Ast {
  AstKind kind;
  int depth; /* 1 for a leaf */
  Loc loc;
  const char *name, *text;
  int64_t integer;
  double number;
  int count;
  struct Ast **kid;
} Ast;

enum { AST_MAX_DEPTH = 400 };

typedef VEC(Ast *) AstVec;

/* A node without kids. */
Ast *ast_leaf(Arena *arena, AstKind kind, Loc loc, const char *name);
/* A node with `count` kids, each an Ast * or NULL. */
Ast *ast_node(Arena *arena, AstKind kind, Loc loc, const char *name, int count, ...);
/* A node with a list of kids (NULL: none). */
Ast *ast_list(Arena *arena, AstKind kind, Loc loc, const char *name, const AstVec *kids);
void ast_adopt(Arena *arena, Ast *parent, Ast *kid); /* appends one */
/* The indented tree of --emit=ast. */
void ast_print(const Ast *ast, FILE *out);
/* An expression as source text, for messages and for settings that hold one. */
char *ast_to_text(Arena *arena, const Ast *ast);
bool ast_is_call_of(const Ast *ast, const char *name); /* name(...) */
#endif
