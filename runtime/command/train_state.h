/* train_state: what the files of the training run share: train.c (set-up and the loop) and
 * train_after.c (what is due between two steps), train_finite.c (is it still worth going on?),
 * train_check.c (what made it so?),
 * train_stop.c (ends before the last step), train_data.c (batches), train_save.c (the files that a
 * run leaves) and train_watch.c (what stands at the head of its log). */
#ifndef FT_RUNTIME_TRAIN_STATE_H
#define FT_RUNTIME_TRAIN_STATE_H
#include "runtime/command/trace.h"
#include "runtime/checkpoint/ckpt.h"
#include "runtime/command/data_tune.h"
#include "runtime/command/evaluate.h"
#include "runtime/command/ranks.h"
#include "runtime/execute/feed.h"
#include "runtime/execute/layers.h"
#include "runtime/execute/replay.h"
#include "runtime/command/train.h"

/* What train_finite.c remembers. */
typedef struct {
  bool is_diverged, is_told;
  bool is_sound;        /* the parameters after checked_step */
  int64_t checked_step; /* -1: none */
  int64_t step, in_row; /* fp16: the last result, and how many steps were skipped up to it */
  double skipped;       /* fp16: steps skipped so far; NAN: not known yet */
} TrainFinite;

/* What train_check.c remembers. */
typedef struct {
  Replay *replay;
  double skipped; /* fp16: steps skipped so far, */
  int in_row;     /* … and up to the last one without a break */
  bool is_told;   /* that there is no room to do a step again */
} TrainCheck;

/* What train_data.c remembers. */
typedef struct {
  DataTune tune;
  int cores;           /* that this process may use */
  int64_t steps;       /* so far; */
  double took, waited; /* … seconds, and of these for batches, */
  bool said_full;      /* that the disk cache is */
  bool is_open;        /* no file of the start is inflated any more; */
  double opening_took; /* … seconds of the steps before, which are not in the sums above */
  uint64_t sum;        /* source_sum of the training data */
} TrainData;

/* What train_stop.c remembers. */
typedef struct {
  CkptStop memory;
  bool is_over;      /* it has decided so */
  char why[256];     /* … in words */
  const char *whose; /* the deadline of rank 0: the setting or variable */
} TrainStop;

typedef struct {
  const TrainOptions *options;
  Artifact *artifact;
  Plan *plan;
  Exec *exec;
  Source *train, *valid;
  Feed *feed;
  Evaluator *evaluator;
  Trace *trace;
  Layers *layers; /* NULL: nobody asks for statistics by layer */
  struct TrainWriter *text; /* NULL: no text is to be gone on with */
  struct EventsHistogram *gradients; /* by param of the plan, of a step that is looked at; else NULL */
  Log *log;
  Ranks ranks;
  bool writes;          /* rank 0: the log is its own, … */
  Comm *together;       /* … and files, unless all of these write them */
  int threads;          /* of a step; 0: the device decides */
  CkptLock *folder;     /* of checkpoints; */
  CkptWriter *writer;   /* … and what writes to it */
  int64_t batch, parts; /* samples of a step on all ranks, and in how many runs they are taken */
  int64_t steps_per_epoch, total_steps, first_step;
  uint64_t seed;
  bool shuffle, has_best;
  double best;          /* of train.checkpoint.best */
  bool owes_evaluation; /* one is due after the last step and has not come to its end */
  int64_t saved_step;   /* the newest checkpoint that is whole, -1: none; */
  const char *saved_in; /* … its folder or file */
  int64_t asked_step;   /* the newest one that was asked for, -1: none */
  int signal; /* that ends the training, of whichever rank, or RANKS_TIME_IS_UP; 0: none */
  bool is_told_to_wait; /* the user, that there is no room for a copy */
  bool is_torn;         /* a step failed: what it has written is not known */
  TrainFinite finite;
  TrainCheck check;
  TrainStop stop;
  TrainData data;
  uint64_t given; /* given_load's sum of what files have of frozen layers; 0: there are none */
  char *ema_name[PLAN_MOST_METRICS + 1]; /* "ema_loss", "ema_accuracy" …; made when needed */
} Training;

