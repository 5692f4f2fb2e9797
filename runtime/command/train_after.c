/* train_after: what is due between two steps: evaluations, the checkpoints and the best one, the
 * schedule that follows evaluations. See train_state.h. */
#include "runtime/checkpoint/ckpt.h"
#include "base/clock.h"
#include "runtime/command/plateau.h"
#include "runtime/command/rule.h"
#include "runtime/command/train_state.h"
#include <math.h>
#include <string.h>

int64_t train_interval(const Training *training, const char *section) {
  char key[64];
  snprintf(key, sizeof key, "%s.every", section);
  int64_t every = (int64_t)train_number(training, key);
  snprintf(key, sizeof key, "%s.unit", section);
  if (every <= 0) return 0;
  return strcmp(train_text(training, key), "step") == 0 ? every : every * training->steps_per_epoch;
}

bool train_is_due(const Training *training, const char *section, int64_t step) {
  int64_t every = train_interval(training, section);
  return every > 0 && step % every == 0;
}

CkptInfo train_checkpoint_info(const Training *training, int64_t step) {
  CkptInfo info = {.step = step,
                   .seed = training->seed,
                   .batch = training->batch,
                   .samples = source_samples(training->train),
                   .data = training->data.sum,
                   .given = training->given,
                   .is_shuffled = training->shuffle,
                   .owes_evaluation = training->owes_evaluation,
                   .has_best = training->has_best,
                   .best = training->best,
                   .stop = training->stop.memory};
  train_drawn(training, info.drawn);
  if (plateau_is_used(training->exec)) snprintf(info.plateau_of, sizeof info.plateau_of, "%s", train_text(training, "train.schedule.metric"));
  snprintf(info.best_of, sizeof info.best_of, "%s", train_text(training, "train.checkpoint.best"));
  return info;
}

static const CommDoing writing = {.what = "writing a checkpoint", .may_last = true};

Status train_written(Training *training, Status status) {
  if (status == STATUS_OK || !training->together) return status;
  if (comm_status(training->ranks.comm) != STATUS_OK) return status; /* the job has failed */
  return ranks_failed_alike(&training->ranks, status);
}

/* train.checkpoint.best = "max(valid.accuracy)": is this evaluation the best so far? */
static Status keep_best(Training *training, const LogStep *result) {
  static const char *const key = "train.checkpoint.best";
  const char *rule_text = train_text(training, key),
             *folder = train_text(training, "train.checkpoint.dir");
  MetricRule rule;
  double value;
  if (!rule_text[0] || !folder[0]) return STATUS_OK;
  STATUS_TRY(rule_parse(key, rule_text, &rule));
  STATUS_TRY(rule_value(key, rule_text, rule.name, result, &value));
  bool is_better =
      !training->has_best || (rule.is_max ? value > training->best : value < training->best);
  if (!isfinite(value) || !is_better) return STATUS_OK;
  bool is_finite;
  STATUS_TRY(train_check_params(training, result->step, &is_finite));
  if (!is_finite) return STATUS_OK;
  training->has_best = true;
  training->best = value;
  CkptInfo info = train_checkpoint_info(training, result->step);
  if (!training->writer) return STATUS_OK;
  return train_written(training, ckpt_writer_add(training->writer, folder, &info, 0));
}

/* The same with the average of the weights; its numbers join the result as ema_loss and the like.
 */
static Status evaluate_ema(Training *training, LogStep *result, bool *is_whole) {
  LogStep ema = {0};
  if (!exec_has_ema(training->exec)) return STATUS_OK;
  STATUS_TRY(evaluate_run(training->evaluator, PROGRAMME_EVALUATE_AVERAGE, &ema, is_whole));
  for (int i = -1; i < ema.metric_count; i++) {
    const char *name, *plain = i < 0 ? "loss" : ema.metric[i].name;
    STATUS_TRY(train_ema_name(training, i + 1, plain, &name));
    result->metric[result->metric_count++] =
        (LogMetric){name, i < 0 ? ema.loss : ema.metric[i].value, OUTPUT_METRIC,
                    i < 0 ? NULL : ema.metric[i].table};
  }
  return STATUS_OK;
}

static const CommDoing evaluating = {.what = "the evaluation after it"};

Status train_evaluate(Training *training, int64_t step) {
  LogStep result = {.step = step};
  bool is_whole, is_reduced;
  double start = log_now();
  int64_t begun = clock_nanoseconds();
  training->owes_evaluation = true;
  comm_doing(training->ranks.comm, &evaluating);
  STATUS_TRY(evaluate_run(training->evaluator, PROGRAMME_EVALUATE, &result, &is_whole));
  if (is_whole) STATUS_TRY(evaluate_ema(training, &result, &is_whole));
  spans_add(trace_spans(training->trace),
            &(TraceSpan){SPAN_EVALUATE, 0, begun, clock_nanoseconds(), step, NULL});
  if (!is_whole) return STATUS_OK; /* a signal: the loop sees it too */
  STATUS_TRY(train_logged(training, log_eval(training->log, "valid", &result,
                                             source_samples(training->valid), log_now() - start)));
  training->owes_evaluation = false;
  STATUS_TRY(train_histograms(training, step));
  if (train_is_due(training, "train.eval", step)) STATUS_TRY(train_samples(training, step, true));
  /* one at the end that is not due changes nothing: a longer training would not have had it */
  if (!train_is_due(training, "train.eval", step)) return STATUS_OK;
  STATUS_TRY(plateau_note(training->exec, &result, &is_reduced));
  if (is_reduced)
    log_say(training->log, "no progress in more than %.0f evaluations: the learning rate falls",
            train_number(training, "train.schedule.patience"));
  STATUS_TRY(train_stop_note(training, &result));
  return keep_best(training, &result);
}

