/* ckpt_file: see ckpt_file.h. Rank 0 makes the file, with its length, and tells the others its name;
 * all write; all say how it went; rank 0 gives it its name. What fails fails alike on all, so they
 * go the same way. */
#include "runtime/checkpoint/ckpt_private.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static Status make_list(CkptFile *file, CkptContent content, const SafeText *texts,
                        int text_count) {
  const PlanStages *stages = exec_stages(file->exec);
  const SafeText weights = {"format", CKPT_WEIGHTS_FORMAT};
  bool is_checkpoint = text_count > 0;
  CkptSeat seat = {.plan = exec_plan(file->exec)->stage,
                   .data = comm_index(file->comm, MESH_DATA),
                   .data_ranks = comm_size(file->comm, MESH_DATA),
                   .tensor = comm_index(file->comm, MESH_TENSOR)};
  file->list = ckpt_list(file->arena, stages->at, stages->count, content);
  file->shares = ckpt_shares(file->arena, &file->list, &seat);
  SafeTensor *tensors = ARENA_ARRAY(file->arena, SafeTensor, file->list.count + 1);
  for (int i = 0; i < file->list.count; i++) {
    const PlanTensor *tensor = &file->list.at[i].tensor;
    Type whole = plan_whole(tensor);
    tensors[i] = (SafeTensor){.name = tensor->name,
                              .element = element_of(whole.dtype),
                              .shape = whole.shape,
                              .bytes = (size_t)type_bytes(&whole)};
  }
  return safetensors_layout(tensors, file->list.count, is_checkpoint ? texts : &weights,
                            is_checkpoint ? text_count : 1, is_checkpoint, &file->layout);
}

/* What rank 0 has made. */
typedef struct {
  uint64_t head_bytes, data_bytes;
  char name[4096];
} Made;

static Status join_in(CkptFile *file) {
  Made made = {.head_bytes = file->layout.head_bytes, .data_bytes = file->layout.data_bytes};
  if (file->file) {
    const char *name = safetensors_file_temporary(file->file);
    if (strlen(name) >= sizeof made.name) return status_errno(ENAMETOOLONG, "%s", name);
    memcpy(made.name, name, strlen(name) + 1);
  }
  CommWork work = {.kind = COMM_BROADCAST,
                   .dtype = DT_U8,
                   .count = sizeof made,
                   .x = &made,
                   .out = &made,
                   .label = "the file that all ranks write"};
  STATUS_TRY(comm_do(file->comm, &work));
  if (comm_rank(file->comm) == 0 || !made.name[0]) return STATUS_OK;
  if (made.head_bytes != file->layout.head_bytes || made.data_bytes != file->layout.data_bytes)
    return status_fail(STATUS_FAULT, "%s holds other tensors or numbers than on rank 0",
                       file->path);
  return safetensors_file_join(file->path, made.name, &file->layout, &file->file);
}

static Status make_file(CkptFile *file, const char *folder) {
  if (comm_rank(file->comm) > 0) return STATUS_OK;
  if (folder) STATUS_TRY(ckpt_make_folder(folder));
  return safetensors_file_make(file->path, &file->layout, &file->file);
}

Status ckpt_file_begin(Exec *exec, Comm *comm, const char *folder, const char *path,
                       CkptContent content, const SafeText *texts, int text_count,
                       CkptFile **out) {
  *out = NULL;
  if (!comm && plan_is_apart(exec_plan(exec)))
    return status_fail(STATUS_FAULT, "cannot write %s: other ranks have parts of it", path);
  CkptFile *file = calloc(1, sizeof *file);
  Status status = file ? STATUS_OK : status_errno(ENOMEM, "%s", path);
  if (file) {
    *file = (CkptFile){.exec = exec, .comm = comm, .arena = arena_new(), .path = strdup(path)};
    if (!file->path) status = status_errno(ENOMEM, "%s", path);
  }
  if (status == STATUS_OK) status = make_list(file, content, texts, text_count);
  if (status == STATUS_OK) status = make_file(file, folder);
  status = comm_agree(comm, status);
  if (status == STATUS_OK && comm) status = comm_agree(comm, join_in(file));
  if (status == STATUS_OK) {
    *out = file;
  } else {
    ckpt_file_free(file);
  }
  return status;
}

CkptRanges ckpt_file_ranges(CkptFile *file) {
  return ckpt_ranges(file->arena, exec_plan(file->exec), &file->list, &file->shares);
}

void ckpt_file_give_up(CkptFile *file) { atomic_store(&file->is_given_up, true); }

Status ckpt_file_settle(CkptFile *file, Status status) {
  STATUS_TRY(comm_agree(file->comm, status));
  int64_t mine = (int64_t)file->sum, all = mine;
  CommWork work = {.kind = COMM_ALL_REDUCE,
                   .op = COMM_SUM,
                   .dtype = DT_I64,
                   .count = 1,
                   .x = &mine,
                   .out = &all,
                   .label = "the sum over a file"};
  STATUS_TRY(comm_do(file->comm, &work));
  file->sum = (uint64_t)all;
  return STATUS_OK;
}

Status ckpt_file_finish(CkptFile *file) {
  return comm_rank(file->comm) == 0 ? safetensors_file_finish(file->file, file->sum) : STATUS_OK;
}

void ckpt_file_free(CkptFile *file) {
  if (!file) return;
  safetensors_file_free(file->file);
  safetensors_layout_free(&file->layout);
  arena_free(file->arena);
  free(file->path);
  free(file);
}

Status ckpt_file_end(CkptFile *file, Status status) {
  status = ckpt_file_settle(file, status);
  if (status == STATUS_OK) status = comm_agree(file->comm, ckpt_file_finish(file));
  ckpt_file_free(file);
  return status;
}
