/* permute: see permute.h. The order is merged to as few dimensions as it has; then either runs of
 * elements stay together, or two dimensions matter: the one that is innermost where the elements
 * come from, and the one that is innermost where they go. Tiles of these keep both sides in the
 * cache. */
#include "runtime/common/permute.h"
#include <stdlib.h>
#include <string.h>

enum { TILE = 32 };

/* to[i * to_row + k] = from[i + k * from_row] for i < rows, k < columns, in elements */
static void transpose_tile(const char *from, char *to, int bytes, int64_t rows, int64_t columns,
                           int64_t from_row, int64_t to_row) {
  for (int64_t i0 = 0; i0 < rows; i0 += TILE)
    for (int64_t k0 = 0; k0 < columns; k0 += TILE)
      for (int64_t i = i0; i < rows && i < i0 + TILE; i++) {
        const char *source = from + i * bytes;
        char *target = to + i * to_row * bytes;
        int64_t end = k0 + TILE < columns ? k0 + TILE : columns;
        if (bytes == 4)
          for (int64_t k = k0; k < end; k++) memcpy(target + 4 * k, source + 4 * k * from_row, 4);
        else
          for (int64_t k = k0; k < end; k++) memcpy(target + 2 * k, source + 2 * k * from_row, 2);
      }
}

/* The places that are copied, by dimension of where the elements go. */
typedef struct {
  int64_t begin[MAX_RANK], end[MAX_RANK];
} Box;

/* The next place in the dimensions below `rank` but `inner`, which one call does whole; false
 * behind the last. */
static bool next_index(const Box *box, int rank, int inner, int64_t *index) {
  for (int i = rank - 1; i >= 0; i--) {
    if (i == inner) continue;
    if (++index[i] < box->end[i]) return true;
    index[i] = box->begin[i];
  }
  return false;
}

/* Cuts the box to the places of a piece, which are a box themselves. dimension[i]: which one of the
 * box is the shape's dimension i; NULL: the same. */
static bool permute_cut(Box *box, const Shape *shape, const int64_t *dimension,
                        PermutePiece piece) {
  int64_t stride[MAX_RANK];
  shape_strides(shape, stride);
  for (int i = 0; i < shape->rank; i++) {
    int64_t at = dimension ? dimension[i] : i;
    int64_t begin = piece.first / stride[i] % shape->dim[i];
    int64_t end = (piece.first + piece.count - 1) / stride[i] % shape->dim[i] + 1;
    if (begin > box->begin[at]) box->begin[at] = begin;
    if (end < box->end[at]) box->end[at] = end;
    if (box->begin[at] >= box->end[at]) return false;
  }
  return true;
}

/* Elements of `order`'s view, as they stand in `from`, to where that order has them: of the places
 * in one piece, those in the other. */
static void permute(const Storage *order, int bytes, const char *from, PermutePiece from_piece,
                    char *to, PermutePiece to_piece) {
  Storage storage = storage_merged(order), back = storage_inverse(&storage);
  Shape shape = storage_shape(&storage);
  int rank = shape.rank, last = rank - 1, inner = last;
  int64_t source[MAX_RANK], target[MAX_RANK], index[MAX_RANK];
  Box box = {{0}, {0}};
  shape_strides(&storage.view, source);
  shape_strides(&shape, target);
  memcpy(box.end, shape.dim, sizeof box.end);
  if (!permute_cut(&box, &shape, NULL, to_piece) ||
      !permute_cut(&box, &storage.view, back.perm, from_piece))
    return;
  while (storage.perm[inner] != last) inner--; /* where the innermost dimension of `from` goes */
  memcpy(index, box.begin, sizeof index);
  do {
    int64_t from_at = -from_piece.first, to_at = -to_piece.first;
    for (int i = 0; i < rank; i++) {
      from_at += index[i] * source[storage.perm[i]];
      to_at += index[i] * target[i];
    }
    int64_t columns = box.end[last] - box.begin[last];
    if (inner == last)
      memcpy(to + to_at * bytes, from + from_at * bytes, (size_t)(columns * bytes));
    else
      transpose_tile(from + from_at * bytes, to + to_at * bytes, bytes,
                     box.end[inner] - box.begin[inner], columns, source[storage.perm[last]],
                     target[inner]);
  } while (next_index(&box, last, inner, index));
}

