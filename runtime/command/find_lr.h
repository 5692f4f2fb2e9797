/* find_lr: `ftrun --find-lr`: a training of some steps whose rate grows from one to the next, to see
 * which rates the model learns at. It writes no weights, checkpoints or log. */
#ifndef FT_RUNTIME_FIND_LR_H
#define FT_RUNTIME_FIND_LR_H
#include "runtime/command/train.h"

typedef struct {
  const TrainOptions *train; /* of it: run, init, no_shuffle, log_jsonl, steps (-1: 100) */
  const char *range;         /* "1e-7:10"; NULL: that */
  const char *plot;          /* a .svg file, or NULL */
} FindLrOptions;

/* Prints a table, a plot and a suggestion. log_jsonl: a line for each step, and one for the
 * suggestion. */
STATUS_CHECKED Status find_lr_run(const FindLrOptions *options);
#endif
