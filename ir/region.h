/* region: the part of the unrolled program to which a node belongs, for the recompute pass. A region
 * is one round of an outermost `repeat`, or, outside of those, one application of a user's block; a
 * layer with its own `recompute=` is a region by itself. */
#ifndef FT_IR_REGION_H
#define FT_IR_REGION_H
#include <stdint.h>

/* What backward recomputes, as the layer says; REGION_SETTING: as train.recompute says. */
typedef enum { REGION_SETTING, REGION_NONE, REGION_POINTWISE, REGION_BLOCK } RegionPolicy;

enum { REGION_MOST = (1 << 24) - 1 };

typedef struct {
  uint32_t number; /* up to REGION_MOST; 0: in none of these */
  RegionPolicy policy;
} Region;
#endif