static PermutePiece all_of(const PlanTensor *tensor) {
  return (PermutePiece){0, shape_elements(&tensor->type.shape)};
}

bool permute_moves(const PlanTensor *tensor) {
  return storage_merged(&tensor->storage).view.rank && shape_elements(&tensor->type.shape);
}

/* The largest number of whole slices, of the outermost dimensions that `most` elements are enough
 * for, and whose slices begin here. */
PermutePiece permute_piece(const PlanTensor *tensor, bool is_memory, int64_t first, int64_t most) {
  Storage storage = storage_merged(&tensor->storage);
  Shape shape = is_memory ? storage_shape(&storage) : storage.view;
  PermutePiece piece = {first, all_of(tensor).count - first};
  int64_t stride[MAX_RANK];
  if (!permute_moves(tensor)) {
    if (piece.count > most) piece.count = most;
    return piece;
  }
  shape_strides(&shape, stride);
  for (int i = 0; i < shape.rank; i++) {
    int64_t left = shape.dim[i] - first / stride[i] % shape.dim[i], slices = most / stride[i];
    if (slices < 1 || first % stride[i]) continue;
    piece.count = stride[i] * (slices < left ? slices : left);
    break;
  }
  return piece;
}

void permute_piece_from_memory(const PlanTensor *tensor, const void *from, PermutePiece from_piece,
                               void *to, PermutePiece to_piece) {
  Storage back = storage_inverse(&tensor->storage);
  if (permute_moves(tensor) && from_piece.count && to_piece.count)
    permute(&back, dtype_bytes(tensor->type.dtype), from, from_piece, to, to_piece);
}

Status permute_runs(const PlanTensor *tensor, PermutePiece from_piece, PermutePiece to_piece,
                    PermuteRun *run, void *context) {
  Storage back = storage_inverse(&tensor->storage), storage = storage_merged(&back);
  Storage there = storage_inverse(&storage);
  Shape shape = storage_shape(&storage);
  int64_t stride[MAX_RANK], index[MAX_RANK];
  Box box = {{0}, {0}};
  if (!from_piece.count || !to_piece.count) return STATUS_OK;
  shape_strides(&shape, stride);
  memcpy(box.end, shape.dim, sizeof box.end);
  if (!permute_cut(&box, &shape, NULL, to_piece) ||
      !permute_cut(&box, &storage.view, there.perm, from_piece))
    return STATUS_OK;
  int outer = shape.rank - 1; /* dimensions behind it are whole */
  while (outer > 0 && box.end[outer] - box.begin[outer] == shape.dim[outer]) outer--;
  int64_t count = (box.end[outer] - box.begin[outer]) * stride[outer];
  memcpy(index, box.begin, sizeof index);
  do {
    int64_t first = 0;
    for (int i = 0; i <= outer; i++) first += index[i] * stride[i];
    STATUS_TRY(run(context, first, count));
  } while (next_index(&box, outer, -1, index));
  return STATUS_OK;
}

void permute_to_memory(const PlanTensor *tensor, const void *from, void *to) {
  if (permute_moves(tensor))
    permute(&tensor->storage, dtype_bytes(tensor->type.dtype), from, all_of(tensor), to,
            all_of(tensor));
  else
    memcpy(to, from, (size_t)type_bytes(&tensor->type));
}

void permute_from_memory(const PlanTensor *tensor, const void *from, void *to) {
  if (permute_moves(tensor))
    permute_piece_from_memory(tensor, from, all_of(tensor), to, all_of(tensor));
  else
    memcpy(to, from, (size_t)type_bytes(&tensor->type));
}

Status permute_in_place(const PlanTensor *tensor, bool to_memory, void *values) {
  size_t bytes = (size_t)type_bytes(&tensor->type);
  if (!tensor->storage.view.rank) return STATUS_OK;
  void *copy = malloc(bytes + 1);
  if (!copy) return status_fail(STATUS_FAULT, "out of memory");
  memcpy(copy, values, bytes);
  if (to_memory)
    permute_to_memory(tensor, copy, values);
  else
    permute_from_memory(tensor, copy, values);
  free(copy);
  return STATUS_OK;
}