Status train_checkpoint(Training *training, int64_t step) {
  const char *folder = train_text(training, "train.checkpoint.dir");
  if (!folder[0] || training->asked_step == step) return STATUS_OK;
  bool is_finite; /* others would push good ones out of the folder */
  STATUS_TRY(train_check_params(training, step, &is_finite));
  if (!is_finite || !training->writer) return STATUS_OK;
  CkptInfo info = train_checkpoint_info(training, step);
  /* what is before a checkpoint is not written again */
  STATUS_TRY(train_logged(training, log_flush(training->log)));
  double keep = train_number(training, "train.checkpoint.keep");
  comm_doing(training->ranks.comm, &writing);
  STATUS_TRY(train_written(
      training, ckpt_writer_add(training->writer, folder, &info, keep < 1 ? 1 : (int64_t)keep)));
  training->asked_step = step;
  return STATUS_OK;
}

Status train_start_writing(Training *training, bool goes_on) {
  if (!training->writer) return STATUS_OK;
  comm_doing(training->ranks.comm, &writing);
  STATUS_TRY(train_written(training, ckpt_writer_start(training->writer, goes_on)));
  if (ckpt_writer_is_waited_for(training->writer) && !training->is_told_to_wait) {
    training->is_told_to_wait = true;
    log_say(training->log, "there is no room for a copy of what a checkpoint holds: training waits "
                           "while one is written");
  }
  return STATUS_OK;
}

static Status note_saved(Training *training, Status status) {
  int64_t saved = ckpt_writer_saved_step(training->writer);
  if (saved >= 0) {
    if (saved != training->saved_step)
      log_event(training->log, saved, "checkpoint", train_text(training, "train.checkpoint.dir"));
    training->saved_step = saved;
    training->saved_in = train_text(training, "train.checkpoint.dir");
  }
  return train_written(training, status);
}

Status train_look_at_writing(Training *training, bool wait) {
  if (!training->writer) return STATUS_OK;
  if (wait) comm_doing(training->ranks.comm, &writing);
  return note_saved(training, ckpt_writer_result(training->writer, wait));
}

Status train_go_on_writing(Training *training) {
  if (!training->ranks.none_busy || !ckpt_writer_is_pending(training->writer)) return STATUS_OK;
  return note_saved(training, ckpt_writer_go_on(training->writer));
}

/* Of ranks that have not failed alike one may be here alone. */
static Status give_up_writing(Training *training) {
  if (!training->writer || !training->together) return STATUS_OK;
  ckpt_writer_give_up(training->writer);
  return note_saved(training, STATUS_OK);
}

Status train_end_writing(Training *training, Status status) {
  Text said = {0};
  bool are_all_here = status == STATUS_OK || !training->together || training->ranks.is_agreed;
  if (status != STATUS_OK) text_printf(&said, "%s", status_message());
  Status written =
      are_all_here && !training->is_torn ? train_start_writing(training, false) : STATUS_OK;
  Status waited = are_all_here ? train_look_at_writing(training, true) : give_up_writing(training);
  if (written == STATUS_OK) written = waited;
  if (status != STATUS_OK) status_fail(status, "%s", text_cstr(&said));
  text_free(&said);
  return status != STATUS_OK ? status : written;
}

Status train_after_step(Training *training, int64_t step) {
  bool is_end = step == training->total_steps;
  bool is_due = is_end || train_is_due(training, "train.eval", step);
  bool evaluates = training->evaluator && is_due, writes = training->text && is_due;
  bool saves = train_text(training, "train.checkpoint.dir")[0] &&
               train_is_due(training, "train.checkpoint", step);
  STATUS_TRY(train_look_at_writing(training, false));
  if (!evaluates && !writes && !saves) return STATUS_OK;
  double start = log_now();
  bool is_finite;
  STATUS_TRY(train_check_params(training, step, &is_finite));
  if (evaluates) STATUS_TRY(train_evaluate(training, step));
  if (writes && !training->owes_evaluation) STATUS_TRY(train_write(training, step));
  if (saves) STATUS_TRY(train_checkpoint(training, step));
  STATUS_TRY(
      train_start_writing(training, step < training->total_steps && !training->stop.is_over));
  log_skip_time(training->log, log_now() - start);
  return STATUS_OK;
}
