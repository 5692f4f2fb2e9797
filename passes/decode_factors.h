/* decode_factors: the factors of each dimension of a value, where a graph is cut down to a
 * few samples and positions: of the batch, of the positions along the text, and of plain sizes,
 * row-major. [B*T, D] of a reshaped [B, T, D] is (batch B, place T) and (plain D). Invariant: no
 * factor has size 1, and no two plain ones stand side by side in a dimension, so equal meanings
 * compare equal. */
#ifndef FT_PASSES_DECODE_FACTORS_H
#define FT_PASSES_DECODE_FACTORS_H
#include "ir/type.h"

typedef enum { FACTOR_PLAIN, FACTOR_BATCH, FACTOR_PLACE } FactorKind;
typedef struct {
  FactorKind kind;
  int64_t size;
} Factor;
enum { MOST_FACTORS = 8 };
typedef struct {
  int rank;
  struct {
    int count;
    Factor at[MOST_FACTORS];
  } dim[MAX_RANK];
} Factors;

Factors factors_plain(const Shape *shape);
void factors_set(Factors *factors, int dim, FactorKind kind, int64_t size); /* the only one */
bool factors_equal(const Factors *a, const Factors *b);
bool factors_equal_dim(const Factors *a, int dim_a, const Factors *b, int dim_b);
bool factors_has(const Factors *factors, int dim, FactorKind kind);
bool factors_is(const Factors *factors, int dim, FactorKind kind); /* this one factor alone */
bool factors_is_plain_dim(const Factors *factors, int dim);
bool factors_is_plain(const Factors *factors);
/* The same elements in another shape; false if that cuts through the batch or the positions. */
bool factors_reshape(const Factors *from, const Shape *shape, Factors *out);
/* The shape left of `texts` samples and `width` positions. */
Shape factors_shape(const Factors *factors, int64_t texts, int64_t width);
#endif