static inline double train_number(const Training *training, const char *key) {
  return setting_number(training->plan->settings, key);
}
static inline const char *train_text(const Training *training, const char *key) {
  const char *value = setting_text(training->plan->settings, key);
  return value ? value : "";
}

/* Every how many steps "train.eval" or "train.checkpoint" is due; 0: never. */
int64_t train_interval(const Training *training, const char *section);
bool train_is_due(const Training *training, const char *section, int64_t step);
/* Evaluation, the best and the schedule that follow from it. A signal ends it early: it is then
 * still owed. */
STATUS_CHECKED Status train_evaluate(Training *training, int64_t step);
/* A checkpoint of this step, if there is a folder for it and it is not there yet: asked for, and
 * written from train_start_writing on, beside the steps that follow. */
STATUS_CHECKED Status train_checkpoint(Training *training, int64_t step);
STATUS_CHECKED Status train_start_writing(Training *training, bool goes_on);
/* Has writing failed? `wait`: waits for its end first, which all ranks do at the same place. */
STATUS_CHECKED Status train_look_at_writing(Training *training, bool wait);
/* Between two steps, after ranks_signal: has each rank written its share? */
STATUS_CHECKED Status train_go_on_writing(Training *training);
/* The end of the steps: starts what was asked for, waits for the writer. Returns `status`, or if
 * that is STATUS_OK the writer's. */
Status train_end_writing(Training *training, Status status);
/* What the log returned: STATUS_OK where its reader is gone, for that is a signal. */
STATUS_CHECKED Status train_logged(Training *training, Status status);
/* What is due after a step. */
STATUS_CHECKED Status train_after_step(Training *training, int64_t step);
/* Reads the weights of frozen layers. */
STATUS_CHECKED Status train_given(Training *training);
/* Are they those that the checkpoint `used` was trained with? */
STATUS_CHECKED Status train_check_given(const Training *training, const CkptInfo *info,
                                        const char *used);
/* Says so where `prune` chooses nothing in the steps to come, or less than its sparsity; refuses it where pruning begins with this
 * run. info and used: of the checkpoint that is resumed, or NULL. */
STATUS_CHECKED Status train_check_prune(Training *training, const CkptInfo *info, const char *used);
/* What chose the samples of the training data; longer text is cut. */
void train_drawn(const Training *training, char out[240]);
CkptInfo train_checkpoint_info(const Training *training, int64_t step);

/* ── train_watch.c: what is told to those who watch ── */
STATUS_CHECKED Status train_open_log(Training *training);
/* The head of the log's files, before the first step. */
STATUS_CHECKED Status train_begin_log(Training *training);
/* train_histogram.c: of the weights, for TensorBoard, if they are due after this evaluation. */
STATUS_CHECKED Status train_histograms(Training *training, int64_t step);
/* Of the gradients, around a step that is looked at. end returns `status`, or its own failure. */
STATUS_CHECKED Status train_gradients_begin(Training *training);
Status train_gradients_end(Training *training, int64_t step, Status status);
/* Samples of the data; is_evaluated: with what the model makes of those of valid. */
STATUS_CHECKED Status train_samples(Training *training, int64_t step, bool is_evaluated);
/* How a text of tokens is shown: in a cell of a Markdown table, as a paragraph of Markdown, or on one line of a console: line
 * ends and what cannot be shown have signs; or as UTF-8 with U+FFFD for what is none. */
