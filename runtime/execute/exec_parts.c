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
/* The runs of a part, in a tensor's elements of `unit` bytes in the order of files: each of `bytes`
 * bytes, `count` of them, at bytes `step` from one to the next in the whole. */
typedef struct {
  int64_t bytes, count, step;
} Runs;

static Runs part_runs(const PlanTensor *tensor) {
  int64_t bytes = tensor->cut.run * dtype_bytes(tensor->type.dtype);
  for (int i = tensor->cut.dim + 1; i < tensor->type.shape.rank; i++)
    bytes *= tensor->type.shape.dim[i];
  return (Runs){bytes, bytes ? type_bytes(&tensor->type) / bytes : 0, bytes * tensor->cut.ranks};
}

/* A slice of a state has no cut of its own line, but its param's (ckpt_slice). */
static void cut_out(const PlanTensor *tensor, int64_t rank, const char *whole, char *part) {
  Runs runs = part_runs(tensor);
  for (int64_t i = 0; i < runs.count; i++)
    memmove(part + i * runs.bytes, whole + i * runs.step + rank * runs.bytes, (size_t)runs.bytes);
}

static void put_back(const PlanTensor *tensor, int64_t rank, const char *part, char *whole) {
  Runs runs = part_runs(tensor);
  for (int64_t i = 0; i < runs.count; i++)
    memcpy(whole + i * runs.step + rank * runs.bytes, part + i * runs.bytes, (size_t)runs.bytes);
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

int64_t exec_element_of(const Exec *exec, const PlanTensor *tensor, int64_t held) {
  Type type = plan_held(tensor);
  if (tensor->shared) held += exec_rank(exec) * shape_elements(&type.shape);
  if (held >= shape_elements(&tensor->type.shape)) return held; /* behind the last one */
  int64_t at = storage_element(&tensor->storage, held);
  if (!tensor->cut.ranks) return at;
  Runs runs = part_runs(tensor);
  int64_t unit = dtype_bytes(tensor->type.dtype), run = at * unit / runs.bytes;
  int64_t rank = comm_index(exec->comm, MESH_TENSOR);
  return (run * runs.step + rank * runs.bytes) / unit + at % (runs.bytes / unit);
}

/* ── all of them together ───────────────────────────────────────────────────────────────────── */
/* What a place in the order of the parameters has for one of them. */
static PlanTensor slice_of(const Plan *plan, int place, int index) {
  const PlanPlace *in = &plan->places.at[place];
  PlanTensor slice = plan->params.at[index];
  slice.offset = slice.offset / dtype_bytes(slice.type.dtype) * dtype_bytes(in->dtype);
  slice.type.dtype = in->dtype;
  slice.place = place;
  return slice;
}

int64_t exec_joined_at(const Plan *plan, int place, int index) {
  int64_t at = 0;
  for (int i = 0; i < index; i++) {
    PlanTensor slice = slice_of(plan, place, i);
    Type whole = plan_whole(&slice);
    at += plan_aligned(type_bytes(&whole));
  }
  return at;
}

/* [ranks] times what each has, one behind the other, on every rank; `all` NULL: not here. */
static Status gather_held(Exec *exec, const PlanTensor *slice, int64_t held, char *all) {
  enum { PIECE = 1 << 20 };
  int64_t ranks = comm_ranks(exec->comm);
  char *own = malloc(PIECE), *pieces = malloc((size_t)(PIECE * ranks));
  Status status = own && pieces ? STATUS_OK : status_fail(STATUS_FAULT, "out of memory");
  for (int64_t at = 0; at < held && status == STATUS_OK; at += PIECE) {
    int64_t bytes = held - at < PIECE ? held - at : PIECE;
    CommWork work = {.kind = COMM_ALL_GATHER,
                     .dtype = DT_U8,
                     .count = bytes,
                     .x = own,
                     .out = pieces,
                     .label = "parts of a checkpoint"};
    status = exec_read(exec, slice->place, slice->offset + at, bytes, own);
    if (status == STATUS_OK) status = comm_do(exec->comm, &work);
    for (int64_t r = 0; r < ranks && status == STATUS_OK && all; r++)
      memcpy(all + held * r + at, pieces + bytes * r, (size_t)bytes);
  }
  free(own);
  free(pieces);
  return status;
}

/* Of what all ranks have, in their order: the tensor as files have it. */
static Status put_together(const Exec *exec, const PlanTensor *slice, int64_t held, char *all,
                           char *to) {
  const Mesh *mesh = comm_mesh(exec->comm);
  int64_t bytes = type_bytes(&slice->type);
  char *part = malloc((size_t)bytes + 1);
  if (!part) return status_fail(STATUS_FAULT, "out of memory");
  Status status = STATUS_OK;
  for (int t = 0; t < (slice->cut.ranks ? mesh->tensor : 1) && status == STATUS_OK; t++) {
    for (int64_t d = 0, at = 0; at < bytes; d++, at += held) {
      int64_t count = bytes - at < held ? bytes - at : held;
      memcpy(part + at, all + held * (d * mesh_stride(mesh, MESH_DATA) + t), (size_t)count);
    }
    status = permute_in_place(slice, false, part);
    if (slice->cut.ranks)
      put_back(slice, t, part, to);
    else
      memcpy(to, part, (size_t)bytes);
  }
  free(part);
  return status;
}

static Status join_one(Exec *exec, const PlanTensor *slice, char *to) {
  Type type = plan_held(slice);
  int64_t held = type_bytes(&type);
  if (!slice->shared && !slice->cut.ranks) { /* every rank has it */
    if (!to) return STATUS_OK;
    STATUS_TRY(exec_read(exec, slice->place, slice->offset, held, to));
    return permute_in_place(slice, false, to);
  }
  char *all = to ? malloc((size_t)(held * comm_ranks(exec->comm)) + 1) : NULL;
  if (to && !all) return status_fail(STATUS_FAULT, "out of memory");
  Status status = gather_held(exec, slice, held, all);
  if (status == STATUS_OK && to) status = put_together(exec, slice, held, all, to);
  free(all);
  return status;
}

Status exec_join_parts(Exec *exec, int place, char *to) {
  const Plan *plan = exec->plan;
  for (int i = 0; i < plan->params.count; i++) {
    PlanTensor slice = slice_of(plan, place, i);
    Type held = plan_held(&slice);
    if (slice.offset + type_bytes(&held) > plan->places.at[place].bytes) break; /* muon's v */
    STATUS_TRY(join_one(exec, &slice, to ? to + exec_joined_at(plan, place, i) : NULL));
  }
  return STATUS_OK;
}
