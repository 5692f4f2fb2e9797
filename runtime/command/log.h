/* log: what a training says while it runs: on a terminal one line that updates itself, in a pipe
 * plain lines, and JSON lines (DESIGN section 9) to a file. Console numbers are means since the
 * line before; a JSON line holds that step's own numbers. */
#ifndef FT_RUNTIME_LOG_H
#define FT_RUNTIME_LOG_H
#include "plan/plan.h"
#include "runtime/common/status.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct Log Log;

typedef struct {
  bool console;
  bool is_silent;    /* no warnings either: another rank gives them */
  bool is_plain;     /* plain lines, whatever the console is: launchers give ranks terminals */
  FILE *out;         /* of the console; NULL: stdout */
  const char *jsonl; /* NULL or "": none */
  bool append;       /* a resumed run goes on in the same file */
  int64_t every;     /* steps between lines; 0: never */
  int64_t steps_per_epoch, total_steps, batch;
} LogOptions;

enum { LOG_MOST_METRICS = 2 * PLAN_MOST_METRICS + 1 }; /* with those of averaged weights */
typedef struct {
  const char *name;
  double value;
  OutputKind
      kind; /* METRIC: the console shows its mean since the last line, of others the last value */
} LogMetric;

typedef struct {
  int64_t step; /* from 1: this many are done */
  double loss;
  bool has_lr;
  double lr;
  LogMetric metric[LOG_MOST_METRICS];
  int metric_count;
} LogStep;

STATUS_CHECKED Status log_open(const LogOptions *options, Log **out);
/* A resumed run repeats the steps after `step`: their lines leave the file of JSON lines, and so
 * does a last line that a kill cut short. Before the first log_step. */
STATUS_CHECKED Status log_cut(Log *log, int64_t step);
/* All lines so far are in the file. A line that could not be written is told once; later ones are
 * dropped. */
STATUS_CHECKED Status log_flush(Log *log);
/* A sentence for a person; nothing if the console is off. */
void log_say(Log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A warning on stderr, console or not, unless the log is silent. */
void log_warn(Log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Starts the clock of samples/s: before the step after `step`. */
void log_start_clock(Log *log, int64_t step);
/* Takes out of samples/s the time of work that is no training: evaluations, checkpoints. */
void log_skip_time(Log *log, double seconds);
/* Will log_step say something about one of the steps first … last? A device that runs ahead reads
 * results back for these only; means on the console are then over the steps that were read. */
bool log_wants(const Log *log, int64_t first, int64_t last);
/* Call after every step; `is_last` forces a console line. Fails only if the file cannot be
 * written. */
STATUS_CHECKED Status log_step(Log *log, const LogStep *step, bool is_last);
/* The result of an evaluation; `seconds` and `samples` for the console. */
STATUS_CHECKED Status log_eval(Log *log, const char *split, const LogStep *result, int64_t samples,
                               double seconds);
/* {"step": …, "error": "…"} to the file of JSON lines, if there is one: the training ends in it. */
void log_error(Log *log, int64_t step, const char *sentence);
/* Flushes and frees; fails if something could not be written. NULL is fine. */
STATUS_CHECKED Status log_close(Log *log);
double log_now(void); /* seconds on a monotonic clock */
#endif
