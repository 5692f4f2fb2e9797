/* lottery: tickets of `ftrun lottery` (Frankle and Carbin, The Lottery Ticket Hypothesis, 2019; with rewinding: Frankle et al., Linear Mode
 * Connectivity and the Lottery Ticket Hypothesis, 2020): a checkpoint of an early step in which the weights are 0 that had the smallest
 * magnitudes at the end of a training. A training with prune = zeros goes on from it. */
#ifndef FT_RUNTIME_LOTTERY_H
#define FT_RUNTIME_LOTTERY_H
#include "runtime/common/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct {
  const char *const *on; /* patterns of names; none: all parameters of two dimensions and more */
  int on_count;
  double share;     /* of those that are left, which become 0 */
  bool is_by_layer; /* of each parameter; else of all together */
  bool is_random;   /* as many of each parameter, but whichever: what a ticket is compared with */
  uint64_t seed;    /* of those */
} LotteryRule;

typedef struct {
  int64_t weights, left;
} LotteryCount;

/* early: a checkpoint of a training with prune = zeros; end: weights, with 0 where nothing is left. */
STATUS_CHECKED Status lottery_ticket(const char *early, const char *end, const LotteryRule *rule, const char *output, LotteryCount *count);
/* Whether this checkpoint has parameters that the rule means. */
STATUS_CHECKED Status lottery_can_draw(const char *early, const LotteryRule *rule);
#endif
