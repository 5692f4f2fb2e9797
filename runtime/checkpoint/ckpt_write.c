/* ckpt_write: a rank's share of a file, from its places or from a copy of these, piece by piece
 * (declared in ckpt_file.h). A tensor whose elements lie in memory in another order than in the file
 * is made of as many passes over it as it is larger than a piece: reading is cheap beside the disk. */
#include "runtime/checkpoint/ckpt_private.h"
#include "runtime/common/permute.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Enough for a good rate. */
enum { PLAIN_PIECE = 8 << 20 };

typedef struct {
  CkptFile *file;
  const ExecSnapshot *snapshot;
  char *read, *made; /* `most` bytes each; made: NULL if no tensor needs it */
  int64_t most;
  /* the tensor under way */
  const CkptShare *share;
  const PlanTensor *tensor;
  int64_t unit;  /* bytes of an element */
  size_t at;     /* where the file has it */
  int64_t first; /* the element that `made` begins with */
} Stream;

/* Elements of the share, in the order of memory. */
static Status read_of_share(const Stream *s, int64_t first, int64_t count) {
  int64_t offset = s->tensor->offset + (first - s->share->base) * s->unit;
  int place = plan_whole_place(exec_plan(s->file->exec), s->tensor->place, &offset);
  if (s->snapshot)
    return exec_snapshot_read(s->snapshot, place, offset, count * s->unit, s->read);
  return exec_read(s->file->exec, place, offset, count * s->unit, s->read);
}

/* Elements of this rank's part of the tensor, in the order of files, to where the whole has them. */
static Status put_elements(const Stream *s, int64_t first, int64_t count, const char *from) {
  int64_t rank = comm_index(s->file->comm, MESH_TENSOR);
  int64_t left = count * s->unit, at = first * s->unit, run;
  if (atomic_load(&s->file->is_given_up))
    return status_fail(STATUS_FAULT, "writing %s was given up", s->file->path);
  comm_goes_on(s->file->comm);
  for (; left; left -= run, at += run, from += run) {
    int64_t there = exec_part_run(s->tensor, rank, at, &run);
    if (run > left) run = left;
    if (there < 0) continue;
    STATUS_TRY(safetensors_file_write(s->file->file, s->at + (size_t)there, from, (size_t)run));
  }
  return STATUS_OK;
}

static Status put_run(void *context, int64_t first, int64_t count) {
  const Stream *s = context;
  return put_elements(s, first, count, s->made + (first - s->first) * s->unit);
}

/* A piece of the file's order, made of all pieces of memory's. */
static Status write_made(Stream *s, PermutePiece to) {
  const CkptShare *share = s->share;
  bool is_whole = share->count == shape_elements(&s->tensor->type.shape);
  int64_t most = s->most / s->unit, end = share->first + share->count;
  PermutePiece from = {share->first, 0};
  s->first = to.first;
  while ((from.first += from.count) < end) {
    int64_t left = end - from.first;
    from = permute_piece(s->tensor, true, from.first, left < most ? left : most);
    STATUS_TRY(read_of_share(s, from.first, from.count));
    permute_piece_from_memory(s->tensor, s->read, from, s->made, to);
    if (!is_whole) STATUS_TRY(permute_runs(s->tensor, from, to, put_run, s));
  }
  return is_whole ? put_elements(s, to.first, to.count, s->made) : STATUS_OK;
}

static Status write_share(Stream *s, const CkptShare *share) {
  int64_t all, most = s->most < PLAIN_PIECE ? s->most : PLAIN_PIECE; /* stays in the cache */
  s->share = share;
  s->tensor = &s->file->list.at[share->entry].tensor;
  s->unit = dtype_bytes(s->tensor->type.dtype);
  s->at = s->file->layout.at[share->entry];
  if (!permute_moves(s->tensor)) {
    for (int64_t at = 0, count; at < share->count; at += count) {
      count = share->count - at < most / s->unit ? share->count - at : most / s->unit;
      STATUS_TRY(read_of_share(s, share->first + at, count));
      STATUS_TRY(put_elements(s, share->first + at, count, s->read));
    }
    return STATUS_OK;
  }
  all = shape_elements(&s->tensor->type.shape);
  for (PermutePiece to = {0, 0}; to.first < all; to.first += to.count) {
    to = permute_piece(s->tensor, false, to.first, s->most / s->unit);
    STATUS_TRY(write_made(s, to));
  }
  return STATUS_OK;
}

/* Pieces as large as the largest tensor, up to a limit: large ones save passes over tensors that
 * are permuted. With less memory to be had, smaller ones. */
static Status stream_take_memory(Stream *s, int64_t piece) {
  enum { LEAST = 1 << 16 };
  const CkptFile *file = s->file;
  bool permutes = false;
  s->most = 8;
  for (int i = 0; i < file->shares.count; i++) {
    const PlanTensor *tensor = &file->list.at[file->shares.at[i].entry].tensor;
    int64_t bytes = type_bytes(&tensor->type);
    if (bytes > s->most) s->most = bytes;
    permutes |= permute_moves(tensor);
  }
  int64_t limit = permutes ? CKPT_PIECE : PLAIN_PIECE;
  if (piece) limit = piece;
  if (s->most > limit) s->most = limit;
  for (;; s->most /= 2) {
    s->read = malloc((size_t)s->most);
    s->made = permutes ? malloc((size_t)s->most) : NULL;
    if (s->read && (s->made || !permutes)) return STATUS_OK;
    free(s->read);
    free(s->made);
    s->read = s->made = NULL;
    if (s->most / 2 < LEAST) return status_errno(ENOMEM, "%s", file->path);
  }
}

Status ckpt_file_write(CkptFile *file, const ExecSnapshot *snapshot, int64_t piece) {
  Stream stream = {.file = file, .snapshot = snapshot};
  Status status = stream_take_memory(&stream, piece);
  for (int i = 0; i < file->shares.count && status == STATUS_OK; i++)
    status = write_share(&stream, &file->shares.at[i]);
  free(stream.read);
  free(stream.made);
  if (status == STATUS_OK) status = safetensors_file_sync(file->file, &file->sum);
  return status;
}
