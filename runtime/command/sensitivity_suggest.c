/* sensitivity_suggest: see sensitivity.h. Each parameter's curve of the loss over its zeros is replaced by the largest convex one below it.
 * Where losses add up, the best way to a number of zeros is then to take the flattest pieces of all curves first; the last one in part. */
#include "runtime/command/sensitivity.h"
#include <math.h>
#include <stdlib.h>

typedef struct {
  int curve;
  double zeros, slope; /* how many more, and the loss of each */
} Piece;

static int by_slope(const void *a, const void *b) {
  const Piece *x = a, *y = b;
  if (x->slope != y->slope) return x->slope > y->slope ? 1 : -1;
  return (x->curve > y->curve) - (x->curve < y->curve); /* of one curve they are in order by their slopes */
}

typedef struct {
  double zeros, loss;
} Corner;

/* The corners of the lower hull, the first being what is not pruned. Shares rise. */
static int lower_hull(const Sensitivity *all, const SensitivityCurve *curve, Corner *out) {
  int count = 0;
  out[count++] = (Corner){0, all->base.loss};
  for (int i = 0; i < all->share_count; i++) {
    Corner at = {(double)curve->point[i].zeros, curve->point[i].result.loss};
    if (!isfinite(at.loss) || at.zeros <= out[count - 1].zeros) continue;
    while (count > 1) {
      Corner a = out[count - 2], b = out[count - 1];
      bool is_above = (b.loss - a.loss) * (at.zeros - a.zeros) >= (at.loss - a.loss) * (b.zeros - a.zeros);
      if (!is_above) break;
      count--;
    }
    out[count++] = at;
  }
  return count;
}

void sensitivity_suggest(Arena *arena, Sensitivity *all) {
  VEC(Piece) pieces = {0};
  double total = 0, taken = 0;
  for (int c = 0; c < all->curves.count; c++) {
    Corner corner[SENSITIVITY_MOST_SHARES + 1];
    int count = lower_hull(all, &all->curves.at[c], corner);
    for (int i = 1; i < count; i++) {
      double zeros = corner[i].zeros - corner[i - 1].zeros;
      VEC_PUSH(arena, pieces, ((Piece){c, zeros, (corner[i].loss - corner[i - 1].loss) / zeros}));
    }
    all->curves.at[c].suggested = 0;
    total += (double)all->curves.at[c].elements;
  }
  if (pieces.count) qsort(pieces.at, (size_t)pieces.count, sizeof *pieces.at, by_slope);
  for (int i = 0; i < pieces.count && taken < all->budget * total; i++) {
    SensitivityCurve *curve = &all->curves.at[pieces.at[i].curve];
    double zeros = fmin(pieces.at[i].zeros, all->budget * total - taken);
    curve->suggested += zeros / (double)curve->elements;
    taken += zeros;
  }
}
