/* integers: what the attribute `integers` of a product promises, for the pass that sets it, the pass
 * prepare, and the code generator. */
#ifndef FT_PASSES_INTEGERS_H
#define FT_PASSES_INTEGERS_H
#include "ir/graph.h"

enum {
  INTEGERS_MOST_DEPTH = 1 << 16, /* what is added up for a result */
  INTEGERS_MOST_HEIGHT = 256,    /* rows of an image that a row of results sees, … */
  INTEGERS_ROOM = 1 << 18,       /* … and their bytes, two for each number */
  INTEGERS_MOST_POOL = 4,        /* rows, and columns, of a window of a pooling in a kernel */
  INTEGERS_LEAST_CHANNELS = 16   /* of a group, on a GPU, whose tensor cores take 32 steps at a time */
};

/* The attribute's numbers: the least and the largest of the first operand, of the second, and whether
 * each number of the second is whole and in its range, or NaN. */
enum { INTEGERS_SURE = 4, INTEGERS_COUNT = 5 };
/* Those of the attribute `rounded`: the least and the largest number, how many share a scale, and what the numbers of the first operand
 * are. */
enum { ROUNDED_LOW, ROUNDED_HIGH, ROUNDED_GROUP, ROUNDED_FIRST, ROUNDED_COUNT };
/* The first operand's: any of f32; all of bf16; whole numbers of -128 to 127, or NaN; the same as a rule, with others where nothing has
 * been observed yet; and whole numbers of 0 to 255 likewise. */
enum { ROUNDED_ANY, ROUNDED_BF16, ROUNDED_WHOLE, ROUNDED_WHOLE_RULE, ROUNDED_BYTE, ROUNDED_BYTE_RULE };

/* Is there a kernel of integers for this contraction in its layout? */
bool integers_have_kernel(const Node *contraction, bool for_gpu);
/* Can that kernel make the pooling of its convolution, in place of all that is pooled? */
bool integers_have_pool(const Node *pool);
/* Is there a kernel of rounded weights (attribute `rounded`) for this contraction? */
bool rounded_has_kernel(const Node *contraction);
/* Has this product rounded weights, with several scales along what is summed up? */
bool rounded_in_groups(const Node *contraction);
/* The operand of a step, a contraction in a body or alone, that its kernel needs only packed, which it
 * does first; -1: there is none. */
int integers_packed_operand(const Node *step, bool for_gpu);

/* Do numbers between these, and 0, go into 8 bits? */
static inline bool integers_fit_byte(int64_t low, int64_t high) {
  return low <= 0 && high >= 0 && (high <= 127 ? low >= -128 : low == 0 && high <= 255);
}

/* Are all sums of `depth` products of such numbers 32-bit numbers, and is there room for a row? */
static inline bool integers_suit(int64_t depth, const int64_t range[4]) {
  int64_t most[2];
  for (int i = 0; i < 2; i++) {
    int64_t low = range[2 * i], high = range[2 * i + 1];
    if (!integers_fit_byte(low, high)) return false;
    most[i] = -low > high ? -low : high;
  }
  return depth > 0 && depth <= INTEGERS_MOST_DEPTH && depth * most[0] * most[1] <= INT32_MAX;
}
#endif
