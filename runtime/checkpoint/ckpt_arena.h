/* ckpt_arena: a host copy of a device arena, and tensors between it and safetensors files. */
#ifndef FT_RUNTIME_CKPT_ARENA_H
#define FT_RUNTIME_CKPT_ARENA_H
#include "runtime/execute/exec.h"
#include "runtime/checkpoint/safetensors.h"

/* What other programs that read weights want to see: how matrices lie. */
#define CKPT_WEIGHTS_FORMAT "pt"

typedef struct {
  ArenaId id;
  uint8_t *at;
  int64_t bytes;
} CkptArena;

STATUS_CHECKED Status ckpt_arena_read(Exec *exec, ArenaId id, CkptArena *out);
STATUS_CHECKED Status ckpt_arena_write(Exec *exec, const CkptArena *arena);
void ckpt_arena_free(CkptArena *arena);
/* Sets one tensor from the file, which must hold it in its shape and a type that converts. */
STATUS_CHECKED Status ckpt_arena_set(CkptArena *arena, const PlanTensor *tensor,
                                     const Safetensors *file, const char *path);
/* The tensors of a checkpoint that come from the state arena, all of them or only those that belong
 * to the model, with names and offsets; sliced states by parameter. In the arena given. */
typedef VEC(PlanTensor) CkptTensors;
CkptTensors ckpt_state_tensors(Arena *arena, const Plan *plan, bool all);
/* Writes parameters and all states; or parameters and the model's own states; or those with the
 * averages of the parameters. A file with texts is a checkpoint and has a sum. */
typedef enum { CKPT_ALL, CKPT_WEIGHTS, CKPT_EMA } CkptContent;
STATUS_CHECKED Status ckpt_write_tensors(Exec *exec, const char *path, CkptContent content,
                                         const SafeText *texts, int text_count);
#endif
