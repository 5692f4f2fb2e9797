/* log: what a training says while it runs: on a terminal a block that is drawn anew, in a pipe
 * plain lines, and to files JSON lines (DESIGN section 9), CSV and TensorBoard's events. Console numbers are means since
 * the line before; a file's line holds that step's own numbers, with the means beside them. */
#ifndef FT_RUNTIME_LOG_H
#define FT_RUNTIME_LOG_H
#include "plan/grow_rule.h"
#include "plan/plan.h"
#include "runtime/command/log_layers.h"
#include "runtime/command/log_table.h"
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
  const char *csv;   /* the same */
  const char *tensorboard; /* a folder; the same */
  bool shows_grad_norm; /* on the console too */
  bool shows_layers;    /* the same */
  bool append;       /* a resumed run goes on in the same files */
  int64_t every;     /* steps between lines; 0: never */
  int64_t steps_per_epoch, total_steps, batch;
  GrowRule grow; /* of which kind batch: the first steps have fewer samples, by these settings */
  const SettingValue *settings;
} LogOptions;

enum { LOG_MOST_METRICS = 2 * PLAN_MOST_METRICS + 1 }; /* with those of averaged weights */
typedef struct {
  const char *name;
  double value;
  OutputKind
      kind; /* METRIC: the console shows its mean since the last line, of others the last value */
  const LogTable *table; /* of an evaluation: in place of `value`; NULL: a number */
} LogMetric;

typedef struct {
  int64_t step; /* from 1: this many are done */
  double loss;
  bool has_lr;
  double lr;
  bool has_grad_norm; /* the norm of all gradients before they are clipped by it */
  double grad_norm;
  LogMetric metric[LOG_MOST_METRICS];
  int metric_count;
} LogStep;

/* The metrics that lines of training and of evaluations have, by name. */
typedef struct {
  const char *train[LOG_MOST_METRICS], *valid[LOG_MOST_METRICS];
  int train_count, valid_count;
  bool has_valid, has_grad_norm;
} LogColumns;

STATUS_CHECKED Status log_open(const LogOptions *options, Log **out);
/* A resumed run repeats the steps after `step`, and the evaluation after it unless is_evaluated, or
 * would not have done that: their lines leave the files, and so does a last line that a kill cut
 * short. Before log_begin. */
STATUS_CHECKED Status log_cut(Log *log, int64_t step, bool is_evaluated);
/* Of TensorBoard's files, from log_begin on; NULL: there are none. */
struct Events *log_events(Log *log);
/* Before the first log_step, after `first_step` steps were done. header: a line of JSON that tells what is trained; columns, whose
 * names must outlive the log: of a file of CSV, which is refused if it has others so far. */
STATUS_CHECKED Status log_begin(Log *log, int64_t first_step, const char *header,
                                const LogColumns *columns);
/* All lines so far are in the files. A line that could not be written is told once; later ones are
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
/* The host has waited so many seconds for batches since the training began. */
void log_data_wait(Log *log, double seconds);
/* Call after every step; `is_last` forces a line. Fails only if a file cannot be written. */
STATUS_CHECKED Status log_step(Log *log, const LogStep *step, bool is_last);
/* The training has ended, wherever it has: the last step gets its line if it has none yet. */
STATUS_CHECKED Status log_end(Log *log);
/* The result of an evaluation; `seconds` and `samples` for the console. */
STATUS_CHECKED Status log_eval(Log *log, const char *split, const LogStep *result, int64_t samples,
                               double seconds);
/* Statistics by layer, to the file of JSON lines, and as a table on the console where that is wanted. */
STATUS_CHECKED Status log_layers(Log *log, const LogLayers *layers);
/* {"step": …, "<what>": "…"} to the file of JSON lines, if there is one: "checkpoint", where it is;
 * "end" or "error", the sentence that the training ends with. */
void log_event(Log *log, int64_t step, const char *what, const char *text);
/* Flushes and frees; fails if something could not be written. NULL is fine. */
STATUS_CHECKED Status log_close(Log *log);
double log_now(void); /* seconds on a monotonic clock */
#endif
