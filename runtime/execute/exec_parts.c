/* exec_parts: tensors of which each rank has a part (passes/shard.c, distributed.zero;
 * passes/tensor.c, distributed.tensor), between memory and files, which have them whole. A param
 * is cut first, so that ranks have tensors of their own; then its order in memory is chosen; and
 * then its elements in that order may be shared out over the ranks that share a batch. Declared in
 * exec.h and exec_fetch.h. */
#include "runtime/common/permute.h"
#include "runtime/execute/exec_fetch.h"
#include <stdlib.h>
#include <string.h>

Status exec_check_parts(const Exec *exec) {
  const Plan *plan = exec->plan;
  int64_t ranks = plan_shared(plan), tensor = setting_tensor(plan->settings);
  int stages = exec->artifact->stages.count;
  if (stages != comm_size(exec->comm, MESH_PIPELINE))
    return status_fail(STATUS_USER,
                       "model %s is compiled as a pipeline of %d stages, of which a rank has one: "
                       "compile it with ftc --set distributed.pipeline=1%s --set "
                       "distributed.data=1 to use its weights in one process",
                       plan->model, stages, tensor > 1 ? " --set distributed.tensor=1" : "");
  if ((!ranks || ranks == exec_ranks(exec)) && tensor == comm_size(exec->comm, MESH_TENSOR))
    return STATUS_OK;
  return status_fail(STATUS_USER,
                     "model %s is compiled for ranks that have a part of its parameters each "
                     "(distributed.%s): compile it with ftc --set distributed.%s=%d --set "
                     "distributed.data=1 to use its weights in one process",
                     plan->model, tensor > 1 ? "tensor" : "zero", tensor > 1 ? "tensor" : "zero",
                     tensor > 1);
}

/* ── one rank's part ────────────────────────────────────────────────────────────────────────── */
/* The runs of a part, in a tensor's elements in the order of files: each of `bytes` bytes, `count` of
 * them, at bytes `step` from one to the next in the whole. Of each, `there` are in the whole: the last
 * rank's may be longer, and then it has zeros behind the end. */
typedef struct {
  int64_t bytes, count, step, there;
} Runs;

static Runs part_runs(const PlanTensor *tensor, int64_t rank) {
  const PlanCut *cut = &tensor->cut;
  int64_t local = tensor->type.shape.dim[cut->dim], unit = dtype_bytes(tensor->type.dtype);
  for (int i = cut->dim + 1; i < tensor->type.shape.rank; i++) unit *= tensor->type.shape.dim[i];
  Runs runs = {.bytes = cut->run * unit, .step = cut->run * cut->ranks * unit};
  runs.count = runs.bytes ? type_bytes(&tensor->type) / runs.bytes : 0;
  runs.there = runs.bytes;
  if (cut->length == local * cut->ranks) return runs;
  runs.step = cut->length * unit;
  int64_t left = runs.step - rank * runs.bytes;
  if (left < runs.there) runs.there = left;
  return runs;
}

/* A slice of a state has no cut of its own line, but its param's (ckpt_slice). */
static void cut_out(const PlanTensor *tensor, int64_t rank, const char *whole, char *part) {
  Runs runs = part_runs(tensor, rank);
  for (int64_t i = 0; i < runs.count; i++) {
    char *to = part + i * runs.bytes;
    memmove(to, whole + i * runs.step + rank * runs.bytes, (size_t)runs.there);
    memset(to + runs.there, 0, (size_t)(runs.bytes - runs.there));
  }
}

int64_t exec_part_run(const PlanTensor *tensor, int64_t tensor_rank, int64_t at, int64_t *bytes) {
  *bytes = type_bytes(&tensor->type) - at;
  if (!tensor->cut.ranks) return at;
  Runs runs = part_runs(tensor, tensor_rank);
  int64_t within = at % runs.bytes;
  *bytes = (within < runs.there ? runs.there : runs.bytes) - within;
  if (within >= runs.there) return -1;
  return at / runs.bytes * runs.step + tensor_rank * runs.bytes + within;
}

/* Elements are taken towards the front, so that they may stay in the same memory. */
Status exec_take_tensor(const Exec *exec, const PlanTensor *tensor, char *whole, char *held) {
  int64_t all = type_bytes(&tensor->type);
  if (tensor->cut.ranks) cut_out(tensor, comm_index(exec->comm, MESH_TENSOR), whole, whole);
  STATUS_TRY(permute_in_place(tensor, true, whole));
  if (!tensor->shared) {
    if (held != whole) memcpy(held, whole, (size_t)all);
    return STATUS_OK;
  }
  Type type = plan_held(tensor);
  int64_t part = type_bytes(&type), first = part * exec_rank(exec), left = all - first;
  int64_t bytes = left < 0 ? 0 : left < part ? left : part;
  char *mine = calloc(1, (size_t)part + 1);
  if (!mine) return status_fail(STATUS_FAULT, "out of memory");
  if (bytes) memcpy(mine, whole + first, (size_t)bytes);
  memcpy(held, mine, (size_t)part);
  free(mine);
  return STATUS_OK;
}

Type exec_held(const Exec *exec, const PlanTensor *tensor) {
  Type held = plan_held(tensor);
  int64_t part = shape_elements(&held.shape);
  int64_t left = shape_elements(&tensor->type.shape) - part * exec_rank(exec);
  if (!tensor->shared || left >= part) return held;
  return (Type){held.dtype, shape_of(1, (int64_t[]){left < 0 ? 0 : left})};
}

int64_t exec_element_of(const Exec *exec, const PlanTensor *tensor, int64_t held) {
  Type type = plan_held(tensor);
  if (tensor->shared) held += exec_rank(exec) * shape_elements(&type.shape);
  if (held >= shape_elements(&tensor->type.shape)) return held; /* behind the last one */
  int64_t at = storage_element(&tensor->storage, held);
  if (!tensor->cut.ranks) return at;
  int64_t rank = comm_index(exec->comm, MESH_TENSOR), unit = dtype_bytes(tensor->type.dtype);
  Runs runs = part_runs(tensor, rank);
  int64_t run = at * unit / runs.bytes;
  return (run * runs.step + rank * runs.bytes) / unit + at % (runs.bytes / unit);
}
