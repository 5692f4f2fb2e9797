/* ftrun_study: see ftrun_study.h. What a dimension sets, and the artifacts: ftrun_study_build.c. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/say.h"
#include "runtime/common/signals.h"
#include "runtime/command/report_study.h"
#include "runtime/command/train.h"
#include "tools/ftrun_study_private.h"
#include "tools/ftrun_trial.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
  TuneOptions *o;
  StudyBuild build;
  Journal journal;
  Study study;
  MetricRule rule;
  RunningTrial *running; /* [parallel] */
  int running_count, failed_in_a_row;
  bool is_over; /* every point of the space has been tried */
  char goal[256], self[4096];
} Runner;

static double seconds_since(int64_t began) { return 1e-9 * (double)(clock_nanoseconds() - began); }

/* Whether it goes on is asked at each report, however many come at a time. */
static Status note_report(void *context, RunningTrial *trial) {
  Runner *r = context;
  STATUS_TRY(journal_report(&r->journal, trial->number, trial->step, trial->value));
  trial->is_pruned = prune_now(&r->o->prune, &r->journal, trial->number);
  return STATUS_OK;
}

static void tell_trial(const Runner *r, int number) {
  const Trial *trial = &r->journal.trial[number];
  Text point = {0};
  study_print_point(&r->journal.space, trial->point, &point);
  printf("trial %-4d", number);
  if (trial->state == TRIAL_COMPLETE)
    printf("%-10.6g", trial->value);
  else if (trial->state == TRIAL_PRUNED)
    printf("pruned at step %.0f, %.6g", trial->step, trial->value);
  else
    printf("failed");
  printf("   %5.1f s   %s", trial->seconds, text_cstr(&point));
  if (trial->state == TRIAL_COMPLETE && study_best(&r->journal) == number) printf("   best so far");
  if (trial->state == TRIAL_FAILED) printf("   (%s)", trial->why);
  printf("\n");
  fflush(stdout);
  text_free(&point);
}

static Status end_trial(Runner *r, int number, TrialState state, double step, double value,
                        double seconds, const char *why) {
  STATUS_TRY(journal_end(&r->journal, number, state, step, value, seconds, why));
  r->study.is_own[number] = false;
  r->failed_in_a_row = state == TRIAL_FAILED ? r->failed_in_a_row + 1 : 0;
  tell_trial(r, number);
  return STATUS_OK;
}

/* The command line of a trial; with what --set needs in *sets. */
static char **make_arguments(Runner *r, const RunningTrial *trial, char **sets) {
  const TuneOptions *o = r->o;
  static char threads[16];
  /* what would be written by all of them, or asked of people */
  static char *const quiet[] = {
      "train.checkpoint.dir=", "train.log.csv=", "train.log.tensorboard=", NULL};
  char **list =
      calloc((size_t)o->kept_count + 2 * (size_t)r->journal.space.count + 24, sizeof *list);
  int at = 0;
  if (!list) return NULL;
  list[at++] = r->self;
  list[at++] = "train";
  list[at++] = (char *)(uintptr_t)trial->artifact;
  for (int i = 0; quiet[i]; i++) {
    list[at++] = "--set";
    list[at++] = quiet[i];
  }
  for (int i = 0; i < o->kept_count; i++) list[at++] = o->kept[i];
  for (int i = 0; sets[i]; i++) {
    list[at++] = "--set";
    list[at++] = sets[i];
  }
  list[at++] = "--log-jsonl";
  list[at++] = (char *)(uintptr_t)trial->log_path;
  if (o->parallel > 1 && !o->has_threads) {
    int cores = train_cores(0) / o->parallel;
    snprintf(threads, sizeof threads, "%d", cores > 1 ? cores : 1);
    list[at++] = "--threads";
    list[at++] = threads;
  }
  return list;
}

static Status start_process(Runner *r, RunningTrial *trial) {
  char **sets = build_runtime_sets(&r->build, r->journal.trial[trial->number].point);
  char **arguments = sets ? make_arguments(r, trial, sets) : NULL;
  Status status =
      arguments ? trial_start(trial, arguments) : status_fail(STATUS_FAULT, "out of memory");
  for (int i = 0; sets && sets[i]; i++) free(sets[i]);
  free(sets);
  free(arguments);
  return status;
}

