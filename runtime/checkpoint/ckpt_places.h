/* ckpt_places: what the files of checkpoints share: a host copy of the places that are saved, into
 * which tensors of a file are read (ckpt_places.c), and the way from places to files
 * (ckpt_write.c). */
#ifndef FT_RUNTIME_CKPT_PLACES_H
#define FT_RUNTIME_CKPT_PLACES_H
#include "runtime/checkpoint/ckpt.h"
#include "runtime/execute/exec_snapshot.h"
#include "runtime/checkpoint/safetensors.h"

/* What other programs that read weights want to see: how matrices lie. */
#define CKPT_WEIGHTS_FORMAT "pt"

typedef struct {
  Exec *exec;
  uint8_t **at; /* by place of the plan; NULL: it is not saved, or is a window */
} CkptPlaces;

/* All that is saved, as the device has it, to be set tensor by tensor and written back as a
 * whole. */
STATUS_CHECKED Status ckpt_places_read(Exec *exec, CkptPlaces *out);
STATUS_CHECKED Status ckpt_places_write(const CkptPlaces *places);
void ckpt_places_free(CkptPlaces *places); /* also after a failed read */
/* Sets one tensor from the file, which must hold it in its shape and a type that converts. */
STATUS_CHECKED Status ckpt_places_set(const CkptPlaces *places, const PlanTensor *tensor,
                                      const Safetensors *file, const char *path);
/* The states of a checkpoint, all of them or only those that belong to the model, with names and
 * offsets; in slices, by parameter, where their place has the order of the parameters'. In the
 * arena given. */
typedef VEC(PlanTensor) CkptTensors;
CkptTensors ckpt_state_tensors(Arena *arena, const Plan *plan, bool all);
/* The part of a state that belongs to a parameter, of the parameter's name; false if the state does
 * not reach so far (what Muon trains has no second moment). */
bool ckpt_slice(const Plan *plan, const PlanTensor *state, const PlanTensor *param,
                PlanTensor *out);
/* Where what is written comes from: a copy, or with none the places as they are. Places are read by
 * the thread that runs graphs, a copy by any. */
typedef struct {
  Exec *exec;
  const ExecSnapshot *snapshot;
  int64_t piece; /* bytes, 0: CKPT_PIECE; for tests */
} CkptFrom;
/* Writes parameters and all states; or parameters and the model's own states; or those with the
 * averages of the parameters. A file with texts is a checkpoint and has a sum. Streams: takes at
 * most CKPT_MEMORY bytes, whatever the model's size. */
typedef enum { CKPT_ALL, CKPT_WEIGHTS, CKPT_EMA } CkptContent;
enum { CKPT_PIECE = 64 << 20, CKPT_MEMORY = 2 * CKPT_PIECE };
STATUS_CHECKED Status ckpt_write_tensors(const CkptFrom *from, const char *path,
                                         CkptContent content, const SafeText *texts,
                                         int text_count);
/* The ranges that a file with all states is written from; in the arena given. */
typedef VEC(ExecRange) CkptRanges;
CkptRanges ckpt_ranges(Arena *arena, const Plan *plan);
Status ckpt_save_from(const CkptFrom *from, const char *path, const CkptInfo *info);
/* FOLDER/step-….safetensors, and removes all but the newest `keep`; or FOLDER/best.safetensors. */
Status ckpt_save_step_from(const CkptFrom *from, const char *folder, const CkptInfo *info,
                           int64_t keep);
Status ckpt_save_best_from(const CkptFrom *from, const char *folder, const CkptInfo *info);
#endif