typedef enum { TRAIN_TEXT_CELL, TRAIN_TEXT_PARAGRAPH, TRAIN_TEXT_LINE, TRAIN_TEXT_SOUND } TrainTextForm;
void train_append_text(Text *out, const char *at, size_t count, TrainTextForm form);
/* Of a split without a tokenizer. */
bool train_tokens_are_bytes(const DataSource *data);
/* ── train_write.c: train.log.prompt, a text that the model goes on with at evaluations ── */
/* The programmes of an ExecOptions.only, to be freed; NULL: all but that of generation. */
STATUS_CHECKED Status train_write_programmes(const Training *training, const char ***only);
STATUS_CHECKED Status train_write_start(Training *training); /* before the first step */
STATUS_CHECKED Status train_write(Training *training, int64_t step);
void train_write_free(struct TrainWriter *writer); /* NULL is fine */
/* "ema_loss" for index 0, "ema_…" of the metric index - 1 else, made once. */
STATUS_CHECKED Status train_ema_name(Training *training, int index, const char *plain,
                                     const char **out);
int64_t train_parameters(const Training *training); /* elements, of all ranks' layers */
/* train_header.c: what is trained, on what, with which data. */
void train_say_header(Training *training);

/* ── numbers that are not finite: STATUS_USER, unless --keep-going ── */
void train_finite_start(Training *training); /* before the first step, after --resume */
/* A loss that was read back. */
STATUS_CHECKED Status train_check_result(Training *training, const LogStep *result);
/* The parameters as they are after `step`. *is_finite: false only with --keep-going. */
STATUS_CHECKED Status train_check_params(Training *training, int64_t step, bool *is_finite);

/* --check=nan (train_check.c): a step, looked at when it is done. STATUS_USER names the operation
 * that made a number which is not finite. */
STATUS_CHECKED Status train_check_step(Training *training, int64_t step);

/* ── statistics by layer (train_layers.c) ── */
STATUS_CHECKED Status train_layers_start(Training *training);
bool train_layers_are_due(const Training *training, int64_t step);
/* Steps after `step` that may run in a row. */
int64_t train_layers_until(const Training *training, int64_t step);
/* Runs step `step`, looks at it, and logs what is seen. */
STATUS_CHECKED Status train_layers_step(Training *training, int64_t step);

/* ── batches (train_data.c) ── */
STATUS_CHECKED Status train_start_feed(Training *training);
/* After some steps, which took so many seconds. */
STATUS_CHECKED Status train_note_data(Training *training, int64_t steps, double took);
/* At the end: which setting may help where steps waited for their batches. */
void train_say_data(const Training *training);
/* The last step of this run, train_stop.c: that of the training, or --stop-at. */
int64_t train_last_step(const Training *training);
/* It ended before the training did. */
void train_say_how_to_resume(Training *training, int64_t done);

/* ── ends before the last step (train_stop.c) ── */
/* Before the first step, after --resume: when is the time up, and had the training ended early? */
void train_stop_start(Training *training);
/* After an evaluation: training->stop.is_over is whether this ends the training. */
STATUS_CHECKED Status train_stop_note(Training *training, const LogStep *result);

/* ── files that a run leaves ── */
/* Before the first step: can --save, --save-ema, --trace and checkpoints be written where they
 * shall? */
STATUS_CHECKED Status train_try_outputs(const Training *training);
/* … and do all ranks see them there? Then each writes its share; else rank 0 all, where it has all.
 * Makes the writer of checkpoints. All ranks call it. */
STATUS_CHECKED Status train_choose_writers(Training *training);
/* A failure of writing that all ranks have alike, or of this one alone. Returns it. */
Status train_written(Training *training, Status status);
/* After step `done`: the last checkpoint, --save, --save-ema. What cannot be written goes to the
 * current folder or the one for temporary files, and the failure says so. All ranks call it. */
STATUS_CHECKED Status train_finish(Training *training, int64_t done);
/* After a failure that was none of the steps' own: what steps since the last checkpoint have learnt
 * is put aside, if it was to be kept at all. Adds to the message; returns `status`. */
Status train_put_aside(Training *training, int64_t done, Status status);
#endif
