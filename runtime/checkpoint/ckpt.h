/* ckpt: weights in and out of an Exec (--init, --save), and checkpoints that continue a training
 * exactly: parameters, states (moments, running statistics, the step counter) and where in the data
 * it stood. Files are safetensors, written beside and renamed: a kill at any instant leaves the
 * checkpoint before whole. */
#ifndef FT_RUNTIME_CKPT_H
#define FT_RUNTIME_CKPT_H
#include "base/text.h"
#include "runtime/communicate/comm.h"
#include "plan/metric_rule.h"
#include "runtime/execute/exec.h"

/* `path` as weight_files.h has it. Every model parameter must be there in its shape; f16, bf16, f32 and f64 are taken; running
 * statistics are loaded if present. *notes gets one line per thing worth telling (may be NULL). */
STATUS_CHECKED Status ckpt_load_weights(Exec *exec, const char *path, Text *notes);
/* --init with all that goes with it: several paths, other names (weight_files.h), and what may stay
 * as it is now, which is as the Exec was initialised: parameters that are in no file, and those that
 * are there in another shape. *notes tells what was taken and what not. */
typedef struct {
  const char *const *paths, *const *renames;
  int path_count, rename_count;
  bool keeps_missing, keeps_mismatch;
  bool has_flags; /* from ftrun's --init, so that a message may name the flags beside it */
} CkptInit;
STATUS_CHECKED Status ckpt_init_weights(Exec *exec, const CkptInit *init, Text *notes);
/* Parameters and the model's own states (running statistics) under their names. All ranks of `comm`
 * call it, and write a share each; NULL: this process writes all of it, which fails where others
 * have parts of parameters (plan_is_apart). So it is with all that is written here. */
STATUS_CHECKED Status ckpt_save_weights(Exec *exec, Comm *comm, const char *path);
/* The same with the averages of the parameters in their place: only where exec_has_ema. */
STATUS_CHECKED Status ckpt_save_ema(Exec *exec, Comm *comm, const char *path);

/* What early stopping remembers (runtime/command/train_stop.c). */
typedef struct {
  char metric[METRIC_RULE_TEXT]; /* train.stop.metric that the numbers belong to, or "" */
  bool has_best;
  double best;
  int64_t waited;                 /* evaluations in a row without progress */
  char reached[METRIC_RULE_TEXT]; /* train.stop.reached, once it was; or "" */
} CkptStop;

typedef struct {
  int64_t step; /* steps done */
  uint64_t seed;
  int64_t batch, samples; /* of the training data: with `step` they are the place in the order */
  uint64_t data;          /* source_sum of the training data; 0: not known, as in older files */
  uint64_t given;         /* given_load's sum of what files have of frozen layers; 0: there are none */
  bool is_shuffled;
  char drawn[240];      /* what chose these samples, runtime/data/source_part.h; or "" */
  bool owes_evaluation; /* the one after this step was due, and a signal came before its end */
  bool has_best;
  double best;       /* value of train.checkpoint.best so far */
  char best_of[120]; /* the rule that it belongs to */
  CkptStop stop;
  char plateau_of[METRIC_RULE_TEXT]; /* train.schedule.metric that the state of role plateau belongs to, or "": there is none */
  /* Read only, of what other parameters were frozen: moments of those that are frozen now are left
   * out, and of those that were frozen begin anew. */
  bool leaves_moments, begins_moments;
  bool begins_pruning; /* the file has no mask */
  bool begins_rounding; /* the file has no scales of layers that train.quantize names */
} CkptInfo;

STATUS_CHECKED Status ckpt_save(Exec *exec, Comm *comm, const char *path, const CkptInfo *info);
/* Restores parameters and states, all or nothing. A folder means its newest whole checkpoint, or
 * else its best; *used (malloc'd) is the file taken, *notes (may be NULL) gets a line for each
 * damaged one that was passed over. */
STATUS_CHECKED Status ckpt_resume(Exec *exec, const char *path, CkptInfo *info, char **used,
                                  Text *notes);
/* Is there what ckpt_resume would try to read? Not at a path where nothing is, nor in a folder
 * without a checkpoint. */
