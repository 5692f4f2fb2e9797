/* recompute_plan: what the parts of the recompute pass share. See recompute.c for the whole.
 *
 * Candidates are forward nodes with a contraction between them and the loss. What lies behind the
 * last contraction is computed right before backward begins and read there: recomputing it would
 * save no memory. A *group* is the candidates of one region. What forward reads outside of its
 * group is kept in any case. */
#ifndef FT_PASSES_RECOMPUTE_PLAN_H
#define FT_PASSES_RECOMPUTE_PLAN_H
#include "passes/pass.h"

/* How much of a group may be recomputed: level k > LEVEL_SMALL also allows its k - LEVEL_SMALL
 * contractions that cost the least work for each byte saved. */
enum { LEVEL_NONE, LEVEL_POINTWISE, LEVEL_SMALL, LEVEL_ALL = 1 << 20 };

typedef struct {
  uint32_t region;
  int level;         /* what was chosen */
  int most;          /* the highest that makes sense here */
  bool is_settled;   /* by the layer, or by the setting: not a matter of `auto` */
  VEC(int) members;  /* ascending */
  VEC(int) products; /* contractions among them, the cheapest by the byte first */
} RecomputeGroup;

typedef struct {
  Arena *arena;
  const Graph *graph;
  int count;
  bool *is_live, *is_early; /* early: a contraction is between it and the loss */
  bool *is_read, *is_fixed; /* by backward; by forward outside of its group, or a root */
  int *group_of;            /* -1: no candidate */
  int *place;               /* of a candidate among its group's members */
  bool *is_recomputed;      /* the plan: backward has its own copy */
  VEC(RecomputeGroup) groups;
} RecomputePlan;

/* Operations that a node takes: multiplications and additions one each, exp and its kin more. */
double recompute_work(const Node *node);
/* Chooses what is_recomputed for one group at a level. */
void recompute_choose(RecomputePlan *plan, RecomputeGroup *group, int level);
/* The graph that does as the plan says. */
Graph *recompute_apply(const RecomputePlan *plan, Arena *arena);
/* Sets the levels of the groups that are not settled; false with an error. */
bool recompute_search(PassContext *context, RecomputePlan *plan, int64_t budget);
#endif
