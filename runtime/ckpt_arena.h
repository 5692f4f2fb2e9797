/* ckpt_arena: a host copy of a device arena, and tensors between it and safetensors files. */
#ifndef FT_RUNTIME_CKPT_ARENA_H
#define FT_RUNTIME_CKPT_ARENA_H
#include "runtime/exec.h"
#include "runtime/safetensors.h"

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
/* Writes parameters and states (all of them, or only those that belong to the model). */
STATUS_CHECKED Status ckpt_write_tensors(Exec *exec, const char *path, bool all_states,
                                         const SafeText *texts, int text_count);
#endif
