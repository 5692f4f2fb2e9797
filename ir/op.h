/* op: the tables of ops and attributes (ir/ops.def, ir/attrs.def). It is compiled apart from the rest
 * of ir/, together with dtypes and scalars, because the runtime uses it too: a plan tells which ops a
 * kernel computes, and --check=nan computes single elements of them (runtime/execute/body.h). */
#ifndef FT_IR_OP_H
#define FT_IR_OP_H
#include "ir/type.h"

typedef enum {
#define OP(ID, ...) OP_##ID,
#include "ir/ops.def"
#undef OP
  OP_COUNT
} Op;

/* The most inputs of an op that does not take any number of them: the longest member. */
union OpMostInputs {
#define OP(ID, TEXT, LEAST, MOST, ...) char of_##ID[(MOST) > 0 ? (MOST) : 1];
#include "ir/ops.def"
#undef OP
};
enum { MOST_INPUTS = sizeof(union OpMostInputs) };

typedef enum {
  CLASS_LEAF,
  CLASS_POINTWISE,
  CLASS_REDUCE,
  CLASS_CONTRACT,
  CLASS_WINDOW,
  CLASS_MOVE,
  CLASS_STRUCT
} OpClass;

/* What a graph promises between passes. An op's row says in which of them it may stand; ir/verify.c
 * checks the rest. */
typedef enum {
  STAGE_FORWARD,  /* from the front end */
  STAGE_BACKWARD, /* gradients are packed; no stop_gradient is left */
  STAGE_STEP,     /* the update too */
  STAGE_LAID_OUT, /* images, params and sums in the order in which they will lie */
  STAGE_FUSED,    /* pointwise work, moves and reductions are in kernels, views (reshape) are not */
  STAGE_SCHEDULED, /* node order is launch order: leaves first, assigns last */
  STAGE_PLANNED,   /* every value has a place, in which its readers find it */
  STAGE_NOWHERE
} Stage;
extern const char *const stage_text[STAGE_NOWHERE + 1];

/* IF_POINTWISE_##class(yes, no), for columns of ops.def that mean another thing in pointwise
 * rows. */
#define IF_POINTWISE_LEAF(yes, no) no
#define IF_POINTWISE_POINTWISE(yes, no) yes
#define IF_POINTWISE_REDUCE(yes, no) no
#define IF_POINTWISE_CONTRACT(yes, no) no
#define IF_POINTWISE_WINDOW(yes, no) no
#define IF_POINTWISE_MOVE(yes, no) no
#define IF_POINTWISE_STRUCT(yes, no) no

/* Bits of OpInfo.traits. */
typedef enum {
  TRAIT_NAMED = 1 << 0,      /* a leaf in memory, found by its name */
  TRAIT_BODY = 1 << 1,       /* may stand in a kernel's body */
  TRAIT_ALONE = 1 << 2,      /* never fused with others */
  TRAIT_COMMUTES = 1 << 3,   /* its two operands may be exchanged */
  TRAIT_ELEMENTARY = 1 << 4, /* exp, log, tanh, ...: many instructions (kernels/math.c) */
  TRAIT_EXACT = 1 << 5,      /* of values of a narrow type it gives one: nothing to round */
  TRAIT_MOMENT = 1 << 6,     /* mean and spread, which are made of the same sums */
  TRAIT_SCATTERS = 1 << 7,   /* moves data to places that a value tells: cannot be pulled */
  TRAIT_RESULTS = 1 << 8,    /* has several results, which are read through `result` */
  TRAIT_FUNCTION = 1 << 9,   /* of one tensor: a function of the language, by its own name */
  TRAIT_RANKS = 1 << 10      /* a collective: several ranks do it together */
} OpTrait;

__extension__ typedef unsigned __int128 AttrSet; /* bits by AttrId */

typedef struct {
  const char *text;
  int min_inputs, max_inputs; /* -1: any number */
  OpClass op_class;
  Stage first, last;
  unsigned traits;
  AttrSet attrs; /* the legal ones */
} OpInfo;
extern const OpInfo op_info[OP_COUNT];
bool op_parse(const char *text, Op *out);
enum { MAX_RANKS = 1 << 20 };       /* of a training */
enum { LEAF_OPS = OP_SETTING + 1 }; /* input, param, state, setting come first */
static inline bool op_has(Op op, OpTrait trait) { return (op_info[op].traits & trait) != 0; }
/* Is it one end of a message? */
static inline bool op_is_message(Op op) { return op == OP_SEND || op == OP_RECEIVE; }
/* The reductions that all_reduce and reduce_scatter may make over the ranks. */
static inline bool op_joins_ranks(Op op) {
  return op == OP_SUM || op == OP_PROD || op == OP_RMAX || op == OP_RMIN;
}
/* What joins two values of such a reduction. */
static inline Op op_joining(Op op) {
  return op == OP_SUM ? OP_ADD : op == OP_PROD ? OP_MUL : op == OP_RMAX ? OP_MAX : OP_MIN;
}
/* Does it give an index? It is reduced with two numbers: the extreme value and where it is. */
static inline bool op_is_arg(Op op) { return op == OP_ARGMAX || op == OP_ARGMIN; }
/* Is each element of the result one of its first operand's, perhaps in another type? */
static inline bool op_passes_on(Op op) {
  return op == OP_CAST || op == OP_RESHAPE || op == OP_TRANSPOSE || op == OP_BROADCAST || op == OP_SLICE || op == OP_STOP_GRADIENT;
}

typedef enum {
#define ATTR(ID, text, kind) ATTR_##ID,
#include "ir/attrs.def"
#undef ATTR
  ATTR_COUNT
} AttrId;
typedef enum {
  ATTR_KIND_INT,
  ATTR_KIND_FLOAT,
  ATTR_KIND_BOOL,
  ATTR_KIND_STR,
  ATTR_KIND_DTYPE,
  ATTR_KIND_INTS,
  ATTR_KIND_FLOATS
} AttrKind;
extern const struct AttrInfo {
  const char *text;
  AttrKind kind;
} attr_info[ATTR_COUNT];
#endif
