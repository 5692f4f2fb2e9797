/* train_stop: ends before the last step (declared in train_state.h). Early stopping and a metric
 * that is reached are decided after an evaluation, from numbers that all ranks have; what they
 * remember is in checkpoints. The time that a run may take is rank 0's clock, which ranks_signal
 * asks: the training then ends as at a signal. */
#include "base/clock.h"
#include "runtime/command/rule.h"
#include "runtime/command/train_state.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ── early stopping ───────────────────────────────────────────────────────────────────────── */

static double patience_of(const Training *training) {
  return train_number(training, "train.stop.patience");
}

/* As torch's ReduceLROnPlateau with a relative threshold, but for negative numbers, where a share of
 * their size counts. What is not a number is no progress. */
static bool is_progress_since(const CkptStop *memory, bool is_max, double value, double threshold) {
  double least = threshold * fabs(memory->best);
  if (!memory->has_best) return is_max ? value > -INFINITY : value < INFINITY;
  return is_max ? value > memory->best + least : value < memory->best - least;
}

static void say_why(Training *training, int64_t step, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void say_why(Training *training, int64_t step, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(training->stop.why, sizeof training->stop.why, format, args);
  va_end(args);
  log_say(training->log, "%s: the training ends after step %lld", training->stop.why,
          (long long)step);
}

static Status note_early(Training *training, const LogStep *result) {
  static const char *const key = "train.stop.metric";
  const char *text = train_text(training, key);
  CkptStop *memory = &training->stop.memory;
  MetricRule rule;
  double value;
  if (!text[0]) return STATUS_OK;
  STATUS_TRY(rule_parse(key, text, &rule));
  STATUS_TRY(rule_value(key, text, rule.name, result, &value));
  snprintf(memory->metric, sizeof memory->metric, "%s", text);
  if (is_progress_since(memory, rule.is_max, value,
                        train_number(training, "train.stop.threshold"))) {
    memory->has_best = true;
    memory->best = value;
    memory->waited = 0;
  } else {
    memory->waited++;
  }
  if ((double)memory->waited < patience_of(training)) return STATUS_OK;
  training->stop.is_over = true;
  say_why(training, result->step, "%s has made no progress in %lld evaluations (%.6g is the best)",
          text, (long long)memory->waited, memory->has_best ? memory->best : NAN);
  return STATUS_OK;
}

static Status note_reached(Training *training, const LogStep *result) {
  static const char *const key = "train.stop.reached";
  const char *text = train_text(training, key);
  CkptStop *memory = &training->stop.memory;
  MetricLimit limit;
  double value;
  if (!text[0]) return STATUS_OK;
  STATUS_TRY(rule_parse_limit(key, text, &limit));
  STATUS_TRY(rule_value(key, text, limit.name, result, &value));
  if (!metric_limit_is_reached(&limit, value)) return STATUS_OK;
  snprintf(memory->reached, sizeof memory->reached, "%s", text);
  training->stop.is_over = true;
  say_why(training, result->step, "%s is reached (%.6g)", text, value);
  return STATUS_OK;
}

Status train_stop_note(Training *training, const LogStep *result) {
  STATUS_TRY(note_early(training, result));
  return note_reached(training, result);
}

/* A checkpoint of a training that had ended, with settings under which it would end again. */
static void go_on_early(Training *training) {
  CkptStop *memory = &training->stop.memory;
  const char *metric = train_text(training, "train.stop.metric"),
             *reached = train_text(training, "train.stop.reached");
  if (strcmp(memory->metric, metric) != 0) { /* numbers of another rule */
    memory->metric[0] = 0;
    memory->has_best = false;
    memory->waited = 0;
  }
  if (strcmp(memory->reached, reached) != 0) memory->reached[0] = 0;
  bool has_waited = metric[0] && (double)memory->waited >= patience_of(training);
  training->stop.is_over = has_waited || memory->reached[0];
  if (has_waited)
    log_say(training->log,
            "the training had ended: %s made no progress in %lld evaluations; a larger "
            "train.stop.patience goes on",
            metric, (long long)memory->waited);
  if (memory->reached[0])
    log_say(training->log,
            "the training had ended: %s was reached; another train.stop.reached "
            "goes on",
            reached);
}

/* ── time ─────────────────────────────────────────────────────────────────────────────────── */

/* Seconds until the end of the job that this is a part of, by SLURM's word; false: no such word.
 * One that is past is none: a shell of a job that has ended may have left it behind. */
static bool left_of_job(Training *training, double *left) {
  const char *text = getenv("SLURM_JOB_END_TIME");
  char *end;
  if (!text || !*text) return false;
  errno = 0;
  long long time_of_end = strtoll(text, &end, 10);
  *left = (double)time_of_end - (double)time(NULL);
  if (!*end && errno == 0 && *left > 0) return true;
  log_warn(training->log, "SLURM_JOB_END_TIME=%.40s %s: it is passed over", text,
           *end || errno ? "is no time" : "is past");
  return false;
}

/* Files take a while to be written. A short job must not end before it has begun. */
static double spare_of(const Training *training, double left) {
  return fmin(train_number(training, "train.max_time.spare"), left / 10);
}

static void start_clock(Training *training) {
  const TrainOptions *options = training->options;
  double most = train_number(training, "train.max_time"), left, now = (double)clock_nanoseconds();
  double end = most > 0 ? (options->started ? (double)options->started : now) + most * 1e9 : 0;
  training->stop.whose = "train.max_time";
  if (left_of_job(training, &left)) {
    double spare = spare_of(training, left), job = now + (left - spare) * 1e9;
    log_say(training->log,
            "the job ends in %.0f s (SLURM_JOB_END_TIME): the training %.0f s before", left, spare);
    if (!end || job < end) {
      end = job;
      training->stop.whose = "SLURM_JOB_END_TIME";
    }
  }
  training->ranks.deadline = end > 0x1p62 ? 0 : (int64_t)end;
}

void train_stop_start(Training *training) {
  if (training->writes) start_clock(training);
  go_on_early(training);
}

int64_t train_last_step(const Training *training) {
  const TrainOptions *options = training->options;
  return options->stops && options->stop_at < training->total_steps ? options->stop_at : training->total_steps;
}

void train_say_how_to_resume(Training *training, int64_t done) {
  char why[80] = "";
  if (training->signal == RANKS_TIME_IS_UP)
    snprintf(why, sizeof why, "the time is up (%s): ", training->stop.whose);
  if (!done && training->saved_step < 0)
    log_say(training->log, "%sstopped before the first step; the same command starts again", why);
  else if (training->saved_step == done)
    log_say(training->log, "%sstopped after step %lld; the same command with --resume %s goes on",
            why, (long long)done, training->saved_in);
  else
    log_say(training->log,
            "%sstopped after step %lld; with --set train.checkpoint.dir=DIR it could "
            "be resumed",
            why, (long long)done);
}
