/* ckpt_write: tensors from their places, or from a copy of these, to a file, piece by piece
 * (declared in ckpt_places.h). A tensor whose elements lie in memory in another order than in the
 * file is made of as many passes over it as it is larger than a piece: reading is cheap beside the
 * disk. */
#include "runtime/checkpoint/ckpt_places.h"
#include "runtime/common/permute.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Enough for a good rate. */
enum { PLAIN_PIECE = 8 << 20 };

typedef struct {
  const CkptFrom *from;
  VEC(PlanTensor) tensors; /* in the order of the SafeTensors */
  char *read, *made;  /* `most` bytes each; made: NULL if no tensor needs it */
  int64_t most;
} Stream;

/* Does the copy have the parts of all ranks, put together? */
static bool lies_joined(const Plan *plan, const PlanTensor *tensor) {
  PlaceElements elements = plan->places.at[tensor->place].elements;
  return plan_is_apart(plan) && (elements == ELEMENTS_FLAT || elements == ELEMENTS_LIKE);
}

/* As it is there. */
static PlanTensor joined_tensor(const Plan *plan, const PlanTensor *tensor) {
  if (!lies_joined(plan, tensor)) return *tensor;
  int64_t at = tensor->offset / dtype_bytes(plan->places.at[tensor->place].dtype);
  int index = 0;
  while (plan->params.at[index].offset / dtype_bytes(plan->params.at[index].type.dtype) != at)
    index++;
  return (PlanTensor){.name = tensor->name,
                      .type = plan_whole(tensor),
                      .place = tensor->place,
                      .offset = exec_joined_at(plan, tensor->place, index)};
}

static Status read_bytes(const Stream *stream, const PlanTensor *tensor, int64_t at,
                         int64_t bytes) {
  const CkptFrom *from = stream->from;
  if (lies_joined(exec_plan(from->exec), tensor)) /* then that is the offset in the copy */
    return exec_snapshot_read(from->snapshot, tensor->place, tensor->offset + at, bytes,
                              stream->read);
  int64_t offset = tensor->offset + at;
  int place = plan_whole_place(exec_plan(from->exec), tensor->place, &offset);
  if (from->snapshot) return exec_snapshot_read(from->snapshot, place, offset, bytes, stream->read);
  return exec_read(from->exec, place, offset, bytes, stream->read);
}

/* The next piece of the file's order, made of all pieces of memory's. */
static Status make_piece(const Stream *stream, const PlanTensor *tensor, int64_t from,
                         size_t *bytes) {
  int64_t unit = dtype_bytes(tensor->type.dtype), most = stream->most / unit;
  int64_t count = shape_elements(&tensor->type.shape);
  PermutePiece to = permute_piece(tensor, false, from / unit, most), read = {0, 0};
  while (read.first + read.count < count) {
    read = permute_piece(tensor, true, read.first + read.count, most);
    STATUS_TRY(read_bytes(stream, tensor, read.first * unit, read.count * unit));
    permute_piece_from_memory(tensor, stream->read, read, stream->made, to);
  }
  *bytes = (size_t)(to.count * unit);
  return STATUS_OK;
}

static Status next_piece(void *context, int index, size_t from, const void **at, size_t *bytes) {
  const Stream *stream = context;
  const PlanTensor *tensor = &stream->tensors.at[index];
  if (permute_moves(tensor)) {
    *at = stream->made;
    return make_piece(stream, tensor, (int64_t)from, bytes);
  }
  int64_t left = type_bytes(&tensor->type) - (int64_t)from;
  int64_t most = stream->most < PLAIN_PIECE ? stream->most : PLAIN_PIECE; /* stays in the cache */
  *at = stream->read;
  *bytes = (size_t)(left < most ? left : most);
  return read_bytes(stream, tensor, (int64_t)from, (int64_t)*bytes);
}

/* Pieces as large as the largest tensor, up to a limit: large ones save passes over tensors that
 * are permuted. With less memory to be had, smaller ones. */
static Status stream_take_memory(Stream *stream, const char *path) {
  enum { LEAST = 1 << 16 };
  bool permutes = false;
  stream->most = 1;
  for (int i = 0; i < stream->tensors.count; i++) {
    const PlanTensor *tensor = &stream->tensors.at[i];
    int64_t bytes = type_bytes(&tensor->type);
    if (bytes > stream->most) stream->most = bytes;
    permutes |= permute_moves(tensor);
  }
  int64_t limit = permutes ? CKPT_PIECE : PLAIN_PIECE;
  if (stream->from->piece) limit = stream->from->piece;
  if (stream->most > limit) stream->most = limit;
  for (;; stream->most /= 2) {
    stream->read = malloc((size_t)stream->most);
    stream->made = permutes ? malloc((size_t)stream->most) : NULL;
    if (stream->read && (stream->made || !permutes)) return STATUS_OK;
    free(stream->read);
    free(stream->made);
    stream->read = stream->made = NULL;
    if (stream->most / 2 < LEAST) return status_errno(ENOMEM, "%s", path);
  }
}

