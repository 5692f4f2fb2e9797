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
  Goals goals;
  RunningTrial *running; /* [parallel] */
  int running_count, failed_in_a_row;
  bool is_over; /* every point of the space has been tried */
  char goal[GOALS_TEXT], self[4096];
} Runner;

static double seconds_since(int64_t began) { return 1e-9 * (double)(clock_nanoseconds() - began); }

/* Whether it goes on is asked at each report, however many come at a time. */
static Status note_report(void *context, RunningTrial *trial) {
  Runner *r = context;
  STATUS_TRY(journal_report(&r->journal, trial->number, trial->step, trial->value));
  trial->is_pruned = prune_now(&r->o->prune, &r->journal, trial->number);
  return STATUS_OK;
}

static void print_values(const Trial *trial, int goals) {
  for (int g = 0; g < goals; g++) printf("%s%.6g", g ? ", " : "", trial->values[g]);
}

static void tell_trial(const Runner *r, int number) {
  const Trial *trial = &r->journal.trial[number];
  Text point = {0};
  study_print_point(&r->journal.space, trial->point, &point);
  printf("trial %-4d", number);
  bool has_several = r->goals.count > 1;
  if (trial->state == TRIAL_COMPLETE && has_several)
    print_values(trial, r->goals.count);
  else if (trial->state == TRIAL_COMPLETE)
    printf("%-10.6g", trial->value);
  else if (trial->state == TRIAL_PRUNED)
    printf("pruned at step %.0f, %.6g", trial->step, trial->value);
  else
    printf("failed");
  printf("   %5.1f s   %s", trial->seconds, text_cstr(&point));
  if (has_several && study_is_on_front(&r->journal, number)) printf("   on the front so far");
  if (!has_several && trial->state == TRIAL_COMPLETE && study_best(&r->journal) == number)
    printf("   best so far");
  if (trial->state == TRIAL_FAILED) printf("   (%s)", trial->why);
  printf("\n");
  fflush(stdout);
  text_free(&point);
}

static Status end_trial(Runner *r, int number, TrialState state, double step,
                        const double *values, double seconds, const char *why) {
  STATUS_TRY(journal_end(&r->journal, number, state, step, values, seconds, why));
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
  *trial = (RunningTrial){.number = number, .goals = &r->goals, .report = note_report, .context = r};
  static const double none[GOALS_MOST] = {NAN, NAN, NAN, NAN};
  if (build_artifact(&r->build, r->journal.trial[number].point, trial->artifact, why))
    return end_trial(r, number, TRIAL_FAILED, 0, none, seconds_since(before), why);
  snprintf(trial->log_path, sizeof trial->log_path, "%s/trial-%04d.jsonl", r->o->study, number);
  snprintf(trial->said_path, sizeof trial->said_path, "%s/trial-%04d.txt", r->o->study, number);
  Status status = start_process(r, trial);
  if (status)
    trial_close(trial);
  else
    r->running_count++;
  return status;
}

/* The goals that are no number of the log; *missing: one that has no number now, or NULL. */
static Status complete_values(const Runner *r, RunningTrial *trial, double seconds,
                              const MetricRule **missing) {
  *missing = NULL;
  for (int g = 0; g < r->goals.count; g++)
    if (r->goals.goal[g].kind == GOAL_SECONDS) trial->values[g] = seconds;
  STATUS_TRY(build_measure(trial->artifact, &r->goals, trial->values));
  for (int g = r->goals.count - 1; g >= 0; g--)
    if (!isfinite(trial->values[g])) *missing = &r->goals.goal[g].rule;
  return STATUS_OK;
}

