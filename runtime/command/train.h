/* train: the training run: everything between an artifact and trained weights. */
#ifndef FT_RUNTIME_TRAIN_H
#define FT_RUNTIME_TRAIN_H
#include "runtime/checkpoint/ckpt.h"
#include "runtime/execute/exec.h"
#include "runtime/command/log.h"
#include "runtime/data/source.h"

/* What the subcommands share; NULL, 0, -1: not given. */
typedef struct {
  const char *artifact, *device;
  SourcePlaces places; /* of data */
  int threads;
  const char *const *sets; /* "train.lr=3e-4" */
  int set_count;
} RunOptions;

typedef struct {
  RunOptions run;
  const char *save, *save_ema, *resume, *log_jsonl, *tensorboard, *trace, *trace_steps;
  CkptInit init; /* no paths: none */
  int64_t steps, epochs; /* -1: as the plan says */
  bool no_shuffle, overfit_batch, dry_run, check_nan, check_overflow, deterministic, keep_going;
  int64_t started; /* clock_nanoseconds when the process began; 0: as train_run does */
  bool stops;      /* after step stop_at, as after a signal: the schedule and --resume know of the steps behind it */
  int64_t stop_at;
  bool or_start; /* where `resume` holds no checkpoint yet */
} TrainOptions;

/* Opens the artifact, applies --set. */
STATUS_CHECKED Status train_open(const RunOptions *options, Artifact **out);
/* --set key=value on an opened plan: runtime settings only. */
STATUS_CHECKED Status train_set(Plan *plan, const char *assignment);
/* How many of the data.workers that the plan allows are worth having. threads: of a step, or 0;
 * cores: for this process; 0: all that it may use. */
int train_workers(const Plan *plan, const Source *source, int threads, int cores);
/* Batches prepared ahead at first. */
int train_prefetch(const Plan *plan);
/* `cores`, or if 0 all that this process may use. */
int train_cores(int cores);
/* Trains. *exit_code: 0, or how it ended early in good order: 128 + a signal, or
 * TRAIN_TIME_IS_UP. */
enum { TRAIN_TIME_IS_UP = 124 /* as timeout(1) */ };
STATUS_CHECKED Status train_run(const TrainOptions *options, int *exit_code);

typedef struct {
  RunOptions run;
  const char *weights, *split, *log_jsonl;
} EvalOptions;
/* `ftrun eval`: prints loss and metrics of a split. */
STATUS_CHECKED Status train_eval(const EvalOptions *options);

/* `ftrun bench`. programme: PROGRAMME_STEP, or PROGRAMME_EVALUATE on made-up batches; json: a file for the table of
 * kernels, or NULL; counting: for the simulator. */
STATUS_CHECKED Status train_bench(const RunOptions *options, const char *programme, int steps, bool made_up_data,
                                  const char *json, const DeviceCounting *counting);
#endif
