/* ckpt_places: what the files of checkpoints share: a host copy of the places that are saved, into
 * which tensors of a file are read. The way from places to files is ckpt_file.h's. */
#ifndef FT_RUNTIME_CKPT_PLACES_H
#define FT_RUNTIME_CKPT_PLACES_H
#include "runtime/checkpoint/ckpt.h"
#include "runtime/checkpoint/safetensors.h"

typedef struct {
  int place;
  int64_t offset, bytes;
} CkptRange;

typedef struct {
  Exec *exec;
  uint8_t **at;   /* by place of the plan; NULL: it is not saved, or is a window */
  bool is_whole;  /* all of it is written back, … */
  CkptRange *set; /* … or what was set */
  int set_count, set_room;
} CkptPlaces;

/* Room for all that is saved, to be set tensor by tensor; what was set is written at the end, once all has come. What
 * is not set takes no memory. */
STATUS_CHECKED Status ckpt_places_new(Exec *exec, CkptPlaces *out);
/* The same with what the device has, all of which is written back. */
STATUS_CHECKED Status ckpt_places_read(Exec *exec, CkptPlaces *out);
STATUS_CHECKED Status ckpt_places_write(const CkptPlaces *places);
void ckpt_places_free(CkptPlaces *places); /* also after a failure */
/* Sets one tensor from the file, which must hold it in its shape and a type that converts. */
STATUS_CHECKED Status ckpt_places_set(CkptPlaces *places, const PlanTensor *tensor,
                                      const Safetensors *file, const char *path);
bool ckpt_places_fit(const PlanTensor *tensor, const SafeTensor *from); /* is its shape that? */
/* The states of a checkpoint, all of them or only those that belong to the model, with names and
 * offsets; in slices, by parameter, where their place has the order of the parameters'. In the
 * arena given. */
typedef VEC(PlanTensor) CkptTensors;
CkptTensors ckpt_state_tensors(Arena *arena, const Plan *plan, bool all);
/* The part of a state that belongs to a parameter, of the parameter's name; false if the state does
 * not reach so far (what Muon trains has no second moment). */
bool ckpt_slice(const Plan *plan, const PlanTensor *state, const PlanTensor *param,
                PlanTensor *out);
#endif