/* What the end of its process means. */
static Status finish_trial(Runner *r, RunningTrial *trial, int wait_status) {
  char why[300] = "";
  const MetricRule *missing;
  double seconds = seconds_since(trial->began);
  int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1;
  STATUS_TRY(trial_read(trial)); /* what it wrote at the end */
  if (trial->is_pruned)
    return end_trial(r, trial->number, TRIAL_PRUNED, trial->step, trial->values, seconds, NULL);
  bool is_over = code == 0 || code == TRAIN_TIME_IS_UP;
  STATUS_TRY(complete_values(r, trial, seconds, &missing));
  double step = fmax(trial->step, 0);
  if (is_over && !missing)
    return end_trial(r, trial->number, TRIAL_COMPLETE, step, trial->values, seconds, NULL);
  if (!is_over) trial_last_words(trial, why, sizeof why);
  if (!*why && code < 0) snprintf(why, sizeof why, "ended by signal %d", WTERMSIG(wait_status));
  if (!*why && is_over) snprintf(why, sizeof why, "it logged no %s.%s", missing->split, missing->name);
  if (!*why) snprintf(why, sizeof why, "it ended with code %d", code);
  return end_trial(r, trial->number, TRIAL_FAILED, step, trial->values, seconds, why);
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
  Status status = finish_trial(r, trial, wait_status);
  build_drop(&r->build, r->journal.trial[trial->number].point, trial->artifact);
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

/* Of several goals: the trials that no other one beats in all, by the first goal, and how to train or write one. */
static void tell_front(const Runner *r) {
  const Journal *journal = &r->journal;
  int *front = malloc((size_t)journal->count * sizeof *front);
  int count = front ? study_front(journal, front) : 0;
  printf("the front: trials that no other one beats in all of %s\n", r->goal);
  for (int i = 0; i < count; i++) {
    const Trial *trial = &journal->trial[front[i]];
    Text command = {0};
    build_command(&r->build, trial->point, &command);
    printf("  trial %-4d", front[i]);
    print_values(trial, r->goals.count);
    printf("\n    %s\n", text_cstr(&command));
    text_free(&command);
  }
  if (r->o->is_source)
    printf("--trials 1 --apply --trial N writes one of them into %s\n", r->o->model);
  free(front);
}

static void tell_best(const Runner *r) {
  int best = study_best(&r->journal);
  if (best < 0) {
    printf("no trial has come to its end with a value\n");
    return;
  }
  if (r->goals.count > 1) {
    tell_front(r);
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
  int number = r->o->chosen >= 0 ? r->o->chosen : study_best(&r->journal);
  if (!code && r->o->chosen >= 0 &&
      (number >= r->journal.count || r->journal.trial[number].state != TRIAL_COMPLETE)) {
    say_error("--trial %d: the study has no such trial that is complete", number);
    return STATUS_USER;
  }
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

static Status check_goals(Runner *r) {
  const TuneOptions *o = r->o;
  const char *wrong;
  if (!goals_read(r->goal, &r->goals, &wrong))
    return status_fail(
        STATUS_USER,
        "--goal %s: letter %d: expected min(valid.loss), max(valid.accuracy) or the like, or "
        "run.seconds, run.samples_per_s, model.parameters, model.weight_bytes, model.memory in "
        "the parentheses; at most %d different ones with commas between",
        r->goal, (int)(wrong - r->goal) + 1, GOALS_MOST);
  size_t at = 0; /* in one form, whatever the blanks: other processes compare it */
  for (int g = 0; g < r->goals.count; g++) {
    const MetricRule *rule = &r->goals.goal[g].rule;
    at += (size_t)snprintf(r->goal + at, sizeof r->goal - at, "%s%s(%s.%s)", g ? ", " : "",
                           rule->is_max ? "max" : "min", rule->split, rule->name);
    if (at >= sizeof r->goal) return status_fail(STATUS_USER, "--goal: more than 255 letters");
  }
  if (o->prune.kind != PRUNE_NONE && r->goals.count > 1)
    return status_fail(STATUS_USER, "--prune goes by one goal: leave it out, or give one --goal");
  if (o->prune.kind != PRUNE_NONE && r->goals.goal[0].kind != GOAL_OF_LOG)
    return status_fail(STATUS_USER, "--prune looks at evaluations, and --goal %s is not of them",
                       r->goal);
  if (o->applies && o->chosen < 0 && r->goals.count > 1)
    return status_fail(STATUS_USER, "--apply needs --trial N where there are several goals: the "
                                    "number of a trial on the front");
  return build_check_goals(&r->build, &r->goals, r->goal);
}

static Status open_study(Runner *r) {
  TuneOptions *o = r->o;
  char path[4096];
  STATUS_TRY(build_begin(&r->build, o));
  STATUS_TRY(build_goal(&r->build, r->goal, sizeof r->goal));
  STATUS_TRY(check_goals(r));
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
