/* study: what is tried next, and what came of it. */
#ifndef FT_RUNTIME_TUNE_STUDY_H
#define FT_RUNTIME_TUNE_STUDY_H
#include "runtime/tune/journal.h"

typedef struct {
  Sampler *sampler;
  SamplerKind kind;
  bool *is_own; /* by number, JOURNAL_MOST_TRIALS: trials that this process works on */
} Study;

/* cma has one goal. */
STATUS_CHECKED Status study_open(const Journal *journal, SamplerKind kind, Study *out);
void study_close(Study *study);
/* Makes the next trial this process's: a lost one again, or a new one while there are fewer than `trials`. *number
 * is -1 where there is none to begin (others may still run); *is_over: the space has no other point. */
STATUS_CHECKED Status study_begin(Study *study, Journal *journal, int trials, int *number,
                                  bool *is_over);
/* The best complete trial by the first goal, or -1. */
int study_best(const Journal *journal);
/* Of several goals: is the trial complete, and is there none that is nowhere worse and somewhere better? */
bool study_is_on_front(const Journal *journal, int number);
/* The numbers of all that are, by the first goal, the smallest value first. out: room for journal->count. */
int study_front(const Journal *journal, int *out);
/* Trials that have ended. */
int study_ended(const Journal *journal);
/* "lr=0.003 hidden=128" */
void study_print_point(const Space *space, const double *point, Text *out);
#endif