static Status stream_write_file(Stream *stream, const char *path, const SafeText *texts,
                                int text_count) {
  SafeTensor *tensors = calloc((size_t)stream->tensors.count + 1, sizeof *tensors);
  if (!tensors) return status_errno(ENOMEM, "%s", path);
  for (int i = 0; i < stream->tensors.count; i++) {
    const PlanTensor *tensor = &stream->tensors.at[i];
    tensors[i] = (SafeTensor){.name = tensor->name,
                              .element = element_of(tensor->type.dtype),
                              .shape = tensor->type.shape,
                              .bytes = (size_t)type_bytes(&tensor->type)};
  }
  const SafeText weights = {"format", CKPT_WEIGHTS_FORMAT};
  bool is_checkpoint = text_count > 0;
  Status status = stream_take_memory(stream, path);
  if (status == STATUS_OK)
    status = safetensors_write_from(
        path, tensors, stream->tensors.count, is_checkpoint ? texts : &weights,
        is_checkpoint ? text_count : 1, is_checkpoint, next_piece, stream);
  free(tensors);
  free(stream->read);
  free(stream->made);
  return status;
}

Status ckpt_hold(Exec *exec) {
  if (!plan_is_apart(exec_plan(exec))) return STATUS_OK;
  ExecSnapshot *snapshot;
  Arena *arena = arena_new();
  CkptRanges ranges = ckpt_ranges(arena, exec_plan(exec));
  Status status = exec_snapshot_new(exec, ranges.at, ranges.count, SNAPSHOT_ON_HOST, &snapshot);
  if (status == STATUS_OK) exec_hold(exec, snapshot);
  arena_free(arena);
  return status;
}

bool ckpt_is_held(const Exec *exec) { return exec_is_held(exec); }

Status ckpt_write_tensors(const CkptFrom *from, const char *path, CkptContent content,
                          const SafeText *texts, int text_count) {
  const Plan *plan = exec_plan(from->exec);
  CkptFrom held = *from;
  if (!held.snapshot) held.snapshot = exec_held(from->exec);
  if (plan_is_apart(plan) && !held.snapshot)
    return status_fail(STATUS_FAULT, "cannot write %s: the parts of all ranks are not at hand",
                       path);
  Arena *arena = arena_new();
  Stream stream = {.from = &held};
  CkptTensors states = ckpt_state_tensors(arena, plan, content == CKPT_ALL);
  int ema = content == CKPT_EMA ? plan_find_role(plan, ROLE_AVERAGE) : -1;
  for (int i = 0; i < plan->params.count; i++) {
    PlanTensor param = plan->params.at[i];
    if (ema >= 0) ckpt_slice(plan, &plan->states.at[ema], &plan->params.at[i], &param);
    VEC_PUSH(arena, stream.tensors, joined_tensor(plan, &param));
  }
  for (int i = 0; i < states.count; i++)
    VEC_PUSH(arena, stream.tensors, joined_tensor(plan, &states.at[i]));
  Status status = stream_write_file(&stream, path, texts, text_count);
  arena_free(arena);
  return status;
}

/* The parameters, and each state that is no scratch. */
CkptRanges ckpt_ranges(Arena *arena, const Plan *plan) {
  CkptRanges out = {0};
  for (int p = 0; p < plan->places.count; p++) {
    const PlanPlace *place = &plan->places.at[p];
    ExecRange whole = {p, 0, place->bytes, plan_is_apart(plan)};
    if (whole.is_joined) whole.bytes = exec_joined_at(plan, p, plan->params.count);
    if (place->saved == SAVED_WEIGHTS && place->bytes) VEC_PUSH(arena, out, whole);
  }
  for (int i = 0; i < plan->states.count; i++) {
    const PlanTensor *state = &plan->states.at[i];
    bool is_apart = plan_is_apart(plan) && role_has(state->role, ROLE_SLICED);
    ExecRange range = {state->place, state->offset, type_bytes(&state->type), is_apart};
    if (is_apart) range.bytes = exec_joined_at(plan, state->place, plan->params.count);
    if (!is_apart) range.place = plan_whole_place(plan, state->place, &range.offset);
    if (!role_has(state->role, ROLE_SCRATCH)) VEC_PUSH(arena, out, range);
  }
  return out;
}
