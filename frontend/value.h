/* value: what an expression of the language is while the graph is built: a compile-time value or a
 * tensor, which is a Node. The error value has been reported; whatever meets it stays silent. */
#ifndef FT_FRONTEND_VALUE_H
#define FT_FRONTEND_VALUE_H
#include "frontend/ast.h"
#include "ir/graph.h"

/* X(ID, what a message calls it) */
#define VALUE_KINDS(X)                                                                             \
  X(ERROR, "an error")                                                                             \
  X(ABSENT, "nothing") /* an optional argument that was not given */                               \
  X(NONE, "none")                                                                                  \
  X(INT, "an integer")                                                                             \
  X(FLOAT, "a number")                                                                             \
  X(BOOL, "true or false")                                                                         \
  X(STRING, "a string")                                                                            \
  X(LIST, "a list")                                                                                \
  X(TUPLE, "a tuple")                                                                              \
  X(DURATION, "a duration")                                                                        \
  X(INIT, "an initialiser")                                                                        \
  X(TENSOR, "a tensor")                                                                            \
  X(RANKING, "an AUC, which is a metric as it is (metric NAME = auc(...))") /* node: its rows */   \
  /* from here on: what is declared, and no data */                                                \
  X(FUNCTION, "a function")                                                                        \
  X(BUILTIN, "a function")                                                                         \
  X(BLOCK, "a block")                                                                              \
  X(LAYER, "a layer")                                                                              \
  X(MODEL, "a model")                                                                              \
  X(DATA, "a data block")

typedef enum {
#define X(ID, text) VALUE_##ID,
  VALUE_KINDS(X)
#undef X
      VALUE_COUNT
} ValueKind;

typedef struct Builtin Builtin;
typedef struct Instance Instance;
typedef struct InitValue InitValue;

typedef struct Value {
  ValueKind kind;
  int count; /* LIST, TUPLE; LAYER: 1, its parameters get no gradient where it is applied */
  union {
    int64_t i; /* INT, BOOL, DURATION */
    double f;
    const char *s;
    struct Value *items;
    Node *node;
    const InitValue *init;
    const Ast *definition; /* FUNCTION, BLOCK, MODEL, DATA */
    const Builtin *builtin;
    Instance *layer;
  };
  const char *unit; /* DURATION: "step" or "epoch" */
  bool is_average;  /* LAYER: applied with averages in place of its parameters, of this decay */
  double decay;
  const char *file; /* LAYER: applied with the weights of this file, frozen; NULL: with its own */
  bool is_bf16;     /* … which are kept in bf16 */
} Value;

static inline Value value_error(void) { return (Value){.kind = VALUE_ERROR}; }
static inline Value value_none(void) { return (Value){.kind = VALUE_NONE}; }
static inline Value value_int(int64_t i) { return (Value){.kind = VALUE_INT, .i = i}; }
static inline Value value_float(double f) { return (Value){.kind = VALUE_FLOAT, .f = f}; }
static inline Value value_bool(bool b) { return (Value){.kind = VALUE_BOOL, .i = b}; }
static inline Value value_string(const char *s) { return (Value){.kind = VALUE_STRING, .s = s}; }
static inline Value value_sequence(ValueKind kind, Value *items, int count) {
  return (Value){.kind = kind, .items = items, .count = count};
}
/* NULL (an error already reported) becomes the error value. */
static inline Value value_tensor(Node *node) {
  return node ? (Value){.kind = VALUE_TENSOR, .node = node} : value_error();
}

static inline bool value_is_number(const Value *v) {
  return v->kind == VALUE_INT || v->kind == VALUE_FLOAT;
}
static inline bool value_is_given(const Value *v) {
  return v->kind != VALUE_ABSENT && v->kind != VALUE_NONE;
}
static inline double value_number(const Value *v) {
  return v->kind == VALUE_INT || v->kind == VALUE_BOOL ? (double)v->i : v->f;
}
/* An integer, or a float that is one exactly. */
bool value_to_int(const Value *v, int64_t *out);
bool value_equal(const Value *a, const Value *b);
/* "an integer", "a tensor f32[64,10]": for messages. */
const char *value_describe(Arena *arena, const Value *v);
/* As it would be written: 3, 0.5, "text", [1, 2]. */
char *value_text(Arena *arena, const Value *v);
#endif
