/* train_finite: a training whose numbers are no longer finite ends before it writes them over good
 * ones (declared in train_state.h). The loss is looked at wherever it is read back for the log, so
 * no step waits for it; parameters are read before an evaluation, a checkpoint and --save. */
#include "runtime/command/train_state.h"
#include <math.h>
#include <string.h>

enum { MOST_SKIPPED = 100 /* steps in a row: any sensible loss scale has fallen to its floor */ };

/* fp16: how many steps were skipped so far; NAN with other types. */
static double skipped_of(const LogStep *result, double *scale) {
  double skipped = NAN;
  for (int i = 0; i < result->metric_count; i++) {
    const LogMetric *metric = &result->metric[i];
    if (metric->kind == OUTPUT_SKIPPED) skipped = metric->value;
    if (metric->kind == OUTPUT_LOSS_SCALE) *scale = metric->value;
  }
  return skipped;
}

/* What the user is told after `what`, with --keep-going once and as a warning. All ranks see the
 * same loss and the same parameters. */
static Status stop(Training *training, const char *what) {
  const TrainOptions *options = training->options;
  if (options->keep_going) {
    if (!training->finite.is_told)
      log_warn(training->log, "%s; --check=nan finds the first such value and its source line",
               what);
    training->finite.is_told = true;
    return STATUS_OK;
  }
  training->finite.is_diverged = true;
  (void)!train_look_at_writing(training, true); /* should that fail, the one before is named */
  Text text = {0};
  if (options->save) text_printf(&text, "; %s is left as it was", options->save);
  if (training->saved_step >= 0)
    text_printf(&text,
                "; the last good checkpoint is that of step %lld, --resume %s goes on from it",
                (long long)training->saved_step, training->saved_in);
  else
    text_printf(&text, "; there is no checkpoint of this training");
  Status status = status_fail(STATUS_USER,
                              "the training has diverged: %s%s; a smaller train.lr may help, "
                              "--check=nan finds the first such value and its source line, "
                              "--keep-going trains on",
                              what, text_cstr(&text));
  text_free(&text);
  return ranks_failed_alike(&training->ranks, status);
}

/* fp16: steps that are skipped are no divergence, but a training that skips all of them is. */
static Status count_skipped(Training *training, const LogStep *result, bool *may_be_skipped) {
  TrainFinite *finite = &training->finite;
  double scale = NAN, skipped = skipped_of(result, &scale), fresh = skipped - finite->skipped;
  int64_t steps = result->step - finite->step;
  *may_be_skipped = skipped > 0 && !(fresh == 0);
  finite->in_row = fresh == (double)steps ? finite->in_row + steps : 0;
  finite->skipped = skipped;
  finite->step = result->step;
  if (finite->in_row < MOST_SKIPPED) return STATUS_OK;
  char what[160];
  snprintf(what, sizeof what,
           "up to step %lld, %lld steps in a row were skipped because gradients overflow in fp16, "
           "with a loss scale of %g",
           (long long)result->step, (long long)finite->in_row, scale);
  return stop(training, what);
}

void train_finite_start(Training *training) {
  training->finite.step = training->first_step;
  training->finite.skipped = training->first_step ? NAN : 0;
  training->finite.checked_step = -1;
}

Status train_check_result(Training *training, const LogStep *result) {
  bool may_be_skipped;
  char what[80];
  STATUS_TRY(count_skipped(training, result, &may_be_skipped));
  if (isfinite(result->loss) || may_be_skipped) return STATUS_OK;
  snprintf(what, sizeof what, "the loss of step %lld is %s", (long long)result->step,
           isnan(result->loss) ? "NaN" : "infinite");
  return stop(training, what);
}

Status train_check_params(Training *training, int64_t step, bool *is_finite) {
  TrainFinite *finite = &training->finite;
  if (finite->checked_step != step) {
    Status status = exec_check_params(training->exec);
    if (status == STATUS_FAULT) return status;
    finite->is_sound = status == STATUS_OK;
    if (plan_is_apart(training->plan)) STATUS_TRY(ranks_all(&training->ranks, &finite->is_sound));
    finite->checked_step = step;
    if (!finite->is_sound) {
      char what[640];
      snprintf(what, sizeof what, "after step %lld %s", (long long)step,
               status != STATUS_OK ? status_message()
                                   : "parameters of which another rank has a part are not finite");
      STATUS_TRY(stop(training, what));
    }
  }
  *is_finite = finite->is_sound;
  return STATUS_OK;
}
