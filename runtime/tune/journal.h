/* journal: a study as one file of JSON lines that only grows, which any number of processes read and write at a time, on one
 * machine or over a network file system. Who writes holds a POSIX lock of its first byte (fcntl; NFS passes these to the server, and lets
 * them go with a client that dies). A line that has no end, as its writer was killed, is passed over by all.
 *
 *   {"study": 1, "goal": "min(valid.loss)", "space": ["lr=log(1e-05, 0.1)", …], "where": ["lr < 0.01"], "seed": 0}
 *   {"trial": 0, "start": {"lr": "0.003"}, "sampler": "gp", "by": "host:1234", "source": "9c1…", "time": 1732500000.1}
 *   {"trial": 0, "step": 100, "value": 0.41}
 *   {"trial": 0, "end": "complete", "step": 300, "value": 0.38, "seconds": 4.1}       or "pruned", "failed" with "why"
 *
 * With several goals, "min(valid.loss), min(run.seconds)", an end also has "values": [0.38, 4.1].
 *
 * A process that works on trial n holds a lock of byte 2^40 + n. So a trial that was started, has not ended and is locked by
 * nobody is one whose process has died: whoever comes next does it again, with another "start" of the same point.
 *
 * What a file says is data of a stranger: whatever is wrong in it is told or passed over, and what is kept is bounded. */
#ifndef FT_RUNTIME_TUNE_JOURNAL_H
#define FT_RUNTIME_TUNE_JOURNAL_H
#include "runtime/common/json.h"
#include "runtime/tune/sampler.h"

enum { JOURNAL_MOST_TRIALS = 100000, JOURNAL_MOST_REPORTS = 4096 /* of one trial */ };

typedef struct {
  double step, value;
} Report;

typedef struct {
  double point[SPACE_MOST];
  TrialState state;
  double value, step, seconds, time; /* value: of the first goal */
  double values[GOALS_MOST];
  Report *report; /* owned; in the order of their steps */
  int report_count, report_room, attempts;
  char why[200], source[20];
} Trial;

typedef struct {
  int fd;
  char *path;
  Space space;
  bool is_max, has_header; /* is_max: the first goal */
  char goal[GOALS_TEXT];
  Goals goals;
  char source[20]; /* of the model that this process trains, a sum of its text; "": not known */
  uint64_t seed;
  Trial *trial; /* owned; by number */
  int count, room;
  int64_t read, skipped; /* bytes taken in; lines that were none of a journal */
  Text rest;             /* of a line that has no end yet */
} Journal;

typedef struct {
  const char *goal; /* "min(valid.loss)" */
  const Space *space;
  uint64_t seed;
} JournalHeader;

/* Opens or creates the file, and takes in what it has. A study that is there must have this goal and space; its seed
 * counts. header NULL: only to read one that is there. */
STATUS_CHECKED Status journal_open(const char *path, const JournalHeader *header, Journal *out);
void journal_close(Journal *journal);
/* Takes in what others have written since. */
STATUS_CHECKED Status journal_refresh(Journal *journal);
/* Begin and end of what must not be mixed with what others do; journal_lock refreshes. */
STATUS_CHECKED Status journal_lock(Journal *journal);
void journal_unlock(Journal *journal);
/* With the lock held: a trial, new (number = count) or one whose process has died, is this process's from now on. */
STATUS_CHECKED Status journal_start(Journal *journal, int number, const double *point,
                                    const char *sampler);
/* Without it. values: of each goal. */
STATUS_CHECKED Status journal_report(Journal *journal, int number, double step, double value);
STATUS_CHECKED Status journal_end(Journal *journal, int number, TrialState state, double step,
                                  const double *values, double seconds, const char *why);
/* A trial whose process has died, or -1. With the lock held. */
int journal_find_lost(const Journal *journal, const bool *is_own);
#endif
