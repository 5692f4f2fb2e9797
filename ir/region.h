/* region: which part of the unrolled program a node belongs to, for the recompute pass. It travels
 * in Loc, because every pass hands a node's location on to what it makes of the node.
 *
 * A region is a round of an outermost `repeat`, or an application of a block of the user's outside
 * of one; a layer with its own `recompute=` is a region by itself. Number 0: none of these. */
#ifndef FT_IR_REGION_H
#define FT_IR_REGION_H
#include "base/diag.h"

/* What backward makes again. As the layer says; REGION_SETTING: as train.recompute does. */
typedef enum { REGION_SETTING, REGION_NONE, REGION_POINTWISE, REGION_BLOCK } RegionPolicy;

enum { REGION_MOST = (1 << 24) - 1 };

static inline uint32_t region_make(uint32_t number, RegionPolicy policy) {
  return number | (uint32_t)policy << 24;
}
static inline uint32_t region_number(Loc loc) { return loc.region & REGION_MOST; }
static inline RegionPolicy region_policy(Loc loc) { return (RegionPolicy)(loc.region >> 24 & 3); }

/* Of a node that backward computes although forward has done so: cse must not undo it. */
static inline bool region_is_again(Loc loc) { return loc.region >> 31; }
static inline Loc region_again(Loc loc) {
  loc.region |= (uint32_t)1 << 31;
  return loc;
}
#endif
