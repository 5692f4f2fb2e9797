/* train_check: --check=nan (declared in train_state.h). A step runs as ever, of a copy of its batch,
 * beside a copy of what it begins with. Where its loss, or what is kept after it, is not finite, it is
 * done again, up to the operation that made the number (runtime/execute/replay.h). Steps that fp16's
 * loss scaling skips are right as they are, unless their loss is not finite or too many of them follow each
 * other; --check=overflow names the first. */
#include "runtime/command/train_state.h"
#include "runtime/execute/programme.h"
#include <math.h>
#include <string.h>

enum { CHECK_MOST_SKIPPED = 100 /* in a row: any sensible loss scale has fallen to its floor */ };

/* Looks at every kernel of the step, where there is no room for copies. */
static Status check_check_kernels(Training *training) {
  Programme programme;
  const void *batch;
  STATUS_TRY(feed_programme(training->feed, &programme));
  do {
    STATUS_TRY(feed_next(training->feed, &batch));
    STATUS_TRY(exec_run_checked(training->exec, programme_graph(&programme), batch));
  } while (!programme_advance(&programme, 1));
  return STATUS_OK;
}

static Status run_kept(Training *training) {
  Programme programme;
  const void *batch;
  STATUS_TRY(feed_programme(training->feed, &programme));
  do {
    STATUS_TRY(feed_next(training->feed, &batch));
    STATUS_TRY(replay_run(training->check.replay, programme_graph(&programme), batch));
  } while (!programme_advance(&programme, 1));
  return STATUS_OK;
}

/* fp16: was the last step skipped? *scale: the factor of its loss. */
static Status was_skipped(Training *training, bool *out, double *scale) {
  ExecGraph graph = feed_result(training->feed);
  int output = exec_find_output(training->exec, graph, OUTPUT_SKIPPED, NULL);
  double skipped = 0;
  *out = false;
  if (output < 0) return STATUS_OK;
  STATUS_TRY(exec_scalar(training->exec, graph, output, &skipped));
  *out = !(skipped <= training->check.skipped); /* not known after --resume: the next step tells */
  training->check.skipped = skipped;
  output = exec_find_output(training->exec, graph, OUTPUT_LOSS_SCALE, NULL);
  return output < 0 ? STATUS_OK : exec_scalar(training->exec, graph, output, scale);
}

static void say_sample(Training *training, const ReplayCause *cause, Text *out) {
  const PlanProgramme *step = plan_find_programme(training->plan, PROGRAMME_STEP);
  int64_t sample = feed_sample(training->feed, plan_batches(step) - 1 - cause->run, cause->row);
  text_printf(out, "; it is ");
  source_append_sample(training->train, &training->plan->inputs.at[cause->input], sample, out);
}

static Status check_explain(Training *training, const ReplaySpot *spot, const char *what) {
  ReplayCause cause;
  STATUS_TRY(replay_explain(training->check.replay, spot, &cause));
  if (cause.is_own && cause.is_input) say_sample(training, &cause, &cause.sentence);
  STATUS_TRY(replay_share(training->check.replay, &cause));
  for (char *line = cause.details.count ? strtok(cause.details.at, "\n") : NULL; line;
       line = strtok(NULL, "\n"))
    log_say(training->log, "check: %s", line);
  Status status =
      status_fail(STATUS_USER, "%s; because of it %s", text_cstr(&cause.sentence), what);
  replay_cause_free(&cause);
  return ranks_failed_alike(&training->ranks, status);
}

static Status check_look(Training *training) {
  ReplaySpot spot;
  bool is_skipped;
  char what[240];
  double scale = 0;
  STATUS_TRY(exec_sync(training->exec));
  STATUS_TRY(was_skipped(training, &is_skipped, &scale));
  bool is_done = !is_skipped; /* ranks of a pipeline need not all have this output */
  STATUS_TRY(ranks_all(&training->ranks, &is_done));
  is_skipped = !is_done;
  training->check.in_row = is_skipped ? training->check.in_row + 1 : 0;
  /* a loss that is not finite was so before it was scaled */
  STATUS_TRY(replay_look(training->check.replay, &spot));
  snprintf(what, sizeof what, "%s is not finite after the step", spot.what);
  bool is_named = training->options->check_overflow || training->check.in_row >= CHECK_MOST_SKIPPED;
  if (!spot.what[0] && is_skipped && is_named) {
    STATUS_TRY(replay_look_at_gradients(training->check.replay, &spot));
    if (training->options->check_overflow)
      snprintf(what, sizeof what, "the step is skipped, at a loss scale of %g", scale);
    else
      snprintf(what, sizeof what, "%d steps in a row were skipped, whatever the loss scale",
               training->check.in_row);
  }
  return spot.what[0] ? check_explain(training, &spot, what) : STATUS_OK;
}

Status train_check_step(Training *training, int64_t step) {
  TrainCheck *check = &training->check;
  bool is_kept = false;
  if (!check->replay) STATUS_TRY(replay_new(training->exec, &check->replay));
  if (step == training->first_step && step) check->skipped = NAN;
  STATUS_TRY(replay_begin(check->replay, &is_kept));
  STATUS_TRY(ranks_all(&training->ranks, &is_kept));
  if (!is_kept && !check->is_told)
    log_say(training->log,
            "check: there is no room to keep what a step begins with, so each kernel "
            "of each step is looked at");
  check->is_told |= !is_kept;
  Status status = is_kept ? run_kept(training) : check_check_kernels(training);
  if (status == STATUS_OK && is_kept) status = check_look(training);
  return status_prefix(status, "step %lld", (long long)step + 1);
}