STATUS_CHECKED Status ckpt_is_any(const char *path, bool *is_any);
/* Which checkpoints a folder has, for a message where one file is wanted: "runs/a/best.safetensors or runs/a/step-00000030.safetensors, the
 * newest"; "": none. */
STATUS_CHECKED Status ckpt_folder_says(const char *folder, Text *out);
/* *is_damaged: it is no whole checkpoint, whatever the model. */
STATUS_CHECKED Status ckpt_resume_file(Exec *exec, const char *path, CkptInfo *info,
                                       bool *is_damaged);

/* mkdir -p, and on the disk */
STATUS_CHECKED Status ckpt_make_folder(const char *folder);
/* Makes the folder and takes it for this process: another one that holds it is named in the
 * failure. */
typedef struct CkptLock CkptLock;
STATUS_CHECKED Status ckpt_lock(const char *folder, CkptLock **out);
void ckpt_unlock(CkptLock *lock); /* NULL is fine */
/* FOLDER/step-00001234.safetensors; creates the folder, removes all but the newest `keep`. By one
 * process. */
STATUS_CHECKED Status ckpt_save_step(Exec *exec, const char *folder, const CkptInfo *info,
                                     int64_t keep);

/* ── while training goes on ───────────────────────────────────────────────────────────────── */
/* Writes checkpoints on a thread of its own, from a copy of what this rank writes of them
 * (exec_snapshot.h), one after the other. Where there is no room for a copy, or no thread to be had,
 * it writes in the caller's and from the places, and says so. The Exec must outlive it.
 * On several ranks (comm) all of them call these functions alike but where it says otherwise, and
 * fail alike: after a rank has written its share it waits for the others', whose ends they learn of
 * by ckpt_writer_is_busy and ckpt_writer_go_on. */
typedef struct CkptWriter CkptWriter;
STATUS_CHECKED Status ckpt_writer_new(Exec *exec, Comm *comm, CkptWriter **out);
/* Where to note when it writes; NULL: nowhere. It must outlive the writer. */
void ckpt_writer_note(CkptWriter *writer, Spans *spans);
/* Asks for FOLDER/step-….safetensors (keep > 0), or FOLDER/best.safetensors (keep = 0), of what the
 * Exec holds. Waits for those under way first, whose failure it returns. The files asked for before
 * a start, at most two, are written in this order from one copy: start it before the next run.
 * goes_on: runs follow; else a copy would be for nothing, and start returns when all is written. */
STATUS_CHECKED Status ckpt_writer_add(CkptWriter *writer, const char *folder, const CkptInfo *info,
                                      int64_t keep);
STATUS_CHECKED Status ckpt_writer_start(CkptWriter *writer, bool goes_on);
/* Of this rank: is its thread at work? Not alike on all. */
bool ckpt_writer_is_busy(const CkptWriter *writer);
/* Is there something for ckpt_writer_go_on to do, once no rank is busy? Nothing, ever, on one rank. */
bool ckpt_writer_is_pending(const CkptWriter *writer);
/* All have written their share, and rank 0 gives the files their names; then, all hear of it. The
 * failure of any rank is told once. */
STATUS_CHECKED Status ckpt_writer_go_on(CkptWriter *writer);
/* The failure of what has been written since the last call, told once. Unless `wait`, STATUS_OK
 * while it is under way. Not alike on all where it does not wait: then it tells of one rank alone.
 */
STATUS_CHECKED Status ckpt_writer_result(CkptWriter *writer, bool wait);
/* By one rank: the others do not go on. What has no name yet is removed. */
void ckpt_writer_give_up(CkptWriter *writer);
/* The newest step whose file is whole; -1: none, or not known yet. */
int64_t ckpt_writer_saved_step(const CkptWriter *writer);
/* Had the last start, of runs that go on, to write before it returned? */
bool ckpt_writer_is_waited_for(const CkptWriter *writer);
/* Waits, alone; on several ranks it gives up. NULL is fine. */
void ckpt_writer_free(CkptWriter *writer);
/* Before a training: removes what killed writers left. Returns the newest step, -1: none. */
int64_t ckpt_tidy(const char *folder);
#endif