/* One more trial; *began false: there is none to begin. */
static Status start_one(Runner *r, bool *began) {
  int number;
  char why[200];
  build_source(&r->build, r->journal.source);
  STATUS_TRY(study_begin(&r->study, &r->journal, r->o->trials, &number, &r->is_over));
  *began = number >= 0;
  if (!*began) return STATUS_OK;
  int64_t before = clock_nanoseconds();
  RunningTrial *trial = &r->running[r->running_count];
  *trial = (RunningTrial){.number = number, .rule = &r->rule, .report = note_report, .context = r};
  if (build_artifact(&r->build, r->journal.trial[number].point, trial->artifact, why))
    return end_trial(r, number, TRIAL_FAILED, 0, NAN, seconds_since(before), why);
  snprintf(trial->log_path, sizeof trial->log_path, "%s/trial-%04d.jsonl", r->o->study, number);
  snprintf(trial->said_path, sizeof trial->said_path, "%s/trial-%04d.txt", r->o->study, number);
  Status status = start_process(r, trial);
  if (status)
    trial_close(trial);
  else
    r->running_count++;
  return status;
}

/* What the end of its process means. */
static Status finish_trial(Runner *r, RunningTrial *trial, int wait_status) {
  char why[300] = "";
  double seconds = seconds_since(trial->began);
  int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1;
  STATUS_TRY(trial_read(trial)); /* what it wrote at the end */
  if (trial->is_pruned)
    return end_trial(r, trial->number, TRIAL_PRUNED, trial->step, trial->value, seconds, NULL);
  bool is_over = code == 0 || code == TRAIN_TIME_IS_UP;
  if (is_over && isfinite(trial->value))
    return end_trial(r, trial->number, TRIAL_COMPLETE, trial->step, trial->value, seconds, NULL);
  if (!is_over) trial_last_words(trial, why, sizeof why);
  if (!*why && code < 0) snprintf(why, sizeof why, "ended by signal %d", WTERMSIG(wait_status));
  if (!*why && is_over)
    snprintf(why, sizeof why, "it logged no %s.%s", r->rule.split, r->rule.name);
  if (!*why) snprintf(why, sizeof why, "it ended with code %d", code);
  return end_trial(r, trial->number, TRIAL_FAILED, fmax(trial->step, 0), trial->value, seconds,
                   why);
}

static Status look_at_trial(Runner *r, int index, bool *has_ended) {
  RunningTrial *trial = &r->running[index];
  int wait_status = 0;
  *has_ended = trial_has_ended(trial, &wait_status);
  if (!*has_ended) {
    STATUS_TRY(trial_read(trial));
    if (trial->is_pruned) {
      kill(-trial->process, SIGKILL);
      kill(trial->process, SIGKILL);
    }
    return STATUS_OK;
  }
  build_drop(&r->build, r->journal.trial[trial->number].point, trial->artifact);
  Status status = finish_trial(r, trial, wait_status);
  trial_close(trial);
  return status;
}

static void kill_all(Runner *r) {
  for (int i = 0; i < r->running_count; i++) {
    kill(-r->running[i].process, SIGKILL);
    kill(r->running[i].process, SIGKILL);
    while (waitpid(r->running[i].process, NULL, 0) < 0 && errno == EINTR) {
    }
    trial_close(&r->running[i]);
  }
  r->running_count = 0;
}

/* Several trials that fail one after the other, and none that does not: it is the model or the command line. */
static bool is_hopeless(const Runner *r) {
  if (r->failed_in_a_row < 5) return false;
  for (int i = 0; i < r->journal.count; i++)
    if (r->journal.trial[i].state == TRIAL_COMPLETE || r->journal.trial[i].state == TRIAL_PRUNED)
      return false;
  return true;
}

static Status run_trials(Runner *r) {
  bool may_begin = true;
  while (!signals_pending() && !is_hopeless(r)) {
    while (may_begin && r->running_count < r->o->parallel && !is_hopeless(r))
      STATUS_TRY(start_one(r, &may_begin));
    if (!r->running_count && !may_begin) break;
    bool any = false;
    for (int i = 0; i < r->running_count; i++) {
      bool has_ended;
      STATUS_TRY(look_at_trial(r, i, &has_ended));
      if (!has_ended) continue;
      any = true;
      r->running[i--] = r->running[--r->running_count];
    }
    may_begin |= any;
    if (!any) usleep(20000);
  }
  return STATUS_OK;
}

