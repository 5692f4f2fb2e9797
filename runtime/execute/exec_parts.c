/* exec_parts: what ranks share out (distributed.zero; passes/shard.c): each has a part of every
 * parameter, and of what the optimizer keeps of it. Declared in exec.h and exec_fetch.h. */
#include "runtime/execute/exec_fetch.h"
#include <stdlib.h>
#include <string.h>

Status exec_check_parts(const Exec *exec) {
  int64_t ranks = plan_shared(exec->plan);
  if (!ranks || ranks == exec_ranks(exec)) return STATUS_OK;
  return status_fail(STATUS_USER,
                     "model %s is compiled for %lld ranks that have a part of its parameters each "
                     "(distributed.zero): compile it with ftc --set distributed.zero=0 --set "
                     "distributed.data=1 to use its weights in one process",
                     exec->plan->model, (long long)ranks);
}

int64_t exec_part_of(const Exec *exec, const PlanTensor *tensor, int64_t *bytes) {
  Type held = plan_held(tensor);
  int64_t part = type_bytes(&held), all = type_bytes(&tensor->type);
  int64_t first = part * exec_rank(exec), left = all - first;
  *bytes = left < 0 ? 0 : left < part ? left : part;
  return *bytes ? first : 0;
}

/* What lies at [at, at + bytes) of each rank's place goes to where it belongs among all. */
static void join_piece(const Exec *exec, const PlanPlace *place, int64_t at, int64_t bytes,
                       const char *pieces, char *to) {
  const Plan *plan = exec->plan;
  int64_t ranks = plan_shared(plan), unit = dtype_bytes(place->dtype);
  for (int i = 0; i < plan->params.count; i++) {
    const PlanTensor *param = &plan->params.at[i];
    int64_t first = param->offset / dtype_bytes(param->type.dtype) * unit;
    int64_t part = part_elements(shape_elements(&param->type.shape), ranks) * unit;
    int64_t begin = at > first ? at : first;
    int64_t end = at + bytes < first + part ? at + bytes : first + part;
    for (int64_t r = 0; r < ranks && begin < end; r++)
      memcpy(to + first * ranks + part * r + (begin - first), pieces + bytes * r + (begin - at),
             (size_t)(end - begin));
  }
}

Status exec_join_parts(Exec *exec, int place, char *to) {
  enum { PIECE = 1 << 20 };
  const PlanPlace *whole = &exec->plan->places.at[place];
  int64_t ranks = exec_ranks(exec);
  char *own = malloc(PIECE), *all = malloc((size_t)(PIECE * ranks));
  Status status = own && all ? STATUS_OK : status_fail(STATUS_FAULT, "out of memory");
  for (int64_t at = 0; at < whole->bytes && status == STATUS_OK; at += PIECE) {
    int64_t bytes = whole->bytes - at < PIECE ? whole->bytes - at : PIECE;
    CommWork work = {.kind = COMM_ALL_GATHER,
                     .dtype = DT_U8,
                     .count = bytes,
                     .x = own,
                     .out = all,
                     .label = "parts of a checkpoint"};
    status = exec_read(exec, place, at, bytes, own);
    if (status == STATUS_OK) status = comm_do(exec->comm, &work);
    if (status == STATUS_OK && to) join_piece(exec, whole, at, bytes, all, to);
  }
  free(own);
  free(all);
  return status;
}
