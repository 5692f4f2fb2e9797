/* ftrun_trial: one trial of `ftrun tune`: a training as a process of its own, whose log of JSON lines is read as it grows. */
#ifndef FT_TOOLS_FTRUN_TRIAL_H
#define FT_TOOLS_FTRUN_TRIAL_H
#include "plan/goals.h"
#include "runtime/command/run_log.h"
#include <stdbool.h>
#include <sys/types.h>

typedef struct RunningTrial {
  int number; /* of the study */
  pid_t process;
  int log; /* its file, open to read; -1: not there yet */
  char artifact[4096], log_path[4096], said_path[4096];
  RunLog *reader;
  const Goals *goals;
  double step, value; /* of the newest report of the first goal; step -1: there was none */
  double values[GOALS_MOST]; /* newest numbers of the log, for the goals that are such */
  int64_t began;      /* clock_nanoseconds */
  bool is_pruned;     /* by `report`: later reports are not looked at */
  /* of each report */
  Status (*report)(void *context, struct RunningTrial *trial);
  void *context;
  Status status; /* of report */
} RunningTrial;

/* Starts `ftrun train ARTIFACT …`; arguments end with NULL and begin with the program. What the training says goes to
 * said_path. */
STATUS_CHECKED Status trial_start(RunningTrial *trial, char *const *arguments);
/* Reads what its log has now, and calls `report` for each number of it. */
STATUS_CHECKED Status trial_read(RunningTrial *trial);
/* Has it ended? *wait_status as waitpid has it. */
bool trial_has_ended(RunningTrial *trial, int *wait_status);
/* The last thing that it said, as a reason. */
void trial_last_words(const RunningTrial *trial, char *out, size_t capacity);
void trial_close(RunningTrial *trial);
#endif
