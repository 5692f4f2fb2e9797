/* fuse_order: the groups of a fuse plan in an order in which what a group reads comes before it,
 * kept while groups are merged. It answers whether a merge would close a cycle by looking only at
 * the groups that stand between the two. */
#ifndef FT_PASSES_FUSE_ORDER_H
#define FT_PASSES_FUSE_ORDER_H
#include "passes/fuse_plan.h"

typedef struct FuseOrder FuseOrder;

/* Of plan->groups, one for each unit, which are in such an order. */
FuseOrder *fuse_order_new(FusePlan *plan);
/* Does a path lead from one of the groups over another group to the other? */
bool fuse_order_makes_cycle(FuseOrder *order, int a, int b);
/* The groups asked about last become one, `kept`; `gone` is the other. To be called before the
 * plan's groups change. */
void fuse_order_merge(FuseOrder *order, int kept, int gone);
#endif
