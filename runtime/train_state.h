/* train_state: what the files of the training run share: train.c (set-up and the loop) and
 * train_after.c (what is due between two steps). */
#ifndef FT_RUNTIME_TRAIN_STATE_H
#define FT_RUNTIME_TRAIN_STATE_H
#include "runtime/bench.h"
#include "runtime/evaluate.h"
#include "runtime/feed.h"
#include "runtime/train.h"

typedef struct {
  const TrainOptions *options;
  Artifact *artifact;
  Plan *plan;
  Exec *exec;
  Source *train, *valid;
  Feed *feed;
  Evaluator *evaluator;
  Trace *trace;
  Log *log;
  int64_t batch, parts; /* samples of a step, and in how many runs they are taken */
  int64_t steps_per_epoch, total_steps, first_step;
  uint64_t seed;
  bool shuffle, has_best;
  double best;          /* of train.checkpoint.best */
  bool owes_evaluation; /* one is due after the last step and has not come to its end */
  int64_t saved_step;   /* the newest checkpoint */
  char ema_name[LOG_MOST_METRICS + 1][72];
} Training;

static inline double train_number(const Training *training, const char *key) {
  return setting_number(training->plan->settings, key);
}
static inline const char *train_text(const Training *training, const char *key) {
  const char *value = setting_text(training->plan->settings, key);
  return value ? value : "";
}

/* Every how many steps "train.eval" or "train.checkpoint" is due; 0: never. */
int64_t train_interval(const Training *training, const char *section);
bool train_is_due(const Training *training, const char *section, int64_t step);
/* Evaluation, the best and the schedule that follow from it. A signal ends it early: it is then
 * still owed. */
STATUS_CHECKED Status train_evaluate(Training *training, int64_t step);
/* A checkpoint of this step, if there is a folder for it and it is not there yet. */
STATUS_CHECKED Status train_checkpoint(Training *training, int64_t step);
/* What is due after a step. */
STATUS_CHECKED Status train_after_step(Training *training, int64_t step);
#endif
