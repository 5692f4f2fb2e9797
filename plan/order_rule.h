/* order_rule: the text of data.order, in which order samples are trained on: "balanced(label)",
 * "weighted("weights.npy")", "curriculum("difficulty.npy", from=0.2, epochs=5)". What each means:
 * runtime/data/visits.h. */
#ifndef FT_PLAN_ORDER_RULE_H
#define FT_PLAN_ORDER_RULE_H
#include "base/text.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum {
  ORDER_PLAIN, /* the empty text: data.shuffle says it all */
  ORDER_BALANCED,
  ORDER_OVERSAMPLED,
  ORDER_WEIGHTED,
  ORDER_CURRICULUM,
  ORDER_SORTED
} OrderKind;

enum { ORDER_WHAT = 1024 };
typedef struct {
  OrderKind kind;
  char what[ORDER_WHAT]; /* an input, or a file */
  double from;           /* of a curriculum: the share of the samples in the first epoch */
  int64_t epochs;        /* … and in which epoch it has all; of a sorted order how many are */
} OrderRule;

/* False: it is no such text; then *why, to be freed, says what is. */
bool order_rule_read(const char *text, OrderRule *out, Text *why);
#endif
