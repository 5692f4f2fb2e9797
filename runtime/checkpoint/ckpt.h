/* ckpt: weights in and out of an Exec (--init, --save), and checkpoints that continue a training
 * exactly: parameters, states (moments, running statistics, the step counter) and where in the data
 * it stood. Files are safetensors, written beside and renamed: a kill at any instant leaves the
 * checkpoint before whole. */
#ifndef FT_RUNTIME_CKPT_H
#define FT_RUNTIME_CKPT_H
#include "base/text.h"
#include "runtime/execute/exec.h"

/* Every model parameter must be there in its shape; f16, bf16, f32 and f64 are taken; running
 * statistics are loaded if present. *notes gets one line per thing worth telling (may be NULL). */
STATUS_CHECKED Status ckpt_load_weights(Exec *exec, const char *path, Text *notes);
/* Parameters and the model's own states (running statistics) under their names. */
STATUS_CHECKED Status ckpt_save_weights(Exec *exec, const char *path);
/* The same with the averages of the parameters in their place: only where exec_has_ema. */
STATUS_CHECKED Status ckpt_save_ema(Exec *exec, const char *path);

typedef struct {
  int64_t step; /* steps done */
  uint64_t seed;
  int64_t batch, samples; /* of the training data: with `step` they are the place in the order */
  bool is_shuffled;
  bool owes_evaluation; /* the one after this step was due, and a signal came before its end */
  bool has_best;
  double best;       /* value of train.checkpoint.best so far */
  char best_of[120]; /* the rule that it belongs to */
} CkptInfo;

STATUS_CHECKED Status ckpt_save(Exec *exec, const char *path, const CkptInfo *info);
/* Restores parameters and states, all or nothing. A folder means its newest whole checkpoint, or
 * else its best; *used (malloc'd) is the file taken, *notes (may be NULL) gets a line for each
 * damaged one that was passed over. */
STATUS_CHECKED Status ckpt_resume(Exec *exec, const char *path, CkptInfo *info, char **used,
                                  Text *notes);
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
/* FOLDER/step-00001234.safetensors; creates the folder, removes all but the newest `keep`. */
STATUS_CHECKED Status ckpt_save_step(Exec *exec, const char *folder, const CkptInfo *info,
                                     int64_t keep);
/* FOLDER/best.safetensors */
STATUS_CHECKED Status ckpt_save_best(Exec *exec, const char *folder, const CkptInfo *info);
/* Before a training: removes what killed writers left. Returns the newest step, -1: none. */
int64_t ckpt_tidy(const char *folder);
#endif
