/* fuse_plan: what the parts of the fuse pass share. See fuse.c for the whole.
 *
 * A *unit* is a node that is computed in exactly one kernel: reductions, contractions, what must
 * lie in memory, and what costs more to compute twice than to store. All other nodes are computed
 * wherever they are read ("pulled"). A *group* is a set of units that become one kernel; a unit
 * read outside of its group is a result of that kernel.
 *
 * How a unit reads another is told relative to the unit's own frame (the index space it runs over):
 * divisor s means the other is read at floor(linear index / s), so 1 is "the element of the same
 * index" and the row length is "the value of my row"; SCATTERED is anything else. */
#ifndef FT_PASSES_FUSE_PLAN_H
#define FT_PASSES_FUSE_PLAN_H
#include "passes/fuse.h"

enum { SCATTERED = 0 };

typedef struct {
  int node;        /* a unit or a leaf */
  int64_t divisor; /* SCATTERED: no simple relation */
} FuseRead;

typedef struct {
  VEC(FuseRead) reads;
  int nodes;      /* in the cone between this unit and what it reads, each by its code */
  bool is_simple; /* the cone is pointwise, broadcasts, views, constants and single numbers of leaves only */
  bool is_flat;   /* what it broadcasts is one number or a vector along the last dimension, so that
                     all other dimensions may be seen as one */
} FuseUnit;

typedef VEC(int) FuseReaders;

typedef enum {
  SHAPE_ALONE, /* stands by itself: pack, assign, scatter_add, gradients of conv, attention */
  SHAPE_LOOP,
  SHAPE_ROW,
  SHAPE_COLUMN,
  SHAPE_CONTRACT
} GroupShape;

typedef struct {
  GroupShape shape;
  int64_t elements;             /* of the domain D */
  int64_t reduced;              /* elements of the reduced shape; where there is a reduction */
  int contract;                 /* CONTRACT: the unit, or -1 */
  int reduce;                   /* ROW, COLUMN, and CONTRACT with sums of its columns: the
                                   reduction that gives axes, or -1 */
  int columns;                  /* ROW: a sum of its columns, beside its rows' reductions, or -1 */
  VEC(int) members;             /* ascending */
  bool is_dead;                 /* merged into another */
  bool has_early, has_backward; /* members of the first part of the step, of the last */
  int task;                     /* of a pipeline: that of all members */
  int piece;                    /* of the batch: that of all members that are of one; 0: none is */
} FuseGroup;

typedef struct {
  Arena *arena;
  const Graph *graph; /* prepared: see fuse_prepare */
  bool is_plain;      /* every node a unit, every unit a kernel */
  bool for_gpu;
  bool has_integer_pools;   /* a convolution of integers may be pooled by its kernel, */
  bool has_column_sums;     /* a product's or a convolution's kernel may sum its columns, */
  bool has_slope_epilogues; /* and that of its input's gradient have an epilogue; */
  bool has_row_sums;        /* a kernel over rows may sum its columns, too */
  int count;                /* nodes */
  const int *task;          /* by node: that of a pipeline (tasks.h); NULL: there is none */
  bool *is_live, *is_unit;
  bool *is_pooled;       /* a pooling whose convolution is part of it: a contraction to its group */
  bool *is_materialized; /* something outside of all kernels reads it in memory */
  bool *is_assigned;     /* the next value of a state */
  bool *is_early;        /* forward, and a contraction comes before the loss */
  int *group;            /* of a unit; -1 for other nodes */
  FuseUnit *unit;        /* by node */
  FuseReaders *readers;  /* by node: the units that read it */
  VEC(FuseGroup) groups;
} FusePlan;

/* fuse_prepare.c: the graph in the form that grouping expects: every reduction is row or column
 * (mixed ones in two stages), huge ones are split, layout changes are folded into dots. */
typedef struct {
  bool for_gpu;
  bool keeps_orders;    /* products of 8-bit floats keep their operands' orders; */
  bool has_column_sums; /* a product's kernel may find the largest size in its columns, and so in its result */
} FusePreparation;
Graph *fuse_prepare(const Graph *graph, const FusePreparation *preparation);
/* The most sums of its columns that a product's, a convolution's or a row's kernel makes. */
enum { FUSE_COLUMN_SUMS = 4 };
/* The most operands of a concat in one kernel; one of half as many is a unit. */
enum { FUSE_CONCAT_PARTS = 32 };
/* Dimensions of `shape` that are not 1, in order. */
Shape fuse_squeeze(const Shape *shape);
/* The reduction's domain without dimensions of 1, and its axes there. */
Shape fuse_reduce_domain(const Node *reduce, int64_t axes[MAX_RANK], int *axis_count);
bool fuse_is_row(const Node *reduce); /* after fuse_prepare, row or else column */

/* fuse_unit.c: which nodes are units, and what they read. */
void fuse_choose_units(FusePlan *plan);
bool fuse_is_widening(const Node *node); /* f32 of a bf16 or f16 value */
bool fuse_is_long_concat(const Node *node);
int64_t fuse_elements(const Node *node);

/* May a product's kernel sum its columns? */
bool fuse_dot_may_sum(const Node *dot);
/* Is it the largest of sizes, |x|? */
bool fuse_is_largest_size(const Node *reduce);

/* fuse_group.c: which units share a kernel. */
void fuse_group_units(FusePlan *plan);
/* Does anything outside of the unit's group read it? */
bool fuse_is_result(const FusePlan *plan, int unit);

/* fuse_body.c: the kernels. The graph and their bodies go to `arena`. */
Graph *fuse_emit(FusePlan *plan, Arena *arena);
#endif