static void tell_begin(const Runner *r) {
  int ended = study_ended(&r->journal);
  printf("study %s: %s by %s over %d dimension%s, up to %d trials", r->o->study, r->goal,
         sampler_name(r->o->sampler), r->journal.space.count,
         r->journal.space.count == 1 ? "" : "s", r->o->trials);
  if (ended) printf("; goes on behind %d that have ended", ended);
  if (r->journal.skipped)
    printf("; %" PRId64 " lines of its journal are unreadable", r->journal.skipped);
  printf("\n");
  for (int i = 0; i < r->journal.space.where_count; i++)
    printf("  where %s\n", r->journal.space.where[i].text);
  fflush(stdout);
}

static void tell_best(const Runner *r) {
  int best = study_best(&r->journal);
  if (best < 0) {
    printf("no trial has come to its end with a value\n");
    return;
  }
  const Trial *trial = &r->journal.trial[best];
  Text point = {0}, command = {0};
  Importance importance;
  if (r->journal.space.count > 1 && importance_of(&r->journal, &importance)) {
    report_tell_importance(&r->journal.space, &importance, &command);
    printf("%s", text_cstr(&command));
    command.count = 0;
  }
  study_print_point(&r->journal.space, trial->point, &point);
  build_command(&r->build, trial->point, &command);
  printf("best: trial %d, %s = %.6g at step %.0f: %s\n%s\n", best, r->goal, trial->value,
         trial->step, text_cstr(&point), text_cstr(&command));
  text_free(&point);
  text_free(&command);
}

/* Of a study that has come to its end; one that was stopped may find better. */
static int apply_best(Runner *r, int code) {
  int number = study_best(&r->journal);
  if (code || number < 0) {
    printf("nothing is written into %s\n", r->o->model);
    return code;
  }
  const Trial *best = &r->journal.trial[number];
  build_source(&r->build, r->journal.source);
  if (*best->source && strcmp(best->source, r->journal.source))
    printf("note: %s has changed since that trial (as an --apply changes it)\n", r->o->model);
  return build_apply(&r->build, best->point);
}

static Status open_study(Runner *r) {
  TuneOptions *o = r->o;
  char path[4096];
  STATUS_TRY(build_begin(&r->build, o));
  STATUS_TRY(build_goal(&r->build, r->goal, sizeof r->goal));
  if (!metric_rule_read(r->goal, &r->rule))
    return status_fail(STATUS_USER,
                       "--goal %s: expected min(valid.loss), max(valid.accuracy) or the like",
                       r->goal);
  snprintf(path, sizeof path, "%s/journal.jsonl", o->study);
  STATUS_TRY(journal_open(path, &(JournalHeader){r->goal, &o->space, o->seed}, &r->journal));
  STATUS_TRY(study_open(&r->journal, o->sampler, &r->study));
  r->running = calloc((size_t)o->parallel, sizeof *r->running);
  return r->running ? STATUS_OK : status_fail(STATUS_FAULT, "out of memory");
}

static int end_study(Runner *r, Status status) {
  if (status) say_error("%s", status_message());
  kill_all(r);
  int code = status ? (int)status : signals_pending() ? 128 + signals_pending() : 0;
  if (!status && r->journal.path) {
    if (is_hopeless(r)) {
      say_error("the first %d trials have failed; what they said is in %s",
                study_ended(&r->journal), r->o->study);
      code = STATUS_USER;
    } else {
      if (r->is_over && !r->journal.count)
        say_error("no point of the space keeps --where %s%s", r->journal.space.where[0].text,
                  r->journal.space.where_count > 1 ? " and the others" : "");
      else if (r->is_over)
        printf("all %d points of the space have been tried\n", r->journal.count);
      tell_best(r);
      bool has_none = !signals_pending() && study_best(&r->journal) < 0;
      if (has_none) code = STATUS_USER;
      if (signals_pending()) printf("stopped; the same command goes on\n");
      if (r->o->applies) code = apply_best(r, code);
    }
  }
  study_close(&r->study);
  if (r->journal.path) journal_close(&r->journal);
  free(r->running);
  return code;
}

int study_run(TuneOptions *options) {
  static Runner runner;
  Runner *r = &runner;
  r->o = options;
  signals_listen();
  ssize_t length = readlink("/proc/self/exe", r->self, sizeof r->self - 1);
  Status status = length > 0 ? open_study(r) : status_errno(errno, "/proc/self/exe");
  if (!status) {
    tell_begin(r);
    status = run_trials(r);
  }
  return end_study(r, status);
}
