/* exec_round: the arena "narrow", what products read of the parameters, where it is not a step that
 * writes it: when parameters come from outside, and when evaluation reads their average in their
 * place. Rounded as a step rounds. */
#include "runtime/execute/exec_fetch.h"
#include "runtime/common/element.h"
#include <stdlib.h>

/* What products read of the parameters is these, rounded as a step rounds them. */
static Status write_rounded(Exec *exec, DType dtype, int64_t offset, int64_t bytes,
                            const char *from) {
  enum { PIECE = 1 << 14 }; /* elements */
  Status status = STATUS_OK;
  uint16_t *rounded = malloc(PIECE * sizeof *rounded);
  if (!rounded) return status_fail(STATUS_FAULT, "out of memory");
  for (int64_t at = 0, count; status == STATUS_OK && at < bytes / 4; at += count) {
    count = bytes / 4 - at < PIECE ? bytes / 4 - at : PIECE;
    element_convert(from + 4 * at, ELEMENT_F32, false, count, dtype, rounded);
    status = exec->type->write(exec->device, exec->base[ARENA_NARROW] + offset / 2 + 2 * at,
                               rounded, 2 * count);
  }
  free(rounded);
  return status;
}

/* All of the parameters, or of what lies there as they do. */
static Status round_all(Exec *exec, const char *from) {
  enum { PIECE = 1 << 20 };
  int64_t bytes = exec->bytes[ARENA_PARAMS];
  DType dtype = plan_narrow_type(exec->plan);
  char *piece = malloc(PIECE);
  if (!piece) return status_fail(STATUS_FAULT, "out of memory");
  Status status = STATUS_OK;
  for (int64_t at = 0, count; status == STATUS_OK && at < bytes; at += count) {
    count = bytes - at < PIECE ? bytes - at : PIECE;
    status = exec->type->read(exec->device, piece, from + at, count);
    if (status == STATUS_OK) status = write_rounded(exec, dtype, at, count, piece);
  }
  free(piece);
  return status;
}

Status exec_round_ready(Exec *exec, ExecGraph graph) {
  int wanted = graph >= exec->plan->graphs.count ? ROUNDED_EMA : ROUNDED_PARAMS;
  if (!exec->bytes[ARENA_NARROW] || (int)exec->rounded == wanted) return STATUS_OK;
  exec->rounded = ROUNDED_NONE;
  const char *from = exec->base[ARENA_PARAMS];
  if (wanted == ROUNDED_EMA)
    from = exec->base[ARENA_STATE] +
           exec->plan->states.at[plan_find_role(exec->plan, ROLE_AVERAGE)].offset;
  STATUS_TRY(round_all(exec, from));
  exec->rounded = wanted;
  return STATUS_OK;
}

Status exec_round_written(Exec *exec, ArenaId arena, int64_t offset, int64_t bytes,
                          const void *from) {
  if (arena == ARENA_STATE && exec->rounded == ROUNDED_EMA) exec->rounded = ROUNDED_NONE;
  bool is_read = arena == ARENA_PARAMS && exec->bytes[ARENA_NARROW];
  return is_read && exec->rounded == ROUNDED_PARAMS
             ? write_rounded(exec, plan_narrow_type(exec->plan), offset, bytes, from)
             : STATUS_OK;
}
