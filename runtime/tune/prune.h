/* prune: may a trial end early, as others were better by then?
 *
 *   median      its best value so far is worse than the median of the others' best at that step (Golovin et al. 2017, "Google
 *               Vizier"); from the fifth trial on that has ended
 *   asha        at rungs of min · factor^k steps only the best 1 / factor of all that came there go on (Li et al. 2020, "A system
 *               for massively parallel hyperparameter tuning")
 *   hyperband   the same with brackets: a share of the trials has a first rung that is `factor` times later, and so on up to the
 *               longest trial seen (Li et al. 2018, "Hyperband") */
#ifndef FT_RUNTIME_TUNE_PRUNE_H
#define FT_RUNTIME_TUNE_PRUNE_H
#include "runtime/tune/journal.h"

typedef enum { PRUNE_NONE, PRUNE_MEDIAN, PRUNE_ASHA, PRUNE_HYPERBAND } PruneKind;

typedef struct {
  PruneKind kind;
  double least;  /* steps that every trial has; 0: asha, hyperband: the first report's */
  double factor; /* asha, hyperband */
} PruneRule;

int prune_find(const char *name); /* a PruneKind, or -1 */
/* After a report of trial `number`. */
bool prune_now(const PruneRule *rule, const Journal *journal, int number);
#endif
