/* ftrun_trial: see ftrun_trial.h. */
#define _GNU_SOURCE
#include "tools/ftrun_trial.h"
#include "base/clock.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void run_trial(const RunningTrial *trial, char *const *arguments, pid_t parent,
                      const sigset_t *mask) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  setpgid(0, 0); /* Ctrl-C is for the study, which then ends its trials */
  int said = open(trial->said_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (said < 0 || nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(said, STDOUT_FILENO) < 0 ||
      dup2(said, STDERR_FILENO) < 0)
    _exit(127);
  sigprocmask(SIG_SETMASK, mask, NULL);
  execv(arguments[0], arguments);
  dprintf(STDERR_FILENO, "error: cannot start %s: %s\n", arguments[0], strerror(errno));
  _exit(127);
}

Status trial_start(RunningTrial *trial, char *const *arguments) {
  sigset_t all, before;
  trial->log = -1;
  trial->step = -1;
  trial->value = NAN;
  for (int g = 0; g < GOALS_MOST; g++) trial->values[g] = NAN;
  trial->began = clock_nanoseconds();
  if (unlink(trial->log_path) < 0 && errno != ENOENT)
    return status_errno(errno, "%s", trial->log_path);
  STATUS_TRY(run_log_new(trial->log_path, &trial->reader));
  pid_t self = getpid();
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  trial->process = fork();
  if (trial->process == 0) run_trial(trial, arguments, self, &before);
  int error = errno;
  sigprocmask(SIG_SETMASK, &before, NULL);
  if (trial->process < 0) return status_errno(error, "a trial cannot be started");
  return STATUS_OK;
}

/* The number that the goal names, if the line has it and is of its split. */
static bool find_in_line(const Goal *goal, RunLineKind kind, json_t *line, double *value) {
  const MetricRule *rule = &goal->rule;
  if (goal->kind == GOAL_RATE) {
    json_t *rate = json_object_get(line, "samples_per_s");
    if (json_is_number(rate)) *value = json_number_value(rate);
    return json_is_number(rate);
  }
  bool is_train = !strcmp(rule->split, "train");
  if (goal->kind != GOAL_OF_LOG || kind != (is_train ? RUN_LINE_STEP : RUN_LINE_EVAL)) return false;
  if (!is_train && strcmp(run_text(line, "split"), rule->split)) return false;
  json_t *means = is_train ? json_object_get(line, "means") : NULL;
  if (!json_object_get(line, rule->name)) return false;
  *value = run_number(means && json_object_get(means, rule->name) ? means : line, rule->name, NAN);
  return true;
}

/* A line of the log is a report if it has the number that the first goal names. */
static void see_trial_line(void *user, const RunLog *log, RunLineKind kind, json_t *line) {
  RunningTrial *trial = user;
  (void)log;
  if (trial->status || trial->is_pruned) return;
  for (int g = 1; g < trial->goals->count; g++)
    find_in_line(&trial->goals->goal[g], kind, line, &trial->values[g]);
  double value, step = run_number(line, "step", -1);
  if (!find_in_line(&trial->goals->goal[0], kind, line, &value) || step < 0 || step <= trial->step)
    return;
  trial->step = step;
  trial->value = trial->values[0] = value;
  trial->status = trial->report(trial->context, trial);
}

Status trial_read(RunningTrial *trial) {
  char bytes[65536];
  ssize_t got;
  if (trial->log < 0) trial->log = open(trial->log_path, O_RDONLY | O_CLOEXEC);
  if (trial->log < 0)
    return errno == ENOENT ? STATUS_OK : status_errno(errno, "%s", trial->log_path);
  while ((got = read(trial->log, bytes, sizeof bytes)) > 0) {
    STATUS_TRY(run_log_feed(trial->reader, bytes, (size_t)got, see_trial_line, trial));
    if (trial->status) return trial->status;
  }
  return STATUS_OK;
}

bool trial_has_ended(RunningTrial *trial, int *wait_status) {
  pid_t ended;
  while ((ended = waitpid(trial->process, wait_status, WNOHANG)) < 0 && errno == EINTR) {
  }
  return ended != 0;
}

void trial_last_words(const RunningTrial *trial, char *out, size_t capacity) {
  Text said = {0};
  *out = 0;
  if (text_read_file(&said, trial->said_path) == 0) {
    const char *at = text_cstr(&said), *error = NULL;
    for (const char *next = at; (next = strstr(next, "error: ")); next++)
      if (next == at || next[-1] == '\n' || next[-1] == ' ') error = next + 7;
    if (error) snprintf(out, capacity, "%.*s", (int)strcspn(error, "\n"), error);
  }
  text_free(&said);
  text_make_printable(out);
}

void trial_close(RunningTrial *trial) {
  if (trial->log >= 0) close(trial->log);
  run_log_free(trial->reader);
  trial->reader = NULL;
  trial->log = -1;
  trial->process = 0;
}
